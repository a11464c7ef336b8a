//! Waiting for something that another process does.
//!
//! Limits count the time in which the test itself runs: a machine that stands still for a
//! while stops the one who waits as well as what it waits for, and must not fail a test.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, bail};

/// How often a condition is looked at that nothing announces. A look counts as this
/// much time, however late it is.
const LOOK: Duration = Duration::from_millis(10);

fn looks(limit: Duration) -> u128 {
    limit.as_millis().div_ceil(LOOK.as_millis())
}

/// Waits until a condition holds; fails with `what` when it takes too long.
pub async fn eventually(within: Duration, what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
    let mut left = looks(within);
    while !holds() {
        if left == 0 {
            bail!("not within {within:?}: {what}");
        }
        left -= 1;
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Waits for a future; fails with `what` when it takes too long.
pub async fn in_time<F: Future>(limit: Duration, what: &str, future: F) -> Result<F::Output> {
    let mut future = std::pin::pin!(future);
    for _ in 0..looks(limit) {
        if let Ok(output) = tokio::time::timeout(LOOK, future.as_mut()).await {
            return Ok(output);
        }
    }
    bail!("not within {limit:?}: {what}")
}
