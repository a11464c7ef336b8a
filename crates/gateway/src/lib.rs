//! An Anthropic-compatible endpoint on the loopback interface.
//!
//! Owns the listener, the admission of requests and the upstreams that answer
//! them. It knows nothing of AHP or of sessions beyond the id in the bearer,
//! and can be run alone. A request that is not let in never reaches an
//! upstream, and every failure leaves in Anthropic's error shape.

mod auth;
mod body;
mod connection;
mod error;
mod front;
mod request;
mod server;
mod sse;
mod upstream;

pub use auth::SessionId;
pub use error::ApiError;
pub use server::{Gateway, GatewayConfig, GatewayError, GatewayHandle};
pub use upstream::demo::{
    AnswerOutcome, DemoUpstream, LoggedRequest, REQUEST_LOG_CAPACITY, RequestKind, RequestLog,
};
pub use upstream::{
    Cut, Upstream, UpstreamBody, UpstreamFailure, UpstreamFuture, UpstreamRequest, UpstreamResponse,
};
