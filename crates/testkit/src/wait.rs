//! Waits for events in other processes.
//!
//! Time limits count polls, not wall-clock time: if the machine is suspended, the test
//! and the process it waits for stop together, and the test must not time out.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, bail};

/// Polling interval. Each poll counts as this much time, however late it runs.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

fn polls(limit: Duration) -> u128 {
    limit.as_millis().div_ceil(POLL_INTERVAL.as_millis())
}

/// Waits until a condition holds; returns an error with `what` after `within`.
pub async fn eventually(within: Duration, what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
    let mut left = polls(within);
    while !holds() {
        if left == 0 {
            bail!("not within {within:?}: {what}");
        }
        left -= 1;
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Waits for a future; returns an error with `what` after `limit`.
pub async fn in_time<F: Future>(limit: Duration, what: &str, future: F) -> Result<F::Output> {
    let mut future = std::pin::pin!(future);
    for _ in 0..polls(limit) {
        if let Ok(output) = tokio::time::timeout(POLL_INTERVAL, future.as_mut()).await {
            return Ok(output);
        }
    }
    bail!("not within {limit:?}: {what}")
}
