//! An agent's own records: conversations that it keeps outside of the host, and the
//! ids of its messages, by which a turn of the host is found in them.

use std::path::PathBuf;

use ahp_types::state::Turn;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{BoxFuture, ResumeToken};

/// Reads the conversations that an agent keeps, also those that the host did not
/// create. Never starts a process.
pub trait ConversationRecords: Send + Sync + 'static {
    /// Every conversation, most recently changed first.
    fn list(&self) -> BoxFuture<Result<Vec<ConversationSummary>, RecordError>>;

    /// The turns of a conversation, oldest first; `None` if there is no such record.
    fn read(&self, token: ResumeToken) -> BoxFuture<Result<Option<Vec<RecordedTurn>>, RecordError>>;
}

/// A conversation in an agent's records.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversationSummary {
    /// The agent's name of it.
    pub token: ResumeToken,
    /// Its title, or the beginning of its first message.
    pub title: String,
    /// The directory that the agent worked in, if known.
    pub directory: Option<PathBuf>,
    /// When it was changed last.
    pub modified_at: Timestamp,
}

/// A turn in an agent's records.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedTurn {
    /// The agent's ids of its messages.
    pub link: TurnLink,
    /// Its content. The id is the agent's, and the duration is unknown.
    pub turn: Turn,
}

/// Why records could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the agent's conversations: {reason}")]
pub struct RecordError {
    /// The cause.
    pub reason: String,
}

/// The agent's id of one message of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageLink {
    /// A message that was written to the agent. A turn has several after it was resumed
    /// or steered.
    Prompt(String),
    /// The agent's last message so far.
    Answer(String),
}

/// The agent's ids of the messages of a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnLink {
    /// The messages that were written to the agent, oldest first.
    pub prompts: Vec<String>,
    /// The agent's last message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Whether the ids were found by the order of the messages, not reported by the
    /// agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_order: bool,
}

impl TurnLink {
    /// Adds what the agent reported.
    pub fn add(&mut self, link: MessageLink) {
        match link {
            MessageLink::Prompt(id) if self.prompts.contains(&id) => {}
            MessageLink::Prompt(id) => self.prompts.push(id),
            MessageLink::Answer(id) => self.answer = Some(id),
        }
    }
}
