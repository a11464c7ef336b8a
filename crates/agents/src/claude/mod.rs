//! The driver for the Claude runtime.
//!
//! `provider` opens a runtime for a session, `driver` is the task that talks to
//! it, `requests` holds the control requests in flight, `map` turns messages into
//! actions, `prompt` turns a user's message into the runtime's form. Which turn a
//! message belongs to is known to the turn machine in `innkeeper-claude`.

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
mod requests;
mod selection;

pub use provider::{ClaudeProvider, ClaudeProviderConfig, ProgramSource};
