//! A host under load: an agent that streams at a rate, a host around it in this process,
//! and sockets that look at no more of a frame than its age.
//!
//! Shared by the tests and by the program `host-load`, which measures.

mod agent;
mod driver;
mod histogram;
mod host;
mod mirror;
mod reader;
mod socket;

pub use agent::StreamingAgent;
pub use driver::Driver;
pub use histogram::Histogram;
pub use host::{LoadHost, PROVIDER};
pub use mirror::Mirror;
pub use reader::{Reader, Watch};
pub use socket::{Closed, Socket};
