//! The driver for the Claude runtime.
//!
//! `provider` opens a runtime for a session, and `driver` is the task that drives it.
//! `config` is the configuration schema, `selection` the selected model, effort and agent, `models`
//! the models that can be selected, and `trust` decides whether the project's settings may be used. `prompt` converts a user's message to
//! the runtime's format, `map` turns messages into actions, and `event_queue` sends them to
//! the session. `failures` explains failed turns, and `images` checks attached images.
//! `requests` holds pending control requests, and `records` reads transcripts.
//! The turn machine in `innkeeper-claude` decides which turn a message belongs to.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the runtime sends many more kinds of messages and blocks than are mapped here"
)]

mod config;
mod driver;
mod elicitation;
mod event_queue;
mod failures;
mod images;
mod map;
mod models;
mod plan_review;
mod prompt;
mod provider;
mod records;
mod requests;
mod rule_suggestions;
mod selection;
mod sensitive_files;
mod tool_access;
mod trust;
mod user_questions;

pub use provider::{ClaudeProvider, ClaudeProviderConfig, ProgramSource};
