//! Failures in Anthropic's shape.
//!
//! The one place that turns a failure into the JSON error object, whether it
//! leaves as a response body or as an `error` event inside a stream. It
//! decides the type that belongs to a status and nothing else.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

use crate::answer::AnswerBody;
use crate::sse;

/// A failure that the client is told about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    status: StatusCode,
    kind: Cow<'static, str>,
    message: String,
}

impl ApiError {
    /// Makes a failure whose type is the usual one of its status.
    pub fn from_status(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, kind: kind_of(status).into(), message: message.into() }
    }

    /// Replaces the type that the status implies.
    #[must_use]
    pub fn with_kind(mut self, kind: impl Into<Cow<'static, str>>) -> Self {
        self.kind = kind.into();
        self
    }

    /// The request cannot be understood (400).
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::from_status(StatusCode::BAD_REQUEST, message)
    }

    /// Nobody known asked (401).
    pub fn authentication(message: impl Into<String>) -> Self {
        Self::from_status(StatusCode::UNAUTHORIZED, message)
    }

    /// The request may not come this way (403).
    pub fn permission(message: impl Into<String>) -> Self {
        Self::from_status(StatusCode::FORBIDDEN, message)
    }

    /// There is no such route or model (404).
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::from_status(StatusCode::NOT_FOUND, message)
    }

    /// The body is above the cap (413).
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::from_status(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    /// The upstream cannot be reached, or its answer cannot be used (502).
    pub fn bad_gateway(message: impl Into<String>) -> Self {
        Self::from_status(StatusCode::BAD_GATEWAY, message)
    }

    /// The upstream took too long (504).
    pub fn timed_out(message: impl Into<String>) -> Self {
        Self::from_status(StatusCode::GATEWAY_TIMEOUT, message)
    }

    /// The upstream has no such thing (501).
    pub fn not_implemented(message: impl Into<String>) -> Self {
        Self::from_status(StatusCode::NOT_IMPLEMENTED, message)
    }

    /// The gateway itself failed (500).
    pub fn internal(message: impl Into<String>) -> Self {
        Self::from_status(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// The HTTP status it leaves with.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The `error.type` it leaves with.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// What the client is told.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The failure as an `error` event in the middle of a stream.
    pub(crate) fn event(&self, request_id: &str) -> Bytes {
        // Three strings always encode, so the bare event is never sent.
        sse::encode("error", &self.object(request_id))
            .unwrap_or_else(|_| Bytes::from_static(b"event: error\ndata: {\"type\":\"error\"}\n\n"))
    }

    /// The JSON object, the same for a body and for an event.
    pub(crate) fn object<'a>(&'a self, request_id: &'a str) -> ErrorObject<'a> {
        let error = ErrorDetail { kind: &self.kind, message: &self.message };
        ErrorObject { tag: "error", error, request_id }
    }

    /// The JSON object as a body.
    pub(crate) fn body(&self, request_id: &str) -> Bytes {
        // Three strings always encode, so the empty body is never sent.
        serde_json::to_vec(&self.object(request_id)).unwrap_or_default().into()
    }

    /// The whole HTTP answer.
    pub(crate) fn into_response(self, request_id: &str) -> Response<AnswerBody> {
        let mut response = Response::new(AnswerBody::Full(self.body(request_id)));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

/// The error object on the wire.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorObject<'a> {
    #[serde(rename = "type")]
    tag: &'static str,
    error: ErrorDetail<'a>,
    request_id: &'a str,
}

#[derive(Debug, Serialize)]
struct ErrorDetail<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    message: &'a str,
}

/// The type that Anthropic's API gives a status.
pub(crate) fn kind_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_has_the_shape_that_anthropic_clients_parse() {
        let error = ApiError::not_found("no such model");
        let json = serde_json::to_value(error.object("req_1")).unwrap();
        let expected = serde_json::json!({
            "type": "error",
            "error": {"type": "not_found_error", "message": "no such model"},
            "request_id": "req_1",
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn each_status_has_its_type() {
        for (status, kind) in [
            (400, "invalid_request_error"),
            (401, "authentication_error"),
            (402, "billing_error"),
            (403, "permission_error"),
            (404, "not_found_error"),
            (409, "invalid_request_error"),
            (413, "request_too_large"),
            (429, "rate_limit_error"),
            (500, "api_error"),
            (502, "api_error"),
            (504, "timeout_error"),
            (529, "overloaded_error"),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(ApiError::from_status(status, "").kind(), kind, "{status}");
        }
    }
}
