//! The control protocol: matches responses to requests in both directions.
//!
//! Owns the table of pending host requests and the set of pending runtime requests. Does not read the
//! runtime's output; the intake passes responses in. Invariant: every host request completes exactly
//! once, by its response, its timeout or the runtime's exit; every runtime request is answered at most
//! once.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use thiserror::Error;
use tokio::sync::oneshot;

use crate::queue::{ByteQueue, PushError};
use crate::wire::control::ControlResponse;

/// Default timeout of a host request. Some responses need a model call.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a frame could not be sent to the runtime.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SendError {
    /// The runtime has exited, or its stdin is closed.
    #[error("the runtime has exited")]
    Exited,
    /// The outgoing queue is full because the runtime does not read its stdin.
    #[error("the send queue is full: the runtime does not read its input")]
    QueueFull,
    /// The runtime has no such request: unknown id, withdrawn, or already answered.
    #[error("the runtime has no open request {id}")]
    NoSuchRequest {
        /// The given id.
        id: String,
    },
}

impl From<PushError> for SendError {
    fn from(error: PushError) -> Self {
        match error {
            PushError::Full => Self::QueueFull,
            PushError::Closed => Self::Exited,
        }
    }
}

/// Why a host request failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The request was not sent.
    #[error("cannot send the request to the runtime")]
    Send(#[from] SendError),
    /// The runtime responded with an error.
    #[error("the runtime rejected the request: {message}")]
    Refused {
        /// The error message from the runtime.
        message: String,
        /// Machine-readable error code, in newer runtimes.
        code: Option<String>,
    },
    /// The runtime did not respond in time.
    #[error("the runtime did not respond within {} s", after.as_secs())]
    TimedOut {
        /// The timeout.
        after: Duration,
    },
    /// The runtime exited before it responded.
    #[error("the runtime exited before it responded")]
    Exited,
}

/// The body of a response; many responses have none.
pub(crate) type ResponseValue = Option<Box<RawValue>>;

/// Completes a pending request.
type ResponseSender = oneshot::Sender<Result<ResponseValue, RequestError>>;

/// The pending requests of both sides, and the queue to the runtime.
#[derive(Debug)]
pub(crate) struct Control {
    /// Lines waiting to be written to the runtime's stdin.
    outgoing: Arc<ByteQueue<Bytes>>,
    /// Pending host requests by id; `None` after the runtime exited.
    asked: Mutex<Option<HashMap<String, ResponseSender>>>,
    /// Ids of the runtime's pending requests.
    asking: Mutex<HashSet<String>>,
    /// Number of the next host request.
    next: AtomicU64,
}

impl Control {
    pub(crate) fn new(outgoing: Arc<ByteQueue<Bytes>>) -> Self {
        Self {
            outgoing,
            asked: Mutex::new(Some(HashMap::new())),
            asking: Mutex::default(),
            next: AtomicU64::new(1),
        }
    }

    /// Sends one frame.
    pub(crate) fn send(&self, frame: &Value) -> Result<(), SendError> {
        let mut line = frame.to_string();
        line.push('\n');
        let weight = line.len();
        Ok(self.outgoing.push(Bytes::from(line), weight)?)
    }

    /// Sends a request immediately and returns the handle that waits for its response.
    pub(crate) fn ask(
        self: &Arc<Self>,
        subtype: &str,
        fields: Map<String, Value>,
    ) -> Result<PendingRequest, RequestError> {
        let id = format!("host-{}", self.next.fetch_add(1, Ordering::Relaxed));
        let (answered, answer) = oneshot::channel();
        lock(&self.asked).as_mut().ok_or(RequestError::Exited)?.insert(id.clone(), answered);
        let mut asked = PendingRequest { control: Arc::clone(self), id, sent: false, answer };
        let mut request = fields;
        request.insert("subtype".to_owned(), json!(subtype));
        self.send(&json!({ "type": "control_request", "request_id": asked.id, "request": request }))?;
        asked.sent = true;
        Ok(asked)
    }

    /// Sends a request and waits for its response.
    pub(crate) async fn request(
        self: &Arc<Self>,
        subtype: &str,
        fields: Map<String, Value>,
        timeout: Duration,
    ) -> Result<ResponseValue, RequestError> {
        self.ask(subtype, fields)?.answer(timeout).await
    }

    /// Completes the request that a response belongs to. Drops the response if the request is no longer
    /// pending.
    pub(crate) fn answered(&self, response: ControlResponse) {
        let id = response.request_id.unwrap_or_default();
        let Some(waiting) = lock(&self.asked).as_mut().and_then(|asked| asked.remove(&id)) else {
            tracing::debug!(id, "ignoring response to a request that is not pending");
            return;
        };
        let answer = if response.subtype.as_deref() == Some("error") {
            let message = response.error.unwrap_or_else(|| "no reason given".to_owned());
            Err(RequestError::Refused { message, code: response.error_code })
        } else {
            Ok(response.response)
        };
        // The receiver may have been dropped in the meantime.
        waiting.send(answer).ok();
    }

    /// Records a request from the runtime.
    pub(crate) fn opened(&self, id: &str) {
        lock(&self.asking).insert(id.to_owned());
    }

    /// Removes a request that the runtime withdrew.
    pub(crate) fn cancelled(&self, id: &str) {
        lock(&self.asking).remove(id);
    }

    /// Answers a request from the runtime.
    pub(crate) fn respond(&self, id: &str, answer: Result<Value, String>) -> Result<(), SendError> {
        if !lock(&self.asking).remove(id) {
            return Err(SendError::NoSuchRequest { id: id.to_owned() });
        }
        let response = match answer {
            Ok(response) => json!({ "subtype": "success", "request_id": id, "response": response }),
            Err(error) => json!({ "subtype": "error", "request_id": id, "error": error }),
        };
        self.send(&json!({ "type": "control_response", "response": response }))
    }

    /// Fails all pending requests, after the runtime exited.
    pub(crate) fn fail_all(&self) {
        let asked = lock(&self.asked).take().unwrap_or_default();
        for waiting in asked.into_values() {
            waiting.send(Err(RequestError::Exited)).ok();
        }
        lock(&self.asking).clear();
    }
}

/// A request that was sent and has no response yet. Dropping it cancels the request; newer runtimes then
/// stop working on it.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    control: Arc<Control>,
    id: String,
    /// Whether the request was sent to the runtime.
    sent: bool,
    answer: oneshot::Receiver<Result<ResponseValue, RequestError>>,
}

impl PendingRequest {
    /// Waits for the response.
    pub(crate) async fn answer(mut self, timeout: Duration) -> Result<ResponseValue, RequestError> {
        match tokio::time::timeout(timeout, &mut self.answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(RequestError::Exited),
            Err(_) => Err(RequestError::TimedOut { after: timeout }),
        }
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        let waited = lock(&self.control.asked).as_mut().and_then(|asked| asked.remove(&self.id));
        if waited.is_some() && self.sent {
            // Sending fails if the runtime has exited or its queue is full; it then does not work on the
            // request either.
            self.control.send(&json!({ "type": "control_cancel_request", "request_id": self.id })).ok();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The tables are consistent after every statement, so a poisoned lock can be used.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
