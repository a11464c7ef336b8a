//! A small model API for the real runtimes. The prompt selects the response; requests are recorded.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

/// A request that the API received.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// A listening API. Stops when dropped.
pub(crate) struct Api {
    pub(crate) base_url: String,
    requests: Log,
    _server: AbortOnDropHandle<()>,
}

type Log = Arc<Mutex<Vec<ReceivedRequest>>>;

impl Api {
    pub(crate) async fn listen() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Log::default();
        let router = Router::new().fallback(answer).with_state(Arc::clone(&requests));
        let tasks = tokio_util::task::TaskTracker::new();
        let server = tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { base_url, requests, _server: AbortOnDropHandle::new(server) }
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// Requests for a model response.
    pub(crate) fn model_calls(&self) -> Vec<ReceivedRequest> {
        let is_call =
            |request: &ReceivedRequest| request.method == Method::POST && request.path == "/v1/messages";
        self.requests().into_iter().filter(is_call).collect()
    }
}

async fn answer(State(log): State<Log>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, 64 << 20).await.unwrap();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let path = parts.uri.path().to_owned();
    let is_call = parts.method == Method::POST && path == "/v1/messages";
    let response = if is_call { stream_answer(&body) } else { ().into_response() };
    log.lock().unwrap().push(ReceivedRequest { method: parts.method, path, headers: parts.headers, body });
    response
}

/// Responds according to the last prompt: `run COMMAND` calls Bash, `hang` sends one word and then nothing, anything
/// else is answered with the number of messages. A tool result ends the turn.
fn stream_answer(body: &Value) -> Response {
    let mut messages = body["messages"].as_array().cloned().unwrap_or_default();
    // The newer runtime inserts its own instructions between the messages.
    messages.retain(|message| message["role"] != "system");
    let last = messages.iter().rfind(|message| message["role"] == "user").cloned().unwrap_or_default();
    let is_tool_result = last["content"]
        .as_array()
        .is_some_and(|blocks| blocks.iter().any(|block| block["type"] == "tool_result"));
    let prompt = last_text(&last["content"]);
    let mut events = vec![event(json!({ "type": "message_start", "message": {
        "id": format!("msg_{}", messages.len()), "type": "message", "role": "assistant", "model": body["model"],
        "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": { "input_tokens": 3, "output_tokens": 1 } } }))];
    let text = |events: &mut Vec<String>, words: &str| {
        events.push(block_start(json!({ "type": "text", "text": "" })));
        events.push(delta(json!({ "type": "text_delta", "text": words })));
    };
    let mut stop_reason = "end_turn";
    let mut hangs = false;
    match (is_tool_result, prompt.split_once(' ')) {
        (true, _) => text(&mut events, "The command has run."),
        (false, Some(("run", command))) => {
            events.push(block_start(
                json!({ "type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {} }),
            ));
            let input = json!({ "command": command, "description": "a command" }).to_string();
            events.push(delta(json!({ "type": "input_json_delta", "partial_json": input })));
            stop_reason = "tool_use";
        }
        (false, _) => {
            text(&mut events, &format!("{} messages", messages.len()));
            hangs = prompt == "hang";
        }
    }
    if !hangs {
        events.push(event(json!({ "type": "content_block_stop", "index": 0 })));
        events.push(event(json!({ "type": "message_delta", "usage": { "output_tokens": 4 },
            "delta": { "stop_reason": stop_reason, "stop_sequence": null } })));
        events.push(event(json!({ "type": "message_stop" })));
    }
    let sent = stream::iter(events).map(Ok::<_, std::io::Error>);
    let stream = if hangs { sent.chain(stream::pending()).left_stream() } else { sent.right_stream() };
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(stream)).into_response()
}

/// Returns the user's text: the last block that is not a reminder of the runtime.
fn last_text(content: &Value) -> String {
    let blocks = content.as_array().cloned().unwrap_or_else(|| vec![json!({ "text": content })]);
    let mut texts = blocks.iter().filter_map(|block| block["text"].as_str());
    texts.rfind(|text| !text.starts_with('<')).unwrap_or_default().to_owned()
}

fn block_start(block: Value) -> String {
    event(json!({ "type": "content_block_start", "index": 0, "content_block": block }))
}

fn delta(delta: Value) -> String {
    event(json!({ "type": "content_block_delta", "index": 0, "delta": delta }))
}

fn event(data: Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}
