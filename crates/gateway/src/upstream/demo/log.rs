//! A log of the requests that a demo model got, for tests.
//!
//! Bounded: the oldest entry goes when it is full. Reading and waiting never
//! hold up the model.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::watch;

use super::conversation;
use crate::auth::SessionId;
use crate::request::MessagesRequest;
use crate::upstream::UpstreamRequest;

/// Entries kept. A test looks at a few dozen; bodies of 100 KB make this
/// about 50 MB at worst. The oldest entry is dropped when it is full.
pub const REQUEST_LOG_CAPACITY: usize = 512;

/// Which route a request came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// `POST /v1/messages`
    Messages,
    /// `POST /v1/messages/count_tokens`
    CountTokens,
    /// `GET /v1/models`
    Models,
}

/// How the answer to a request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerOutcome {
    /// It is still being given.
    Open,
    /// All of it was given.
    Finished,
    /// It ended in this HTTP status or an `error` event that stands for it.
    Failed(u16),
    /// The script cut the connection.
    Cut,
    /// The client went away, or the gateway ended.
    Cancelled,
}

/// One request as the demo model saw it.
#[derive(Clone, Debug)]
pub struct LoggedRequest {
    /// Position since the log began, never reused.
    pub number: u64,
    /// Which route it came by.
    pub kind: RequestKind,
    /// The session in its bearer.
    pub session: SessionId,
    /// The model that was asked for; empty if the body could not be read.
    pub model: String,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// The most tokens that were asked for.
    pub max_tokens: Option<u64>,
    /// The roles of the messages, in order.
    pub roles: Vec<String>,
    /// What a person wrote last, without the runtime's own blocks.
    pub last_user_text: Option<String>,
    /// Names of the offered tools.
    pub tools: Vec<String>,
    /// Its headers, without `Authorization`.
    pub headers: HeaderMap,
    /// Its body as it came.
    pub body: Bytes,
    /// How the answer went.
    pub outcome: AnswerOutcome,
}

impl LoggedRequest {
    /// How many messages the conversation had.
    pub fn message_count(&self) -> usize {
        self.roles.len()
    }
}

/// A shared log; clones see the same entries.
#[derive(Clone, Debug)]
pub struct RequestLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    entries: Mutex<Entries>,
    /// Counts changes, for those who wait for one.
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Entries {
    kept: VecDeque<LoggedRequest>,
    next: u64,
}

impl Default for RequestLog {
    fn default() -> Self {
        Self::new()
    }
}

impl RequestLog {
    /// Makes an empty log.
    pub fn new() -> Self {
        Self(Arc::new(Shared { entries: Mutex::default(), changes: watch::Sender::new(0) }))
    }

    /// The entries so far, oldest first.
    pub fn entries(&self) -> Vec<LoggedRequest> {
        self.lock().kept.iter().cloned().collect()
    }

    /// The messages requests of one session so far, oldest first.
    pub fn of_session(&self, session: &str) -> Vec<LoggedRequest> {
        let mut entries = self.entries();
        entries.retain(|entry| entry.kind == RequestKind::Messages && entry.session.as_str() == session);
        entries
    }

    /// Waits until the entries satisfy a condition and returns them.
    ///
    /// Waits for ever if they never do; tests run under a time limit.
    pub async fn wait_for(&self, mut condition: impl FnMut(&[LoggedRequest]) -> bool) -> Vec<LoggedRequest> {
        let mut changes = self.0.changes.subscribe();
        loop {
            let entries = self.entries();
            if condition(&entries) {
                return entries;
            }
            if changes.changed().await.is_err() {
                // The sender lives in `self`, so this is never reached; not spinning is what matters.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Notes a request that is answered at once.
    pub(super) fn note(&self, kind: RequestKind, request: &UpstreamRequest, body: Option<&MessagesRequest>) {
        let outcome = if body.is_none() && kind != RequestKind::Models {
            AnswerOutcome::Failed(400)
        } else {
            AnswerOutcome::Finished
        };
        self.push(kind, request, body, outcome);
    }

    /// Notes a messages request whose answer begins.
    pub(super) fn open(&self, request: &UpstreamRequest, body: &MessagesRequest) -> OpenAnswer {
        let number = self.push(RequestKind::Messages, request, Some(body), AnswerOutcome::Open);
        OpenAnswer { log: self.clone(), number, outcome: AnswerOutcome::Cancelled }
    }

    fn push(
        &self,
        kind: RequestKind,
        request: &UpstreamRequest,
        body: Option<&MessagesRequest>,
        outcome: AnswerOutcome,
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

    fn settle(&self, number: u64, outcome: AnswerOutcome) {
        if let Some(entry) = self.lock().kept.iter_mut().rev().find(|entry| entry.number == number) {
            entry.outcome = outcome;
        }
        self.changed();
    }

    fn changed(&self) {
        self.0.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn roles(body: &MessagesRequest) -> Vec<String> {
    body.messages.iter().map(|message| message.role.clone()).collect()
}

/// An answer on its way; dropped before its end it counts as cancelled.
#[derive(Debug)]
pub(super) struct OpenAnswer {
    log: RequestLog,
    number: u64,
    outcome: AnswerOutcome,
}

impl OpenAnswer {
    /// Notes how the answer ended.
    pub(super) fn end(mut self, outcome: AnswerOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for OpenAnswer {
    fn drop(&mut self) {
        self.log.settle(self.number, self.outcome);
    }
}
