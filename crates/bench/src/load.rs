//! Load generation: an agent that streams at a given rate, a host in this process that
//! serves it, and sockets that parse only the timestamp and sequence number of each
//! frame.
//!
//! Used by the tests and by the benchmark `host-load`.

mod agent;
mod driver;
mod histogram;
mod host;
mod mirror;
mod socket;
mod timed_frame_reader;

pub use agent::StreamingAgent;
pub use driver::LoadDriver;
pub use histogram::Histogram;
pub use host::{LoadHost, PROVIDER};
pub use mirror::Mirror;
pub use socket::{Socket, SocketClosed};
pub use timed_frame_reader::{TimedFrameReader, Watch};
