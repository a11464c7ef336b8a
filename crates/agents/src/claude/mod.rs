//! The driver for the Claude runtime.
//!
//! `provider` opens a runtime for a session, `driver` is the task that talks to
//! it, `turn` knows which turn a message belongs to, `map` turns messages into
//! actions, `prompt` turns a user's message into the runtime's form.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the runtime sends far more kinds of messages and blocks than mean something here"
)]

mod config;
mod driver;
mod map;
mod outgoing;
mod prompt;
mod provider;
mod records;
mod selection;
mod turn;

pub use provider::{ClaudeProvider, ClaudeProviderConfig, ProgramSource};
