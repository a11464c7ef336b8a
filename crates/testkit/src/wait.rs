//! Waiting for something that another process does.

use std::time::Duration;

use anyhow::{Result, bail};

/// How often a condition is looked at that nothing announces.
const LOOK: Duration = Duration::from_millis(10);

/// Waits until a condition holds; fails with `what` when it takes too long.
pub async fn eventually(within: Duration, what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
    let deadline = tokio::time::Instant::now() + within;
    while !holds() {
        if tokio::time::Instant::now() >= deadline {
            bail!("not within {within:?}: {what}");
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
