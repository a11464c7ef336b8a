//! Innkeeper's domain: sessions, chats and turns, and how their state is published.
//!
//! `session` decides what happens, `state` holds the published state that all clients
//! see, and `agent`, `storage` and `model` declare what the crate needs from outside, as
//! traits and channel pairs. This crate contains no process, socket, SQL or HTTP code.

mod action;
pub mod agent;
pub mod attachments;
pub mod audit;
mod changesets;
pub mod channel;
pub mod client_resources;
pub mod clock;
mod departures;
mod directories;
pub mod edits;
pub mod files;
pub mod host;
pub mod ids;
pub mod media;
pub mod model;
pub mod output;
mod permission_rules;
pub mod policy;
pub mod projects;
pub mod session;
pub mod state;
pub mod storage;
pub mod titles;
pub mod trust;
pub mod usage;

pub use channel::{ChannelKind, ChannelUri};
pub use host::{
    AdministratorRules, AgentLifetimes, EditConfig, Host, HostConfig, HostServices, PermissionConfig,
};
