//! A small endpoint whose defects are found, and the gateway with the demo model.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use innkeeper_gateway::{DemoUpstream, Gateway, GatewayConfig, GatewayHandle};
use innkeeper_gateway_check::{
    CheckError, CheckOptions, CheckOutcome, CheckReport, CheckTarget, Credentials, Finding, check,
};
use serde_json::{Value, json};

/// The secret that the small endpoint accepts.
const SECRET: &str = "let-me-in-4711";

/// One request to the small endpoint.
struct Request {
    method: String,
    /// The path without its query.
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    fn is_stream(&self) -> bool {
        self.json()["stream"] == true
    }
}

/// The small endpoint's response.
struct Reply {
    status: u16,
    media: &'static str,
    body: String,
    /// Bytes that are announced but not sent.
    missing: usize,
    /// The redirect target.
    location: Option<&'static str>,
}

impl Reply {
    fn json(value: &Value) -> Self {
        Self { status: 200, media: "application/json", body: value.to_string(), missing: 0, location: None }
    }

    fn error(status: u16, kind: &str) -> Self {
        let body = json!({"type": "error", "error": {"type": kind, "message": "no"}, "request_id": "req_1"});
        Self { status, ..Self::json(&body) }
    }

    /// Replaces a text that must be present.
    fn swap(mut self, from: &str, to: &str) -> Self {
        assert!(self.body.contains(from), "{from} is not in {}", self.body);
        self.body = self.body.replace(from, to);
        self
    }
}

type Respond = dyn Fn(&Request) -> Reply + Send + Sync;

/// A small endpoint on a thread, which serves one request per connection.
struct SmallEndpoint {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SmallEndpoint {
    fn start(respond: Arc<Respond>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                // A client that disconnects early is not a failure of the endpoint.
                stream.and_then(|stream| serve(&stream, &*respond)).ok();
            }
        });
        Self { address, stop, thread: Some(thread) }
    }

    async fn check(&self, credentials: Credentials) -> CheckReport {
        let target = CheckTarget {
            base_url: format!("http://{}/", self.address),
            credentials,
            model: Some("claude-a".into()),
        };
        check(target, options()).await.unwrap()
    }
}

impl Drop for SmallEndpoint {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the thread from its accept call.
        TcpStream::connect(self.address).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn serve(stream: &TcpStream, respond: &Respond) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return Ok(()) };
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let path = target.split('?').next().unwrap_or_default().to_owned();
    let mut request = Request { method, path, headers, body: Vec::new() };
    let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    request.body = vec![0; length];
    reader.read_exact(&mut request.body)?;
    let reply = respond(&request);
    let head = format!(
        "HTTP/1.1 {} x\r\ncontent-type: {}\r\ncontent-length: {}\r\nconnection: close\r\n",
        reply.status,
        reply.media,
        reply.body.len() + reply.missing,
    );
    let location = reply.location.map(|place| format!("location: {place}\r\n")).unwrap_or_default();
    let mut stream = stream;
    stream.write_all(format!("{head}{location}\r\n").as_bytes())?;
    if request.method != "HEAD" {
        stream.write_all(reply.body.as_bytes())?;
    }
    Ok(())
}

/// A minimal endpoint without defects.
fn good(request: &Request) -> Reply {
    let bearer = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    if bearer.or(request.header("x-api-key")) != Some(SECRET) {
        return Reply::error(401, "authentication_error");
    }
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/v1/models") => {
            let model =
                json!({"type": "model", "id": "claude-a", "display_name": "A", "created_at": "1970-01-01"});
            let list =
                json!({"data": [model], "has_more": false, "first_id": "claude-a", "last_id": "claude-a"});
            Reply::json(&list)
        }
        ("POST", "/v1/messages/count_tokens") => Reply::json(&json!({"input_tokens": 7})),
        ("POST", "/v1/messages") => answer(request),
        _ => Reply::error(404, "not_found_error"),
    }
}

