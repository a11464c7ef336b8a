//! A fake of the Anthropic API.

use std::ops::Deref;

use anyhow::Result;
use serde_json::{Value, json};

use super::events::{EventStream, message};
use super::reply::Reply;
use super::server::{FakeServer, RecordedRequest};

/// A fake of the Anthropic API. Without a script it sends a short message to every
/// request, streamed if requested.
#[derive(Debug)]
pub struct FakeAnthropic(FakeServer);

impl FakeAnthropic {
    /// Starts the server.
    pub async fn start() -> Result<Self> {
        Ok(Self(FakeServer::start(reply).await?))
    }

    /// Starts a server that relays every request to the gateway at `base_url` with
    /// `bearer`: the demo model, for a real runtime.
    pub async fn in_front_of(base_url: &str, bearer: &str) -> Result<Self> {
        let reply = Reply::relay(base_url, bearer);
        Ok(Self(FakeServer::start(move |_| reply.clone()).await?))
    }

    /// Scripts the reply to the next messages request without a script.
    pub fn script_messages(&self, reply: Reply) {
        self.0.script("/v1/messages", reply);
    }

    /// The messages requests so far.
    pub fn messages(&self) -> Vec<RecordedRequest> {
        self.0.requests_for("/v1/messages")
    }
}

impl Deref for FakeAnthropic {
    type Target = FakeServer;

    fn deref(&self) -> &FakeServer {
        &self.0
    }
}

fn reply(request: &RecordedRequest) -> Reply {
    match (request.method.as_str(), request.path()) {
        ("POST", "/v1/messages") => messages_reply(request, "Hello from the fake."),
        ("POST", "/v1/messages/count_tokens") => Reply::json(200, &json!({"input_tokens": 17})),
        ("GET", "/v1/models") => Reply::json(
            200,
            &json!({"data": [{"type": "model", "id": "claude-fake-1"}], "has_more": false, "first_id": "claude-fake-1", "last_id": "claude-fake-1"}),
        ),
        _ => Reply::json(
            404,
            &json!({"type": "error", "error": {"type": "not_found_error", "message": "no such path"}}),
        ),
    }
}

/// A short message in the requested format.
pub(super) fn messages_reply(request: &RecordedRequest, text: &str) -> Reply {
    let body = request.json();
    let model = body["model"].as_str().unwrap_or("unknown");
    if body["stream"] == Value::Bool(true) {
        Reply::events(&EventStream::of(model, &[text]))
    } else {
        Reply::json(200, &message(model, text))
    }
}
