//! SQLite behind the storage port of `innkeeper-core`.
//!
//! One thread owns the connection that writes, another one the connection that
//! reads; the rest of the process talks to them through bounded queues. What cannot
//! be read any more is set aside and reported, never deleted.

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
