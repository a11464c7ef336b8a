//! Shared test support: a real host in its own process, the official client with a mirror
//! of every state it received, and a raw connection that can send invalid messages.
//! Development only.

#![expect(
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "indexing a missing JSON field yields null, and tests handle only some of the variants"
)]

pub mod bench;
pub mod fakes;
mod host;
mod left_out;
pub mod load;
mod memory_storage;
mod model;
mod observer;
pub mod pressure;
pub mod processes;
mod raw;
mod session_status;
mod stage;
mod stage_host;
mod wait;

pub use host::{HostOptions, TestHost};
pub use left_out::leave_out;
pub use memory_storage::{HeldWrites, MemoryStorage};
pub use model::{LoggedRequest, RequestKind, RequestLog, ScriptedModel};
pub use observer::{CameBack, Observer, Seen};
pub use raw::RawClient;
pub use stage::{Player, Stage, StageTraits};
pub use stage_host::{StageHost, StageOptions, files_of};
pub use wait::{eventually, in_time};

// Re-exported for tests of crates that must not depend on the workspace crate directly.
pub use innkeeper_workspace::{LocalFiles, uri_of};

use std::path::PathBuf;

use anyhow::{Context as _, Result};

/// The pinned runtimes, newest first, as `scripts/test` installs them.
pub fn runtimes() -> Result<[PathBuf; 2]> {
    Ok([runtime("INNKEEPER_TEST_CLAUDE_NATIVE")?, runtime("INNKEEPER_TEST_CLAUDE_NODE")?])
}

fn runtime(variable: &str) -> Result<PathBuf> {
    let path = std::env::var_os(variable)
        .with_context(|| format!("{variable} is not set: run the tests with ./scripts/test"))?;
    Ok(PathBuf::from(path))
}
