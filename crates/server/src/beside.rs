//! Work that is done beside the lane of a connection, such as waiting for a disk.
//!
//! Owns how much of it there may be: so many requests at once and so many bytes of
//! answers that wait to be written. Everything ends with the connection.

use std::future::Future;
use std::sync::Arc;

use innkeeper_core::state::{Frame, Outbox};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::rpc::{self, RpcError};

/// Requests of a connection that run at once. Above it the connection is not read
/// on until one of them is done.
const MAX_RUNNING: usize = 16;

/// KiB of large answers that may wait for a client: less than its outbox takes, so
/// that reading many files at once does not look like a client that is too slow.
/// Above it the files are read later.
const MAX_WAITING: u32 = 48 * 1024;

/// What runs beside the lane of one connection.
#[derive(Debug)]
pub(crate) struct Beside {
    tasks: TaskTracker,
    outbox: Arc<Outbox>,
    running: Arc<Semaphore>,
    room: Room,
    gone: CancellationToken,
    _end: DropGuard,
}

/// Room for large answers of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Room(Arc<Semaphore>);

impl Room {
    /// Waits for room for an answer of about this size.
    pub(crate) async fn reserve(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let kibibytes = u32::try_from(bytes.div_ceil(1024)).unwrap_or(MAX_WAITING).min(MAX_WAITING);
        // The semaphore is never closed.
        Arc::clone(&self.0).acquire_many_owned(kibibytes).await.ok()
    }
}

/// An answer, and what is held until it is written.
#[derive(Debug)]
pub(crate) struct Answer<R> {
    pub(crate) result: R,
    pub(crate) held: Option<OwnedSemaphorePermit>,
}

impl<R> From<R> for Answer<R> {
    fn from(result: R) -> Self {
        Self { result, held: None }
    }
}

impl Beside {
    pub(crate) fn new(tasks: TaskTracker, outbox: Arc<Outbox>) -> Self {
        let gone = CancellationToken::new();
        Self {
            tasks,
            outbox,
            running: Arc::new(Semaphore::new(MAX_RUNNING)),
            room: Room(Arc::new(Semaphore::new(usize::try_from(MAX_WAITING).unwrap_or_default()))),
            _end: gone.clone().drop_guard(),
            gone,
        }
    }

    /// Room for large answers.
    pub(crate) fn room(&self) -> Room {
        self.room.clone()
    }

    /// Answers a request when its work is done. Waits only for its turn.
    pub(crate) async fn answer<R>(
        &self,
        id: &RawValue,
        work: impl Future<Output = Result<Answer<R>, RpcError>> + Send + 'static,
    ) where
        R: Serialize + Send + 'static,
    {
        let Ok(turn) = Arc::clone(&self.running).acquire_owned().await else { return };
        let (id, outbox, gone) = (id.to_owned(), Arc::clone(&self.outbox), self.gone.clone());
        self.tasks.spawn(async move {
            let _turn = turn;
            let outcome = tokio::select! {
                // Nobody wants the answer any more.
                () = gone.cancelled() => return,
                outcome = work => outcome,
            };
            match encoded(&id, outcome) {
                Ok(frame) => outbox.push(frame),
                Err(error) => tracing::error!(%error, "an answer could not be encoded"),
            }
        });
    }
}

fn encoded<R: Serialize>(
    id: &RawValue,
    outcome: Result<Answer<R>, RpcError>,
) -> Result<Frame, serde_json::Error> {
    match outcome {
        Ok(Answer { result, held: None }) => rpc::response(id, &result),
        Ok(Answer { result, held: Some(held) }) => Ok(rpc::response(id, &result)?.holding(held)),
        Err(error) => rpc::error_response(Some(id), &error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;

    /// Large answers of a connection that is not read from.
    fn large(beside: &Beside) -> impl Future<Output = Result<Answer<u32>, RpcError>> + Send + 'static {
        let room = beside.room();
        async move { Ok(Answer { result: 1, held: room.reserve(10 * 1024 * 1024).await }) }
    }

    #[tokio::test(start_paused = true)]
    async fn large_answers_wait_until_earlier_ones_are_written() {
        let (tasks, outbox) = (TaskTracker::new(), Arc::new(Outbox::default()));
        let beside = Beside::new(tasks.clone(), Arc::clone(&outbox));
        let id = to_raw_value(&1).unwrap();
        for _ in 0..10 {
            beside.answer(&id, large(&beside)).await;
        }
        let mut answered = 0;
        while answered < 10 {
            // The clock only moves on when everybody else waits.
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            let frames = outbox.next_batch().await.unwrap();
            assert!(frames.len() <= 4, "{} answers at once", frames.len());
            answered += frames.len();
        }
        // More than there ever is room for is not refused, it comes alone.
        assert!(beside.room().reserve(u64::MAX).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_lane_waits_when_too_much_runs_beside_it_and_all_ends_with_it() {
        let (tasks, outbox) = (TaskTracker::new(), Arc::new(Outbox::default()));
        let beside = Beside::new(tasks.clone(), outbox);
        let id = to_raw_value(&1).unwrap();
        for _ in 0..MAX_RUNNING {
            beside.answer(&id, std::future::pending::<Result<Answer<u32>, RpcError>>()).await;
        }
        let more = beside.answer(&id, std::future::pending::<Result<Answer<u32>, RpcError>>());
        assert!(tokio::time::timeout(std::time::Duration::from_secs(60), more).await.is_err());
        drop(beside);
        tasks.close();
        tasks.wait().await;
    }
}
