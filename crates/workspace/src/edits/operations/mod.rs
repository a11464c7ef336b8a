//! Operations on files: what an undo, redo or restore writes, and how it is written.
//!
//! `plan` and `chain` decide what the files become; they are pure. `apply` changes the files
//! of an operation, all or none; `repair` completes operations that the end of the host
//! interrupted. Invariant: no path outside of the operation's roots and no path through a
//! link is read or written.

mod apply;
mod blocked;
mod chain;
mod faults;
mod places;
mod plan;
mod repair;
mod staging;
#[cfg(test)]
mod testing;

#[cfg(test)]
mod round_trip_tests;

pub(crate) use apply::{apply, missing_parents};
pub(crate) use blocked::refuse_blocked;
pub(crate) use chain::{
    ChainedFile, PlannedChain, RecordDraft, RecordFrame, TurnChange, TurnEdit, redo_operation, undo_turns,
};
pub(crate) use faults::FaultPoints;
pub(crate) use plan::{NetEdit, PlannedFile, RefusedFile, TakenBack, VersionedFile, undo_lines};
pub(crate) use repair::repair;
