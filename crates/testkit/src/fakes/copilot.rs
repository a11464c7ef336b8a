//! A fake of GitHub and Copilot.

use std::sync::{Arc, Mutex, PoisonError};

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
    /// The listed models.
    models: Arc<Mutex<Vec<Value>>>,
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
        let models = Arc::new(Mutex::new(twelve_models()));
        let listed = Arc::clone(&models);
        let copilot = FakeServer::start(move |request| match (request.method.as_str(), request.path()) {
            ("POST", "/v1/messages") => messages(request),
            ("GET", "/models") => {
                let data = listed.lock().unwrap_or_else(PoisonError::into_inner).clone();
                Reply::json(200, &json!({"object": "list", "data": data}))
            }
            _ => not_found(),
        })
        .await?;
        let api = copilot.url();
        let github = FakeServer::start(move |request| github_reply(request, &api)).await?;
        Ok(Self { github, copilot, models })
    }

    /// Changes the list of models.
    pub fn change_models(&self, change: impl FnOnce(&mut Vec<Value>)) {
        change(&mut self.models.lock().unwrap_or_else(PoisonError::into_inner));
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
fn twelve_models() -> Vec<Value> {
    let model = |id: &str, name: &str, vendor: &str, endpoint: &str| {
        json!({
            "id": id, "name": name, "vendor": vendor, "object": "model", "model_picker_enabled": true,
            "supported_endpoints": ["/chat/completions", endpoint], "policy": {"state": "enabled", "terms": "…"},
            "billing": {"is_premium": true, "multiplier": 1},
            "capabilities": {
                "family": id, "type": "chat", "supports": {"tool_calls": true, "vision": true},
                "limits": {"max_context_window_tokens": 200_000, "max_prompt_tokens": 168_000, "max_output_tokens": 32_000},
            },
        })
    };
    let mut opus = model("claude-opus-5.5", "Claude Opus 5.5", "Anthropic", "/v1/messages");
    opus["billing"]["multiplier"] = 7.5.into();
    opus["capabilities"]["supports"]["reasoning_effort"] = json!(["low", "medium", "high", "xhigh", "max"]);
    let mut sonnet = model("claude-sonnet-4.6", "Claude Sonnet 4.6", "anthropic", "/v1/messages");
    sonnet["capabilities"]["supports"]["reasoning_effort"] = json!(["low", "medium"]);
    let mut haiku = model("claude-haiku-4.5", "Claude Haiku 4.5", "Anthropic", "/v1/messages");
    haiku["billing"]["multiplier"] = 0.33.into();
    haiku["capabilities"]["supports"]["reasoning_effort"] = json!([]);
    haiku["capabilities"]["supports"]["vision"] = false.into();
    vec![
        opus,
        sonnet,
        haiku,
        model("claude-opus-4.7-high", "Claude Opus 4.7 (high)", "Anthropic", "/v1/messages"),
        model("gpt-6", "GPT-6", "OpenAI", "/responses"),
        model("gpt-6-mini", "GPT-6 mini", "OpenAI", "/responses"),
        model("gpt-6-codex", "GPT-6 Codex", "Azure OpenAI", "/responses"),
        model("claude-sonnet-4", "Claude Sonnet 4", "Anthropic", "/responses"),
        model("gemini-4-pro", "Gemini 4 Pro", "Google", "/chat/completions"),
        model("gemini-4-flash", "Gemini 4 Flash", "Google", "/chat/completions"),
        model("grok-6-code", "Grok 6 Code", "xAI", "/chat/completions"),
        model("mistral-large-5", "Mistral Large 5", "Mistral", "/chat/completions"),
    ]
}
