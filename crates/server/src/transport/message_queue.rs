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

use super::drive::{ConnectionHandles, Inbound};
use crate::connection::Connection;
use crate::limits::RateLimiter;
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
type QueuedMessage = (Inbound, OwnedSemaphorePermit);

/// Creates the queue of a connection.
pub(crate) fn create() -> (MessageReader, Receiver<QueuedMessage>) {
    let (sender, receiver) = channel(AHEAD);
    (MessageReader { sender, bytes: Arc::new(Semaphore::new(AHEAD_BYTES as usize)) }, receiver)
}

/// The reader, which fills the queue.
#[derive(Debug)]
pub(crate) struct MessageReader {
    sender: Sender<QueuedMessage>,
    bytes: Arc<Semaphore>,
}

impl MessageReader {
    /// Reads until the client disconnects or the handler ends. Then the host's own requests fail, for
    /// which the handler may be waiting.
    pub(crate) async fn read(
        self,
        incoming: impl Stream<Item = Inbound> + Unpin,
        handles: &ConnectionHandles,
    ) {
        self.read_messages(incoming, handles).await;
        handles.client_requests.close();
    }

    async fn read_messages(
        self,
        mut incoming: impl Stream<Item = Inbound> + Unpin,
        handles: &ConnectionHandles,
    ) {
        let mut rate = RateLimiter::new(&handles.shared.limits);
        while let Some(message) = incoming.next().await {
            rate.acquire().await;
            if matches!(message, Inbound::Control) {
                continue;
            }
            handles.shared.counters.frame_in();
            if let Inbound::Text(text) = &message {
                handles.log(Direction::In, || text.clone().into());
                if answer_ping(text.as_str(), handles) || accept_response(text.as_str(), handles) {
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
fn answer_ping(text: &str, handles: &ConnectionHandles) -> bool {
    if text.len() > MAX_PING || !text.contains("\"ping\"") {
        return false;
    }
    let Ok(Incoming { id: Some(id), method: Some(method), .. }) = Incoming::read(text) else {
        return false;
    };
    method == "ping" && pong(id, handles)
}

/// Accepts a response to a request from the host immediately, because the handler may be
/// waiting for it.
fn accept_response(text: &str, handles: &ConnectionHandles) -> bool {
    if !handles.client_requests.any_pending() {
        return false;
    }
    let Ok(Incoming { id: Some(id), method: None, result, error, .. }) = Incoming::read(text) else {
        return false;
    };
    handles.client_requests.complete(id, result, error);
    true
}

fn pong(id: &RawValue, handles: &ConnectionHandles) -> bool {
    let Ok(answer) = rpc::response(id, &()) else { return false };
    handles.outbox.push(answer);
    true
}

/// Handles the queued messages in order. Closes the connection if the client has not
/// completed the handshake by the deadline.
pub(crate) async fn handle(
    mut connection: Connection,
    mut queued: Receiver<QueuedMessage>,
    handles: &ConnectionHandles,
    deadline: Option<Instant>,
) {
    loop {
        let next = match deadline.filter(|_| connection.client.is_none()) {
            None => queued.recv().await,
            Some(deadline) => match tokio::time::timeout_at(deadline, queued.recv()).await {
                Ok(next) => next,
                Err(_) => {
                    handles.outbox.close(CloseReason::NoHandshake);
                    return;
                }
            },
        };
        let Some((message, _share)) = next else { return };
        // A client that does not read would not receive the responses, which cost time and memory.
        if handles.outbox.close_reason() == Some(CloseReason::TooSlow) {
            return;
        }
        match message {
            Inbound::Text(text) => connection.receive(text.as_str()).await,
            Inbound::Unusable(why) => connection.refuse_garbage(&RpcError::invalid_request(why)),
            Inbound::Control => {}
            Inbound::Fatal(reason) => handles.outbox.close(reason),
        }
    }
}

#[cfg(test)]
#[path = "message_queue_tests.rs"]
mod tests;
