//! From the reader of a connection to its lane.
//!
//! The reader never waits for a session: it keeps the pace, answers pings, takes
//! answers, and puts everything else into a short queue. The lane takes it from there, one
//! message after the other. When the queue is full the connection is not read on.

use std::sync::Arc;

use futures_util::{Stream, StreamExt as _};
use innkeeper_core::state::CloseReason;
use serde_json::value::RawValue;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::drive::{Inbound, Link};
use crate::connection::Connection;
use crate::limits::Pace;
use crate::rpc::{self, Incoming, RpcError};
use crate::wire_log::Direction;

/// Messages that are read ahead of a busy lane, so that a ping behind them is still
/// seen. When there are more, the socket is not read on.
const AHEAD: usize = 256;

/// Bytes of messages that are read ahead. A larger message is alone in the queue.
const AHEAD_BYTES: u32 = 1024 * 1024;

/// A message longer than this is no ping.
const MAX_PING: usize = 1024;

/// A message on its way to the lane, with its share of the queue.
type Queued = (Inbound, OwnedSemaphorePermit);

/// Makes the two ends of a lane.
pub(crate) fn lane() -> (Entry, Receiver<Queued>) {
    let (sender, receiver) = channel(AHEAD);
    (Entry { sender, bytes: Arc::new(Semaphore::new(AHEAD_BYTES as usize)) }, receiver)
}

/// The reader's end of a lane.
#[derive(Debug)]
pub(crate) struct Entry {
    sender: Sender<Queued>,
    bytes: Arc<Semaphore>,
}

impl Entry {
    /// Reads until the client is gone or the lane has ended.
    pub(crate) async fn read(self, mut incoming: impl Stream<Item = Inbound> + Unpin, link: &Link) {
        let mut pace = Pace::new(&link.shared.limits);
        while let Some(message) = incoming.next().await {
            pace.step().await;
            if matches!(message, Inbound::Nothing) {
                continue;
            }
            link.shared.counters.frame_in();
            if let Inbound::Text(text) = &message {
                link.log(Direction::In, || text.clone().into());
                if answer_ping(text.as_str(), link) || take_answer(text.as_str(), link) {
                    continue;
                }
            }
            let size = u32::try_from(message.len()).unwrap_or(u32::MAX).min(AHEAD_BYTES);
            let Ok(share) = Arc::clone(&self.bytes).acquire_many_owned(size).await else { return };
            if self.sender.send((message, share)).await.is_err() {
                return;
            }
        }
    }
}

/// Answers a ping at once, whatever the lane waits for: by its answers a client
/// knows that the host is alive, and nothing depends on their place in the order.
fn answer_ping(text: &str, link: &Link) -> bool {
    if text.len() > MAX_PING || !text.contains("\"ping\"") {
        return false;
    }
    let Ok(Incoming { id: Some(id), method: Some(method), .. }) = Incoming::read(text) else {
        return false;
    };
    method == "ping" && pong(id, link)
}

/// Takes a client's answer to a question of the host's at once: what the lane waits
/// for may itself wait for this answer.
fn take_answer(text: &str, link: &Link) -> bool {
    if !link.line.waits() {
        return false;
    }
    let Ok(Incoming { id: Some(id), method: None, result, error, .. }) = Incoming::read(text) else {
        return false;
    };
    link.line.answer(id, result, error);
    true
}

fn pong(id: &RawValue, link: &Link) -> bool {
    let Ok(answer) = rpc::response(id, &()) else { return false };
    link.outbox.push(answer);
    true
}

/// Handles what the reader queues, in order. A client that does not say who it is
/// until the deadline has to go.
pub(crate) async fn handle(
    mut connection: Connection,
    mut queued: Receiver<Queued>,
    link: &Link,
    deadline: Option<Instant>,
) {
    loop {
        let next = match deadline.filter(|_| connection.client.is_none()) {
            None => queued.recv().await,
            Some(deadline) => match tokio::time::timeout_at(deadline, queued.recv()).await {
                Ok(next) => next,
                Err(_) => {
                    link.outbox.close(CloseReason::NoHandshake);
                    return;
                }
            },
        };
        let Some((message, _share)) = next else { return };
        match message {
            Inbound::Text(text) => connection.receive(text.as_str()).await,
            Inbound::Unusable(why) => connection.refuse_garbage(&RpcError::invalid_request(why)),
            Inbound::Nothing => {}
            Inbound::TooLarge => link.outbox.close(CloseReason::MessageTooLarge),
        }
    }
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
