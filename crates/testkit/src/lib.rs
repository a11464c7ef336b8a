//! What tests share: a real host in a process of its own, the official client
//! with a mirror of everything it was told, and a raw socket for what the official
//! client would never send. Development only.

#![expect(
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "JSON without a field reads as null, and tests look at a few of many kinds"
)]

pub mod bench;
pub mod fakes;
mod host;
mod left_out;
pub mod load;
mod memory_storage;
mod model;
mod observer;
pub mod processes;
mod raw;
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

// For tests of crates that must not see it otherwise.
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
