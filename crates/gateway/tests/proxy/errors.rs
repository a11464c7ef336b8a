//! Upstream errors and how they reach the client.

use std::sync::Arc;
use std::time::Duration;

use innkeeper_gateway::{AnthropicConfig, AnthropicUpstream, ClientOptions, Endpoint, ProxyRules};
use innkeeper_testkit::fakes::{Ending, EventStream, FakeAnthropic, Reply, message};
use serde_json::{Value, json};

use crate::support::{KEY, TOKEN, TestGateway, anthropic, copilot, endpoint, json_of, streamed, whole};

#[tokio::test]
async fn upstream_error_is_forwarded_byte_for_byte_with_headers() {
    let body = r#"{ "type":"error", "error":{"type":"rate_limit_error","message":"slow down","details":{"a":[1]}}, "request_id":"req_up" }"#;
    for stream in [streamed("hi"), whole("hi")] {
        let (fake, gateway) = anthropic().await;
        let reply = Reply::text(429, "application/json", body)
            .header("retry-after", "17")
            .header("request-id", "req_up")
            .header("anthropic-ratelimit-requests-remaining", "0")
            .header("connection", "keep-alive, x-hop")
            .header("x-hop", "1");
        fake.script_messages(reply);
        let response = gateway.ask(&stream).await;
        assert_eq!(response.status(), 429);
        for (name, value) in
            [("retry-after", "17"), ("request-id", "req_up"), ("anthropic-ratelimit-requests-remaining", "0")]
        {
            assert_eq!(response.headers()[name], value);
        }
        assert!(!response.headers().contains_key("x-hop"));
        assert_eq!(response.text().await.unwrap(), body);
    }
}

#[tokio::test]
async fn copilot_error_is_forwarded_with_retry_and_rate_limit_headers() {
    let (fake, gateway) = copilot().await;
    let body = r#"{"type":"error","error":{"type":"invalid_request_error","message":"effort","code":"x"}}"#;
    let reply = Reply::text(400, "application/json", body)
        .header("retry-after", "3")
        .header("request-id", "req_c")
        .header("anthropic-ratelimit-tokens-limit", "9")
        .header("set-cookie", "a=b");
    fake.script_messages(reply);
    let response = gateway.ask(&streamed("hi")).await;
    assert_eq!(response.status(), 400);
    assert_eq!(response.headers()["request-id"], "req_c");
    assert_eq!(response.headers()["retry-after"], "3");
    assert_eq!(response.headers()["anthropic-ratelimit-tokens-limit"], "9");
    assert!(!response.headers().contains_key("set-cookie"));
    assert_eq!(response.text().await.unwrap(), body);
}