fn answer(request: &Request) -> Reply {
    let body = request.json();
    if !body["model"].is_string() || !body["messages"].is_array() {
        return Reply::error(400, "invalid_request_error");
    }
    if body["model"] != "claude-a" {
        return Reply::error(404, "not_found_error");
    }
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-a",
        "content": [{"type": "text", "text": "hello"}], "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {"input_tokens": 7, "output_tokens": 2},
    });
    if !request.is_stream() {
        return Reply::json(&message);
    }
    let text = json!({"type": "text", "text": ""});
    let tool = json!({"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}});
    let (block, delta, reason) = if body["tools"].is_array() {
        (tool, json!({"type": "input_json_delta", "partial_json": "{}"}), "tool_use")
    } else {
        (text, json!({"type": "text_delta", "text": "hello"}), "end_turn")
    };
    let mut head = message;
    head["content"] = json!([]);
    head["stop_reason"] = Value::Null;
    let events = [
        json!({"type": "message_start", "message": head}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}}),
        json!({"type": "message_stop"}),
    ];
    let frame = |data: &Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    let body = events.iter().map(frame).collect();
    Reply { status: 200, media: "text/event-stream", body, missing: 0, location: None }
}

fn options() -> CheckOptions {
    CheckOptions { idle: Duration::from_secs(20), ..CheckOptions::default() }
}

fn bearer() -> Credentials {
    Credentials::Bearer(SECRET.into())
}

fn failed(report: &CheckReport) -> Vec<&str> {
    report.failed().map(|finding| finding.name.as_str()).collect()
}

fn skipped(report: &CheckReport) -> Vec<&str> {
    let is_skipped = |finding: &&Finding| matches!(finding.outcome, CheckOutcome::Skipped { .. });
    report.findings.iter().filter(is_skipped).map(|finding| finding.name.as_str()).collect()
}

/// Checks an endpoint whose correct replies are modified by `defect`.
async fn check_with(defect: fn(&Request, Reply) -> Reply) -> CheckReport {
    let endpoint = SmallEndpoint::start(Arc::new(move |request| defect(request, good(request))));
    endpoint.check(bearer()).await
}

/// Modifies streamed text responses only.
fn in_text_stream(request: &Request, reply: Reply, change: fn(Reply) -> Reply) -> Reply {
    if request.is_stream() && reply.status == 200 && request.json()["tools"].is_null() {
        change(reply)
    } else {
        reply
    }
}

async fn demo_gateway() -> GatewayHandle {
    let listen = "127.0.0.1:0".parse().unwrap();
    Gateway::start(GatewayConfig { listen, upstream: Arc::new(DemoUpstream::new()) }).await.unwrap()
}

async fn check_gateway(gateway: &GatewayHandle, prompts: &[&str]) -> CheckReport {
    let target = CheckTarget {
        base_url: gateway.base_url().to_owned(),
        credentials: Credentials::Bearer(gateway.bearer_for("check")),
        model: None,
    };
    let prompts = prompts.iter().map(|prompt| (*prompt).to_owned()).collect();
    check(target, CheckOptions { prompts, ..options() }).await.unwrap()
}

#[tokio::test]
async fn gateway_with_demo_model_has_no_defects() {
    let gateway = demo_gateway().await;
    let script =
        "#demo\nthink hm\ntext hello\nchunk 1\ntool Read {\"path\": \"a\"}\n+tool Read {\"path\": \"b\"}";
    let report = check_gateway(&gateway, &[script, "tour", "hello"]).await;
    for finding in &report.findings {
        assert_eq!(
            (&finding.outcome, finding.notes.as_slice()),
            (&CheckOutcome::Ok, [].as_slice()),
            "{finding:?}"
        );
    }
    // The lists, a message in two forms, five streams and the rejected requests.
    assert_eq!(report.findings.len(), 4 + 5 * 7 + 1 + 9, "{report:#?}");
}

#[tokio::test]
async fn error_event_is_reported_under_end() {
    let gateway = demo_gateway().await;
    let report = check_gateway(&gateway, &["#demo\ntext hello\nerror 529 always"]).await;
    assert_eq!(failed(&report), ["prompt-1.end"]);
    let CheckOutcome::Failed(defects) = &report.finding("prompt-1.end").unwrap().outcome else {
        unreachable!()
    };
    assert_eq!(defects[0].expected, "no `error` event");
    assert!(defects[0].seen.contains("overloaded_error"), "{defects:?}");
}

#[tokio::test]
async fn cut_connection_is_reported() {
    let gateway = demo_gateway().await;
    let report = check_gateway(&gateway, &["#demo\ntext hello\ndrop always"]).await;
    assert_eq!(failed(&report), ["prompt-1.answer", "prompt-1.end"]);
}

#[tokio::test]
async fn error_status_is_reported_and_stream_checks_are_skipped() {
    let gateway = demo_gateway().await;
    let report = check_gateway(&gateway, &["#demo\nerror 529 always"]).await;
    assert_eq!(failed(&report), ["prompt-1.answer"]);
    assert_eq!(skipped(&report).len(), 6);
    let shown = format!("{:?}", report.finding("prompt-1.answer"));
    assert!(shown.contains("529") && shown.contains("overloaded_error"), "{shown}");
}

