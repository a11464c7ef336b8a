//! An agent's own records: the conversations that it stores outside of the host, and its
//! message ids, which map the host's turns to them.

use std::path::PathBuf;

use ahp_types::state::Turn;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{BoxFuture, ResumeToken};

/// Accesses the conversations that an agent stores, including those that the host did not
/// create. Never starts a process.
pub trait ConversationRecords: Send + Sync + 'static {
    /// All conversations, most recently modified first.
    fn list(&self) -> BoxFuture<Result<Vec<ConversationSummary>, RecordError>>;

    /// The turns of a conversation, oldest first; `None` if the record does not exist.
    fn read(&self, token: ResumeToken) -> BoxFuture<Result<Option<Vec<RecordedTurn>>, RecordError>>;

    /// Deletes the record of a conversation that the host created, including conversations
    /// that it replaced. Keeps a record that another program created. Called when no agent
    /// uses the conversation. Succeeds if there is no record.
    fn delete(&self, conversation: HostConversation) -> BoxFuture<Result<(), RecordError>>;
}

/// The ids of a conversation of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConversation {
    /// The host's id.
    pub id: Uuid,
    /// The agent's id, if it reported one.
    pub token: Option<ResumeToken>,
}

/// A conversation in an agent's records.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversationSummary {
    /// The agent's id of the conversation.
    pub token: ResumeToken,
    /// The title, or the start of the first message.
    pub title: String,
    /// The agent's working directory, if known.
    pub directory: Option<PathBuf>,
    /// Time of the last modification.
    pub modified_at: Timestamp,
}

/// A turn in an agent's records.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedTurn {
    /// The agent's message ids of the turn.
    pub link: TurnLink,
    /// The content. The id is the agent's, and the duration is unknown.
    pub turn: Turn,
}

/// An operation on the records failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot access the agent's conversations: {reason}")]
pub struct RecordError {
    /// The cause.
    pub reason: String,
}

/// The agent's id of one message in a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageLink {
    /// A message sent to the agent. A turn has several if it was resumed or steered.
    Prompt(String),
    /// The agent's last message so far.
    Answer(String),
}

/// The agent's message ids of a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnLink {
    /// Ids of the messages sent to the agent, oldest first.
    pub prompts: Vec<String>,
    /// Id of the agent's last message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Whether the ids were inferred from the order of the messages instead of reported
    /// by the agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_order: bool,
}

impl TurnLink {
    /// Adds an id that the agent reported.
    pub fn add(&mut self, link: MessageLink) {
        match link {
            MessageLink::Prompt(id) if self.prompts.contains(&id) => {}
            MessageLink::Prompt(id) => self.prompts.push(id),
            MessageLink::Answer(id) => self.answer = Some(id),
        }
    }
}
