//! A fake of GitHub and Copilot.

use anyhow::Result;
use serde_json::{Value, json};

use super::anthropic::messages_reply;
use super::events::{EventStream, message};
use super::reply::Reply;
use super::server::{FakeServer, RecordedRequest};

/// A fake of GitHub with one account, and of its Copilot API.
#[derive(Debug)]
pub struct FakeCopilot {
    /// GitHub: discovery and sign-in.
    pub github: FakeServer,
    /// Copilot: models and messages.
    pub copilot: FakeServer,
}

impl FakeCopilot {
    /// Starts both servers.
    pub async fn start() -> Result<Self> {
        Self::with(|request| messages_reply(request, "Hello from the fake Copilot.")).await
    }

    /// Starts both servers; messages requests are relayed to the gateway at `base_url`
    /// with `bearer`: the demo model, for a real runtime.
    pub async fn in_front_of(base_url: &str, bearer: &str) -> Result<Self> {
        let reply = Reply::relay(base_url, bearer);
        Self::with(move |_| reply.clone()).await
    }

    /// Starts both servers; each answer is a short text that costs these credits.
    pub async fn with_credits(nano_aiu: u64) -> Result<Self> {
        let credits = json!({"total_nano_aiu": nano_aiu});
        Self::with(move |request| {
            let body = request.json();
            let model = body["model"].as_str().unwrap_or("unknown");
            if body["stream"] == Value::Bool(true) {
                return Reply::events(&EventStream::of_text(model, "Hello.", &credits));
            }
            let mut whole = message(model, "Hello.");
            whole["copilot_usage"] = credits.clone();
            Reply::json(200, &whole)
        })
        .await
    }

    /// Starts both servers; `messages` answers the messages requests without a script.
    pub async fn with(messages: impl Fn(&RecordedRequest) -> Reply + Send + Sync + 'static) -> Result<Self> {
        let copilot = FakeServer::start(move |request| match (request.method.as_str(), request.path()) {
            ("POST", "/v1/messages") => messages(request),
            ("GET", "/models") => Reply::json(200, &models()),
            _ => not_found(),
        })
        .await?;
        let api = copilot.url();
        let github = FakeServer::start(move |request| github_reply(request, &api)).await?;
        Ok(Self { github, copilot })
    }

    /// The account discovery requests so far.
    pub fn discoveries(&self) -> Vec<RecordedRequest> {
        self.github.requests_for("/copilot_internal/user")
    }

    /// The messages requests so far.
    pub fn messages(&self) -> Vec<RecordedRequest> {
        self.copilot.requests_for("/v1/messages")
    }

    /// Scripts the reply to the next messages request without a script.
    pub fn script_messages(&self, reply: Reply) {
        self.copilot.script("/v1/messages", reply);
    }
}

fn github_reply(request: &RecordedRequest, api: &str) -> Reply {
    match (request.method.as_str(), request.path()) {
        ("GET", "/copilot_internal/user") => Reply::json(
            200,
            &json!({"login": "octocat", "copilot_plan": "individual", "endpoints": {"api": api}, "unknown": 1}),
        ),
        ("POST", "/login/device/code") => Reply::json(
            200,
            &json!({
                "device_code": "fake-device-code", "user_code": "ABCD-1234",
                "verification_uri": "https://github.com/login/device", "expires_in": 900, "interval": 1,
            }),
        ),
        ("POST", "/login/oauth/access_token") => Reply::json(
            200,
            &json!({"access_token": "ghu_fake", "token_type": "bearer", "scope": "read:user"}),
        ),
        _ => not_found(),
    }
}

fn not_found() -> Reply {
    Reply::json(404, &json!({"message": "Not Found"}))
}

/// Models of several vendors and endpoints, as Copilot lists them.
fn models() -> Value {
    let model = |id: &str, name: &str, vendor: &str, endpoint: &str| {
        json!({
            "id": id, "name": name, "vendor": vendor, "object": "model", "model_picker_enabled": true,
            "supported_endpoints": ["/chat/completions", endpoint],
            "capabilities": {"supports": {"tool_calls": true}},
        })
    };
    json!({"object": "list", "data": [
        model("claude-opus-5.5", "Claude Opus 5.5", "Anthropic", "/v1/messages"),
        model("claude-sonnet-4.6", "Claude Sonnet 4.6", "anthropic", "/v1/messages"),
        model("claude-haiku-4.5", "Claude Haiku 4.5", "Anthropic", "/v1/messages"),
        model("claude-opus-4.7-high", "Claude Opus 4.7 (high)", "Anthropic", "/v1/messages"),
        model("gpt-6", "GPT-6", "OpenAI", "/responses"),
        model("claude-sonnet-4", "Claude Sonnet 4", "Anthropic", "/responses"),
    ]})
}
