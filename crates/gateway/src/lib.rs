//! An Anthropic-compatible HTTP endpoint on the loopback interface.
//!
//! Owns the listener, request authentication and the upstreams that answer
//! requests. It does not depend on AHP and knows a session only by the id in
//! the bearer token, so it can run stand-alone. An unauthenticated request
//! never reaches an upstream, and every failure is reported as an Anthropic
//! error object.

mod auth;
mod background;
mod betas;
mod body;
mod cache;
mod catalogue;
mod client;
mod connection;
mod connection_slot;
mod credentials;
mod endpoint;
mod envelope;
mod error;
mod forward;
mod front;
mod head;
mod headers;
mod initiator;
mod login;
mod model_id;
mod model_list;
mod relay;
mod request;
mod response_body;
mod server;
mod shared;
mod side_question;
mod sse;
mod tap;
mod thread;
mod upstream;
mod usage_ledger;

pub use auth::SessionId;
pub use betas::BetaFilter;
pub use client::{ClientOptions, ProxyRules};
pub use credentials::{CopilotAccount, GithubEndpoints};
pub use endpoint::{Endpoint, EndpointError};
pub use error::ApiError;
pub use initiator::TurnMark;
pub use login::{DEFAULT_CLIENT_ID, DeviceCode, DeviceLogin, LoginError};
pub use model_id::ModelId;
pub use model_list::{ModelList, ModelPolicy, UnknownModel, UnlistedModels, UpstreamModel};
pub use server::{Gateway, GatewayConfig, GatewayError, GatewayHandle, GatewayLimits};
pub use shared::SharedGateway;
pub use side_question::SideQuestion;
pub use sse::EventScanner;
pub use upstream::anthropic::{AnthropicConfig, AnthropicUpstream};
pub use upstream::copilot::{CopilotConfig, CopilotUpstream, Discovery};
pub use upstream::demo::{
    DemoUpstream, LoggedRequest, REQUEST_LOG_CAPACITY, RequestKind, RequestLog, ResponseOutcome,
};
pub use upstream::{
    Cut, ModelListFuture, Upstream, UpstreamBody, UpstreamFailure, UpstreamFuture, UpstreamRequest,
    UpstreamResponse,
};
pub use usage_ledger::{Account, LastError, SessionUsage, TooManyCredentials};
