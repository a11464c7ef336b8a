//! The Agent Host Protocol (AHP) over sockets, and the web page.
//!
//! This crate authenticates connections, reads and writes JSON-RPC, and calls the core
//! for each request. It makes no decisions about sessions.

mod accept;
mod admission;
mod authority;
mod client_requests;
mod concurrent;
mod connection;
mod handlers;
mod limits;
mod metrics;
mod page;
mod params;
mod rpc;
mod server;
mod tls;
mod transport;
mod watches;
mod wire_log;

pub use admission::Admission;
pub use client_requests::ClientConnections;
pub use limits::ServerLimits;
pub use metrics::UsageSource;
pub use server::{Listen, Server, ServerConfig, ServerError, ServerOptions};
pub use tls::{TlsError, TlsIdentity};
pub use wire_log::WireLog;
