//! Fake upstreams of the gateway, on 127.0.0.1: Anthropic's service, and
//! GitHub with its Copilot.
//!
//! They answer what a test scripts, piece by piece and each piece behind a
//! gate if asked to, so that a test of order needs no sleep. They note every
//! request and how it ended. No HTTP library is in between: a fake can break
//! off anywhere.

mod anthropic;
mod copilot;
mod events;
mod exchange;
mod reply;
mod server;
mod wire;

pub use anthropic::FakeAnthropic;
pub use copilot::FakeCopilot;
pub use events::{EventStream, event, message};
pub use reply::{Ending, Gate, Reply};
pub use server::{FakeServer, Outcome, RecordedRequest};
