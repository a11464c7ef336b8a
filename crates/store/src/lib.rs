//! SQLite implementation of the storage interface in `innkeeper-core`.
//!
//! One thread owns the connection that writes, another the connection that reads, and a
//! third takes backups; the rest of the process sends them requests through bounded
//! queues. Records that cannot be read are set aside and reported, never deleted. The edit
//! log has a database of its own.

mod apply;
mod audit;
mod backup;
mod checksum;
mod database;
mod edits;
mod failure;
mod header;
mod index;
mod lock;
mod mend;
mod migrate;
mod opening;
mod output;
mod problems;
mod reader;
mod removal;
mod restore;
mod rules;
mod salvage;
mod session;
mod settle;
mod store;
mod writer;

pub use backup::BackupSchedule;
pub use edits::{EditDatabase, EditDatabaseConfig};
pub use opening::OpenStoreError;
pub use store::{Store, StoreConfig};
