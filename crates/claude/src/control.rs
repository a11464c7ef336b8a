//! The control protocol: which request an answer belongs to, both ways.
//!
//! Owns the table of the host's open requests and the set of the runtime's. Reads nothing itself; the
//! intake hands it answers. The invariant: every request of the host's ends exactly once, by its answer, its
//! time-out, or the runtime's exit; every request of the runtime's is answered at most once.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use thiserror::Error;
use tokio::sync::oneshot;

use crate::queue::{ByteQueue, Refused};
use crate::wire::control::ControlResponse;

/// How long a request of the host's waits for its answer, unless the caller says otherwise. Some answers
/// need a call of the model.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Why something was not handed to the runtime.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SendError {
    /// The runtime is gone, or its input is closed.
    #[error("the runtime has ended")]
    Exited,
    /// The runtime has not read what was sent before.
    #[error("the runtime does not read its input; too much is waiting already")]
    QueueFull,
    /// The runtime asked no such thing, asks it no longer, or has its answer already.
    #[error("the runtime has no open request {id}")]
    NoSuchRequest {
        /// The id that was given.
        id: String,
    },
}

impl From<Refused> for SendError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => Self::QueueFull,
            Refused::Closed => Self::Exited,
        }
    }
}

/// Why a request of the host's failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RequestError {
    /// It could not be sent.
    #[error("the request could not be sent")]
    Send(#[from] SendError),
    /// The runtime said no.
    #[error("the runtime refused: {message}")]
    Refused {
        /// The runtime's words.
        message: String,
        /// The refusal's machine-readable name, in newer runtimes.
        code: Option<String>,
    },
    /// The runtime did not answer in time.
    #[error("the runtime did not answer within {} s", after.as_secs())]
    TimedOut {
        /// How long was waited.
        after: Duration,
    },
    /// The runtime ended before it answered.
    #[error("the runtime ended before it answered")]
    Exited,
}

/// An answer's body; many answers have none.
pub(crate) type Answer = Option<Box<RawValue>>;

/// Who waits for an answer.
type Waiting = oneshot::Sender<Result<Answer, RequestError>>;

/// Both tables and the way to the runtime.
#[derive(Debug)]
pub(crate) struct Control {
    /// Lines on their way to the runtime's stdin.
    outgoing: Arc<ByteQueue<Bytes>>,
    /// The host's open requests by id; nothing once the runtime is gone.
    asked: Mutex<Option<HashMap<String, Waiting>>>,
    /// The ids of the runtime's open requests.
    asking: Mutex<HashSet<String>>,
    /// The number of the next request.
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

    /// Sends a request at once and gives what waits for its answer.
    pub(crate) fn ask(
        self: &Arc<Self>,
        subtype: &str,
        fields: Map<String, Value>,
    ) -> Result<Asked, RequestError> {
        let id = format!("host-{}", self.next.fetch_add(1, Ordering::Relaxed));
        let (answered, answer) = oneshot::channel();
        lock(&self.asked).as_mut().ok_or(RequestError::Exited)?.insert(id.clone(), answered);
        let mut asked = Asked { control: Arc::clone(self), id, sent: false, answer };
        let mut request = fields;
        request.insert("subtype".to_owned(), json!(subtype));
        self.send(&json!({ "type": "control_request", "request_id": asked.id, "request": request }))?;
        asked.sent = true;
        Ok(asked)
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn request(
        self: &Arc<Self>,
        subtype: &str,
        fields: Map<String, Value>,
        timeout: Duration,
    ) -> Result<Answer, RequestError> {
        self.ask(subtype, fields)?.answer(timeout).await
    }

    /// Takes an answer of the runtime's. One that nobody waits for (any more) is dropped.
    pub(crate) fn answered(&self, response: ControlResponse) {
        let id = response.request_id.unwrap_or_default();
        let Some(waiting) = lock(&self.asked).as_mut().and_then(|asked| asked.remove(&id)) else {
            tracing::debug!(id, "an answer came for a request that nobody waits for");
            return;
        };
        let answer = if response.subtype.as_deref() == Some("error") {
            let message = response.error.unwrap_or_else(|| "no reason was given".to_owned());
            Err(RequestError::Refused { message, code: response.error_code })
        } else {
            Ok(response.response)
        };
        // The waiting side may have just gone away.
        waiting.send(answer).ok();
    }

    /// Notes a request of the runtime's.
    pub(crate) fn opened(&self, id: &str) {
        lock(&self.asking).insert(id.to_owned());
    }

    /// The runtime withdrew a request.
    pub(crate) fn cancelled(&self, id: &str) {
        lock(&self.asking).remove(id);
    }

    /// Answers a request of the runtime's.
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

    /// The runtime is gone: nothing will be answered any more.
    pub(crate) fn fail_all(&self) {
        let asked = lock(&self.asked).take().unwrap_or_default();
        for waiting in asked.into_values() {
            waiting.send(Err(RequestError::Exited)).ok();
        }
        lock(&self.asking).clear();
    }
}

/// A request that was sent and is not answered yet. Dropping it forgets it, and tells the runtime so: newer
/// ones then stop working on it.
#[derive(Debug)]
pub(crate) struct Asked {
    control: Arc<Control>,
    id: String,
    /// Whether the runtime has been told of it.
    sent: bool,
    answer: oneshot::Receiver<Result<Answer, RequestError>>,
}

impl Asked {
    /// Waits for the answer.
    pub(crate) async fn answer(mut self, timeout: Duration) -> Result<Answer, RequestError> {
        match tokio::time::timeout(timeout, &mut self.answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(RequestError::Exited),
            Err(_) => Err(RequestError::TimedOut { after: timeout }),
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let waited = lock(&self.control.asked).as_mut().and_then(|asked| asked.remove(&self.id));
        if waited.is_some() && self.sent {
            // A runtime that is gone, or reads nothing, does not work on it either.
            self.control.send(&json!({ "type": "control_cancel_request", "request_id": self.id })).ok();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each table is whole after every statement, so a panic elsewhere leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
