//! The parameters for opening an agent, and the connection to an open agent.

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
use crate::channel::ChannelUri;
use crate::edits::{EditLog, EditRecorder, EditScope, NoEdits};
use crate::ids::ClientId;
use crate::trust::TrustedFolders;

/// The parameters for opening an agent: all of the data that must survive the agent's
/// process.
#[derive(Clone, Debug)]
pub struct OpenAgent {
    /// The host's id of the conversation, which never changes. The agent's own id may
    /// differ; see `resume_token`.
    pub conversation: Uuid,
    /// The history that the agent continues from.
    pub history: History,
    /// The last id that the agent reported for the conversation. `None` if it never
    /// reported one or starts without a history.
    pub resume_token: Option<ResumeToken>,
    /// The working directories, the initial one first; if empty, the provider's default.
    /// More than one only if the provider's capabilities allow it.
    pub working_directories: Vec<PathBuf>,
    /// The last chosen model and effort, and the custom agent of the message.
    pub selection: Selection,
    /// The user's answer to the question of the previous attempt.
    pub answer: Option<OpeningAnswer>,
    /// The folders that clients trust.
    pub trusted: TrustedFolders,
    /// The session's configuration values, including the permission mode.
    pub config: JsonObject,
    /// Environment variables of this session, in addition to the provider's.
    pub environment: BTreeMap<String, String>,
    /// The tools that clients run for the agent; empty unless the agent supports them.
    pub client_tools: Arc<[ClientTool]>,
    /// Customizations that were enabled or disabled; all others are enabled.
    pub switches: Vec<Switch>,
    /// Records the agent's edits of files.
    pub edits: RecorderSource,
}

/// Creates the recorder of a chat's edits, once the agent knows its directories.
#[derive(Clone, Debug)]
pub struct RecorderSource {
    log: Arc<dyn EditLog>,
    session: ChannelUri,
    chat: ChannelUri,
}

impl RecorderSource {
    /// A source for a chat.
    pub fn new(log: Arc<dyn EditLog>, session: ChannelUri, chat: ChannelUri) -> Self {
        Self { log, session, chat }
    }

    /// A source whose recorders record nothing.
    pub fn none() -> Self {
        Self::new(Arc::new(NoEdits), ChannelUri::root(), ChannelUri::root())
    }

    /// The chat whose edits are recorded.
    pub fn chat(&self) -> &ChannelUri {
        &self.chat
    }

    /// A recorder for an agent that works in these directories.
    pub fn recorder(&self, roots: Vec<PathBuf>) -> Arc<dyn EditRecorder> {
        let (session, chat) = (self.session.clone(), self.chat.clone());
        self.log.recorder(EditScope { session, chat, roots })
    }
}

/// The agent's own id of a conversation, with which another process can continue it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResumeToken(String);

impl ResumeToken {
    /// Wraps an id that the agent reported.
    pub fn new(token: impl Into<String>) -> Self {
        Self(token.into())
    }

    /// The id as the agent reported it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The user's selections for the messages of a chat. `None` means the provider's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// The model and its configuration, for example the effort.
    pub model: Option<ModelSelection>,
    /// The custom agent.
    pub agent: Option<AgentSelection>,
}

/// A tool that a client of the session runs. Two clients may have tools of the same name;
/// the agent has to distinguish them in its calls.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientTool {
    /// The client that runs it.
    pub client: ClientId,
    /// The tool's name, description and input schema.
    pub tool: ToolDefinition,
}

/// Whether a customization is enabled.
#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    /// The id of the customization.
    pub id: String,
    /// All enablement decisions for the customization, most specific first.
    pub enablement: Vec<CustomizationEnablement>,
}

/// The history that an agent has when it is opened. It is tracked for the next opening by the
/// session (`Phase`), by the driver (for `AgentEvent::Closed`) and when the journal is applied
/// after a crash (`restore`).
#[derive(Clone, Debug, PartialEq)]
pub enum History {
    /// No history.
    Fresh,
    /// An earlier process worked on the conversation, and the agent has its own record.
    Resume,
    /// The agent's own record is lost. The host's record is passed as text, to be placed
    /// before the first message.
    Rebuild(Arc<str>),
    /// The conversation starts from a part of another conversation. Only if the
    /// provider's capabilities allow it.
    Branch(Box<Branch>),
}

/// The point in another conversation from which a new one starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Branch {
    /// The host's id of the other conversation.
    pub conversation: Uuid,
    /// The agent's id of the other conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_token: Option<ResumeToken>,
    /// The last known turn of the other conversation.
    pub turn: String,
    /// The agent's message ids of that turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<TurnLink>,
    /// How the new conversation relates to the other one.
    pub kind: BranchKind,
}

/// How a new conversation relates to the conversation that it starts from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum BranchKind {
    /// Continues the conversation with its full content.
    Fork,
    /// Discusses the other conversation, whose content is known and not repeated.
    SideChat {
        /// The text that the user selected.
        selection: Option<SideChatSelection>,
        /// The turn's state if it was still running.
        running: Option<Box<ActiveTurn>>,
    },
}

/// Why an agent could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The session cancelled the request.
    #[error("cancelled")]
    Cancelled,
    /// The agent's own record of the conversation is missing. The session asks the user
    /// how to continue.
    #[error("{message}")]
    HistoryMissing {
        /// The missing record and its expected location, as text for the user.
        message: String,
    },
    /// The user must answer a question first. The session asks it and opens the agent
    /// again with the answer.
    #[error("a question must be answered first: {}", .0.message)]
    Question(Box<OpeningQuestion>),
    /// The agent could not be started.
    #[error("{message}")]
    Failed {
        /// A short machine-readable error type.
        error_type: String,
        /// The cause and what to do, as text for the user.
        message: String,
    },
}

/// A question that the user must answer before an agent can be opened. The session adds an
/// option that cancels the turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpeningQuestion {
    /// Identifies the question and everything that it depends on. Part of the answer, so
    /// that the provider can tell whether the answer is still valid.
    pub topic: String,
    /// The facts that the user needs for the answer, in Markdown.
    pub message: String,
    /// A short title.
    pub title: String,
    /// The question itself.
    pub question: String,
    /// The possible answers.
    pub options: Vec<OpeningOption>,
}

/// A possible answer to an [`OpeningQuestion`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpeningOption {
    /// Identifies the option.
    pub id: String,
    /// The label.
    pub label: String,
    /// What the option does.
    pub description: String,
    /// Whether the option is recommended.
    pub recommended: bool,
}

/// The answer to an [`OpeningQuestion`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpeningAnswer {
    /// The topic of the question.
    pub topic: String,
    /// The id of the chosen option.
    pub option: String,
}

/// The session's end of a connection to an open agent.
#[derive(Debug)]
pub struct AgentConnection {
    /// Commands to the agent.
    pub commands: mpsc::Sender<AgentCommand>,
    /// Events from the agent. Closed after `AgentEvent::Closed`, when all processes of
    /// the agent have exited.
    pub events: mpsc::Receiver<AgentEvent>,
    /// Cancelled to stop the agent in any state.
    pub close: CancellationToken,
}

impl Drop for AgentConnection {
    fn drop(&mut self) {
        self.close.cancel();
    }
}
