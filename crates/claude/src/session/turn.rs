//! One send: its events while it runs, and what it came to.
//!
//! Owns the caller's half of a send and its errors. Dropping it does not take the send back; interrupting the
//! session does.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::hooks::HookError;
use super::status::UnexpectedExit;
use super::{ClaudeSession, SessionEvent};
use crate::control::SendError;
use crate::event::{Tokens, is_aborted};
use crate::queue::ByteQueue;
use crate::runtime::StartError;
use crate::wire::message::ResultMessage;

/// The most bytes of a turn's events that wait to be read. Above it the stream ends with [`Lagged`]; the turn
/// itself goes on.
pub(super) const TURN_LIMIT: usize = 32 * 1024 * 1024;

/// What a turn's reader gets.
pub(super) type TurnEvents = ByteQueue<Result<Arc<SessionEvent>, Lagged>>;

/// The events of a turn were not read, and those after this point are lost to its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the turn's events were not read in time, and the rest of them is lost")]
pub struct Lagged;

/// A send. Its session lives at least as long.
#[derive(Debug)]
pub struct Turn {
    pub(super) uuid: Uuid,
    pub(super) events: Arc<TurnEvents>,
    pub(super) outcome: oneshot::Receiver<Result<TurnResult, TurnError>>,
    /// Keeps the session alive until the turn was read.
    pub(super) _session: ClaudeSession,
}

impl Turn {
    /// The uuid of the message, which is the transcript's and the one that files can be rewound to.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The next event; nothing after the turn's end. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<Arc<SessionEvent>, Lagged>> {
        self.events.pop().await
    }

    /// Waits for the turn's end; events that were not read are given up.
    pub async fn result(self) -> Result<TurnResult, TurnError> {
        let Self { events, outcome, _session, .. } = self;
        drop(events.abandon());
        // The session goes without a word only if the async runtime itself is torn down.
        outcome.await.unwrap_or(Err(TurnError::Terminated))
    }
}

/// What a turn came to.
#[derive(Debug, Clone)]
pub struct TurnResult {
    /// The message's uuid.
    pub uuid: Uuid,
    /// The conversation.
    pub conversation: Uuid,
    /// The last words; the API's error in words if it failed.
    pub text: String,
    /// How it ended.
    pub ending: TurnEnding,
    /// The tokens of its main thread.
    pub tokens: Tokens,
    /// All that the runtime said about it.
    pub message: Box<ResultMessage>,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEnding {
    /// As it should.
    Completed,
    /// The model's API failed, or a limit was reached.
    Failed,
    /// It was cut short from within: by an answer to a question, or by another message.
    Aborted,
}

impl TurnResult {
    pub(super) fn new(uuid: Uuid, conversation: Uuid, message: Box<ResultMessage>) -> Self {
        let ending = if is_aborted(&message) {
            TurnEnding::Aborted
        } else if message.is_error.unwrap_or(false) {
            TurnEnding::Failed
        } else {
            TurnEnding::Completed
        };
        let errors = || message.errors.as_ref().map(|errors| errors.join("; "));
        let text = message.result.clone().or_else(errors).unwrap_or_default();
        let tokens = message.usage.as_ref().map(Tokens::from).unwrap_or_default();
        Self { uuid, conversation, text, ending, tokens, message }
    }
}

/// Why a send has no result.
#[derive(Debug, Error)]
pub enum TurnError {
    /// It took too long. The turn was interrupted.
    #[error("the turn took longer than {} s and was interrupted", after.as_secs_f64())]
    TimedOut {
        /// How long it had.
        after: Duration,
    },
    /// The session was interrupted.
    #[error("the turn was interrupted")]
    Interrupted,
    /// The runtime ended in the middle of it. The next send continues the conversation.
    #[error("the turn has no result")]
    UnexpectedExit(#[source] UnexpectedExit),
    /// A hook refused it. Nothing was sent.
    #[error("a hook refused the message")]
    Hook(#[source] HookError),
    /// The runtime had to be started for it, and could not be.
    #[error("the runtime could not be started")]
    Start(#[source] StartError),
    /// The runtime did not take it.
    #[error("the message could not be sent")]
    Send(#[source] SendError),
    /// It was taken back before the runtime took it up.
    #[error("the message was cancelled before the runtime took it up")]
    Cancelled,
    /// The runtime worked on it and went idle without a result.
    #[error("the runtime gave no result")]
    NoResult,
    /// The session is over.
    #[error("the session was terminated")]
    Terminated,
}
