//! The interface between the gateway and the services that answer requests.
//!
//! `front` authenticates a request and hands it to an [`Upstream`], which
//! receives the body as bytes and parses as much of it as it needs. Dropping
//! a response body cancels the request.

use std::fmt;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use http::{HeaderMap, StatusCode};

use crate::auth::SessionId;
use crate::error::ApiError;
use crate::model_list::ModelList;
use crate::usage_ledger::Account;

pub(crate) mod anthropic;
pub(crate) mod copilot;
pub(crate) mod demo;

/// An authenticated request.
#[derive(Debug)]
pub struct UpstreamRequest {
    /// The session id from the bearer.
    pub session: SessionId,
    /// The client's headers, without `Authorization`.
    pub headers: HeaderMap,
    /// The unmodified body, at most as large as the limit; empty for a model list.
    pub body: Bytes,
    /// The id of this request in logs and in the response.
    pub request_id: String,
    /// The query string; the gateway itself ignores it.
    pub query: Option<String>,
    /// The usage account of the session.
    pub account: Account,
}

/// A response whose status is known.
#[derive(Debug)]
pub struct UpstreamResponse {
    /// The HTTP status.
    pub status: StatusCode,
    /// Headers for the client, including the content type.
    pub headers: HeaderMap,
    /// The response body.
    pub body: UpstreamBody,
}

/// The body of a response.
pub enum UpstreamBody {
    /// A complete body.
    Full(Bytes),
    /// Chunks, each flushed separately; an error item cuts the connection.
    Stream(BoxStream<'static, Result<Bytes, Cut>>),
}

impl fmt::Debug for UpstreamBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(bytes) => formatter.debug_tuple("Full").field(&bytes.len()).finish(),
            Self::Stream(_) => formatter.write_str("Stream"),
        }
    }
}

/// Closes the connection without a proper end of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("connection cut")]
pub struct Cut;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamFailure {
    /// The client gets this error.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The client gets no response: its connection is cut.
    #[error(transparent)]
    Cut(#[from] Cut),
}

/// The future of a response.
pub type UpstreamFuture<'a> = BoxFuture<'a, Result<UpstreamResponse, UpstreamFailure>>;

/// The future of a model list.
pub type ModelListFuture<'a> = BoxFuture<'a, Result<ModelList, ApiError>>;

/// A service that answers model requests.
pub trait Upstream: fmt::Debug + Send + Sync {
    /// Answers `POST /v1/messages`, streamed if the body asks for it.
    fn messages(&self, request: UpstreamRequest) -> UpstreamFuture<'_>;

    /// Answers `POST /v1/messages/count_tokens`.
    fn count_tokens(&self, request: UpstreamRequest) -> UpstreamFuture<'_>;

    /// Answers `GET /v1/models`.
    fn models(&self, request: UpstreamRequest) -> UpstreamFuture<'_>;

    /// Asks the service for the models of the upstream's own credentials.
    fn model_list(&self) -> ModelListFuture<'_>;

    /// Completes when the upstream's own credentials were replaced since the last call. Only one
    /// task may wait. By default credentials never change.
    fn credentials_replaced(&self) -> BoxFuture<'_, ()> {
        std::future::pending().boxed()
    }
}
