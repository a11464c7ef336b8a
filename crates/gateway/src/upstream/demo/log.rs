//! A log of the requests to a demo model, for tests.
//!
//! Bounded: when it is full the oldest entry is dropped. Readers and waiters
//! do not block the model.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::watch;

use super::conversation;
use crate::auth::SessionId;
use crate::request::MessagesRequest;
use crate::upstream::UpstreamRequest;

/// Kept entries. A test inspects a few dozen; with bodies of 100 KB the log
/// takes about 50 MB. When it is full the oldest entry is dropped.
pub const REQUEST_LOG_CAPACITY: usize = 512;

/// The route of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// `POST /v1/messages`
    Messages,
    /// `POST /v1/messages/count_tokens`
    CountTokens,
    /// `GET /v1/models`
    Models,
}

/// The outcome of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseOutcome {
    /// Still in progress.
    Open,
    /// Complete.
    Finished,
    /// Ended with this HTTP status or an equivalent `error` event.
    Failed(u16),
    /// The script cut the connection.
    Cut,
    /// The client disconnected, or the gateway shut down.
    Cancelled,
}

/// One request as the demo model received it.
#[derive(Clone, Debug)]
pub struct LoggedRequest {
    /// Sequence number in the log, never reused.
    pub number: u64,
    /// The route.
    pub kind: RequestKind,
    /// The session id from the bearer.
    pub session: SessionId,
    /// The requested model; empty if the body could not be parsed.
    pub model: String,
    /// Whether a stream was requested.
    pub stream: bool,
    /// The requested token limit.
    pub max_tokens: Option<u64>,
    /// The roles of the messages, in order.
    pub roles: Vec<String>,
    /// The last user text, without blocks added by the runtime.
    pub last_user_text: Option<String>,
    /// Names of the offered tools.
    pub tools: Vec<String>,
    /// The headers, without `Authorization`.
    pub headers: HeaderMap,
    /// The unmodified body.
    pub body: Bytes,
    /// The outcome of the response.
    pub outcome: ResponseOutcome,
}

impl LoggedRequest {
    /// The number of messages in the conversation.
    pub fn message_count(&self) -> usize {
        self.roles.len()
    }
}

/// A shared log; clones see the same entries.
#[derive(Clone, Debug)]
pub struct RequestLog(Arc<LogState>);

#[derive(Debug)]
struct LogState {
    entries: Mutex<LogEntries>,
    /// Counts changes; watched by [`RequestLog::wait_for`].
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct LogEntries {
    kept: VecDeque<LoggedRequest>,
    next: u64,
}

impl Default for RequestLog {
    fn default() -> Self {
        Self::new()
    }
}

impl RequestLog {
    /// Creates an empty log.
    pub fn new() -> Self {
        Self(Arc::new(LogState { entries: Mutex::default(), changes: watch::Sender::new(0) }))
    }

    /// All entries, oldest first.
    pub fn entries(&self) -> Vec<LoggedRequest> {
        self.lock().kept.iter().cloned().collect()
    }

    /// The messages requests of one session, oldest first.
    pub fn of_session(&self, session: &str) -> Vec<LoggedRequest> {
        let mut entries = self.entries();
        entries.retain(|entry| entry.kind == RequestKind::Messages && entry.session.as_str() == session);
        entries
    }

    /// Waits until the entries satisfy a condition and returns them.
    ///
    /// Has no timeout of its own; tests run under a time limit.
    pub async fn wait_for(&self, mut condition: impl FnMut(&[LoggedRequest]) -> bool) -> Vec<LoggedRequest> {
        let mut changes = self.0.changes.subscribe();
        loop {
            let entries = self.entries();
            if condition(&entries) {
                return entries;
            }
            if changes.changed().await.is_err() {
                // The sender lives in `self`, so this is unreachable; it must not spin.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Logs a request that is answered immediately.
    pub(super) fn note(&self, kind: RequestKind, request: &UpstreamRequest, body: Option<&MessagesRequest>) {
        let outcome = if body.is_none() && kind != RequestKind::Models {
            ResponseOutcome::Failed(400)
        } else {
            ResponseOutcome::Finished
        };
        self.push(kind, request, body, outcome);
    }

    /// Logs a messages request whose response starts.
    pub(super) fn open(&self, request: &UpstreamRequest, body: &MessagesRequest) -> OpenResponse {
        let number = self.push(RequestKind::Messages, request, Some(body), ResponseOutcome::Open);
        OpenResponse { log: self.clone(), number, outcome: ResponseOutcome::Cancelled }
    }

    fn push(
        &self,
        kind: RequestKind,
        request: &UpstreamRequest,
        body: Option<&MessagesRequest>,
        outcome: ResponseOutcome,
    ) -> u64 {
        let mut entry = LoggedRequest {
            number: 0,
            kind,
            session: request.session.clone(),
            model: body.map(|body| body.model.clone()).unwrap_or_default(),
            stream: body.is_some_and(|body| body.stream == Some(true)),
            max_tokens: body.and_then(|body| body.max_tokens),
            roles: body.map(roles).unwrap_or_default(),
            last_user_text: body.and_then(conversation::last_user_text).map(str::to_owned),
            tools: body.map(MessagesRequest::tool_names).unwrap_or_default(),
            headers: request.headers.clone(),
            body: request.body.clone(),
            outcome,
        };
        let number = {
            let mut entries = self.lock();
            entry.number = entries.next;
            entries.next += 1;
            if entries.kept.len() == REQUEST_LOG_CAPACITY {
                entries.kept.pop_front();
            }
            let number = entry.number;
            entries.kept.push_back(entry);
            number
        };
        self.changed();
        number
    }

    fn settle(&self, number: u64, outcome: ResponseOutcome) {
        if let Some(entry) = self.lock().kept.iter_mut().rev().find(|entry| entry.number == number) {
            entry.outcome = outcome;
        }
        self.changed();
    }

    fn changed(&self) {
        self.0.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn lock(&self) -> MutexGuard<'_, LogEntries> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn roles(body: &MessagesRequest) -> Vec<String> {
    body.messages.iter().map(|message| message.role.clone()).collect()
}

/// A response in progress; dropping it before its end records a cancellation.
#[derive(Debug)]
pub(super) struct OpenResponse {
    log: RequestLog,
    number: u64,
    outcome: ResponseOutcome,
}

impl OpenResponse {
    /// Records the outcome.
    pub(super) fn end(mut self, outcome: ResponseOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for OpenResponse {
    fn drop(&mut self) {
        self.log.settle(self.number, self.outcome);
    }
}
