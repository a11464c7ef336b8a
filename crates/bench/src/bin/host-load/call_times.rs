//! The times of the tool calls of one turn, as a client sees them.

use anyhow::{Context as _, Result};
use innkeeper_bench::monotonic_nanos;

/// Times of tool calls that run one after the other.
#[derive(Debug, Default)]
pub(crate) struct CallTimes {
    /// Milliseconds from the first message about a call to its result.
    pub(crate) calls: Vec<f64>,
    /// Number of permission requests that were allowed without a user.
    pub(crate) allowed: usize,
    /// When the running call started.
    since: Option<u64>,
}

impl CallTimes {
    /// Records the first message about a call.
    pub(crate) fn start(&mut self) {
        self.since = Some(monotonic_nanos());
    }

    /// Records the result of the running call.
    pub(crate) fn complete(&mut self) -> Result<()> {
        let since = self.since.take().context("received the result of a call that did not start")?;
        self.calls.push(monotonic_nanos().saturating_sub(since) as f64 / 1e6);
        Ok(())
    }
}
