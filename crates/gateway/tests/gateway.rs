//! The gateway over a real socket, with the demo model as upstream.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic in a helper fails the test")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use innkeeper_gateway::{
    DemoUpstream, Gateway, GatewayConfig, GatewayError, GatewayHandle, RequestKind, RequestLog,
    ResponseOutcome,
};
use innkeeper_testkit::in_time;
use reqwest::{Client, Method, RequestBuilder, Response};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

/// A running gateway, its request log and a client.
struct TestGateway {
    handle: GatewayHandle,
    log: RequestLog,
    client: Client,
}

impl TestGateway {
    async fn start() -> Self {
        let log = RequestLog::new();
        let upstream = Arc::new(DemoUpstream::with_log(log.clone()));
        let listen = "127.0.0.1:0".parse().unwrap();
        let handle = Gateway::start(GatewayConfig { listen, upstream }).await.unwrap();
        let client = Client::builder().no_proxy().timeout(Duration::from_secs(30)).build().unwrap();
        Self { handle, log, client }
    }

    fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.handle.base_url()))
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.bare(method, path).bearer_auth(self.handle.bearer_for("session-1").expose_secret())
    }

    async fn post(&self, path: &str, body: &Value) -> Response {
        self.request(Method::POST, path).body(body.to_string()).send().await.unwrap()
    }

    async fn ask(&self, prompt: &str, stream: Streaming) -> Response {
        self.post("/v1/messages?beta=true", &body(prompt, stream)).await
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Streaming {
    Yes,
    No,
}

fn body(prompt: &str, stream: Streaming) -> Value {
    json!({
        "model": "claude-sonnet-4-6",
        "max_tokens": 1000,
        "stream": stream == Streaming::Yes,
        "messages": [{"role": "user", "content": prompt}],
    })
}

/// Checks that a response is an Anthropic error object.
#[track_caller]
fn check_error(status: u16, kind: &str, got: (u16, Value)) {
    let (got_status, json) = got;
    assert_eq!(
        (got_status, &json["type"], &json["error"]["type"]),
        (status, &json!("error"), &json!(kind)),
        "{json}"
    );
    assert!(json["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{json}");
    assert!(json["request_id"].as_str().is_some_and(|id| id.starts_with("req_")), "{json}");
}

async fn error_of(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let header = response.headers()["request-id"].to_str().unwrap().to_owned();
    let json: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    assert_eq!(json["request_id"], header);
    (status, json)
}

async fn json_of(response: Response) -> Value {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/json");
    serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
}

/// The events of a stream until it ends or breaks, and whether it broke.
async fn events_of(response: Response) -> (Vec<Value>, bool) {
    assert_eq!(response.status(), 200);
    let mut text = Vec::new();
    let mut broke = false;
    let mut stream = response.bytes_stream();
    while let Some(chunk) = stream.next().await {
        match chunk {
            Ok(chunk) => text.extend_from_slice(&chunk),
            Err(_) => broke = true,
        }
    }
    let text = String::from_utf8(text).unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    (data.map(|json| serde_json::from_str(json).unwrap()).collect(), broke)
}

fn text_of(events: &[Value]) -> String {
    events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect()
}

#[tokio::test]
async fn rejects_listen_address_that_is_not_loopback() {
    let listen = "0.0.0.0:0".parse().unwrap();
    let error =
        Gateway::start(GatewayConfig { listen, upstream: Arc::new(DemoUpstream::new()) }).await.unwrap_err();
    assert!(matches!(error, GatewayError::NotLoopback(_)), "{error}");
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
}

#[tokio::test]
async fn listen_error_names_the_port_in_use() {
    let gateway = TestGateway::start().await;
    let listen = gateway.handle.base_url().trim_start_matches("http://").parse().unwrap();
    let error =
        Gateway::start(GatewayConfig { listen, upstream: Arc::new(DemoUpstream::new()) }).await.unwrap_err();
    assert!(error.to_string().contains(&listen.to_string()), "{error}");
}

#[tokio::test]
async fn handle_debug_output_hides_nonce() {
    let gateway = TestGateway::start().await;
    let shown = format!("{:?}", gateway.handle);
    assert!(shown.contains(gateway.handle.base_url()));
    assert!(!shown.contains(gateway.handle.nonce().expose_secret()));
}

#[tokio::test]
async fn root_responds_without_bearer() {
    let gateway = TestGateway::start().await;
    for method in [Method::GET, Method::HEAD] {
        assert_eq!(gateway.bare(method, "/").send().await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn invalid_bearer_is_rejected_before_routing() {
    let gateway = TestGateway::start().await;
    let nonce = gateway.handle.nonce();
    let nonce = nonce.expose_secret();
    for path in ["/v1/messages", "/v1/messages/count_tokens", "/nowhere"] {
        for bearer in ["wrong.session".to_owned(), nonce.to_owned(), format!("{nonce}."), String::new()] {
            let request = gateway.bare(Method::POST, path).bearer_auth(bearer).body("x".repeat(200_000));
            check_error(401, "authentication_error", error_of(request.send().await.unwrap()).await);
        }
        let request = gateway.bare(Method::POST, path).header("x-api-key", format!("{nonce}.session"));
        check_error(401, "authentication_error", error_of(request.send().await.unwrap()).await);
    }
    assert!(gateway.log.entries().is_empty());
}

#[tokio::test]
async fn rejects_foreign_host_header_on_every_route() {
    let gateway = TestGateway::start().await;
    for path in ["/", "/v1/models"] {
        let request = gateway.request(Method::GET, path).header("host", "evil.example");
        check_error(403, "permission_error", error_of(request.send().await.unwrap()).await);
        let request = gateway.request(Method::GET, path).header("host", "localhost:1");
        assert_eq!(request.send().await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn unknown_routes_and_methods_are_not_found() {
    let gateway = TestGateway::start().await;
    for (method, path) in [
        (Method::GET, "/v1/messages"),
        (Method::POST, "/v1/models"),
        (Method::POST, "/"),
        (Method::POST, "/v1/messages/"),
        (Method::GET, "/api/hello"),
    ] {
        check_error(
            404,
            "not_found_error",
            error_of(gateway.request(method, path).send().await.unwrap()).await,
        );
    }
}

#[tokio::test]
async fn rejects_body_above_limit_and_accepts_body_below() {
    let gateway = TestGateway::start().await;
    let padded = |size: usize| {
        let mut body = body("hi", Streaming::No);
        body["padding"] = "x".repeat(size).into();
        body
    };
    let refused = gateway.post("/v1/messages", &padded(33 * 1024 * 1024)).await;
    check_error(413, "request_too_large", error_of(refused).await);
    let taken = gateway.post("/v1/messages", &padded(20 * 1024 * 1024)).await;
    assert_eq!(taken.status(), 200);
}

#[tokio::test]
async fn malformed_body_is_invalid_request() {
    let gateway = TestGateway::start().await;
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        for body in ["", "{", "null", "[]", r#"{"model":"claude-x"}"#] {
            let response = gateway.request(Method::POST, path).body(body).send().await.unwrap();
            check_error(400, "invalid_request_error", error_of(response).await);
        }
    }
}

#[tokio::test]
async fn unknown_model_is_not_found() {
    let gateway = TestGateway::start().await;
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        let mut body = body("hi", Streaming::Yes);
        body["model"] = "gpt-x".into();
        let (status, json) = error_of(gateway.post(path, &body).await).await;
        assert!(json["error"]["message"].as_str().unwrap().contains("gpt-x"));
        check_error(404, "not_found_error", (status, json));
    }
    assert_eq!(gateway.log.entries()[0].outcome, ResponseOutcome::Failed(404));
}

#[tokio::test]
async fn plain_prompt_gets_same_text_streamed_and_complete() {
    let gateway = TestGateway::start().await;
    let response = gateway.ask("hi", Streaming::Yes).await;
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream"));
    let (events, broke) = events_of(response).await;
    assert!(!broke && events.first().unwrap()["type"] == "message_start");
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    let streamed = text_of(&events);
    for word in ["demo model", "tour", "#demo", "--upstream"] {
        assert!(streamed.contains(word), "{word}: {streamed}");
    }
    let whole = json_of(gateway.ask("hi", Streaming::No).await).await;
    assert_eq!((&whole["content"][0]["text"], &whole["stop_reason"]), (&json!(streamed), &json!("end_turn")));
    let start = &events[0]["message"];
    assert_eq!(start["usage"]["input_tokens"], whole["usage"]["input_tokens"]);
    assert_ne!(start["id"], whole["id"], "a second attempt has another message id");
}

#[tokio::test]
async fn each_delta_is_sent_as_its_own_chunk() {
    let gateway = TestGateway::start().await;
    let response = gateway.ask("#demo\nchunk 2\ntext abcdefghij", Streaming::Yes).await;
    let chunks: Vec<_> = response.bytes_stream().map(Result::unwrap).collect().await;
    let deltas = chunks.iter().filter(|chunk| chunk.starts_with(b"event: content_block_delta")).count();
    assert_eq!(deltas, 5, "{chunks:?}");
}

#[tokio::test]
async fn first_chunk_arrives_while_response_is_waiting() {
    let gateway = TestGateway::start().await;
    let response = gateway.ask("#demo\ntext now\nwait 3600000\ntext later", Streaming::Yes).await;
    let mut stream = response.bytes_stream();
    let mut seen = String::new();
    while !seen.contains("content_block_stop") {
        seen.push_str(std::str::from_utf8(&stream.next().await.unwrap().unwrap()).unwrap());
    }
    assert!(seen.contains("now") && !seen.contains("later"));

    drop(stream);
    gateway.log.wait_for(|entries| entries[0].outcome == ResponseOutcome::Cancelled).await;
}

#[tokio::test]
async fn disconnect_before_first_byte_cancels_request() {
    let gateway = TestGateway::start().await;
    let asked = gateway.request(Method::POST, "/v1/messages");
    let asked = asked.body(body("#demo\nwait 3600000\ntext late", Streaming::Yes).to_string()).send();
    let cancelled = async {
        gateway.log.wait_for(|entries| !entries.is_empty()).await;
    };
    tokio::select! {
        _ = asked => panic!("unexpected response"),
        () = cancelled => {}
    }
    gateway.log.wait_for(|entries| entries[0].outcome == ResponseOutcome::Cancelled).await;
}

#[tokio::test]
async fn script_continues_after_tool_results() {
    let gateway = TestGateway::start().await;
    let script =
        "#demo\nthink first\ntool Bash {\"command\":\"ls\"}\n+tool Read {\"file_path\":\"a\"}\ntext done";
    let first = json_of(gateway.ask(script, Streaming::No).await).await;
    assert_eq!(first["stop_reason"], "tool_use");
    let kinds: Vec<&str> =
        first["content"].as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["thinking", "tool_use", "tool_use"]);
    assert_ne!(first["content"][1]["id"], first["content"][2]["id"]);

    let result = |index: usize| json!({"type": "tool_result", "tool_use_id": first["content"][index]["id"], "content": "x"});
    let mut next = body(script, Streaming::Yes);
    next["messages"].as_array_mut().unwrap().extend([
        json!({"role": "assistant", "content": first["content"]}),
        json!({"role": "user", "content": [result(1), result(2)]}),
    ]);
    let (events, _) = events_of(gateway.post("/v1/messages", &next).await).await;
    assert_eq!(text_of(&events), "done");
    let end = events.iter().find(|event| event["type"] == "message_delta").unwrap();
    assert_eq!(end["delta"]["stop_reason"], "end_turn");
}

#[tokio::test]
async fn planned_error_occurs_once_per_session_and_conversation() {
    let gateway = TestGateway::start().await;
    let script = "#demo\nerror 529\nerror 429 slow_down\ntext fine";
    check_error(529, "overloaded_error", error_of(gateway.ask(script, Streaming::Yes).await).await);
    check_error(429, "slow_down", error_of(gateway.ask(script, Streaming::Yes).await).await);
    assert_eq!(text_of(&events_of(gateway.ask(script, Streaming::Yes).await).await.0), "fine");

    let other = gateway.bare(Method::POST, "/v1/messages");
    let other = other.bearer_auth(gateway.handle.bearer_for("session-2").expose_secret());
    let response = other.body(body(script, Streaming::Yes).to_string()).send().await.unwrap();
    check_error(529, "overloaded_error", error_of(response).await);

    for _ in 0..3 {
        let response = gateway.ask("#demo\nerror 500 always\ntext never", Streaming::No).await;
        check_error(500, "api_error", error_of(response).await);
    }
}

#[tokio::test]
async fn error_inside_stream_is_an_event_and_retry_is_complete() {
    let gateway = TestGateway::start().await;
    let script = "#demo\ntext begin\nerror 529\ntext end";
    let (events, broke) = events_of(gateway.ask(script, Streaming::Yes).await).await;
    assert!(!broke);
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["error"]["type"]), (&json!("error"), &json!("overloaded_error")));
    let whole = json_of(gateway.ask(script, Streaming::No).await).await;
    assert_eq!(whole["content"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn drop_step_cuts_connection_at_its_position() {
    let gateway = TestGateway::start().await;
    let middle = "#demo\ntext begin\ndrop\ntext end";
    let (events, broke) = events_of(gateway.ask(middle, Streaming::Yes).await).await;
    assert!(broke && text_of(&events) == "begin", "{events:?}");
    assert!(events.iter().all(|event| event["type"] != "message_stop"));
    let (events, broke) = events_of(gateway.ask(middle, Streaming::Yes).await).await;
    assert!(!broke && text_of(&events) == "beginend");

    for stream in [Streaming::Yes, Streaming::No] {
        let request = gateway.request(Method::POST, "/v1/messages");
        let request = request.body(body("#demo\ndrop always\ntext x", stream).to_string());
        request.send().await.expect_err("the connection is cut before a response");
    }
    let outcomes: Vec<_> = gateway.log.entries().iter().map(|entry| entry.outcome).collect();
    assert_eq!(outcomes[..2], [ResponseOutcome::Cut, ResponseOutcome::Finished]);
    assert!(outcomes[2..].iter().all(|outcome| *outcome == ResponseOutcome::Cut));
}

#[tokio::test]
async fn invalid_script_line_is_named_in_response() {
    let gateway = TestGateway::start().await;
    let whole = json_of(gateway.ask("#demo\ntext a\nhop", Streaming::No).await).await;
    let text = whole["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("Line 3") && text.contains("hop"), "{text}");
}

#[tokio::test]
async fn one_token_probe_gets_one_token() {
    let gateway = TestGateway::start().await;
    let mut probe = body("hi", Streaming::No);
    probe["max_tokens"] = 1.into();
    probe.as_object_mut().unwrap().remove("stream");
    let whole = json_of(gateway.post("/v1/messages", &probe).await).await;
    assert_eq!((&whole["stop_reason"], &whole["usage"]["output_tokens"]), (&json!("max_tokens"), &json!(1)));
}

#[tokio::test]
async fn counts_tokens_and_lists_models() {
    let gateway = TestGateway::start().await;
    let counted =
        json_of(gateway.post("/v1/messages/count_tokens?beta=true", &body("12345678", Streaming::No)).await);
    assert_eq!(counted.await, json!({"input_tokens": 2}));
    let models = json_of(gateway.request(Method::GET, "/v1/models").send().await.unwrap()).await;
    let data = models["data"].as_array().unwrap();
    assert_eq!((&models["first_id"], &models["last_id"]), (&data[0]["id"], &data[data.len() - 1]["id"]));
    for model in data {
        let mut body = body("hi", Streaming::No);
        body["model"] = model["id"].clone();
        assert_eq!(gateway.post("/v1/messages", &body).await.status(), 200);
    }
}

#[tokio::test]
async fn log_records_request_and_session() {
    let gateway = TestGateway::start().await;
    let asked = json!({
        "model": "claude-x", "stream": true, "max_tokens": 9, "tools": [{"name": "Bash"}, {"type": "other"}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "real"}, {"type": "text", "text": "<system-reminder>x"}]},
            {"role": "system", "content": "note"},
        ],
    });
    events_of(gateway.post("/v1/messages", &asked).await).await;
    gateway.request(Method::GET, "/v1/models").send().await.unwrap();
    let entries = gateway.log.wait_for(|entries| entries.len() == 2).await;
    let entry = &entries[0];
    assert_eq!(
        (entry.kind, entry.session.as_str(), entry.model.as_str()),
        (RequestKind::Messages, "session-1", "claude-x")
    );
    assert_eq!((entry.stream, entry.max_tokens, entry.message_count()), (true, Some(9), 2));
    assert_eq!(
        (entry.last_user_text.as_deref(), &entry.roles[..]),
        (Some("real"), &["user".into(), "system".into()][..])
    );
    assert_eq!((&entry.tools[..], entry.outcome), (&["Bash".to_owned()][..], ResponseOutcome::Finished));
    assert!(!entry.headers.contains_key("authorization"));
    assert_eq!(entries[1].kind, RequestKind::Models);
    assert_eq!(gateway.log.of_session("session-1").len(), 1);
    assert!(gateway.log.of_session("session-2").is_empty());
}

#[tokio::test]
async fn shutdown_cuts_running_requests_and_frees_port() {
    let gateway = TestGateway::start().await;
    let running = gateway.ask("#demo\ntext now\nwait 3600000\ntext later", Streaming::Yes).await;
    let address = gateway.handle.base_url().trim_start_matches("http://").to_owned();
    // One idle connection and one in the middle of its request head.
    let _silent = TcpStream::connect(&address).unwrap();
    let mut half = TcpStream::connect(&address).unwrap();
    half.write_all(b"POST /v1/messages HTTP/1.1\r\nHost: local").unwrap();

    let shutdown = async {
        gateway.handle.shutdown().await;
        gateway.handle.shutdown().await;
    };
    in_time(Duration::from_secs(4), "shutdown without waiting for clients", shutdown).await.unwrap();
    let (events, broke) = events_of(running).await;
    assert!(broke && text_of(&events) == "now");
    assert_eq!(gateway.log.entries()[0].outcome, ResponseOutcome::Cancelled);
    assert!(TcpStream::connect(&address).is_err());
    assert!(matches!(half.read(&mut [0]), Ok(0) | Err(_)));
}

#[tokio::test]
async fn dropping_handle_stops_gateway() {
    let TestGateway { handle, log, client } = TestGateway::start().await;
    let request = client.post(format!("{}/v1/messages", handle.base_url()));
    let request = request.bearer_auth(handle.bearer_for("s").expose_secret());
    let request = request.body(body("#demo\ntext now\nwait 3600000\ntext later", Streaming::Yes).to_string());
    let running = request.send().await.unwrap();
    drop(handle);
    let (_, broke) = events_of(running).await;
    assert!(broke);
    log.wait_for(|entries| entries[0].outcome == ResponseOutcome::Cancelled).await;
}

#[tokio::test]
async fn concurrent_sessions_get_their_own_responses() {
    let gateway = TestGateway::start().await;
    let ask = async |number: usize| {
        let script = format!("#demo\nchunk 1\nrepeat 20 word{number}");
        text_of(&events_of(gateway.ask(&script, Streaming::Yes).await).await.0)
    };
    let answers: Vec<String> = futures_util::future::join_all((0..32).map(ask)).await;
    for (number, answer) in answers.iter().enumerate() {
        assert_eq!(answer.matches(&format!("word{number}")).count(), 20);
    }
}

#[tokio::test]
async fn demo_model_responses_are_accounted() {
    let gateway = TestGateway::start().await;
    let whole = json_of(gateway.ask("hi", Streaming::No).await).await;
    events_of(gateway.ask("hi", Streaming::Yes).await).await;
    check_error(
        529,
        "overloaded_error",
        error_of(gateway.ask("#demo\nerror 529", Streaming::Yes).await).await,
    );
    let usage = gateway.handle.usage("session-1").unwrap();
    assert_eq!((usage.requests, usage.completed, usage.failed), (3, 2, 1));
    assert_eq!(json!(usage.input_tokens), json!(2 * whole["usage"]["input_tokens"].as_u64().unwrap()));
    assert_eq!(json!(usage.output_tokens), json!(2 * whole["usage"]["output_tokens"].as_u64().unwrap()));
    assert_eq!(usage.last_stop_reason.as_deref(), Some("end_turn"));
    assert_eq!(gateway.handle.last_error("session-1").unwrap().status, 529);
}
