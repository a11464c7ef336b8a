//! How long to wait for what another process does.
//!
//! Owns one rule: only the time in which this process runs counts. A machine that stands still for a while, or
//! is too busy to run the host, stops the other process as well, and must not make it look as if it hung.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// What time is counted in. A slice counts once, however late its end is noticed.
const SLICE: Duration = Duration::from_millis(100);

/// A time that runs out.
#[derive(Debug)]
pub(crate) struct Countdown {
    /// The end of the running slice.
    slice_ends: Instant,
    /// The slices after it.
    left: u128,
}

impl Countdown {
    /// Begins to count.
    pub(crate) fn of(time: Duration) -> Self {
        let slices = time.as_millis().div_ceil(SLICE.as_millis());
        Self { slice_ends: Instant::now() + SLICE, left: slices.saturating_sub(1) }
    }

    /// Waits for the end. Cancel-safe.
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

/// Waits for a countdown, if there is one.
pub(crate) async fn over(countdown: &mut Option<Countdown>) {
    match countdown {
        Some(countdown) => countdown.over().await,
        None => std::future::pending().await,
    }
}

/// Waits for a future, for a while.
pub(crate) async fn within<F: Future>(time: Duration, future: F) -> Option<F::Output> {
    let mut countdown = Countdown::of(time);
    tokio::select! {
        // What has happened has happened, even if it is late.
        biased;
        output = future => Some(output),
        () = countdown.over() => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_countdown_takes_its_time_and_a_standstill_is_one_slice_of_it() {
        let began = Instant::now();
        let mut countdown = Countdown::of(Duration::from_secs(2));
        tokio::time::timeout(Duration::from_millis(350), countdown.over()).await.unwrap_err();
        tokio::time::advance(Duration::from_secs(60)).await;
        countdown.over().await;
        let standstill = Duration::from_secs(60) - Duration::from_millis(50);
        assert_eq!(began.elapsed(), Duration::from_secs(2) + standstill);
    }

    #[tokio::test(start_paused = true)]
    async fn what_happens_in_time_is_taken_and_the_rest_is_not_waited_for() {
        let after = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
        assert_eq!(within(Duration::from_secs(2), after(1)).await, Some(()));
        assert_eq!(within(Duration::from_secs(2), after(3)).await, None);
    }
}
