//! A fake Anthropic API for `scripts/bench`. It runs in its own process so that its CPU
//! time is not attributed to the measured programs. It sends the response that the plan
//! in a request describes, and counts finished and cancelled responses. It exits when its
//! stdin closes.

mod counts;
mod pacer;
mod streamed_response;

use std::io::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use innkeeper_bench::plan::{AfterResponse, Plan};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use crate::counts::ResponseCounters;
use crate::pacer::Pacer;
use crate::streamed_response::StreamedResponse;

/// State shared by all requests.
#[derive(Debug, Default)]
struct UpstreamState {
    counts: Arc<ResponseCounters>,
    pacer: Pacer,
}

// One thread can generate the load and leaves the other core to the measured program.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on 127.0.0.1")?;
    let address = listener.local_addr()?;
    let router = Router::new()
        .route("/v1/messages", post(messages))
        .route("/counts", get(counts))
        .layer(DefaultBodyLimit::disable())
        .with_state(Arc::new(UpstreamState::default()));
    let listener = listener.tap_io(|socket| {
        // With Nagle's algorithm an event would wait for the acknowledgement of the
        // previous one. If this fails the socket is closed, and the next write reports
        // it.
        socket.set_nodelay(true).ok();
    });
    writeln!(std::io::stdout(), "{}", json!({ "event": "ready", "base_url": format!("http://{address}") }))?;
    tokio::select! {
        served = async { axum::serve(listener, router).await } => served.context("the server stopped"),
        () = stdin_closed() => Ok(()),
    }
}

/// Waits until stdin closes, which means that the parent process has exited.
async fn stdin_closed() {
    let mut stdin = tokio::io::stdin();
    let mut ignored = [0; 64];
    while stdin.read(&mut ignored).await.is_ok_and(|read| read > 0) {}
}

async fn counts(State(shared): State<Arc<UpstreamState>>) -> String {
    shared.counts.to_json().to_string()
}

async fn messages(State(shared): State<Arc<UpstreamState>>, body: Bytes) -> Response<Body> {
    let plan = match Plan::find(&body) {
        Ok(plan) => plan,
        Err(error) => return bad_request(&error.to_string()),
    };
    let permits = shared.pacer.join(plan);
    let streamed = StreamedResponse::new(plan, permits, shared.counts.start());
    let mut response = Response::new(Body::from_stream(streamed.into_stream()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert("request-id", HeaderValue::from_static("req_bench"));
    if plan.ending == AfterResponse::Close {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn bad_request(message: &str) -> Response<Body> {
    let error = json!({ "type": "error", "error": { "type": "invalid_request_error", "message": message } });
    let mut response = Response::new(Body::from(error.to_string()));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
