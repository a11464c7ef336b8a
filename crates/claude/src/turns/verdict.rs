//! The input and output types of the turn machine: keys, origins, verdicts.

use std::fmt;

use thiserror::Error;
use uuid::Uuid;

use crate::runtime::UserContent;
use crate::wire::message::ResultMessage;

/// Numbers the processes that work on a conversation one after the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(u64);

impl Generation {
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Names a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TurnKey {
    generation: Generation,
    number: u64,
}

impl TurnKey {
    pub(super) fn new(generation: Generation, number: u64) -> Self {
        Self { generation, number }
    }
}

impl fmt::Display for TurnKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.generation.0, self.number)
    }
}

/// Where a message or a turn comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnOrigin {
    /// The message that opened a turn, or the turn that it opened.
    User,
    /// A message that was written while its turn ran.
    Steering,
    /// A turn that the runtime started by itself, for example after a background task.
    Background,
    /// A turn that a hook or a plugin of the runtime started.
    Hook,
}

/// What kind of message opens a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptKind {
    /// Text for the model.
    Text,
    /// A slash command, which older runtimes may carry out without an echo.
    Command,
}

impl PromptKind {
    /// The kind of a message with this content.
    pub fn of(content: &UserContent) -> Self {
        let is_command = content.first_text().is_some_and(|text| text.starts_with('/'));
        if is_command { Self::Command } else { Self::Text }
    }
}

/// How a turn ended.
#[derive(Debug)]
pub enum EndReason {
    /// The runtime answered; this is the last result.
    Result(Box<ResultMessage>),
    /// The runtime dropped the message without working on it.
    Dropped,
    /// The runtime worked on the turn and went idle without a result.
    NoResult,
    /// The runtime went on to a host message without ending the turn that it had started by itself. The rest
    /// of the output belongs to the turn of that message.
    Merged,
    /// The runtime exited.
    Exited,
}

/// The end of a turn.
#[derive(Debug)]
pub struct TurnEnd {
    /// The turn.
    pub turn: TurnKey,
    /// Where the turn came from.
    pub origin: TurnOrigin,
    /// How the turn ended.
    pub reason: EndReason,
    /// Steering messages that the runtime did not take up. The owner still has to deliver them.
    pub untaken: Vec<Uuid>,
}

/// What an input means for the turns. One input can mean several things, which are in order.
#[derive(Debug)]
pub enum Verdict {
    /// The runtime started a turn by itself.
    Begins {
        /// The new turn.
        turn: TurnKey,
        /// What started it, as far as it is known yet; see [`TurnEnd::origin`].
        origin: TurnOrigin,
    },
    /// The runtime took up a message.
    TakenUp {
        /// The message's turn.
        turn: TurnKey,
        /// The message.
        message: Uuid,
        /// Whether the message opened the turn or steers it.
        origin: TurnOrigin,
    },
    /// The judged message belongs to this turn.
    Belongs(TurnKey),
    /// A turn is over.
    Ends(TurnEnd),
    /// An abandoned turn is over and the runtime is free again.
    Drained(TurnKey),
}

/// The turn is not running, so it cannot be steered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("turn {0} is not running")]
pub struct NotRunning(pub TurnKey);
