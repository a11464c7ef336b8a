//! When a connection is written to.
//!
//! The first frame after a pause goes at once. While more follow, there is one
//! write a window, with all that waits in it: a client that watches a stream then
//! costs a hundred writes a second and not a thousand. An answer does not wait for
//! the window, since its client does nothing until it comes.

use std::time::Duration;

use innkeeper_core::state::Outbox;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The least time between two writes to a client that asks nothing. Half a frame
/// of a display: nobody sees it, and at 1,000 deltas a second it saves 7 of 8 writes.
const WINDOW: Duration = Duration::from_millis(8);

/// What the writer of a connection waits for between two writes.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    hurry: Notify,
}

impl Gather {
    /// Something waits that its client waits for.
    pub(crate) fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// Waits until the next write is due, after one that began at `last`. What is
    /// due is written even to a connection that is about to end.
    pub(crate) async fn pause(&self, last: Instant, outbox: &Outbox) {
        let due = last + WINDOW;
        if Instant::now() < due {
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                () = self.hurry.notified() => {}
                () = outbox.closing() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use innkeeper_core::state::CloseReason;

    use super::*;

    async fn paused(gather: &Gather, outbox: &Outbox, last: Instant) -> Duration {
        let start = Instant::now();
        gather.pause(last, outbox).await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_waits_for_the_window_but_not_after_a_pause_and_not_with_an_answer() {
        let (gather, outbox) = (Gather::default(), Outbox::default());
        let last = Instant::now();
        assert_eq!(paused(&gather, &outbox, last).await, WINDOW);
        assert_eq!(paused(&gather, &outbox, last).await, Duration::ZERO, "the window is over");
        gather.hurry();
        assert_eq!(paused(&gather, &outbox, Instant::now()).await, Duration::ZERO);
        assert_eq!(paused(&gather, &outbox, Instant::now()).await, WINDOW, "an answer hurries one write");
        outbox.close(CloseReason::Shutdown);
        assert_eq!(paused(&gather, &outbox, Instant::now()).await, Duration::ZERO);
    }
}
