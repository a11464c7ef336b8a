//! The gateway with fake upstreams, over real sockets.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic in a helper fails the test")]

mod accounting;
mod anthropic;
mod copilot;
mod copilot_requests;
mod errors;
mod initiator;
mod lifecycle;
mod login;
mod retry;
mod side_questions;
mod streaming;
mod support;
mod thread;