#[tokio::test]
async fn small_endpoint_passes_with_either_credential() {
    let endpoint = SmallEndpoint::start(Arc::new(good));
    for credentials in [bearer(), Credentials::ApiKey(SECRET.into())] {
        let report = endpoint.check(credentials).await;
        assert_eq!((failed(&report), skipped(&report)), (vec![], vec![]), "{report:#?}");
    }
}

#[tokio::test]
async fn each_stream_defect_is_reported_under_its_check() {
    type Change = fn(Reply) -> Reply;
    let cases: [(Change, &[&str]); 14] = [
        (|reply| Reply { media: "text/plain", ..reply }, &["stream.answer"]),
        (|reply| Reply { missing: 9, ..reply }, &["stream.answer"]),
        (|reply| reply.swap("event: content_block_stop\n", ""), &["stream.framing"]),
        (|reply| reply.swap("event: ", "event: x-"), &["stream.framing"]),
        (|reply| reply.swap("\"text_delta\"", "text_delta"), &["stream.framing"]),
        (|reply| Reply { body: reply.body + "data: [DONE]\n\n", ..reply }, &["stream.framing"]),
        (|reply| reply.swap("msg_1", ""), &["stream.start"]),
        (|reply| reply.swap("\"index\":0", "\"index\":1"), &["stream.blocks"]),
        (|reply| reply.swap("\"type\":\"text_delta\"", "\"type\":\"thinking_delta\""), &["stream.content"]),
        (|reply| reply.swap("\"output_tokens\":5", "\"output_tokens\":1"), &["stream.usage"]),
        (|reply| reply.swap("\"end_turn\"", "null"), &["stream.end"]),
        (
            |reply| reply.swap("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", ""),
            &["stream.end"],
        ),
        (
            |reply| Reply { body: reply.body.trim_end().to_owned(), ..reply },
            &["stream.framing", "stream.end"],
        ),
        (|reply| Reply { body: reply.body.clone() + &reply.body, ..reply }, &["stream.end"]),
    ];
    for (change, expected) in cases {
        let endpoint =
            SmallEndpoint::start(Arc::new(move |request| in_text_stream(request, good(request), change)));
        let report = endpoint.check(bearer()).await;
        assert_eq!(failed(&report), expected, "{report:#?}");
    }
}

#[tokio::test]
async fn each_other_defect_is_reported_under_its_check() {
    type Defect = fn(&Request, Reply) -> Reply;
    let cases: [(Defect, &[&str]); 10] = [
        (
            |request, reply| {
                if request.method == "GET" && reply.status == 200 {
                    reply.swap("has_more", "more")
                } else {
                    reply
                }
            },
            &["models"],
        ),
        (
            |request, reply| {
                if request.path.ends_with("tokens") { Reply::json(&json!({"tokens": 7})) } else { reply }
            },
            &["count_tokens"],
        ),
        (
            |request, reply| {
                if request.path.ends_with("tokens") { Reply::error(501, "not_implemented") } else { reply }
            },
            &["count_tokens"],
        ),
        (
            |request, reply| {
                let whole = request.method == "POST" && reply.status == 200 && !request.is_stream();
                if whole && request.path == "/v1/messages" {
                    reply.swap("\"usage\"", "\"used\"")
                } else {
                    reply
                }
            },
            &["message", "message.stream-false"],
        ),
        (
            |request, reply| {
                if request.json()["stream"] == false { Reply::error(500, "api_error") } else { reply }
            },
            &["message.stream-false"],
        ),
        (
            |request, reply| {
                if request.json()["tools"].is_array() { reply.swap("\"{}\"", "\"[]\"") } else { reply }
            },
            &["tool-stream.content"],
        ),
        (
            |_, reply| if reply.status == 401 { Reply { status: 403, ..reply } } else { reply },
            &["error.wrong-credentials", "error.no-credentials"],
        ),
        (
            |_, reply| if reply.status == 404 { Reply { media: "text/html", ..reply } } else { reply },
            &["error.unknown-model", "error.unknown-model-stream", "error.unknown-route"],
        ),
        (
            |_, reply| {
                if reply.status == 400 { reply.swap("invalid_request_error", "api_error") } else { reply }
            },
            &["error.not-json", "error.not-an-object", "error.no-messages", "error.no-model"],
        ),
        (
            |_, reply| {
                if reply.status == 400 {
                    reply.swap("\"type\":\"error\"", "\"status\":\"error\"")
                } else {
                    reply
                }
            },
            &["error.not-json", "error.not-an-object", "error.no-messages", "error.no-model"],
        ),
    ];
    for (defect, expected) in cases {
        let report = check_with(defect).await;
        assert_eq!(failed(&report), expected, "{report:#?}");
    }
}

