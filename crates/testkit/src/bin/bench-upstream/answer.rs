//! One answer: its events, each at its time and each flushed by itself.
//!
//! Invariant: between two events the stream is pending at least once, which makes the
//! HTTP layer write what it has, so that no two events leave in one write.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use innkeeper_testkit::bench::events;
use innkeeper_testkit::bench::monotonic_nanos;
use innkeeper_testkit::bench::plan::{Pace, Plan};
use tokio::sync::Semaphore;

use crate::counts::Ticket;

/// An answer that is being given.
#[derive(Debug)]
pub(crate) struct Answer {
    plan: Plan,
    /// One permit for each event that may go, if others decide about that.
    beats: Option<Arc<Semaphore>>,
    ticket: Ticket,
    /// A delta without a time, made once for the answers that need no time.
    still: Bytes,
    sent: u32,
}

impl Answer {
    pub(crate) fn new(plan: Plan, beats: Option<Arc<Semaphore>>, ticket: Ticket) -> Self {
        Self { plan, beats, ticket, still: events::delta(0), sent: 0 }
    }

    /// The events as they come. Dropping the stream before its end cancels the answer.
    pub(crate) fn into_stream(self) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
        stream::unfold(self, |mut answer| async move {
            let event = answer.next().await?;
            Some((Ok(event), answer))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        self.wait().await;
        let timed = matches!(self.plan.pace, Pace::Shared { .. });
        let event = events::event(self.sent, self.plan.events, || {
            // The time is taken as late as this program can.
            if timed { events::delta(monotonic_nanos()) } else { self.still.clone() }
        });
        self.sent = self.sent.saturating_add(1);
        if event.is_none() {
            self.ticket.finish();
        }
        event
    }

    async fn wait(&self) {
        match self.plan.pace {
            Pace::Full => {
                if self.sent > 0 {
                    tokio::task::yield_now().await;
                }
            }
            Pace::Shared { .. } => {
                if self.sent < self.plan.events
                    && let Some(beats) = &self.beats
                    && let Ok(permit) = beats.acquire().await
                {
                    permit.forget();
                }
            }
            Pace::Hold => {
                if self.sent > 0 {
                    std::future::pending::<()>().await;
                }
            }
            Pace::Drip { millis } => {
                if self.sent > 0 {
                    tokio::time::sleep(Duration::from_millis(u64::from(millis))).await;
                }
            }
        }
    }
}
