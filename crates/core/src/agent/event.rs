//! Events from an agent to its session.

use std::fmt;
use std::sync::Arc;

use ahp_types::actions::StateAction;
use ahp_types::common::JsonObject;
use ahp_types::state::{ErrorInfo, Message};

use super::{History, MessageLink, PermissionQuery, ResumeToken, StoppedWork, TodoList, TurnMessage};
use crate::ids::TurnId;
use crate::usage::UsageReport;

/// An event from an agent.
#[derive(Debug)]
pub enum AgentEvent {
    /// An action on the agent's chat, or on the session's tools and customizations.
    Action(Box<StateAction>),
    /// An action on a child chat.
    ChildAction {
        /// The child chat.
        child: ChildId,
        /// The action.
        action: Box<StateAction>,
    },
    /// A subagent started in its own chat.
    ChildStarted(Box<ChildChat>),
    /// A subagent finished, and its turn ended.
    ChildEnded {
        /// The child chat.
        child: ChildId,
        /// The result of the subagent's turn.
        outcome: TurnOutcome,
    },
    /// A suggested title, better than the one derived from the first message. A title set
    /// by a user is kept.
    TitleSuggested {
        /// The title.
        title: String,
    },
    /// The agent changed configuration values, for example its permission mode.
    ConfigChanged {
        /// The changed values.
        values: JsonObject,
    },
    /// The agent needs a decision about a tool call. (`questions`)
    PermissionRequested(Box<PermissionQuery>),
    /// The agent no longer needs an answer about a tool call: it decided itself.
    PermissionWithdrawn {
        /// The call.
        tool_call: String,
    },
    /// The agent's current id for the conversation.
    ResumeToken(ResumeToken),
    /// The agent's id of a message in this turn.
    MessageLinked {
        /// The turn.
        turn: TurnId,
        /// The message.
        link: MessageLink,
    },
    /// The agent started a turn itself, for example after a background task finished. If
    /// another turn is running, the output is added to that turn.
    TurnStarted {
        /// The turn's id, chosen by the agent and unique in the chat.
        turn: TurnId,
        /// The message that describes the turn. Its origin is not a user.
        message: Message,
    },
    /// The agent added a steering message to its turn.
    SteeringTaken {
        /// The message's id.
        id: String,
        /// The turn that it was added to.
        turn: TurnId,
        /// The message. A client may have removed or replaced it in the meantime.
        message: Box<Message>,
    },
    /// The answer to `AgentCommand::StopWork`.
    WorkStopped {
        /// The request.
        request: u64,
        /// The work that was stopped, or why it cannot be stopped, as text for the user.
        result: Result<Vec<StoppedWork>, String>,
    },
    /// An answer broke off, and the agent starts it again. The session marks these parts as
    /// discarded.
    PartsDiscarded {
        /// The turn.
        turn: TurnId,
        /// The ids of the parts; for tool calls, the ids of the calls.
        parts: Vec<String>,
    },
    /// The chat's to-do list changed. An empty list removes it.
    TodoChanged {
        /// The whole list.
        list: TodoList,
    },
    /// What the agent used since its last report. Counts for the session even if the turn is over.
    Used {
        /// The turn that used it, if there is one.
        turn: Option<TurnId>,
        /// What was used.
        report: Box<UsageReport>,
    },
    /// The turn ended. Always the last event of the turn.
    TurnEnded {
        /// The turn that ended.
        turn: TurnId,
        /// The result of the turn.
        outcome: TurnOutcome,
    },
    /// The agent's process has exited, and its work in the background has ended with it. Sent
    /// before the ends of its turns, so that the running turn shows this; `Closed` follows.
    Exited,
    /// The agent and all of its processes have exited.
    Closed {
        /// The history from which a new process can continue.
        history: History,
        /// A message that was sent to the agent and never read.
        unsent: Option<Box<TurnMessage>>,
        /// What the agent is restarted for, for example "the changed working directories".
        restart: Option<String>,
    },
}

/// Identifies a child chat of an agent by the tool call that started the subagent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChildId(Arc<str>);

impl ChildId {
    /// The child chat of a tool call.
    pub fn of_tool_call(tool_call: &str) -> Self {
        Self(tool_call.into())
    }

    /// The tool call that started the subagent.
    pub fn tool_call(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ChildId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A subagent's chat, which consists of one turn.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildChat {
    /// The id of the child chat.
    pub id: ChildId,
    /// The title of the chat.
    pub title: String,
    /// The id of the chat's turn, used in the actions that follow.
    pub turn: TurnId,
    /// The subagent's prompt.
    pub message: Message,
}

/// The result of a turn, as the agent reports it.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnOutcome {
    /// The agent finished its work.
    Completed,
    /// The agent stopped on request.
    Cancelled,
    /// The turn failed; sending the message again would fail in the same way.
    Failed(ErrorInfo),
    /// The turn was interrupted; the user can resume it.
    Interrupted(ErrorInfo),
}
