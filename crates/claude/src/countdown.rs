//! Timeouts for other processes.
//!
//! Owns one rule: only time during which this process runs counts. A machine that is suspended or too
//! busy to run the host also stops the other process, which must not be treated as hanging.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Resolution of the countdown. A slice counts once, no matter how late its end is noticed.
const SLICE: Duration = Duration::from_millis(100);

/// A timeout that counts slices.
#[derive(Debug)]
pub(crate) struct Countdown {
    /// End of the current slice.
    slice_ends: Instant,
    /// Number of slices after the current one.
    left: u128,
}

impl Countdown {
    /// Starts a countdown.
    pub(crate) fn of(time: Duration) -> Self {
        let slices = time.as_millis().div_ceil(SLICE.as_millis());
        Self { slice_ends: Instant::now() + SLICE, left: slices.saturating_sub(1) }
    }

    /// Waits until the countdown expires. Cancel-safe.
    pub(crate) async fn over(&mut self) {
        loop {
            sleep_until(self.slice_ends).await;
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            self.slice_ends = Instant::now() + SLICE;
        }
    }
}

/// Waits for a countdown; never returns for `None`.
pub(crate) async fn over(countdown: &mut Option<Countdown>) {
    match countdown {
        Some(countdown) => countdown.over().await,
        None => std::future::pending().await,
    }
}

/// Waits for a future with a timeout.
pub(crate) async fn within<F: Future>(time: Duration, future: F) -> Option<F::Output> {
    let mut countdown = Countdown::of(time);
    tokio::select! {
        // A completed future takes precedence over an expired timeout.
        biased;
        output = future => Some(output),
        () = countdown.over() => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn suspension_counts_as_one_slice_of_countdown() {
        let began = Instant::now();
        let mut countdown = Countdown::of(Duration::from_secs(2));
        tokio::time::timeout(Duration::from_millis(350), countdown.over()).await.unwrap_err();
        tokio::time::advance(Duration::from_secs(60)).await;
        countdown.over().await;
        let standstill = Duration::from_secs(60) - Duration::from_millis(50);
        assert_eq!(began.elapsed(), Duration::from_secs(2) + standstill);
    }

    #[tokio::test(start_paused = true)]
    async fn within_returns_output_in_time_and_none_after_timeout() {
        let after = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
        assert_eq!(within(Duration::from_secs(2), after(1)).await, Some(()));
        assert_eq!(within(Duration::from_secs(2), after(3)).await, None);
    }
}
