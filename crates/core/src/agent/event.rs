//! What an agent reports to its session.

use std::fmt;
use std::sync::Arc;

use ahp_types::actions::StateAction;
use ahp_types::common::JsonObject;
use ahp_types::state::{ErrorInfo, Message};

use super::{History, MessageLink, ResumeToken, Unsent};
use crate::ids::TurnId;

/// An event of an agent.
#[derive(Debug)]
pub enum AgentEvent {
    /// An action of the agent's chat, or about what the session offers.
    Action(Box<StateAction>),
    /// An action of a child chat.
    ChildAction {
        /// The child chat.
        child: ChildId,
        /// The action.
        action: Box<StateAction>,
    },
    /// A subagent begins to work, in a chat of its own.
    ChildStarted(Box<ChildChat>),
    /// A subagent is done; its turn ends.
    ChildEnded {
        /// The child chat.
        child: ChildId,
        /// How it went.
        outcome: TurnOutcome,
    },
    /// A better title than the one made from the first message. A title that a user
    /// gave stays.
    TitleSuggested {
        /// The title.
        title: String,
    },
    /// The agent changed configuration values itself, for instance its permission mode.
    ConfigChanged {
        /// The changed values.
        values: JsonObject,
    },
    /// The name under which the agent keeps the conversation from now on.
    ResumeToken(ResumeToken),
    /// The agent's own id of a message of this turn.
    MessageLinked {
        /// The turn.
        turn: TurnId,
        /// The message.
        link: MessageLink,
    },
    /// The agent starts a turn itself, for instance when a background task has finished.
    /// If another turn is running, the output goes into that one.
    TurnStarted {
        /// The agent's name of the turn, unique in the chat.
        turn: TurnId,
        /// What it is about. Its origin is not a user.
        message: Message,
    },
    /// The agent has taken a steering message into its turn.
    SteeringTaken {
        /// The message's id.
        id: String,
    },
    /// The last event of this turn.
    TurnEnded {
        /// The turn that is over.
        turn: TurnId,
        /// How it went.
        outcome: TurnOutcome,
    },
    /// The agent and every process that it started are gone.
    Closed {
        /// What a new process can continue.
        history: History,
        /// A message that it was sent and never looked at.
        unsent: Option<Box<Unsent>>,
    },
}

/// Names a child chat of an agent: the tool call that started the subagent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChildId(Arc<str>);

impl ChildId {
    /// The child of a tool call.
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

/// A subagent's chat, with the turn that it consists of.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildChat {
    /// Its name.
    pub id: ChildId,
    /// Its title.
    pub title: String,
    /// The id of its turn, used in the actions that follow.
    pub turn: TurnId,
    /// What the subagent was told.
    pub message: Message,
}

/// How a turn ended, seen from the agent.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnOutcome {
    /// The agent finished its work.
    Completed,
    /// It stopped because it was told to.
    Cancelled,
    /// It failed, and sending the message again would fail the same way.
    Failed(ErrorInfo),
    /// It was cut off; the user can resume the turn.
    Interrupted(ErrorInfo),
}
