//! The way of one request: gate, route, upstream, answer.
//!
//! Owns the order of the checks (Host, bearer, route, body) and the answer's
//! way out. It does not look into bodies. No request reaches an upstream
//! before its bearer was found good, and none outlives its connection.

use std::sync::Arc;
use std::task::Poll;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use http::header::{AUTHORIZATION, CONTENT_TYPE, EXPECT};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method};

use crate::auth::{self, Nonce, SessionId};
use crate::body;
use crate::connection::ConnectionScope;
use crate::error::ApiError;
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
}

/// What an admitted request asks for.
#[derive(Clone, Copy, Debug)]
enum Route {
    Messages,
    CountTokens,
    Models,
}

/// Answers one request.
pub(crate) async fn serve(
    State(front): State<Arc<Front>>,
    ConnectInfo(scope): ConnectInfo<ConnectionScope>,
    request: Request,
) -> Response {
    let request_id = format!("req_{}", uuid::Uuid::new_v4().simple());
    let (parts, body) = request.into_parts();
    let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
    let result = tokio::select! {
        biased;
        () = scope.ended() => Err(Cut.into()),
        result = answer(&front, parts, body, &request_id) => result,
    };
    let mut response = match result {
        Ok(response) => into_response(response, &scope),
        Err(UpstreamFailure::Api(error)) => error.into_response(&request_id),
        Err(UpstreamFailure::Cut(Cut)) => {
            // With the scope cut the socket takes no more bytes, so this
            // response only ends the HTTP layer's wait for one.
            scope.cut();
            Response::default()
        }
    };
    tracing::debug!(request_id, %method, path, status = response.status().as_u16(), "gateway request");
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        response.headers_mut().entry(REQUEST_ID).or_insert(value);
    }
    response
}

async fn answer(
    front: &Front,
    parts: Parts,
    body: Body,
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
    let body = body::read(body).await?;
    let mut headers = parts.headers;
    headers.remove(AUTHORIZATION);
    let request = UpstreamRequest { session, headers, body, request_id: request_id.to_owned() };
    ask(front, route, request).await
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

fn into_response(answer: UpstreamResponse, scope: &ConnectionScope) -> Response {
    let body = match answer.body {
        UpstreamBody::Full(bytes) => Body::from(bytes),
        UpstreamBody::Stream(stream) => Body::from_stream(cut_with(stream, scope)),
    };
    let mut response = Response::new(body);
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response
}

/// Ends a stream in an error when its connection is cut, so that a client
/// never takes an aborted answer for a whole one.
fn cut_with(
    mut answer: BoxStream<'static, Result<Bytes, Cut>>,
    scope: &ConnectionScope,
) -> impl Stream<Item = Result<Bytes, Cut>> + Send + 'static {
    let mut ended = Box::pin(scope.ended());
    stream::poll_fn(move |context| match ended.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(Some(Err(Cut))),
        Poll::Pending => answer.poll_next_unpin(context),
    })
}
