//! The storage of the edit log: an SQLite database of its own, `blobs.db`.
//!
//! One thread owns the connection that writes; readers share another one. Both are opened at
//! the first use, so that a host without edits does not pay for them. Contents are compressed
//! and checked on the caller's thread.
//!
//! Invariants: each method is one transaction, except for the garbage collection. A content is
//! deleted only if nothing refers to it or if the quota is exceeded, and not while it is held,
//! was put recently or is needed to repair an interrupted operation. A damaged database is set
//! aside; there are no backups.

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
