//! Counts started, finished and cancelled responses.
//!
//! Invariant: a started response is active until its [`ActiveResponse`] is dropped; then it
//! counts as finished if it was marked finished, and as cancelled otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

/// The response counters of this process.
#[derive(Debug, Default)]
pub(crate) struct ResponseCounters {
    started: AtomicU64,
    finished: AtomicU64,
    cancelled: AtomicU64,
}

impl ResponseCounters {
    /// Counts a response as started.
    pub(crate) fn start(self: &Arc<Self>) -> ActiveResponse {
        self.started.fetch_add(1, Ordering::Relaxed);
        ActiveResponse { counts: Arc::clone(self), outcome: ResponseEnd::Cancelled }
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
enum ResponseEnd {
    Cancelled,
    Finished,
}

/// A started response.
#[derive(Debug)]
pub(crate) struct ActiveResponse {
    counts: Arc<ResponseCounters>,
    outcome: ResponseEnd,
}

impl ActiveResponse {
    /// Marks the response as finished.
    pub(crate) fn finish(&mut self) {
        self.outcome = ResponseEnd::Finished;
    }
}

impl Drop for ActiveResponse {
    fn drop(&mut self) {
        let counter = match self.outcome {
            ResponseEnd::Cancelled => &self.counts.cancelled,
            ResponseEnd::Finished => &self.counts.finished,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_response_counts_as_cancelled_unless_finished() {
        let counts = Arc::new(ResponseCounters::default());
        let mut finished = counts.start();
        finished.finish();
        drop(finished);
        drop(counts.start());
        let _active = counts.start();
        assert_eq!(counts.to_json(), json!({ "started": 3, "finished": 1, "cancelled": 1, "active": 1 }));
    }
}
