//! The interface between a session and its agent.
//!
//! Opening an agent is a trait ([`AgentProvider`]). A session and an open agent
//! communicate over two channels of closed enums ([`AgentCommand`], [`AgentEvent`]), so
//! this module lists every message, and a test can replace an agent with two channels.
//! Capabilities are data ([`AgentOffer`]), not methods.

mod command;
mod environment;
mod event;
mod offer;
mod open;
mod permission;
mod record;
mod todo;
mod work;

use std::future::Future;
use std::pin::Pin;

pub use command::{AgentCommand, Approval, InputAnswer, McpServerRequest, ToolAnswer, TurnMessage};
pub use environment::{ENVIRONMENT, environment_of, environment_problem};
pub use event::{AgentEvent, ChildChat, ChildId, TurnOutcome};
pub use offer::{
    AgentFeatures, AgentOffer, AgentProvider, CommandInfo, ResolvedConfig, ResourceToken, TokenRefused,
    plain_info,
};
pub use open::{
    AgentConnection, Branch, BranchKind, ClientTool, History, OpenAgent, OpenError, OpeningAnswer,
    OpeningOption, OpeningQuestion, RecorderSource, ResumeToken, Selection, Switch,
};
pub use permission::{PermissionQuery, PermissionQuestion, PermissionStage, PermissionVerdict};
pub use record::{
    ConversationRecords, ConversationSummary, HostConversation, MessageLink, RecordError, RecordedTurn,
    TurnLink,
};
pub use todo::{TodoItem, TodoList, TodoStatus};
pub use work::{StopTarget, StoppedWork, WorkKind};

/// Capacity of an agent's command queue. A session sends one prompt or cancel at a time,
/// so a full queue means that the driver is stuck; the session then closes the connection.
pub const COMMAND_CAPACITY: usize = 16;

/// Capacity of a session's event queue. If it is full, the driver queues further events
/// itself (`event_queue` in `innkeeper-agents`), so that it can still take commands.
pub const EVENT_CAPACITY: usize = 256;

/// A boxed future, for methods of `dyn` traits.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
