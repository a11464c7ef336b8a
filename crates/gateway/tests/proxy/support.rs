//! A gateway with a fake upstream, and an authenticated client.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use innkeeper_gateway::{
    AnthropicConfig, AnthropicUpstream, BetaFilter, ClientOptions, CopilotConfig, CopilotUpstream, Discovery,
    Endpoint, Gateway, GatewayConfig, GatewayHandle, Upstream,
};
use innkeeper_testkit::fakes::{FakeAnthropic, FakeCopilot};
use reqwest::{Client, Method, RequestBuilder, Response};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

/// Credentials that only the upstreams may receive.
pub(crate) const KEY: &str = "sk-ant-the-key";
pub(crate) const TOKEN: &str = "ghu_the-token";

/// A running gateway and an authenticated client.
pub(crate) struct TestGateway {
    pub(crate) handle: GatewayHandle,
    client: Client,
}

impl TestGateway {
    pub(crate) async fn before(upstream: Arc<dyn Upstream>) -> Self {
        let listen = "127.0.0.1:0".parse().unwrap();
        let handle = Gateway::start(GatewayConfig { listen, upstream }).await.unwrap();
        Self { handle, client: client() }
    }

    pub(crate) fn request(&self, method: Method, path: &str, session: &str) -> RequestBuilder {
        let url = format!("{}{path}", self.handle.base_url());
        self.client.request(method, url).bearer_auth(self.handle.bearer_for(session).expose_secret())
    }

    pub(crate) fn messages(&self, session: &str) -> RequestBuilder {
        self.request(Method::POST, "/v1/messages?beta=true", session)
    }

    pub(crate) async fn ask(&self, body: &Value) -> Response {
        self.messages("session").body(body.to_string()).send().await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path, "session").send().await.unwrap()
    }
}

pub(crate) fn client() -> Client {
    Client::builder().no_proxy().timeout(Duration::from_secs(60)).build().unwrap()
}

/// A gateway with a fake of Anthropic's API.
pub(crate) async fn anthropic() -> (FakeAnthropic, TestGateway) {
    anthropic_with(ClientOptions::default()).await
}

pub(crate) async fn anthropic_with(client: ClientOptions) -> (FakeAnthropic, TestGateway) {
    let fake = FakeAnthropic::start().await.unwrap();
    let api = endpoint(&fake.url());
    let upstream = AnthropicUpstream::new(AnthropicConfig { api, key: Some(KEY.to_owned().into()), client });
    let gateway = TestGateway::before(Arc::new(upstream)).await;
    (fake, gateway)
}

/// A gateway with a fake of GitHub and Copilot.
pub(crate) async fn copilot() -> (FakeCopilot, TestGateway) {
    copilot_with(|_| {}).await
}

pub(crate) async fn copilot_with(change: impl FnOnce(&mut CopilotConfig)) -> (FakeCopilot, TestGateway) {
    let fake = FakeCopilot::start().await.unwrap();
    let mut config = copilot_config(&fake);
    change(&mut config);
    let gateway = TestGateway::before(Arc::new(CopilotUpstream::new(config))).await;
    (fake, gateway)
}

pub(crate) fn copilot_config(fake: &FakeCopilot) -> CopilotConfig {
    CopilotConfig {
        github_api: endpoint(&fake.github.url()),
        copilot_api: None,
        discovery: Discovery::Always,
        token: Some(TOKEN.to_owned().into()),
        betas: BetaFilter::default(),
        integration_id: None,
        client: ClientOptions::default(),
    }
}

pub(crate) fn endpoint(url: &str) -> Endpoint {
    Endpoint::from_environment(url).unwrap()
}

/// A request for a streamed response.
pub(crate) fn streamed(prompt: &str) -> Value {
    json!({
        "model": "claude-sonnet-4-6", "max_tokens": 1000, "stream": true, "tools": [{"name": "Bash"}],
        "messages": [{"role": "user", "content": prompt}],
    })
}

/// A request for a response that is not streamed.
pub(crate) fn whole(prompt: &str) -> Value {
    let mut body = streamed(prompt);
    body["stream"] = false.into();
    body
}

pub(crate) async fn json_of(response: Response) -> Value {
    serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
}

/// Reads a streamed response chunk by chunk.
pub(crate) struct Reader {
    stream: futures_util::stream::BoxStream<'static, reqwest::Result<Bytes>>,
    pub(crate) text: String,
}

impl Reader {
    pub(crate) fn of(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        Self { stream: response.bytes_stream().boxed(), text: String::new() }
    }

    /// Reads until the text ends with `end`.
    pub(crate) async fn until(&mut self, end: &str) {
        while !self.text.ends_with(end) {
            let chunk = self.stream.next().await;
            assert!(chunk.is_some(), "stream ended after {}", self.text);
            self.text.push_str(std::str::from_utf8(&chunk.unwrap().unwrap()).unwrap());
        }
    }

    /// Reads to the end; panics if the stream breaks.
    pub(crate) async fn rest(mut self) -> String {
        while let Some(chunk) = self.stream.next().await {
            self.text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
        }
        self.text
    }
}

/// The event names in a text.
pub(crate) fn names(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("event: ")).collect()
}

/// The data of the last event.
pub(crate) fn last_data(text: &str) -> Value {
    let data = text.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap();
    serde_json::from_str(data).unwrap()
}

/// Checks that a stream ended with exactly one error event and not with `message_stop`.
#[track_caller]
pub(crate) fn check_failed_stream(text: &str, kind: &str) {
    let names = names(text);
    assert_eq!(names.iter().filter(|name| **name == "error").count(), 1, "{text}");
    assert_eq!(names.last(), Some(&"error"), "{text}");
    assert!(!names.contains(&"message_stop"), "{text}");
    assert!(text.ends_with("\n\n"), "{text:?}");
    let error = last_data(text);
    assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!(kind)));
    assert!(error["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
}
