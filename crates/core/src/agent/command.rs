//! Commands from a session to its agent.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use ahp_types::common::JsonObject;
use ahp_types::state::{ChatInputAnswer, ChatInputResponseKind, Message, ToolCallResult};

use super::{
    AgentFeatures, ClientTool, PermissionStage, PermissionVerdict, ResourceToken, StopTarget, Switch,
};
use crate::ids::TurnId;

/// A command from a session to its agent. A feature name in parentheses means that the
/// session sends the command only to agents with that feature.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentCommand {
    /// Starts work on a message.
    Prompt {
        /// The turn that the message starts.
        turn: TurnId,
        /// The user's message.
        message: Message,
    },
    /// Stops work on a turn. The session ignores further output of the turn.
    Cancel {
        /// The turn to stop.
        turn: TurnId,
    },
    /// Adds a message to the running turn at the next safe point. If the turn ends first,
    /// the message starts the next turn. (`steering`)
    Steer {
        /// The message's id, returned in `AgentEvent::SteeringTaken`.
        id: String,
        /// The turn to steer.
        turn: TurnId,
        /// The user's message.
        message: Message,
    },
    /// Withdraws a steering message that the agent has not taken yet. (`steering`)
    Unsteer {
        /// The message's id.
        id: String,
    },
    /// Stops a tool call or work in the background; the turn goes on. The agent answers with
    /// `AgentEvent::WorkStopped`. (`stop_work`)
    StopWork {
        /// Identifies the request in the answer.
        request: u64,
        /// The work to stop.
        target: StopTarget,
    },
    /// Ends the agent's process, if the agent is idle and has no work in the background.
    /// Otherwise the agent ignores the command. (`release`)
    Release,
    /// Answers a permission query without asking a user. (`questions`)
    PermissionVerdict {
        /// The call.
        tool_call: String,
        /// The stage of the query.
        stage: PermissionStage,
        /// The decision.
        verdict: PermissionVerdict,
    },
    /// Delivers the answer of a user or client to a pending tool call. (`questions`)
    ToolAnswer {
        /// The turn of the tool call.
        turn: TurnId,
        /// The id of the tool call.
        tool_call: String,
        /// The answer.
        answer: ToolAnswer,
    },
    /// Delivers a user's answer to an input request of the agent. (`questions`)
    InputAnswer(InputAnswer),
    /// Removes all turns after `to` from the agent's memory. (`rewind`)
    Rewind {
        /// The last turn to keep; `None` removes all turns.
        to: Option<TurnId>,
    },
    /// Sets the working directories, in the order of [`OpenAgent`](super::OpenAgent).
    /// Sent only if the capabilities allow several directories. The next turn works in
    /// exactly these directories; the agent decides which ones the running turn uses.
    Directories(Vec<PathBuf>),
    /// Sets the session's configuration values. (`live_config`)
    Config(JsonObject),
    /// Sets the tools that clients run for the agent. (`client_tools`)
    ClientTools(Arc<[ClientTool]>),
    /// Delivers a token for a resource that the session waits for. The provider receives
    /// it as well. (`tokens`)
    Token(ResourceToken),
    /// Enables or disables customizations. (`live_customizations`)
    Toggle(Vec<Switch>),
    /// Forwards a user's request about an MCP server. (`mcp_servers`)
    McpServer {
        /// The id of the server's customization.
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
            Self::StopWork { .. } => features.stop_work,
            Self::Release => features.release,
            Self::PermissionVerdict { .. } | Self::ToolAnswer { .. } | Self::InputAnswer(_) => {
                features.questions
            }
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
    /// Starts the server.
    Start,
    /// Stops the server.
    Stop,
    /// Continues to start the server without blocking the session.
    Background,
}

/// A turn and the message that starts it.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnMessage {
    /// The turn.
    pub turn: TurnId,
    /// The message of the user, or of the agent for a turn that it started itself.
    pub message: Message,
}

impl From<TurnMessage> for AgentCommand {
    fn from(TurnMessage { turn, message }: TurnMessage) -> Self {
        Self::Prompt { turn, message }
    }
}

/// An answer to a tool call.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolAnswer {
    /// Whether the tool may run.
    Confirmed {
        /// The user's decision.
        approval: Approval,
        /// The complete input to run the tool with, original or edited, if it is known.
        input: Option<String>,
        /// The id of the chosen option, one of those that the agent offered.
        option: Option<String>,
        /// The alternative that the user suggested.
        suggestion: Option<String>,
        /// Permission rules that the session has added, so that the agent can use them, too.
        remembered: Vec<String>,
    },
    /// Whether the tool's result may be used. For a client's tool, sent only on denial.
    ResultConfirmed(Approval),
    /// The result from the client that ran the tool. If a user must review it, sent after
    /// the approval.
    Completed(Box<ToolCallResult>),
}

/// A user's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// Allowed.
    Approved,
    /// Not allowed.
    Denied,
}

/// A user's answer to an input request.
#[derive(Clone, Debug, PartialEq)]
pub struct InputAnswer {
    /// The id of the request.
    pub request: String,
    /// Whether the user accepted, declined or cancelled.
    pub response: ChatInputResponseKind,
    /// The answers by question id, including the drafts of all clients.
    pub answers: HashMap<String, ChatInputAnswer>,
}
