//! SQLite implementation of the storage interface in `innkeeper-core`.
//!
//! One thread owns the connection that writes, another the connection that reads; the
//! rest of the process sends them requests through bounded queues. Records that cannot be
//! read are set aside and reported, never deleted.

mod apply;
mod database;
mod failure;
mod index;
mod lock;
mod mend;
mod migrate;
mod problems;
mod reader;
mod salvage;
mod session;
mod store;
mod writer;

pub use store::{OpenStoreError, Store, StoreConfig};
