//! An Anthropic-compatible endpoint on the loopback interface.
//!
//! Owns the listener, the admission of requests and the upstreams that answer
//! them. It knows nothing of AHP or of sessions beyond the id in the bearer,
//! and can be run alone. A request that is not let in never reaches an
//! upstream, and every failure leaves in Anthropic's error shape.

mod answer;
mod auth;
mod background;
mod betas;
mod body;
mod cache;
mod catalogue;
pub mod check;
mod client;
mod connection;
mod credentials;
mod endpoint;
mod envelope;
mod error;
mod forward;
mod front;
mod head;
mod headers;
mod initiator;
mod ledger;
mod login;
mod model_id;
mod relay;
mod request;
mod server;
mod shared;
mod sse;
mod tap;
mod thread;
mod upstream;

pub use auth::SessionId;
pub use betas::BetaFilter;
pub use client::{ClientOptions, ProxyRules};
pub use credentials::{CopilotAccount, GithubEndpoints};
pub use endpoint::{Endpoint, EndpointError};
pub use error::ApiError;
pub use initiator::TurnMark;
pub use ledger::{Account, LastError, SessionUsage, TooManyCredentials};
pub use login::{DEFAULT_CLIENT_ID, DeviceCode, DeviceLogin, LoginError};
pub use model_id::ModelId;
pub use server::{Gateway, GatewayConfig, GatewayError, GatewayHandle, GatewayLimits};
pub use shared::SharedGateway;
pub use sse::EventScanner;
pub use upstream::anthropic::{AnthropicConfig, AnthropicUpstream};
pub use upstream::copilot::{CopilotConfig, CopilotUpstream, Discovery};
pub use upstream::demo::{
    AnswerOutcome, DemoUpstream, LoggedRequest, REQUEST_LOG_CAPACITY, RequestKind, RequestLog,
};
pub use upstream::{
    Cut, Upstream, UpstreamBody, UpstreamFailure, UpstreamFuture, UpstreamRequest, UpstreamResponse,
};
