//! Fakes of the interfaces of `core`: an agent, an edit log, projects and titles that a test
//! scripts, and storage in memory.
//!
//! Separate from the test kit, so that a change in `core` does not rebuild the tests of
//! crates that do not depend on `core`. Development only.

#![expect(
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "indexing a missing JSON field yields null, and tests handle only some of the variants"
)]

mod edit_log;
mod memory_storage;
mod projects;
mod stage;
mod titles;

pub use edit_log::{EditHousekeeping, PendingOperation, ScriptedEditLog};
pub use memory_storage::{HeldWrites, MemoryStorage};
pub use projects::ScriptedProjects;
pub use stage::{Player, Stage, StageTraits};
pub use titles::{ScriptedTitles, TitleQuery};
