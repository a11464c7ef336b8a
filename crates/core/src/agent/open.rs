//! What an agent is opened with, and the link to it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ahp_types::common::JsonObject;
use ahp_types::state::{
    ActiveTurn, AgentSelection, CustomizationEnablement, ModelSelection, SideChatSelection, ToolDefinition,
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{AgentCommand, AgentEvent, TurnLink};
use crate::ids::ClientId;

/// What an agent is opened for: everything that has to survive the end of its process.
#[derive(Clone, Debug)]
pub struct OpenAgent {
    /// The host's id of the conversation, the same for its whole life. The agent's own
    /// id may be another one; see `resume_token`.
    pub conversation: Uuid,
    /// What the agent continues.
    pub history: History,
    /// The name under which the agent keeps the conversation, as it reported it last.
    /// `None` if it never did, or if it starts without a history.
    pub resume_token: Option<ResumeToken>,
    /// The directories to work in, first the one to begin in; the provider's default
    /// without any. More than one only for agents of a kind that says so in its
    /// capabilities.
    pub working_directories: Vec<PathBuf>,
    /// The model and effort that were chosen last, and the custom agent of the message.
    pub selection: Selection,
    /// The session's configuration values, the permission mode among them.
    pub config: JsonObject,
    /// Environment variables of this session, beside those of the provider.
    pub environment: BTreeMap<String, String>,
    /// The tools that clients run for it; empty unless the agent takes them.
    pub client_tools: Arc<[ClientTool]>,
    /// Customizations that were switched on or off; the others are on.
    pub switches: Vec<Switch>,
}

/// The agent's own name of a conversation, by which another process can continue it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResumeToken(String);

impl ResumeToken {
    /// Wraps the name that the agent gave.
    pub fn new(token: impl Into<String>) -> Self {
        Self(token.into())
    }

    /// The name as the agent gave it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What the user chose for the messages of a chat. `None` is the provider's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// The model, with its own configuration such as the effort.
    pub model: Option<ModelSelection>,
    /// The custom agent.
    pub agent: Option<AgentSelection>,
}

/// A tool that a client of the session runs. Two clients may have tools of the same name:
/// which one is meant, or how they are told apart, is for the agent to say in its calls.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientTool {
    /// The client that runs it.
    pub client: ClientId,
    /// Its name, description and input schema.
    pub tool: ToolDefinition,
}

/// Whether a customization is on.
#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    /// The customization.
    pub id: String,
    /// The complete list of decisions about it, most specific first.
    pub enablement: Vec<CustomizationEnablement>,
}

/// What the agent remembers of a conversation when it is opened.
#[derive(Clone, Debug, PartialEq)]
pub enum History {
    /// Nothing.
    Fresh,
    /// An earlier process worked on it, and the agent has its own record.
    Resume,
    /// The agent's own record is lost; the host's record is given as text, to be put
    /// before the first message.
    Rebuild(Arc<str>),
    /// It starts from a part of another conversation. Only for agents of a kind that
    /// says so in its capabilities.
    Branch(Box<Branch>),
}

/// Where a conversation begins that continues another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Branch {
    /// The host's id of the other conversation.
    pub conversation: Uuid,
    /// The agent's own name of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_token: Option<ResumeToken>,
    /// The last turn of it that is known here.
    pub turn: String,
    /// The agent's messages of that turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<TurnLink>,
    /// How the new conversation relates to the other one.
    pub kind: BranchKind,
}

/// How a new conversation relates to the one that it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum BranchKind {
    /// It continues from there, with everything that was said.
    Fork,
    /// It is about the other one, whose content is known and not repeated.
    SideChat {
        /// What the user had selected.
        selection: Option<SideChatSelection>,
        /// The turn as it was, if it was still running.
        running: Option<Box<ActiveTurn>>,
    },
}

/// Why an agent could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The session no longer wanted it.
    #[error("cancelled")]
    Cancelled,
    /// The agent's own record of the conversation is missing. The session asks the
    /// user how to continue.
    #[error("{message}")]
    HistoryMissing {
        /// What is missing and where it was expected, for a person.
        message: String,
    },
    /// It could not be started; the text says why and what to do.
    #[error("{message}")]
    Failed {
        /// A short machine-readable name of the failure.
        error_type: String,
        /// What happened and what to do, for a person.
        message: String,
    },
}

/// A live conversation with an agent, seen from the session.
#[derive(Debug)]
pub struct AgentLink {
    /// Commands to the agent.
    pub commands: mpsc::Sender<AgentCommand>,
    /// Events from the agent. Ends after `AgentEvent::Closed`, when every process of
    /// the agent is gone.
    pub events: mpsc::Receiver<AgentEvent>,
    /// Fires to end the agent, in whatever state it is.
    pub close: CancellationToken,
}

impl Drop for AgentLink {
    fn drop(&mut self) {
        self.close.cancel();
    }
}
