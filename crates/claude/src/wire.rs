//! The runtime's stream-json messages as types.
//!
//! Everything here is tolerant: a field of an unexpected shape, an unknown field, an unknown kind of message
//! or content block is kept as raw JSON instead of failing. Nothing here reads from or writes to a process.

pub mod content;
pub mod control;
pub(crate) mod cursor;
pub(crate) mod fields;
mod frames;
pub mod message;
mod notice;
mod system;

pub use content::{ApiMessage, ContentBlock, MessageContent, Usage};
pub use control::{
    CanUseTool, ControlCancelRequestMessage, ControlRequestMessage, ControlResponseMessage, Elicitation,
    HookCallback, IncomingRequest, McpMessage, TokenRefresh, UserDialog,
};
pub use cursor::Cursor;
pub use fields::{Extra, Wire};
pub use frames::{Frame, Frames};
pub use message::{
    AssistantMessage, BlockDelta, DecodeError, Message, Notice, ResultMessage, StreamEvent,
    StreamEventMessage, SystemMessage, SystemNotice, UserFrameMessage, decode,
};

pub use crate::lines::LineTooLong;
