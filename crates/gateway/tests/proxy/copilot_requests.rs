//! The Copilot upstream: forwarded requests.

use http::HeaderValue;
use innkeeper_gateway::BetaFilter;
use serde_json::{Value, json};

use crate::support::{Reader, TOKEN, copilot, copilot_with, json_of, names, streamed, whole};

#[tokio::test]
async fn only_model_and_plain_system_prompt_are_changed() {
    let (fake, gateway) = copilot().await;
    let body = "{ \"system\" : \"be \\\"k\\u00efnd\\\"\", \"max_tokens\":1.0e1,\n \"messages\":[ {\"role\":\"user\",\"content\":\"claude-sonnet-4-6\"} ], \"model\":\"claude-sonnet-4-6\" , \"z\":[ ] }";
    assert_eq!(gateway.messages("s").body(body).send().await.unwrap().status(), 200);
    let expected = "{ \"system\" : [{\"type\":\"text\",\"text\":\"be \\\"k\\u00efnd\\\"\"}], \"max_tokens\":1.0e1,\n \"messages\":[ {\"role\":\"user\",\"content\":\"claude-sonnet-4-6\"} ], \"model\":\"claude-sonnet-4.6\" , \"z\":[ ] }";
    assert_eq!(String::from_utf8_lossy(&fake.messages()[0].body), expected);
}

#[tokio::test]
async fn other_system_prompts_stay_unchanged() {
    let (fake, gateway) = copilot().await;
    for system in
        [json!([{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]), Value::Null]
    {
        let mut body = whole("hi");
        body["system"] = system.clone();
        gateway.ask(&body).await;
        assert_eq!(fake.messages().last().unwrap().json()["system"], system);
    }
    gateway.ask(&whole("hi")).await;
    assert!(fake.messages().last().unwrap().json().get("system").is_none());
}

#[tokio::test]
async fn stream_flag_is_respected_and_model_ids_are_translated() {
    let (fake, gateway) = copilot().await;
    let text = Reader::of(gateway.ask(&streamed("hi")).await).rest().await;
    assert_eq!((names(&text)[0], names(&text).last()), ("message_start", Some(&"message_stop")));
    assert!(text.contains("\"model\":\"claude-sonnet-4-6\""));
    let message = json_of(gateway.ask(&whole("hi")).await).await;
    assert_eq!((&message["type"], &message["model"]), (&json!("message"), &json!("claude-sonnet-4-6")));
    for (asked, sent, answered) in [
        ("claude-opus-4-7-high", "claude-opus-4.7-high", "claude-opus-4-7-high"),
        ("claude-opus-5-5[1m]", "claude-opus-5.5", "claude-opus-5-5"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4.5", "claude-haiku-4-5"),
        ("claude-opus-9-1[1m]", "claude-opus-9.1-1m", "claude-opus-9-1-1m"),
        ("sonnet", "sonnet", "sonnet"),
    ] {
        let mut body = whole("hi");
        body["model"] = asked.into();
        let message = json_of(gateway.ask(&body).await).await;
        assert_eq!(fake.messages().last().unwrap().json()["model"], sent);
        assert_eq!(message["model"], answered);
    }
}

#[tokio::test]
async fn unknown_model_is_not_found_and_sends_nothing() {
    let (fake, gateway) = copilot().await;
    for model in ["gpt-6-turbo", "claude-", "not a model", "claude-opus"] {
        let mut body = streamed("hi");
        body["model"] = model.into();
        let response = gateway.ask(&body).await;
        assert_eq!(response.status(), 404);
        let object = json_of(response).await;
        assert_eq!(object["error"]["type"], "not_found_error");
        assert!(object["error"]["message"].as_str().unwrap().contains(model));
    }
    assert!(fake.github.requests().is_empty() && fake.copilot.requests().is_empty());
}

#[tokio::test]
async fn client_headers_do_not_override_copilot_headers() {
    let (fake, gateway) = copilot().await;
    let request = gateway
        .messages("s")
        .header("anthropic-version", "2023-06-01")
        .header("anthropic-beta", "claude-code-20250219,interleaved-thinking-2025-05-14,context-management")
        .header("user-agent", "claude-cli/2.1.325 (external, cli)")
        .header("x-api-key", "the client's own")
        .header("x-github-api-version", "1999-01-01")
        .header("openai-intent", "evil")
        .header("x-initiator", "agent")
        .header("x-request-id", "mine")
        .header("copilot-integration-id", "mine")
        .header("x-stainless-lang", "js")
        .header("cookie", "a=b")
        .body(streamed("hi").to_string());
    assert_eq!(request.send().await.unwrap().status(), 200);
    let seen = &fake.messages()[0];
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", "/v1/messages"));
    let mut headers = seen.headers.clone();
    headers.sort();
    let id = seen.header("x-request-id").unwrap().to_owned();
    assert!(uuid::Uuid::parse_str(&id).is_ok());
    let expected: Vec<(String, String)> = [
        ("anthropic-beta", "interleaved-thinking-2025-05-14"),
        ("anthropic-version", "2023-06-01"),
        ("authorization", &format!("Bearer {TOKEN}")),
        ("content-length", &seen.body.len().to_string()),
        ("content-type", "application/json"),
        ("host", fake.copilot.url().trim_start_matches("http://")),
        ("openai-intent", "messages-proxy"),
        ("user-agent", "vscode_claude_code/2.1.325 (external, cli)"),
        ("x-github-api-version", "2026-01-09"),
        ("x-initiator", "user"),
        ("x-interaction-type", "messages-proxy"),
        ("x-request-id", &id),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    assert_eq!(headers, expected);
}

#[tokio::test]
async fn integration_id_is_sent_only_if_configured() {
    let (fake, gateway) =
        copilot_with(|config| config.integration_id = Some(HeaderValue::from_static("house"))).await;
    gateway.ask(&streamed("hi")).await;
    assert_eq!(fake.messages()[0].header("copilot-integration-id"), Some("house"));
}

#[tokio::test]
async fn empty_beta_header_is_omitted_and_list_is_configurable() {
    let (fake, gateway) = copilot().await;
    let beta = "oauth-2025-04-20,effort-2025-11-24";
    gateway
        .messages("s")
        .header("anthropic-beta", beta)
        .body(streamed("hi").to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(fake.messages()[0].header("anthropic-beta"), None);
    let (fake, gateway) = copilot_with(|config| config.betas = BetaFilter::new(["effort".to_owned()])).await;
    gateway
        .messages("s")
        .header("anthropic-beta", beta)
        .body(streamed("hi").to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(fake.messages()[0].header("anthropic-beta"), Some("effort-2025-11-24"));
}
