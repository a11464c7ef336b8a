//! The runtime's stream-json messages as types.
//!
//! Decoding is tolerant: fields of an unexpected type, unknown fields, and unknown kinds of messages or
//! content blocks are kept as raw JSON. This module does not do I/O.

pub mod content;
pub mod control;
pub(crate) mod cursor;
pub(crate) mod fields;
mod frame_decoder;
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
pub use frame_decoder::{DecodedFrame, FrameDecoder};
pub use message::{
    AssistantMessage, BlockDelta, DecodeError, Message, Notice, ResultMessage, StreamEvent,
    StreamEventMessage, SystemMessage, SystemNotice, UserFrameMessage, decode,
};

pub use crate::lines::LineTooLong;
