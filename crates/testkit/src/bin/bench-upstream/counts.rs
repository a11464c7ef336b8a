//! How many answers were begun, finished and cancelled.
//!
//! Invariant: a begun answer is active until its ticket is dropped, and then counts as
//! finished if it was marked so and as cancelled otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

/// The counters of this process.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    started: AtomicU64,
    finished: AtomicU64,
    cancelled: AtomicU64,
}

impl Counts {
    /// Counts an answer as begun.
    pub(crate) fn start(self: &Arc<Self>) -> Ticket {
        self.started.fetch_add(1, Ordering::Relaxed);
        Ticket { counts: Arc::clone(self), outcome: Outcome::Cancelled }
    }

    /// The counters for whoever asks over HTTP.
    pub(crate) fn to_json(&self) -> Value {
        let [started, finished, cancelled] =
            [&self.started, &self.finished, &self.cancelled].map(|counter| counter.load(Ordering::Relaxed));
        json!({
            "started": started,
            "finished": finished,
            "cancelled": cancelled,
            "active": started.saturating_sub(finished).saturating_sub(cancelled),
        })
    }
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Cancelled,
    Finished,
}

/// One begun answer.
#[derive(Debug)]
pub(crate) struct Ticket {
    counts: Arc<Counts>,
    outcome: Outcome,
}

impl Ticket {
    /// Says that the answer was taken to its end.
    pub(crate) fn finish(&mut self) {
        self.outcome = Outcome::Finished;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let counter = match self.outcome {
            Outcome::Cancelled => &self.counts.cancelled,
            Outcome::Finished => &self.counts.finished,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_answer_counts_as_cancelled_unless_it_was_finished() {
        let counts = Arc::new(Counts::default());
        let mut finished = counts.start();
        finished.finish();
        drop(finished);
        drop(counts.start());
        let _active = counts.start();
        assert_eq!(counts.to_json(), json!({ "started": 3, "finished": 1, "cancelled": 1, "active": 1 }));
    }
}
