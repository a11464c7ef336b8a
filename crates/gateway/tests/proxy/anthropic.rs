//! The Anthropic upstream: replaces the credentials and nothing else.

use innkeeper_gateway::{
    AnthropicConfig, AnthropicUpstream, ClientOptions, Gateway, GatewayConfig, GatewayLimits,
};
use innkeeper_testkit::fakes::{FakeAnthropic, Reply};
use reqwest::Method;
use secrecy::ExposeSecret;
use serde_json::json;
use std::sync::Arc;

use crate::support::{KEY, TestGateway, anthropic, client, endpoint, json_of, streamed, whole};

#[tokio::test]
async fn request_is_forwarded_byte_for_byte_with_gateway_key() {
    let (fake, gateway) = anthropic().await;
    let body = "{ \"messages\" : [ {\"role\":\"user\",\"content\":\"h\\u00e4 \u{e4}\"} ],\n\t\"system\":\"plain\", \"max_tokens\":1.0e1, \"stream\" : false, \"model\":\"any/model:1\", \"zz\":{} }";
    let request = gateway
        .messages("a.session")
        .header("x-api-key", "the client's own")
        .header("anthropic-version", "2023-06-01")
        .header("anthropic-beta", "context-1m-2025-08-07,oauth-2025-04-20")
        .header("x-stainless-lang", "js")
        .header("user-agent", "claude-cli/2.1")
        .header("cookie", "a=b")
        .body(body);
    assert_eq!(request.send().await.unwrap().status(), 200);
    let seen = &fake.messages()[0];
    assert_eq!(seen.target, "/v1/messages?beta=true");
    assert_eq!(String::from_utf8_lossy(&seen.body), body);
    for (name, value) in [
        ("x-api-key", KEY),
        ("anthropic-version", "2023-06-01"),
        ("anthropic-beta", "context-1m-2025-08-07,oauth-2025-04-20"),
        ("x-stainless-lang", "js"),
        ("user-agent", "claude-cli/2.1"),
        ("cookie", "a=b"),
        ("host", fake.url().trim_start_matches("http://")),
    ] {
        assert_eq!(seen.header(name), Some(value), "{name}");
    }
    assert_eq!(seen.header("authorization"), None);
    let nonce = gateway.handle.nonce();
    assert!(seen.headers.iter().all(|(_, value)| !value.contains(nonce.expose_secret())));
}

#[tokio::test]
async fn count_tokens_and_models_are_forwarded() {
    let (fake, gateway) = anthropic().await;
    let counted = gateway.request(Method::POST, "/v1/messages/count_tokens?beta=true", "s");
    let counted = json_of(counted.body("{\"any\":1}").send().await.unwrap()).await;
    assert_eq!(counted, json!({"input_tokens": 17}));
    let listed = json_of(gateway.get("/v1/models?limit=1&after_id=x").await).await;
    assert_eq!(listed["first_id"], "claude-fake-1");
    let requests = fake.requests();
    assert_eq!(
        (requests[0].target.as_str(), requests[0].body.as_slice()),
        ("/v1/messages/count_tokens?beta=true", &b"{\"any\":1}"[..])
    );
    assert_eq!(requests[1].target, "/v1/models?limit=1&after_id=x");
    assert!(requests.iter().all(|request| request.header("x-api-key") == Some(KEY)));

    let error = r#"{"type":"error","error":{"type":"permission_error","message":"no"},"x":1}"#;
    for path in ["/v1/models", "/v1/messages/count_tokens"] {
        fake.script(path, Reply::text(403, "application/json", error).header("retry-after", "9"));
        let method = if path.ends_with("models") { Method::GET } else { Method::POST };
        let response = gateway.request(method, path, "s").send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["retry-after"]),
            (403, &"9".parse().unwrap())
        );
        assert_eq!(response.text().await.unwrap(), error);
    }
}

#[tokio::test]
async fn invalid_body_is_rejected_before_anything_is_sent() {
    let (fake, gateway) = anthropic().await;
    for body in [
        "",
        "{",
        "null",
        "[]",
        "\"x\"",
        r#"{"messages":[]}"#,
        r#"{"model":1,"messages":[]}"#,
        r#"{"model":"m","messages":{}}"#,
    ] {
        let response = gateway.messages("s").body(body).send().await.unwrap();
        assert_eq!(response.status(), 400, "{body}");
        assert_eq!(json_of(response).await["error"]["type"], "invalid_request_error");
    }
    assert!(fake.requests().is_empty());
}

#[tokio::test]
async fn missing_key_error_says_what_to_do() {
    let fake = FakeAnthropic::start().await.unwrap();
    let config = AnthropicConfig { api: endpoint(&fake.url()), key: None, client: ClientOptions::default() };
    let upstream = Arc::new(AnthropicUpstream::new(config));
    let gateway = TestGateway::before(upstream.clone()).await;
    let response = gateway.ask(&streamed("hi")).await;
    assert_eq!(response.status(), 401);
    assert!(response.text().await.unwrap().contains("ANTHROPIC_API_KEY"));
    assert!(fake.requests().is_empty());
    upstream.set_key(Some(KEY.to_owned().into()));
    assert_eq!(gateway.ask(&streamed("hi")).await.status(), 200);
    assert!(!format!("{upstream:?}").contains(KEY));
}

#[tokio::test]
async fn body_limit_is_configurable() {
    let fake = FakeAnthropic::start().await.unwrap();
    let config = AnthropicConfig {
        api: endpoint(&fake.url()),
        key: Some(KEY.to_owned().into()),
        client: ClientOptions::default(),
    };
    let upstream = Arc::new(AnthropicUpstream::new(config));
    let listen = "127.0.0.1:0".parse().unwrap();
    let limits = GatewayLimits { body_cap: 1000, ..GatewayLimits::default() };
    let handle = Gateway::start_with(GatewayConfig { listen, upstream }, limits).await.unwrap();
    let post = |length: usize| {
        let request = client().post(format!("{}/v1/messages", handle.base_url()));
        let request = request.bearer_auth(handle.bearer_for("s").expose_secret());
        request.body(whole(&"x".repeat(length)).to_string()).send()
    };
    assert_eq!(post(100).await.unwrap().status(), 200);
    let refused = post(1000).await.unwrap();
    assert_eq!(refused.status(), 413);
    let object = json_of(refused).await;
    assert_eq!(object["error"]["type"], "request_too_large");
    assert!(object["error"]["message"].as_str().unwrap().contains("1000 bytes"));
    assert_eq!(fake.requests().len(), 1);
}

#[tokio::test]
async fn model_list_is_requested_with_own_key_and_version() {
    let (fake, gateway) = anthropic().await;
    let list = gateway.handle.model_list().await.unwrap();
    assert_eq!(list.models().iter().map(|model| model.id.as_str()).collect::<Vec<_>>(), ["claude-fake-1"]);
    let request = &fake.requests()[0];
    assert_eq!(request.target, "/v1/models?limit=1000");
    assert_eq!(request.header("x-api-key"), Some(KEY));
    assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
    let refusal = format!("the key {KEY} is invalid");
    let error = json!({"type": "error", "error": {"type": "authentication_error", "message": refusal}});
    fake.script("/v1/models", Reply::json(401, &error));
    let error = gateway.handle.model_list().await.unwrap_err();
    assert_eq!(error.status(), 401);
    assert!(error.to_string().contains("is invalid") && !error.to_string().contains(KEY), "{error}");
}
