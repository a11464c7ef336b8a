//! One response: its events, each sent at its time and flushed separately.
//!
//! Invariant: the stream is pending at least once between two events, which makes the
//! HTTP layer flush, so that two events never share a write.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use innkeeper_bench::events;
use innkeeper_bench::monotonic_nanos;
use innkeeper_bench::plan::{Plan, StreamPace};
use tokio::sync::Semaphore;

use crate::counts::ActiveResponse;

/// A response that is being sent.
#[derive(Debug)]
pub(crate) struct StreamedResponse {
    plan: Plan,
    /// One permit per event, if the pacer controls the rate.
    permits: Option<Arc<Semaphore>>,
    active: ActiveResponse,
    /// A delta with timestamp 0, for responses that are not timed.
    untimed: Bytes,
    sent: u32,
}

impl StreamedResponse {
    pub(crate) fn new(plan: Plan, permits: Option<Arc<Semaphore>>, active: ActiveResponse) -> Self {
        Self { plan, permits, active, untimed: events::delta(0), sent: 0 }
    }

    /// The stream of events. Dropping it before its end cancels the response.
    pub(crate) fn into_stream(self) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
        stream::unfold(self, |mut response| async move {
            let event = response.next().await?;
            Some((Ok(event), response))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        self.wait().await;
        let timed = matches!(self.plan.pace, StreamPace::Shared { .. });
        let event = events::event(self.sent, self.plan.events, || {
            // Take the timestamp as late as possible.
            if timed { events::delta(monotonic_nanos()) } else { self.untimed.clone() }
        });
        self.sent = self.sent.saturating_add(1);
        if event.is_none() {
            self.active.finish();
        }
        event
    }

    async fn wait(&self) {
        match self.plan.pace {
            StreamPace::Full => {
                if self.sent > 0 {
                    tokio::task::yield_now().await;
                }
            }
            StreamPace::Shared { .. } => {
                if self.sent < self.plan.events
                    && let Some(permits) = &self.permits
                    && let Ok(permit) = permits.acquire().await
                {
                    permit.forget();
                }
            }
            StreamPace::Hold => {
                if self.sent > 0 {
                    std::future::pending::<()>().await;
                }
            }
            StreamPace::Drip { millis } => {
                if self.sent > 0 {
                    tokio::time::sleep(Duration::from_millis(u64::from(millis))).await;
                }
            }
        }
    }
}
