//! Where a model request goes.
//!
//! Owns the seam between the front, which lets requests in, and whatever
//! answers them. An upstream sees the body as bytes and understands as much
//! of it as it needs. Dropping an answer's body cancels the request.

use std::fmt;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use http::{HeaderMap, StatusCode};

use crate::auth::SessionId;
use crate::error::ApiError;
use crate::ledger::Account;

pub(crate) mod anthropic;
pub(crate) mod copilot;
pub(crate) mod demo;

/// A request that passed the front.
#[derive(Debug)]
pub struct UpstreamRequest {
    /// The session that the bearer names.
    pub session: SessionId,
    /// What the client sent, without `Authorization`.
    pub headers: HeaderMap,
    /// The body as it came, at most the front's cap; empty for a list.
    pub body: Bytes,
    /// The id under which this request is logged and answered.
    pub request_id: String,
    /// What came after the `?`, if anything; the front itself ignores it.
    pub query: Option<String>,
    /// The books of the session.
    pub account: Account,
}

/// An answer whose status is known.
#[derive(Debug)]
pub struct UpstreamResponse {
    /// The HTTP status.
    pub status: StatusCode,
    /// Headers that the client gets, content type included.
    pub headers: HeaderMap,
    /// What follows them.
    pub body: UpstreamBody,
}

/// The body of an answer.
pub enum UpstreamBody {
    /// All of it at once.
    Full(Bytes),
    /// Piece by piece, each flushed on its own; an error item cuts the connection.
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

/// The connection is to end without a proper end of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection was cut")]
pub struct Cut;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamFailure {
    /// The client gets this error.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The client gets nothing: its connection is cut.
    #[error(transparent)]
    Cut(#[from] Cut),
}

/// The future of an answer.
pub type UpstreamFuture<'a> = BoxFuture<'a, Result<UpstreamResponse, UpstreamFailure>>;

/// Something that answers model requests.
pub trait Upstream: fmt::Debug + Send + Sync {
    /// Answers `POST /v1/messages`, streaming or not as the body asks.
    fn messages(&self, request: UpstreamRequest) -> UpstreamFuture<'_>;

    /// Answers `POST /v1/messages/count_tokens`.
    fn count_tokens(&self, request: UpstreamRequest) -> UpstreamFuture<'_>;

    /// Answers `GET /v1/models`.
    fn models(&self, request: UpstreamRequest) -> UpstreamFuture<'_>;
}
