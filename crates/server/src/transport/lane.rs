//! The queue between the reader of a connection and its message handler.
//!
//! The reader never waits for a session: it enforces the rate limit, answers pings,
//! accepts responses to the host's requests, and queues every other message. The handler
//! processes the queue in order. While the queue is full, the connection is not read.

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

/// Messages that are read ahead of a busy handler, so that a later ping is still seen.
/// While the queue is full, the socket is not read.
const AHEAD: usize = 256;

/// Bytes of messages that are read ahead. A larger message is queued alone.
const AHEAD_BYTES: u32 = 1024 * 1024;

/// Longest message that is checked for being a ping.
const MAX_PING: usize = 1024;

/// A queued message, with its share of `AHEAD_BYTES`.
type Queued = (Inbound, OwnedSemaphorePermit);

/// Creates the queue of a connection.
pub(crate) fn lane() -> (Entry, Receiver<Queued>) {
    let (sender, receiver) = channel(AHEAD);
    (Entry { sender, bytes: Arc::new(Semaphore::new(AHEAD_BYTES as usize)) }, receiver)
}

/// The reader, which fills the queue.
#[derive(Debug)]
pub(crate) struct Entry {
    sender: Sender<Queued>,
    bytes: Arc<Semaphore>,
}

impl Entry {
    /// Reads until the client disconnects or the handler ends.
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

/// Answers a ping immediately, even if the handler is blocked: clients use pings to check
/// that the host is alive, and their order does not matter.
fn answer_ping(text: &str, link: &Link) -> bool {
    if text.len() > MAX_PING || !text.contains("\"ping\"") {
        return false;
    }
    let Ok(Incoming { id: Some(id), method: Some(method), .. }) = Incoming::read(text) else {
        return false;
    };
    method == "ping" && pong(id, link)
}

/// Accepts a response to a request from the host immediately, because the handler may be
/// waiting for it.
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

/// Handles the queued messages in order. Closes the connection if the client has not
/// completed the handshake by the deadline.
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
