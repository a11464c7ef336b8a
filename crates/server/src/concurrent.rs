//! Requests that run concurrently with a connection's in-order message handling, such as
//! disk access.
//!
//! Limits the number of running requests per connection and the bytes of their responses
//! that wait to be written. All of them are cancelled when the connection ends.

use std::future::Future;
use std::sync::Arc;

use innkeeper_core::state::{Frame, Outbox};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::rpc::{self, RpcError};

/// Requests of one connection that run at once. Above the limit the connection is not
/// read until one of them finishes.
const MAX_RUNNING: usize = 16;

/// KiB of large responses that may wait to be written. Less than the capacity of the
/// outbox, so that reading many files at once does not make the client count as too slow.
/// Above the limit, reading the files is delayed.
const MAX_WAITING: u32 = 48 * 1024;

/// The concurrent requests of one connection.
#[derive(Debug)]
pub(crate) struct ConcurrentRequests {
    tasks: TaskTracker,
    outbox: Arc<Outbox>,
    running: Arc<Semaphore>,
    budget: ResponseBudget,
    closed: CancellationToken,
    _end: DropGuard,
}

/// Budget for large responses of one connection.
#[derive(Clone, Debug)]
pub(crate) struct ResponseBudget(Arc<Semaphore>);

impl ResponseBudget {
    /// Waits until a response of about this size fits the budget.
    pub(crate) async fn reserve(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let kibibytes = u32::try_from(bytes.div_ceil(1024)).unwrap_or(MAX_WAITING).min(MAX_WAITING);
        // The semaphore is never closed.
        Arc::clone(&self.0).acquire_many_owned(kibibytes).await.ok()
    }
}

/// A result, with its share of the budget until the response is written.
#[derive(Debug)]
pub(crate) struct ReservedResult<R> {
    pub(crate) result: R,
    pub(crate) reservation: Option<OwnedSemaphorePermit>,
}

impl<R> From<R> for ReservedResult<R> {
    fn from(result: R) -> Self {
        Self { result, reservation: None }
    }
}

impl ConcurrentRequests {
    pub(crate) fn new(tasks: TaskTracker, outbox: Arc<Outbox>) -> Self {
        let closed = CancellationToken::new();
        Self {
            tasks,
            outbox,
            running: Arc::new(Semaphore::new(MAX_RUNNING)),
            budget: ResponseBudget(Arc::new(Semaphore::new(
                usize::try_from(MAX_WAITING).unwrap_or_default(),
            ))),
            _end: closed.clone().drop_guard(),
            closed,
        }
    }

    /// The budget for large responses.
    pub(crate) fn budget(&self) -> ResponseBudget {
        self.budget.clone()
    }

    /// Runs a request in its own task and sends the response. Waits only for a free slot.
    pub(crate) async fn run<R>(
        &self,
        id: &RawValue,
        work: impl Future<Output = Result<ReservedResult<R>, RpcError>> + Send + 'static,
    ) where
        R: Serialize + Send + 'static,
    {
        let Ok(slot) = Arc::clone(&self.running).acquire_owned().await else { return };
        let (id, outbox, closed) = (id.to_owned(), Arc::clone(&self.outbox), self.closed.clone());
        self.tasks.spawn(async move {
            let _slot = slot;
            let outcome = tokio::select! {
                // The connection is closed, so the result is not needed.
                () = closed.cancelled() => return,
                outcome = work => outcome,
            };
            match encoded(&id, outcome) {
                Ok(frame) => outbox.push(frame),
                Err(error) => tracing::error!(%error, "cannot encode response"),
            }
        });
    }
}

fn encoded<R: Serialize>(
    id: &RawValue,
    outcome: Result<ReservedResult<R>, RpcError>,
) -> Result<Frame, serde_json::Error> {
    match outcome {
        Ok(ReservedResult { result, reservation: None }) => rpc::response(id, &result),
        Ok(ReservedResult { result, reservation: Some(reservation) }) => {
            Ok(rpc::response(id, &result)?.holding(reservation))
        }
        Err(error) => rpc::error_response(Some(id), &error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;

    /// A request with a large response.
    fn large(
        requests: &ConcurrentRequests,
    ) -> impl Future<Output = Result<ReservedResult<u32>, RpcError>> + Send + 'static {
        let budget = requests.budget();
        async move { Ok(ReservedResult { result: 1, reservation: budget.reserve(10 * 1024 * 1024).await }) }
    }

    #[tokio::test(start_paused = true)]
    async fn large_response_waits_until_earlier_ones_are_written() {
        let (tasks, outbox) = (TaskTracker::new(), Arc::new(Outbox::default()));
        let requests = ConcurrentRequests::new(tasks.clone(), Arc::clone(&outbox));
        let id = to_raw_value(&1).unwrap();
        for _ in 0..10 {
            requests.run(&id, large(&requests)).await;
        }
        let mut answered = 0;
        while answered < 10 {
            // The paused clock only advances when all other tasks are idle.
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            let frames = outbox.next_batch().await.unwrap();
            assert!(frames.len() <= 4, "{} responses at once", frames.len());
            answered += frames.len();
        }
        // A response larger than the whole budget is not rejected; it waits for all of it.
        assert!(requests.budget().reserve(u64::MAX).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn request_waits_for_free_slot_and_is_cancelled_with_connection() {
        let (tasks, outbox) = (TaskTracker::new(), Arc::new(Outbox::default()));
        let requests = ConcurrentRequests::new(tasks.clone(), outbox);
        let id = to_raw_value(&1).unwrap();
        for _ in 0..MAX_RUNNING {
            requests.run(&id, std::future::pending::<Result<ReservedResult<u32>, RpcError>>()).await;
        }
        let more = requests.run(&id, std::future::pending::<Result<ReservedResult<u32>, RpcError>>());
        assert!(tokio::time::timeout(std::time::Duration::from_secs(60), more).await.is_err());
        drop(requests);
        tasks.close();
        tasks.wait().await;
    }
}
