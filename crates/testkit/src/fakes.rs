//! Fake gateway upstreams on 127.0.0.1: the Anthropic API, and GitHub with Copilot.
//!
//! They send scripted responses in pieces, each optionally delayed by a gate, so that
//! tests of ordering need no sleep. They record every request and its outcome. They do
//! not use an HTTP library, so that a response can stop at any byte.

mod anthropic;
mod copilot;
mod events;
mod exchange;
mod http;
mod reply;
mod server;

pub use anthropic::FakeAnthropic;
pub use copilot::FakeCopilot;
pub use events::{EventStream, event, message};
pub use reply::{Ending, Gate, Reply};
pub use server::{FakeServer, Outcome, RecordedRequest};
