//! A send: its events and its result.
//!
//! Owns the caller's half of a send and its errors. Dropping it does not cancel the send; interrupting
//! the session does.

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

/// Capacity of a turn's event queue in bytes. Above it the stream ends with [`Lagged`]; the turn itself
/// continues.
pub(super) const TURN_LIMIT: usize = 32 * 1024 * 1024;

/// The event queue of a turn.
pub(super) type TurnEvents = ByteQueue<Result<Arc<SessionEvent>, Lagged>>;

/// The reader of a turn was too slow; the remaining events are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the turn's events were not read in time; the remaining events are lost")]
pub struct Lagged;

/// A send. Keeps its session alive.
#[derive(Debug)]
pub struct Turn {
    pub(super) uuid: Uuid,
    pub(super) events: Arc<TurnEvents>,
    pub(super) outcome: oneshot::Receiver<Result<TurnResult, TurnFailure>>,
    /// Keeps the session alive until the turn was read.
    pub(super) _session: ClaudeSession,
}

impl Turn {
    /// Uuid of the message, as in the transcript and for rewinding files.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The next event; `None` after the end of the turn. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<Arc<SessionEvent>, Lagged>> {
        self.events.pop().await
    }

    /// Waits for the end of the turn and discards unread events.
    pub async fn result(self) -> Result<TurnResult, TurnFailure> {
        let Self { events, outcome, _session, .. } = self;
        drop(events.abandon());
        // The session disappears without a result only if the async runtime is shut down.
        outcome.await.unwrap_or(Err(TurnFailure::Terminated))
    }
}

/// The result of a turn.
#[derive(Debug, Clone)]
pub struct TurnResult {
    /// Uuid of the message.
    pub uuid: Uuid,
    /// Id of the conversation.
    pub conversation: Uuid,
    /// The final text, or the error text if the turn failed.
    pub text: String,
    /// How the turn ended.
    pub ending: TurnEnding,
    /// Token counts of the main thread.
    pub tokens: Tokens,
    /// The complete result message.
    pub message: Box<ResultMessage>,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEnding {
    /// Completed normally.
    Completed,
    /// The model API failed or a limit was reached.
    Failed,
    /// Ended early by a permission answer or by another message.
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
pub enum TurnFailure {
    /// The turn timed out and was interrupted.
    #[error("the turn took longer than {} s and was interrupted", after.as_secs_f64())]
    TimedOut {
        /// The timeout.
        after: Duration,
    },
    /// The session was interrupted.
    #[error("the turn was interrupted")]
    Interrupted,
    /// The runtime exited during the turn. The next send continues the conversation.
    #[error("the runtime exited during the turn")]
    UnexpectedExit(#[source] UnexpectedExit),
    /// A hook rejected the message; it was not sent.
    #[error("a hook rejected the message")]
    Hook(#[source] HookError),
    /// The runtime could not be started.
    #[error("cannot start the runtime")]
    Start(#[source] StartError),
    /// The message could not be sent to the runtime.
    #[error("cannot send the message to the runtime")]
    Send(#[source] SendError),
    /// The message was cancelled before the runtime started it.
    #[error("the message was cancelled before the runtime started it")]
    Cancelled,
    /// The runtime became idle without a result.
    #[error("the runtime returned no result")]
    NoResult,
    /// The session has ended.
    #[error("the session was terminated")]
    Terminated,
}
