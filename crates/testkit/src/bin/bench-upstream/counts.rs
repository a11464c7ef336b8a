//! Counts started, finished and cancelled responses.
//!
//! Invariant: a started response is active until its [`Ticket`] is dropped; then it
//! counts as finished if it was marked finished, and as cancelled otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

/// The response counters of this process.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    started: AtomicU64,
    finished: AtomicU64,
    cancelled: AtomicU64,
}

impl Counts {
    /// Counts a response as started.
    pub(crate) fn start(self: &Arc<Self>) -> Ticket {
        self.started.fetch_add(1, Ordering::Relaxed);
        Ticket { counts: Arc::clone(self), outcome: Outcome::Cancelled }
    }

    /// The counters as JSON, for `GET /counts`.
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

/// A started response.
#[derive(Debug)]
pub(crate) struct Ticket {
    counts: Arc<Counts>,
    outcome: Outcome,
}

impl Ticket {
    /// Marks the response as finished.
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
    fn dropped_response_counts_as_cancelled_unless_finished() {
        let counts = Arc::new(Counts::default());
        let mut finished = counts.start();
        finished.finish();
        drop(finished);
        drop(counts.start());
        let _active = counts.start();
        assert_eq!(counts.to_json(), json!({ "started": 3, "finished": 1, "cancelled": 1, "active": 1 }));
    }
}
