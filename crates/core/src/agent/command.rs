//! What a session asks of its agent.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use ahp_types::common::JsonObject;
use ahp_types::state::{ChatInputAnswer, ChatInputResponseKind, Message, ToolCallResult};

use super::{AgentFeatures, ClientTool, ResourceToken, Switch};
use crate::ids::TurnId;

/// A command of a session to its agent. The comment names the feature without which
/// the session does not send it.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentCommand {
    /// Work on this message.
    Prompt {
        /// The turn that the work belongs to.
        turn: TurnId,
        /// The user's message.
        message: Message,
    },
    /// Stop working on this turn; its output is no longer wanted.
    Cancel {
        /// The turn to stop.
        turn: TurnId,
    },
    /// Take this message into the running turn, at the next safe point. If the turn
    /// ends first, the message starts the next turn. (`steering`)
    Steer {
        /// The message's id, for the answer that it was taken.
        id: String,
        /// The turn to steer.
        turn: TurnId,
        /// The user's message.
        message: Message,
    },
    /// Forget a steering message, if it was not taken yet. (`steering`)
    Unsteer {
        /// The message's id.
        id: String,
    },
    /// A user or client answered a tool call that waits for it. (`questions`)
    ToolAnswer {
        /// The call's turn.
        turn: TurnId,
        /// The call.
        tool_call: String,
        /// The answer.
        answer: ToolAnswer,
    },
    /// A user answered a question of the agent. (`questions`)
    InputAnswer(InputAnswer),
    /// Forget everything after this turn, or everything. (`rewind`)
    Rewind {
        /// The last turn to remember.
        to: Option<TurnId>,
    },
    /// The directories to work in, in the order of [`OpenAgent`](super::OpenAgent). Sent
    /// only if the capabilities allow several directories. The next turn works in these
    /// and no others; the agent decides what the running turn does.
    Directories(Vec<PathBuf>),
    /// The session's configuration values. (`live_config`)
    Config(JsonObject),
    /// The tools that clients run for it. (`client_tools`)
    ClientTools(Arc<[ClientTool]>),
    /// A token for a resource that the session waits for. The provider has it as well.
    /// (`tokens`)
    Token(ResourceToken),
    /// Customizations were switched on or off. (`live_customizations`)
    Toggle(Vec<Switch>),
    /// A user's request about an MCP server. (`mcp_servers`)
    McpServer {
        /// The server's customization.
        id: String,
        /// The request.
        request: McpServerRequest,
    },
}

impl AgentCommand {
    /// Whether an agent with these features handles the command.
    pub fn is_handled_with(&self, features: AgentFeatures) -> bool {
        match self {
            Self::Prompt { .. } | Self::Cancel { .. } | Self::Directories(_) => true,
            Self::Steer { .. } | Self::Unsteer { .. } => features.steering,
            Self::ToolAnswer { .. } | Self::InputAnswer(_) => features.questions,
            Self::Rewind { .. } => features.rewind,
            Self::Config(_) => features.live_config,
            Self::ClientTools(_) => features.client_tools,
            Self::Token(_) => features.tokens,
            Self::Toggle(_) => features.live_customizations,
            Self::McpServer { .. } => features.mcp_servers,
        }
    }
}

/// A user's request about an MCP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum McpServerRequest {
    /// Start it.
    Start,
    /// Stop it.
    Stop,
    /// Continue starting it without blocking the session.
    Background,
}

/// A message that has not reached an agent yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsent {
    /// The turn that it opened.
    pub turn: TurnId,
    /// The user's message.
    pub message: Message,
}

impl From<Unsent> for AgentCommand {
    fn from(unsent: Unsent) -> Self {
        Self::Prompt { turn: unsent.turn, message: unsent.message }
    }
}

/// An answer about a tool call.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolAnswer {
    /// Whether it may run.
    Confirmed {
        /// Yes or no.
        approval: Approval,
        /// The input to run it with, if it is known in full: as asked, or edited.
        input: Option<String>,
        /// The chosen option, one of those that the agent gave.
        option: Option<String>,
        /// What the user would prefer instead.
        suggestion: Option<String>,
    },
    /// Whether its result may be used. For a client's tool only sent if it may not.
    ResultConfirmed(Approval),
    /// The result, from the client that ran the tool. If a user has to review it first,
    /// it is sent after the approval.
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

/// A user's answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct InputAnswer {
    /// The request.
    pub request: String,
    /// Whether the user answered at all.
    pub response: ChatInputResponseKind,
    /// The answers by question, with the drafts of all clients.
    pub answers: HashMap<String, ChatInputAnswer>,
}
