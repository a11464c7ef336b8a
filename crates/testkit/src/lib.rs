//! Shared test support: a real host in its own process, the official client with a mirror
//! of every state it received, a raw connection that can send invalid messages, and fakes
//! of model services. Depends on no workspace crate, so that a change in one rebuilds only
//! its own tests. Development only.

#![expect(
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "indexing a missing JSON field yields null, and tests handle only some of the variants"
)]

pub mod fakes;
mod host;
mod left_out;
mod observer;
pub mod pressure;
pub mod processes;
mod raw;
mod session_status;
mod wait;

pub use host::{HostOptions, TestHost};
pub use left_out::leave_out;
pub use observer::{CameBack, Observer, Seen};
pub use raw::RawClient;
pub use wait::{eventually, in_time};

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
