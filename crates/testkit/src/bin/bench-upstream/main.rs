//! A fake Anthropic for `scripts/bench`, in a process of its own so that its work is not
//! counted as anybody else's. It answers what a request's plan asks for and counts the
//! answers it finished and those that were cancelled. It ends when its stdin does.

mod answer;
mod counts;
mod pacer;

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
use innkeeper_testkit::bench::plan::{Ending, Plan};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use crate::answer::Answer;
use crate::counts::Counts;
use crate::pacer::Pacer;

/// What all requests share.
#[derive(Debug, Default)]
struct Shared {
    counts: Arc<Counts>,
    pacer: Pacer,
}

// One thread is enough for the load, and leaves the other processor to what is measured.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on 127.0.0.1")?;
    let address = listener.local_addr()?;
    let router = Router::new()
        .route("/v1/messages", post(messages))
        .route("/counts", get(counts))
        .layer(DefaultBodyLimit::disable())
        .with_state(Arc::new(Shared::default()));
    let listener = listener.tap_io(|socket| {
        // Without it an event would wait for the acknowledgement of the one before. A
        // socket that refuses is gone already, and the next write says so.
        socket.set_nodelay(true).ok();
    });
    writeln!(std::io::stdout(), "{}", json!({ "event": "ready", "base_url": format!("http://{address}") }))?;
    tokio::select! {
        served = async { axum::serve(listener, router).await } => served.context("the server ended"),
        () = stdin_ended() => Ok(()),
    }
}

/// Waits for the end of stdin, which is the end of whoever started this program.
async fn stdin_ended() {
    let mut stdin = tokio::io::stdin();
    let mut ignored = [0; 64];
    while stdin.read(&mut ignored).await.is_ok_and(|read| read > 0) {}
}

async fn counts(State(shared): State<Arc<Shared>>) -> String {
    shared.counts.to_json().to_string()
}

async fn messages(State(shared): State<Arc<Shared>>, body: Bytes) -> Response<Body> {
    let plan = match Plan::find(&body) {
        Ok(plan) => plan,
        Err(error) => return refusal(&error.to_string()),
    };
    let beats = shared.pacer.join(plan);
    let answer = Answer::new(plan, beats, shared.counts.start());
    let mut response = Response::new(Body::from_stream(answer.into_stream()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert("request-id", HeaderValue::from_static("req_bench"));
    if plan.ending == Ending::Close {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn refusal(message: &str) -> Response<Body> {
    let error = json!({ "type": "error", "error": { "type": "invalid_request_error", "message": message } });
    let mut response = Response::new(Body::from(error.to_string()));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
