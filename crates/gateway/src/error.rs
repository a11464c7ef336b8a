//! Errors in Anthropic's format.
//!
//! The only place that turns a failure into the JSON error object, both for a
//! response body and for an `error` event in a stream. Also maps an HTTP
//! status to its error type.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

use crate::response_body::ResponseBody;
use crate::sse;

/// An error that is sent to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    status: StatusCode,
    kind: Cow<'static, str>,
    message: String,
    /// Only recorded; the client receives the upstream's header.
    retry_after: Option<Duration>,
}

impl ApiError {
    /// Creates an error with the usual type for its status.
    pub fn from_status(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, kind: kind_of(status).into(), message: message.into(), retry_after: None }
    }

    /// Replaces the type derived from the status.
    #[must_use]
    pub fn with_kind(mut self, kind: impl Into<Cow<'static, str>>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Sets when the upstream accepts the next request.
    #[must_use]
    pub fn with_retry_after(mut self, retry_after: Option<Duration>) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// The request is invalid (400).
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::from_status(StatusCode::BAD_REQUEST, message)
    }

    /// The credentials are missing or wrong (401).
    pub fn authentication(message: impl Into<String>) -> Self {
        Self::from_status(StatusCode::UNAUTHORIZED, message)
    }

    /// The request is not allowed (403).
    pub fn permission(message: impl Into<String>) -> Self {
        Self::from_status(StatusCode::FORBIDDEN, message)
    }

    /// Unknown route or model (404).
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::from_status(StatusCode::NOT_FOUND, message)
    }

    /// The body exceeds the limit (413).
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::from_status(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    /// The upstream is unreachable or its response is unusable (502).
    pub fn bad_gateway(message: impl Into<String>) -> Self {
        Self::from_status(StatusCode::BAD_GATEWAY, message)
    }

    /// The upstream timed out (504).
    pub fn timed_out(message: impl Into<String>) -> Self {
        Self::from_status(StatusCode::GATEWAY_TIMEOUT, message)
    }

    /// The upstream does not support the operation (501).
    pub fn not_implemented(message: impl Into<String>) -> Self {
        Self::from_status(StatusCode::NOT_IMPLEMENTED, message)
    }

    /// Internal gateway error (500).
    pub fn internal(message: impl Into<String>) -> Self {
        Self::from_status(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The `error.type` field.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The `error.message` field.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// When the upstream accepts the next request, if it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The error as an `error` event in a stream.
    pub(crate) fn event(&self, request_id: &str) -> Bytes {
        // Encoding three strings cannot fail, so the fallback is never sent.
        sse::encode("error", &self.object(request_id))
            .unwrap_or_else(|_| Bytes::from_static(b"event: error\ndata: {\"type\":\"error\"}\n\n"))
    }

    /// The JSON object, the same for a body and an event.
    pub(crate) fn object<'a>(&'a self, request_id: &'a str) -> ErrorObject<'a> {
        let error = ErrorDetail { kind: &self.kind, message: &self.message };
        ErrorObject { tag: "error", error, request_id }
    }

    /// The JSON object as a body.
    pub(crate) fn body(&self, request_id: &str) -> Bytes {
        // Encoding three strings cannot fail, so the empty body is never sent.
        serde_json::to_vec(&self.object(request_id)).unwrap_or_default().into()
    }

    /// The complete HTTP response.
    pub(crate) fn into_response(self, request_id: &str) -> Response<ResponseBody> {
        let mut response = Response::new(ResponseBody::Full(self.body(request_id)));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

/// The serialised error object.
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

/// The error type that Anthropic's API uses for a status.
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
    fn error_object_has_anthropic_format() {
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
    fn each_status_maps_to_its_type() {
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
