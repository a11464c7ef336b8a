//! The storage of the edit log: an SQLite database of its own, `blobs.db`.
//!
//! One thread owns the connection that writes; readers share another one. Both are opened at
//! the first use, so that a host without edits does not pay for them. Contents are compressed
//! and checked on the caller's thread.
//!
//! Invariants: each method is one transaction, except for the garbage collection. A content
//! that a put or a record refers to is not deleted before its grace period ends. A damaged
//! database is set aside; there are no backups.

mod blobs;
mod codec;
mod database;
mod failure;
mod garbage;
mod opening;
mod operations;
mod records;
mod writer;

pub use database::{EditDatabase, EditDatabaseConfig};