#[tokio::test]
async fn missing_tool_call_is_a_defect() {
    let report = check_with(|request, reply| {
        if !request.json()["tools"].is_array() {
            return reply;
        }
        let mut plain = request.json();
        plain.as_object_mut().unwrap().remove("tools");
        answer(&Request {
            body: plain.to_string().into_bytes(),
            method: "POST".into(),
            path: String::new(),
            headers: vec![],
        })
    })
    .await;
    assert_eq!(failed(&report), ["tool-stream.tool"]);
}

#[tokio::test]
async fn missing_routes_with_well_formed_errors_are_skipped() {
    let report = check_with(|request, reply| match request.path.as_str() {
        "/v1/models" => Reply::error(404, "not_found_error"),
        "/v1/messages/count_tokens" => Reply::error(501, "api_error"),
        _ => reply,
    })
    .await;
    assert_eq!((failed(&report), skipped(&report)), (vec![], vec!["models", "count_tokens"]), "{report:#?}");
}

#[tokio::test]
async fn credential_checks_are_skipped_without_credentials() {
    let endpoint = SmallEndpoint::start(Arc::new(|request| {
        let mut headers =
            request.headers.iter().filter(|(name, _)| name != "authorization").cloned().collect::<Vec<_>>();
        headers.push(("authorization".into(), format!("Bearer {SECRET}")));
        let Request { method, path, body, .. } = request;
        good(&Request { method: method.clone(), path: path.clone(), headers, body: body.clone() })
    }));
    let report = endpoint.check(Credentials::None).await;
    let expected = vec!["error.wrong-credentials", "error.no-credentials"];
    assert_eq!((failed(&report), skipped(&report)), (vec![], expected), "{report:#?}");
}

#[tokio::test]
async fn only_errors_are_checked_without_a_model() {
    let endpoint = SmallEndpoint::start(Arc::new(|request| match request.path.as_str() {
        "/v1/models" => Reply::error(404, "not_found_error"),
        _ => good(request),
    }));
    let base_url = format!("http://{}", endpoint.address);
    let report =
        check(CheckTarget { base_url, credentials: bearer(), model: None }, options()).await.unwrap();
    let expected = ["models", "count_tokens", "message", "message.stream-false", "stream", "tool-stream"];
    assert_eq!(skipped(&report), expected);
    assert_eq!(failed(&report), Vec::<&str>::new());
}

#[tokio::test]
async fn repeated_credentials_are_redacted_in_report() {
    let report = check_with(|request, reply| {
        let sent = request.header("authorization").unwrap_or_default();
        Reply { status: 500, body: format!("you said {sent}"), ..reply }
    })
    .await;
    let shown = format!("{report:?}");
    assert!(shown.contains("you said Bearer [redacted]"), "{shown}");
    assert!(!shown.contains(SECRET), "{shown}");
}

#[tokio::test]
async fn redirect_is_a_defect_and_is_not_followed() {
    let followed = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&followed);
    let endpoint = SmallEndpoint::start(Arc::new(move |request| {
        if request.path == "/elsewhere" {
            seen.store(true, Ordering::SeqCst);
        }
        Reply { status: 307, location: Some("/elsewhere"), ..good(request) }
    }));
    let report = endpoint.check(bearer()).await;
    assert_eq!(failed(&report).len() + skipped(&report).len(), report.findings.len(), "{report:#?}");
    assert!(!followed.load(Ordering::SeqCst));
}

#[tokio::test]
async fn silent_endpoint_times_out_after_idle_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    let options = CheckOptions { idle: Duration::from_millis(20), ..CheckOptions::default() };
    let target = CheckTarget { base_url, credentials: bearer(), model: Some("claude-a".into()) };
    let report = check(target, options).await.unwrap();
    assert!(failed(&report).contains(&"stream.answer"), "{report:#?}");
}

#[tokio::test]
async fn unreachable_address_is_an_error_with_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let target = CheckTarget { base_url: base_url.clone(), credentials: Credentials::None, model: None };
    let error = check(target, options()).await.unwrap_err();
    assert!(matches!(error, CheckError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains(&base_url), "{error}");
}
