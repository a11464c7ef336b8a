//! The domain of Innkeeper: sessions, chats and turns, and how their state is published.
//!
//! This crate decides what happens (`session`), keeps the one truth that every
//! client sees (`state`), and names what it needs from the outside as traits and
//! channel pairs (`agent`). It contains no process, socket, SQL or HTTP code.

mod action;
pub mod agent;
pub mod channel;
pub mod client_resources;
pub mod clock;
mod departures;
mod directories;
pub mod files;
pub mod host;
pub mod ids;
pub mod model;
pub mod session;
pub mod state;
pub mod storage;

pub use channel::{ChannelKind, ChannelUri};
pub use host::{Host, HostConfig};
