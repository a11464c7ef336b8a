//! A fake of Anthropic's service.

use std::ops::Deref;

use anyhow::Result;
use serde_json::{Value, json};

use super::events::{EventStream, message};
use super::reply::Reply;
use super::server::{FakeServer, RecordedRequest};

/// A fake of Anthropic's service. Without a script it answers every request
/// with a short message, streamed if asked for.
#[derive(Debug)]
pub struct FakeAnthropic(FakeServer);

impl FakeAnthropic {
    /// Starts it.
    pub async fn start() -> Result<Self> {
        Ok(Self(FakeServer::start(answer).await?))
    }

    /// Starts one that answers whatever the gateway at this address answers
    /// to this bearer: the demo model, for a real runtime.
    pub async fn in_front_of(base_url: &str, bearer: &str) -> Result<Self> {
        let reply = Reply::relay(base_url, bearer);
        Ok(Self(FakeServer::start(move |_| reply.clone()).await?))
    }

    /// Answers the next messages request that has no script yet.
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

fn answer(request: &RecordedRequest) -> Reply {
    match (request.method.as_str(), request.path()) {
        ("POST", "/v1/messages") => messages_answer(request, "Hello from the fake."),
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

/// A short answer in the form that the request asks for.
pub(super) fn messages_answer(request: &RecordedRequest, text: &str) -> Reply {
    let body = request.json();
    let model = body["model"].as_str().unwrap_or("unknown");
    if body["stream"] == Value::Bool(true) {
        Reply::events(&EventStream::of(model, &[text]))
    } else {
        Reply::json(200, &message(model, text))
    }
}
