//! The Agent Host Protocol over sockets, and the page.
//!
//! This crate admits connections, reads and writes JSON-RPC, and asks the core to
//! do what clients want. It decides nothing about sessions itself.

mod admission;
mod beside;
mod connection;
mod handlers;
mod page;
mod params;
mod reverse;
mod rpc;
mod server;
mod transport;
mod watches;

pub use admission::Admission;
pub use reverse::ClientConnections;
pub use server::{Listen, Server, ServerConfig, ServerError};