#[tokio::test]
async fn malformed_error_is_rewritten_and_keeps_status() {
    for (status, body, kind, message) in [
        (500, r#"{"oops":true}"#, "api_error", "the upstream returned status 500"),
        (402, r#"{"error":{"message":"quota","code":"quota_exceeded"}}"#, "billing_error", "quota"),
        (429, r#"{"message":"slow down"}"#, "rate_limit_error", "slow down"),
        (503, "Service Unavailable\n", "api_error", "Service Unavailable"),
        (502, "<html>nginx</html>", "api_error", "the upstream returned status 502"),
        (404, "", "not_found_error", "the upstream returned status 404"),
        (302, "", "api_error", "the upstream returned status 502"),
    ] {
        let (fake, gateway) = anthropic().await;
        fake.script_messages(Reply::text(status, "text/plain", body).header("retry-after", "1"));
        let response = gateway.ask(&streamed("hi")).await;
        assert_eq!(response.status().as_u16(), if status == 302 { 502 } else { status });
        assert_eq!(response.headers()["content-type"], "application/json");
        assert_eq!(response.headers()["retry-after"], "1");
        let object = json_of(response).await;
        assert_eq!((&object["type"], &object["error"]["type"]), (&json!("error"), &json!(kind)), "{body}");
        assert!(object["error"]["message"].as_str().unwrap().starts_with(message), "{object}");
        assert!(object["request_id"].as_str().unwrap().starts_with("req_"));
    }
}

#[tokio::test]
async fn rejects_compressed_response_that_was_not_requested() {
    let (fake, gateway) = anthropic().await;
    fake.script_messages(Reply::events(&EventStream::of("m", &["x"])).header("content-encoding", "gzip"));
    let response =
        gateway.messages("s").header("accept-encoding", "gzip").body(streamed("hi").to_string()).send();
    assert_eq!(response.await.unwrap().status(), 502);
    assert_eq!(fake.messages()[0].header("accept-encoding"), None);
}

#[tokio::test]
async fn truncated_response_is_bad_gateway() {
    let (fake, gateway) = anthropic().await;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"half\":";
    fake.script_messages(Reply::raw(head, Ending::Cut));
    assert_eq!(gateway.ask(&whole("hi")).await.status(), 502);
    fake.script_messages(Reply::raw("this is not HTTP\r\n\r\n", Ending::Cut));
    assert_eq!(gateway.ask(&whole("hi")).await.status(), 502);
    assert_eq!(fake.messages().len(), 2, "a started response is not retried");
}

#[tokio::test]
async fn error_texts_do_not_contain_credentials() {
    let echo = |secret: &str| {
        [
            Reply::json(400, &json!({"type": "error", "error": {"type": "x", "message": format!("bad key {secret}")}})),
            Reply::text(500, "text/plain", format!("{secret} is unknown")),
            Reply::pieces([format!("event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"x\",\"message\":\"{secret}\"}}}}\n\n").into()]),
            Reply::pieces([EventStream::of("m", &[]).events[0].clone().into(), format!("event: error\ndata: {{\"error\":\"{secret}\"}}\n\n").into()]),
        ]
    };
    let (fake, gateway) = anthropic().await;
    for reply in echo(KEY) {
        fake.script_messages(reply);
        let text = gateway.ask(&streamed("hi")).await.text().await.unwrap();
        assert!(text.contains("[redacted]") && !text.contains(KEY), "{text}");
        assert!(!gateway.handle.last_error("session").unwrap().message.contains(KEY));
    }
    let (fake, gateway) = copilot().await;
    for reply in echo(TOKEN) {
        fake.script_messages(reply);
        let text = gateway.ask(&streamed("hi")).await.text().await.unwrap();
        assert!(text.contains("[redacted]") && !text.contains(TOKEN), "{text}");
    }
    for status in [401, 403, 404, 500] {
        let (fake, gateway) = copilot().await;
        fake.github.script(
            "/copilot_internal/user",
            Reply::json(status, &json!({"message": format!("token {TOKEN}")})),
        );
        let response = gateway.ask(&streamed("hi")).await;
        assert_eq!(response.status().as_u16(), status);
        let text = response.text().await.unwrap();
        assert!(text.contains("[redacted]") && !text.contains(TOKEN), "{text}");
    }
}

#[tokio::test]
async fn unreachable_upstream_is_bad_gateway_with_address() {
    let (fake, gateway) = anthropic().await;
    let url = fake.url();
    drop(fake);
    let response = gateway.ask(&streamed("hi")).await;
    assert_eq!(response.status(), 502);
    let object = json_of(response).await;
    assert!(object["error"]["message"].as_str().unwrap().contains(&url), "{object}");
    assert_eq!(object["error"]["type"], "api_error");
}

#[tokio::test]
async fn response_that_is_not_a_message_is_forwarded_unchanged() {
    let (fake, gateway) = anthropic().await;
    let text = r#"{ "odd" : [1.50] }"#;
    fake.script_messages(Reply::text(200, "application/json", text));
    assert_eq!(gateway.ask(&whole("hi")).await.text().await.unwrap(), text);
    let message: Value = message("claude-x", "hello");
    fake.script_messages(Reply::json(200, &message));
    assert_eq!(json_of(gateway.ask(&whole("hi")).await).await, message);
}

/// A gateway whose upstream uses TLS.
async fn secure(api: &str, client: ClientOptions) -> TestGateway {
    let config = AnthropicConfig {
        api: Endpoint::from_configuration(api).unwrap(),
        key: Some(KEY.to_owned().into()),
        client,
    };
    TestGateway::before(Arc::new(AnthropicUpstream::new(config))).await
}

#[tokio::test]
async fn tls_upstream_is_reached_through_proxy_tunnel_without_sending_key() {
    let proxy = FakeAnthropic::start().await.unwrap();
    let rules = ProxyRules::everything_through(&endpoint(&proxy.url()));
    let client = ClientOptions { proxy: rules, ..ClientOptions::default() };
    let gateway = secure("https://upstream.example", client).await;
    for status in [403, 407] {
        proxy.script("upstream.example:443", Reply::text(status, "text/plain", ""));
    }
    proxy.script("upstream.example:443", Reply::raw("HTTP/1.1 200 OK\r\n\r\n", Ending::Cut));
    let response = gateway.ask(&streamed("hi")).await;
    assert_eq!(response.status(), 502);
    let tried = proxy.requests();
    assert_eq!(tried.len(), 3, "a failed connect is retried");
    assert!(
        tried.iter().all(|request| request.method == "CONNECT" && request.target == "upstream.example:443")
    );
    assert!(tried.iter().all(|request| request.headers.iter().all(|(_, value)| !value.contains(KEY))));
    // The third attempt got a tunnel, but the server at its end does not speak TLS.
    let text = response.text().await.unwrap();
    assert!(text.contains("TLS handshake failed"), "{text}");
}

#[tokio::test]
async fn nothing_is_sent_to_upstream_without_valid_certificate() {
    let fake = FakeAnthropic::start().await.unwrap();
    // The fake does not respond to a TLS handshake, so the connect must time out.
    let client = ClientOptions {
        proxy: ProxyRules::none(),
        connect_timeout: Duration::from_millis(500),
        ..ClientOptions::default()
    };
    let gateway = secure(&fake.url().replace("http://", "https://"), client).await;
    let response = gateway.ask(&streamed("hi")).await;
    assert_eq!(response.status(), 502);
    assert!(fake.requests().is_empty());
}
