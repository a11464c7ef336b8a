//! Handles one request: authentication, routing, upstream, response.
//!
//! Owns the order of the checks (Host, bearer, route, body) and builds the
//! HTTP response. It does not parse bodies. No request reaches an upstream
//! before its bearer was verified, and no request outlives its connection.

use std::sync::Arc;

use http::header::{AUTHORIZATION, CONTENT_TYPE, EXPECT};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response};
use hyper::body::Incoming;

use crate::auth::{self, Nonce, SessionId};
use crate::body;
use crate::connection_slot::ConnectionSlot;
use crate::error::ApiError;
use crate::response_body::ResponseBody;
use crate::upstream::{
    Cut, Upstream, UpstreamBody, UpstreamFailure, UpstreamFuture, UpstreamRequest, UpstreamResponse,
};
use crate::usage_ledger::UsageLedger;

/// Response header with the request's id, as Anthropic's API sends it.
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// State shared by all requests.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) nonce: Arc<Nonce>,
    pub(crate) upstream: Arc<dyn Upstream>,
    pub(crate) ledger: Arc<UsageLedger>,
    /// Largest request body in bytes.
    pub(crate) body_cap: usize,
}

/// The routes that need a session.
#[derive(Clone, Copy, Debug)]
enum Route {
    Messages,
    CountTokens,
    Models,
}

/// Handles one request; an error closes the connection without a response.
pub(crate) async fn serve(
    front: Arc<Front>,
    slot: Arc<ConnectionSlot>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Cut> {
    let request_id = format!("req_{}", uuid::Uuid::new_v4().simple());
    let (parts, body) = request.into_parts();
    let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
    let mut response = match handle(&front, &slot, parts, body, &request_id).await {
        Ok(response) => into_response(response),
        Err(UpstreamFailure::Api(error)) => error.into_response(&request_id),
        Err(UpstreamFailure::Cut(cut)) => return Err(cut),
    };
    tracing::debug!(request_id, %method, path, status = response.status().as_u16(), "gateway request");
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        response.headers_mut().entry(REQUEST_ID).or_insert(value);
    }
    Ok(response)
}

async fn handle(
    front: &Front,
    slot: &ConnectionSlot,
    parts: Parts,
    body: Incoming,
    request_id: &str,
) -> Result<UpstreamResponse, UpstreamFailure> {
    let (session, route) = match admit(front, slot, &parts) {
        Ok(AdmittedRequest::Greeting) => return Ok(greeting()),
        Ok(AdmittedRequest::Session(session, route)) => (session, route),
        Err(error) => {
            // Reading the body would send `100 Continue`, so a client that waits for it is not drained.
            if !parts.headers.contains_key(EXPECT) {
                body::drain(body).await;
            }
            return Err(error.into());
        }
    };
    let account = front.ledger.account(&session);
    // The other routes do not fail a turn.
    let note = |error: &ApiError| {
        if matches!(route, Route::Messages) {
            account.note_error(error, request_id);
        }
    };
    let body = body::read(body, front.body_cap).await.inspect_err(note)?;
    let query = parts.uri.query().map(str::to_owned);
    let mut headers = parts.headers;
    headers.remove(AUTHORIZATION);
    let request = UpstreamRequest {
        session,
        headers,
        body,
        request_id: request_id.to_owned(),
        query,
        account: account.clone(),
    };
    let result = dispatch(front, route, request).await;
    if let Err(UpstreamFailure::Api(error)) = &result {
        note(error);
    }
    result
}

fn dispatch(front: &Front, route: Route, request: UpstreamRequest) -> UpstreamFuture<'_> {
    match route {
        Route::Messages => front.upstream.messages(request),
        Route::CountTokens => front.upstream.count_tokens(request),
        Route::Models => front.upstream.models(request),
    }
}

enum AdmittedRequest {
    /// `/`, which runtimes request to warm up a connection.
    Greeting,
    Session(SessionId, Route),
}

fn admit(front: &Front, slot: &ConnectionSlot, parts: &Parts) -> Result<AdmittedRequest, ApiError> {
    auth::check_host(&parts.headers)?;
    let path = parts.uri.path();
    if path == "/" && (parts.method == Method::GET || parts.method == Method::HEAD) {
        return Ok(AdmittedRequest::Greeting);
    }
    let session = front.nonce.authenticate(&parts.headers)?;
    slot.take()?;
    let route = match (parts.method.as_str(), path) {
        ("POST", "/v1/messages") => Route::Messages,
        ("POST", "/v1/messages/count_tokens") => Route::CountTokens,
        ("GET", "/v1/models") => Route::Models,
        (method, path) => {
            return Err(ApiError::not_found(format!(
                "unknown route {method} {path}; available: POST /v1/messages, \
                 POST /v1/messages/count_tokens and GET /v1/models"
            )));
        }
    };
    Ok(AdmittedRequest::Session(session, route))
}

fn greeting() -> UpstreamResponse {
    let mut headers = http::HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    UpstreamResponse { status: http::StatusCode::OK, headers, body: UpstreamBody::Full("ok\n".into()) }
}

fn into_response(upstream: UpstreamResponse) -> Response<ResponseBody> {
    let mut response = Response::new(upstream.body.into());
    *response.status_mut() = upstream.status;
    *response.headers_mut() = upstream.headers;
    response
}
