//! The Claude Code runtime as a library: launching it, its stream-json wire, its control protocol and its
//! long-lived sessions.
//!
//! This crate knows nothing of the protocol its callers speak to their own clients. Its invariants: nothing
//! it starts outlives it, its readers never wait for a consumer, and no wire message it does not know is
//! lost or fatal.

mod control;
mod inherited_fd;
pub mod install;
mod intake;
mod lines;
mod options;
mod process;
mod queue;
mod session;
pub mod transcript;
pub mod warden;
pub mod wire;

pub use control::{RequestError, SendError};
pub use options::{
    Conversation, Endpoint, LaunchOptions, LaunchPlan, PermissionMode, Program, WardenProgram,
};
pub use process::{Exit, ExitReason};
pub use session::{
    ClaudeSession, Initialized, ModelInfo, SessionEvent, SessionEvents, StartError, UserContent, UserMessage,
};
pub use wire::{IncomingRequest, Message};
