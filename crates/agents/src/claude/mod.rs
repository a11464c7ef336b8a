//! The driver for the Claude runtime.
//!
//! `provider` opens a runtime for a session, `driver` is the task that drives it,
//! `requests` holds pending control requests, `map` turns messages into actions,
//! `prompt` converts a user's message to the runtime's format, `trust` decides whether the
//! project's settings may be used. The turn machine in
//! `innkeeper-claude` decides which turn a message belongs to.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the runtime sends many more kinds of messages and blocks than are mapped here"
)]

mod config;
mod driver;
mod event_queue;
mod map;
mod prompt;
mod provider;
mod records;
mod requests;
mod selection;
mod trust;

pub use provider::{ClaudeProvider, ClaudeProviderConfig, ProgramSource};
