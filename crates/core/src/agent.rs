//! The seam between a session and the agent that works in it.
//!
//! Opening an agent is a trait ([`AgentProvider`]); talking to it is a pair of
//! channels of closed enums ([`AgentCommand`], [`AgentEvent`]), so everything that
//! crosses the seam is listed here and a test's agent is two channels. Capabilities
//! are data ([`AgentOffer`]), not methods.

mod command;
mod event;
mod offer;
mod open;
mod record;

use std::future::Future;
use std::pin::Pin;

pub use command::{AgentCommand, Approval, InputAnswer, McpServerRequest, ToolAnswer, Unsent};
pub use event::{AgentEvent, ChildChat, ChildId, TurnOutcome};
pub use offer::{
    AgentFeatures, AgentOffer, AgentProvider, CommandInfo, ResolvedConfig, ResourceToken, TokenRefused,
    plain_info,
};
pub use open::{
    AgentLink, Branch, BranchKind, ClientTool, History, OpenAgent, OpenError, ResumeToken, Selection, Switch,
};
pub use record::{
    ConversationRecords, ConversationSummary, MessageLink, RecordError, RecordedTurn, TurnLink,
};

/// Commands that may wait at an agent. A session sends one prompt or cancel at a
/// time, so a full queue means that the driver is stuck: the link is then closed.
pub const COMMAND_CAPACITY: usize = 16;

/// Events that may wait for a session. A full queue makes the driver (never the
/// reader of the agent's output) wait for the session to catch up.
pub const EVENT_CAPACITY: usize = 256;

/// A boxed future, for methods of `dyn` traits.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
