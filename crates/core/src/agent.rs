//! The seam between a session and the agent that works in it.
//!
//! Opening an agent is a trait, talking to it is a pair of channels of closed
//! enums: what crosses the seam is listed here in full, and a test's agent is two
//! channels. Capabilities are data, not methods.

use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ahp_types::actions::StateAction;
use ahp_types::common::JsonObject;
use ahp_types::state::{
    ActiveTurn, AgentInfo, ChatInputAnswer, ChatInputResponseKind, CustomizationEnablement, ErrorInfo,
    Message, ProtectedResourceMetadata, SessionConfigSchema, SideChatSelection, ToolCallResult,
    ToolDefinition,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::ids::{ClientId, TurnId};

/// Commands that may wait at an agent. A session sends one prompt or cancel at a
/// time, so a full queue means that the driver is stuck: the link is then closed.
pub const COMMAND_CAPACITY: usize = 16;

/// Events that may wait for a session. A full queue makes the driver (never the
/// reader of the agent's output) wait for the session to catch up.
pub const EVENT_CAPACITY: usize = 256;

/// A future that the seam returns from behind a `dyn` trait.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A kind of agent that sessions can be opened with.
pub trait AgentProvider: Send + Sync + 'static {
    /// What clients are told about this kind of agent.
    fn info(&self) -> AgentInfo;

    /// The configuration form for a new session and the values in effect, given
    /// what was chosen so far. Called often: pure and cheap. An agent that says nothing
    /// about it has an empty form, and keeps what was chosen.
    fn resolve_config(&self, chosen: &JsonObject) -> ResolvedConfig {
        let schema =
            SessionConfigSchema { r#type: "object".to_owned(), properties: HashMap::new(), required: None };
        ResolvedConfig { schema, values: chosen.clone() }
    }

    /// What the agent can be told at the start of a message. Called often.
    fn commands(&self) -> Vec<CommandInfo> {
        Vec::new()
    }

    /// Starts the agent. Resolves when it is ready for a prompt. When `cancel`
    /// fires, or the future is dropped, nothing that it started stays behind.
    fn open(&self, request: OpenAgent, cancel: CancellationToken) -> BoxFuture<Result<AgentLink, OpenError>>;

    /// The resources that it needs a token for and has none: no session can be created
    /// before it is there. Called often.
    fn needs_tokens(&self) -> Vec<ProtectedResourceMetadata> {
        Vec::new()
    }

    /// Takes a token for a resource that it advertised, or that a session of its agents
    /// waits for, to keep it in place of an earlier one. The same token again is fine.
    fn authenticate(&self, token: ResourceToken) -> BoxFuture<Result<(), TokenRefused>> {
        drop(token);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Whether its agents can go back to an earlier turn and forget what came after.
    fn can_rewind(&self) -> bool {
        false
    }
}

/// A user's token for a resource.
#[derive(Clone, Debug)]
pub struct ResourceToken {
    /// What it is for.
    pub resource: String,
    /// The token; without one, those that were given before are not to be used any more.
    pub token: Option<SecretString>,
    /// How long it can be used from now on, if that is known.
    pub expires_in: Option<Duration>,
    /// What it allows, if that is known.
    pub scopes: Option<Vec<String>>,
}

impl PartialEq for ResourceToken {
    fn eq(&self, other: &Self) -> bool {
        let secret = |token: &Self| token.token.as_ref().map(|token| token.expose_secret().to_owned());
        self.resource == other.resource
            && secret(self) == secret(other)
            && self.expires_in == other.expires_in
            && self.scopes == other.scopes
    }
}

/// Why a token is not taken.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct TokenRefused {
    /// What is wrong with it, for a person.
    pub reason: String,
}

/// What clients are told about an agent that has nothing but a name.
pub fn plain_info(provider: &str, display_name: &str) -> AgentInfo {
    AgentInfo {
        provider: provider.to_owned(),
        display_name: display_name.to_owned(),
        description: String::new(),
        models: Vec::new(),
        protected_resources: None,
        customizations: None,
        capabilities: None,
    }
}

/// Something that an agent can be told to do by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandInfo {
    /// What is typed after the slash.
    pub name: String,
    /// What it does, for a person.
    pub description: String,
}

/// A configuration form and the values in it.
#[derive(Clone, Debug)]
pub struct ResolvedConfig {
    /// The properties that can be chosen.
    pub schema: SessionConfigSchema,
    /// Their values: chosen where valid, defaults otherwise.
    pub values: JsonObject,
}

/// What an agent is opened for.
#[derive(Clone, Debug)]
pub struct OpenAgent {
    /// The conversation's own identity, the same for its whole life.
    pub conversation: Uuid,
    /// Whether there is something to take up again.
    pub history: History,
    /// The directories to work in, first the one to begin in; the provider's default
    /// without any. More than one only for agents of a kind that says so in its
    /// capabilities.
    pub working_directories: Vec<PathBuf>,
    /// The session's configuration values.
    pub config: JsonObject,
    /// The tools that clients run for it.
    pub client_tools: Arc<[ClientTool]>,
    /// What was decided about customizations; the others are on.
    pub switches: Vec<Switch>,
}

/// A tool that a client of the session runs. Two clients may have tools of the same name:
/// which one is meant, or how they are told apart, is for the agent to say in its calls.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientTool {
    /// The client that runs it.
    pub client: ClientId,
    /// What it is.
    pub tool: ToolDefinition,
}

/// What decides whether a customization is on.
#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    /// The customization.
    pub id: String,
    /// The complete list of what decides about it, most specific first.
    pub enablement: Vec<CustomizationEnablement>,
}

