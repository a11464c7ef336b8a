//! The way of one request: gate, route, upstream, answer.
//!
//! Owns the order of the checks (Host, bearer, route, body) and the answer's
//! way out. It does not look into bodies. No request reaches an upstream
//! before its bearer was found good, and none outlives its connection.

use std::sync::Arc;

use http::header::{AUTHORIZATION, CONTENT_TYPE, EXPECT};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response};
use hyper::body::Incoming;

use crate::answer::AnswerBody;
use crate::auth::{self, Nonce, SessionId};
use crate::body;
use crate::error::ApiError;
use crate::ledger::Ledger;
use crate::upstream::{
    Cut, Upstream, UpstreamBody, UpstreamFailure, UpstreamFuture, UpstreamRequest, UpstreamResponse,
};

/// Header that names a request in its answer, as Anthropic's API does.
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// What every request needs.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) nonce: Arc<Nonce>,
    pub(crate) upstream: Arc<dyn Upstream>,
    pub(crate) ledger: Arc<Ledger>,
    /// Largest request body in bytes.
    pub(crate) body_cap: usize,
}

/// What an admitted request asks for.
#[derive(Clone, Copy, Debug)]
enum Route {
    Messages,
    CountTokens,
    Models,
}

/// Answers one request; an error ends the connection without an answer.
pub(crate) async fn serve(
    front: Arc<Front>,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, Cut> {
    let request_id = format!("req_{}", uuid::Uuid::new_v4().simple());
    let (parts, body) = request.into_parts();
    let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
    let mut response = match answer(&front, parts, body, &request_id).await {
        Ok(answer) => into_response(answer),
        Err(UpstreamFailure::Api(error)) => error.into_response(&request_id),
        Err(UpstreamFailure::Cut(cut)) => return Err(cut),
    };
    tracing::debug!(request_id, %method, path, status = response.status().as_u16(), "gateway request");
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        response.headers_mut().entry(REQUEST_ID).or_insert(value);
    }
    Ok(response)
}

async fn answer(
    front: &Front,
    parts: Parts,
    body: Incoming,
    request_id: &str,
) -> Result<UpstreamResponse, UpstreamFailure> {
    let (session, route) = match admit(front, &parts) {
        Ok(Admission::Greeting) => return Ok(greeting()),
        Ok(Admission::Session(session, route)) => (session, route),
        Err(error) => {
            // A client that waits for `100 Continue` sends nothing unless the body is read.
            if !parts.headers.contains_key(EXPECT) {
                body::drain(body).await;
            }
            return Err(error.into());
        }
    };
    let body = body::read(body, front.body_cap).await?;
    let query = parts.uri.query().map(str::to_owned);
    let mut headers = parts.headers;
    headers.remove(AUTHORIZATION);
    let account = front.ledger.account(&session);
    let request = UpstreamRequest {
        session,
        headers,
        body,
        request_id: request_id.to_owned(),
        query,
        account: account.clone(),
    };
    let result = ask(front, route, request).await;
    if let Err(UpstreamFailure::Api(error)) = &result {
        account.note_error(error, request_id);
    }
    result
}

fn ask(front: &Front, route: Route, request: UpstreamRequest) -> UpstreamFuture<'_> {
    match route {
        Route::Messages => front.upstream.messages(request),
        Route::CountTokens => front.upstream.count_tokens(request),
        Route::Models => front.upstream.models(request),
    }
}

enum Admission {
    /// `/`, which runtimes ask to warm up a connection.
    Greeting,
    Session(SessionId, Route),
}

fn admit(front: &Front, parts: &Parts) -> Result<Admission, ApiError> {
    auth::check_host(&parts.headers)?;
    let path = parts.uri.path();
    if path == "/" && (parts.method == Method::GET || parts.method == Method::HEAD) {
        return Ok(Admission::Greeting);
    }
    let session = front.nonce.authenticate(&parts.headers)?;
    let route = match (parts.method.as_str(), path) {
        ("POST", "/v1/messages") => Route::Messages,
        ("POST", "/v1/messages/count_tokens") => Route::CountTokens,
        ("GET", "/v1/models") => Route::Models,
        (method, path) => {
            return Err(ApiError::not_found(format!(
                "there is no {method} {path} here; there are POST /v1/messages, \
                 POST /v1/messages/count_tokens and GET /v1/models"
            )));
        }
    };
    Ok(Admission::Session(session, route))
}

fn greeting() -> UpstreamResponse {
    let mut headers = http::HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    UpstreamResponse { status: http::StatusCode::OK, headers, body: UpstreamBody::Full("ok\n".into()) }
}

fn into_response(answer: UpstreamResponse) -> Response<AnswerBody> {
    let mut response = Response::new(answer.body.into());
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response
}
