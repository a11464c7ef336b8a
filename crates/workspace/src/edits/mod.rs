//! The edit log: records what agents change, and takes changes back.
//!
//! A recorder observes files before and after each call (`windows`, `attribution`,
//! `claims`); what changed is stored as records. Changesets are folded from the records
//! (`folding`, `changes`), and `operate` takes changes back. Invariant: what a changeset
//! shows follows from the stored records alone, except for uncommitted changes.

mod attribution;
mod changes;
mod claims;
mod folding;
mod housekeeping;
mod log;
mod operate;
mod operations;
mod paths;
mod preview;
mod recorder;
mod registry;
mod restored;
mod reviews;
mod sessions;
mod shared;
mod uncommitted;
mod view;
mod windows;

pub use log::LocalEditLog;
pub use shared::EditLogConfig;