/// What the agent remembers of a conversation when it is opened.
#[derive(Clone, Debug, PartialEq)]
pub enum History {
    /// It starts from nothing.
    Fresh,
    /// An earlier process worked on it.
    Resume,
    /// It starts from a part of another conversation. Only for agents of a kind that
    /// says so in its capabilities.
    Branch(Box<Branch>),
}

/// Where a conversation begins that goes on from another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Branch {
    /// The other conversation.
    pub conversation: Uuid,
    /// The last turn of it that is known here.
    pub turn: String,
    /// What the new conversation has to do with the other one.
    pub kind: BranchKind,
}

/// What a new conversation has to do with the one that it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum BranchKind {
    /// It goes on from there, with all that was said.
    Fork,
    /// It is about the other one: what was said there is known and not repeated.
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
    /// The session did not want it any more.
    #[error("cancelled")]
    Cancelled,
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
    /// What the session asks of the agent.
    pub commands: mpsc::Sender<AgentCommand>,
    /// What the agent reports. Ends after `AgentEvent::Closed`, when nothing of
    /// the agent is left.
    pub events: mpsc::Receiver<AgentEvent>,
    /// Fires to end the agent, in whatever state it is.
    pub close: CancellationToken,
}

impl Drop for AgentLink {
    fn drop(&mut self) {
        self.close.cancel();
    }
}

/// What a session asks of its agent.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentCommand {
    /// Work on this message.
    Prompt {
        /// The turn that the work belongs to.
        turn: TurnId,
        /// What the user said.
        message: Message,
    },
    /// Take this message into the turn that runs, at the next safe point. An agent
    /// that cannot leaves it alone: it becomes a turn of its own later.
    Steer {
        /// The message's id, for the answer that it was taken.
        id: String,
        /// The turn to steer.
        turn: TurnId,
        /// What the user said.
        message: Message,
    },
    /// Forget a steering message, if it was not taken yet.
    Unsteer {
        /// The message's id.
        id: String,
    },
    /// What a user or a client said about a tool call that waits for it.
    ToolAnswer {
        /// The call's turn.
        turn: TurnId,
        /// The call.
        tool_call: String,
        /// What was said.
        answer: ToolAnswer,
    },
    /// What a user answered to a question of the agent's.
    InputAnswer(InputAnswer),
    /// Stop working on this turn; nothing more of it is wanted.
    Cancel {
        /// The turn to stop.
        turn: TurnId,
    },
    /// Forget everything after this turn, or everything. Only for agents of a
    /// provider that can.
    Rewind {
        /// The last turn to remember.
        to: Option<TurnId>,
    },
    /// The directories to work in are these now, in the order of [`OpenAgent`]. Only for
    /// agents of a kind that works in several. What the running turn does with them is
    /// the agent's affair; the next one has these and no others.
    Directories(Vec<PathBuf>),
    /// The session's configuration values are these now.
    Config(JsonObject),
    /// The tools that clients run for it are these now.
    ClientTools(Arc<[ClientTool]>),
    /// A token for something that the session waits for. Its provider has it as well.
    Token(ResourceToken),
    /// Customizations were switched on or off.
    Toggle(Vec<Switch>),
    /// A user wants something of an MCP server.
    McpServer {
        /// The server's customization.
        id: String,
        /// What it shall do.
        request: McpServerRequest,
    },
}

/// What a user wants of an MCP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum McpServerRequest {
    /// To start.
    Start,
    /// To stop.
    Stop,
    /// To go on starting without holding up the session.
    Background,
}

impl From<Unsent> for AgentCommand {
    fn from(unsent: Unsent) -> Self {
        Self::Prompt { turn: unsent.turn, message: unsent.message }
    }
}

/// What was said about a tool call.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolAnswer {
    /// Whether it may run.
    Confirmed {
        /// Yes or no.
        approval: Approval,
        /// The input to run it with, if it is known in full: as asked, or edited.
        input: Option<String>,
        /// The option that was chosen, out of those that the agent gave.
        option: Option<String>,
        /// What the user would rather have.
        suggestion: Option<String>,
    },
    /// Whether its result may be used. Of a client's tool only that it may not.
    ResultConfirmed(Approval),
    /// What it gave, from the client that ran it. If a user has to look at it first, it
    /// comes when that user allows it.
    Completed(Box<ToolCallResult>),
}

/// Yes or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// Yes.
    Approved,
    /// No.
    Denied,
}

/// What a user answered to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct InputAnswer {
    /// The request.
    pub request: String,
    /// Whether the user answered at all.
    pub response: ChatInputResponseKind,
    /// The answers by question, with the drafts of all clients.
    pub answers: HashMap<String, ChatInputAnswer>,
}

/// What an agent reports to its session.
#[derive(Debug)]
pub enum AgentEvent {
    /// An action: of the chat, or about what the session offers.
    Action(Box<StateAction>),
    /// A better name for the session than the one made from its first message. A name
    /// that a user gave stays.
    TitleSuggested {
        /// The name.
        title: String,
    },
    /// The agent has taken a steering message into its turn.
    SteeringTaken {
        /// The message's id.
        id: String,
    },
    /// Nothing more will come for this turn.
    TurnEnded {
        /// The turn that is over.
        turn: TurnId,
        /// How it went.
        outcome: TurnOutcome,
    },
    /// The agent is gone and so is everything that it started.
    Closed {
        /// Whether a new process could take up the conversation.
        history: History,
        /// A message that it was sent and never looked at.
        unsent: Option<Box<Unsent>>,
    },
}

/// A message that has not reached an agent yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsent {
    /// The turn that it opened.
    pub turn: TurnId,
    /// What the user said.
    pub message: Message,
}

/// How a turn ended, seen from the agent.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnOutcome {
    /// The agent did what it could.
    Completed,
    /// It stopped because it was told to.
    Cancelled,
    /// It could not go on.
    Failed(ErrorInfo),
}
