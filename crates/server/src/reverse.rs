//! Requests from the host to clients, over the clients' connections.
//!
//! Assigns the request ids and matches responses to pending requests. A client may be
//! slow, silent or malicious, so each response has a timeout and a size limit, the number
//! of pending requests is limited, and all of them fail when the connection ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use innkeeper_core::agent::BoxFuture;
use innkeeper_core::client_resources::{ClientQuestion, ClientResourceError, ClientResources};
use innkeeper_core::ids::{ClientId, ConnectionId};
use innkeeper_core::state::{Frame, Outbox};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::rpc;

/// How long a client may take to respond; a user may have to grant permission first.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Largest accepted response.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// Pending requests per connection. Further ones are rejected.
const MAX_OPEN: usize = 32;

/// A client's response.
type Answer = Result<Box<RawValue>, ClientResourceError>;

/// The connected clients, for requests from the host.
#[derive(Debug, Default)]
pub struct ClientConnections {
    /// Connections by client, the newest last: older ones are usually about to close.
    lines: Mutex<HashMap<ClientId, Vec<Arc<Line>>>>,
}

/// Pending requests of one connection.
#[derive(Debug)]
pub(crate) struct Line {
    connection: ConnectionId,
    outbox: Arc<Outbox>,
    questions: Mutex<Questions>,
}

#[derive(Debug, Default)]
struct Questions {
    last_id: u64,
    open: HashMap<u64, oneshot::Sender<Answer>>,
    /// Whether the connection has ended.
    closed: bool,
}

/// Removes a pending request when dropped.
#[derive(Debug)]
struct Open {
    line: Arc<Line>,
    id: u64,
}

impl ClientConnections {
    /// Registers a connection of a client.
    pub(crate) fn add(&self, client: &ClientId, line: Arc<Line>) {
        lock(&self.lines).entry(client.clone()).or_default().push(line);
    }

    /// Removes a client's connection; its pending requests fail.
    pub(crate) fn remove(&self, client: &ClientId, line: &Line) {
        let mut lines = lock(&self.lines);
        if let Some(of_client) = lines.get_mut(client) {
            of_client.retain(|other| other.connection != line.connection);
            if of_client.is_empty() {
                lines.remove(client);
            }
        }
        drop(lines);
        line.close();
    }

    fn line(&self, client: &ClientId) -> Option<Arc<Line>> {
        lock(&self.lines).get(client)?.last().cloned()
    }
}

impl ClientResources for ClientConnections {
    fn ask(&self, client: ClientId, question: ClientQuestion) -> BoxFuture<Answer> {
        let line = self.line(&client);
        Box::pin(async move {
            let line = line.ok_or(ClientResourceError::Gone)?;
            let (open, answer) = line.open()?;
            let frame = encoded(open.id, &question)
                .map_err(|error| ClientResourceError::Unreadable(error.to_string()))?;
            open.line.outbox.push(frame);
            match tokio::time::timeout(ANSWER_TIME, answer).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(ClientResourceError::Gone),
                Err(_) => Err(ClientResourceError::TimedOut),
            }
        })
    }
}

impl Line {
    pub(crate) fn new(connection: ConnectionId, outbox: Arc<Outbox>) -> Self {
        Self { connection, outbox, questions: Mutex::default() }
    }

    /// Whether any request is pending.
    pub(crate) fn waits(&self) -> bool {
        !lock(&self.questions).open.is_empty()
    }

    /// Handles a client's response. A late or unexpected one is ignored.
    pub(crate) fn answer(&self, id: &RawValue, result: Option<&RawValue>, error: Option<&RawValue>) {
        let waiting = id.get().parse().ok().and_then(|id: u64| lock(&self.questions).open.remove(&id));
        let Some(waiting) = waiting else {
            tracing::debug!(connection = %self.connection, id = %id, "ignoring response without a pending request");
            return;
        };
        let answer = match (error, result) {
            (Some(error), _) => Err(refusal(error)),
            (None, Some(result)) if result.get().len() > MAX_ANSWER => Err(ClientResourceError::TooLarge),
            (None, Some(result)) => Ok(result.to_owned()),
            (None, None) => Ok(RawValue::NULL.to_owned()),
        };
        // The caller may have timed out.
        waiting.send(answer).ok();
    }

    fn open(self: &Arc<Self>) -> Result<(Open, oneshot::Receiver<Answer>), ClientResourceError> {
        let mut questions = lock(&self.questions);
        if questions.closed {
            return Err(ClientResourceError::Gone);
        }
        if questions.open.len() >= MAX_OPEN {
            return Err(ClientResourceError::Busy);
        }
        questions.last_id += 1;
        let id = questions.last_id;
        let (sender, receiver) = oneshot::channel();
        questions.open.insert(id, sender);
        Ok((Open { line: Arc::clone(self), id }, receiver))
    }

    fn close(&self) {
        let mut questions = lock(&self.questions);
        questions.closed = true;
        questions.open.clear();
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        lock(&self.line.questions).open.remove(&self.id);
    }
}

fn encoded(id: u64, question: &ClientQuestion) -> Result<Frame, serde_json::Error> {
    match question {
        ClientQuestion::Read(params) => rpc::request(id, "resourceRead", params),
        ClientQuestion::Write(params) => rpc::request(id, "resourceWrite", params),
        ClientQuestion::List(params) => rpc::request(id, "resourceList", params),
        ClientQuestion::Resolve(params) => rpc::request(id, "resourceResolve", params),
        ClientQuestion::Copy(params) => rpc::request(id, "resourceCopy", params),
        ClientQuestion::Move(params) => rpc::request(id, "resourceMove", params),
        ClientQuestion::Delete(params) => rpc::request(id, "resourceDelete", params),
        ClientQuestion::Mkdir(params) => rpc::request(id, "resourceMkdir", params),
        ClientQuestion::Request(params) => rpc::request(id, "resourceRequest", params),
    }
}

fn refusal(error: &RawValue) -> ClientResourceError {
    #[derive(Deserialize)]
    struct Fields {
        #[serde(default)]
        code: i64,
        #[serde(default)]
        message: String,
    }
    match serde_json::from_str(error.get()) {
        Ok(Fields { code, message }) => ClientResourceError::Refused { code, message },
        Err(error) => ClientResourceError::Unreadable(error.to_string()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "reverse_tests.rs"]
mod tests;
