//! Invalid input: wrong tokens, garbage, wrong order, wrong state.

use anyhow::{Context as _, Result};
use futures_util::{SinkExt as _, StreamExt as _};
use innkeeper_testkit::{HostOptions, RawClient, TestHost, runtimes};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::{Opened, options, without_runtime};

/// Returns the HTTP status of a rejected upgrade.
async fn refusal(address: &str, headers: &[(&'static str, &str)]) -> Result<Option<u16>> {
    let mut request = address.into_client_request()?;
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse()?);
    }
    match tokio_tungstenite::connect_async(request).await {
        Ok(_) => Ok(None),
        Err(tungstenite::Error::Http(response)) => Ok(Some(response.status().as_u16())),
        Err(error) => Err(error.into()),
    }
}

#[tokio::test]
async fn rejects_wrong_token_origin_and_host() -> Result<()> {
    let host = TestHost::start(without_runtime()).await?;
    let (socket, address) = (host.socket()?, host.address()?);
    let token = host.ready()["token"].as_str().context("no token")?;
    let bearer = format!("Bearer {token}");
    assert_eq!(refusal(&address, &[]).await?, None);
    assert_eq!(refusal(socket, &[("authorization", &bearer)]).await?, None);
    assert_eq!(refusal(socket, &[]).await?, Some(403));
    assert_eq!(refusal(&format!("{socket}?tkn=wrong"), &[]).await?, Some(403));
    assert_eq!(refusal(&format!("{address}x"), &[]).await?, Some(403));
    assert_eq!(refusal(&address, &[("origin", "http://localhost:1234")]).await?, None);
    assert_eq!(refusal(&address, &[("origin", "https://evil.example")]).await?, Some(403));
    assert_eq!(refusal(&address, &[("host", "rebound.example:7433")]).await?, Some(403));
    Ok(())
}

#[tokio::test]
async fn accepts_token_that_starts_with_a_hyphen() -> Result<()> {
    let arguments = ["--token", "-x_1"].map(str::to_owned).to_vec();
    let host = TestHost::start(HostOptions { arguments, ..without_runtime() }).await?;
    assert_eq!(host.ready()["token"], "-x_1");
    let answer = host.raw().await?.initialize("c", &[]).await?;
    assert!(answer["result"].is_object(), "{answer}");
    Ok(())
}

#[tokio::test]
async fn unix_socket_needs_no_token_and_uses_the_same_protocol() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("host.sock");
    let mut options = without_runtime();
    options.arguments = vec!["--listen".to_owned(), format!("unix:{}", path.display())];
    let mut host = TestHost::start(options).await?;
    assert_eq!(host.ready()["endpoints"][1], json!({"transport": "unix", "path": path}));
    let stream = tokio::net::UnixStream::connect(&path).await?;
    // No token, and a host name that would be rejected over TCP.
    let (mut socket, _) = tokio_tungstenite::client_async("ws://anything.example/", stream).await?;
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersions": ["1.0.0"], "clientId": "u", "initialSubscriptions": ["ahp-root://"]}});
    socket.send(tungstenite::Message::text(initialize.to_string())).await?;
    let answer = socket.next().await.context("no answer")??;
    let answer: Value = serde_json::from_str(answer.to_text()?)?;
    assert_eq!(answer["result"]["snapshots"][0]["resource"], "ahp-root://");
    drop(socket);
    host.signal(nix::sys::signal::Signal::SIGTERM)?;
    assert_eq!(host.exit_code(std::time::Duration::from_secs(10)).await?, Some(0));
    assert!(!path.exists(), "the socket file was not removed");
    Ok(())
}

#[tokio::test]
async fn page_and_health_need_no_token() -> Result<()> {
    let host = TestHost::start(without_runtime()).await?;
    let http = host.socket()?.replace("ws://", "http://");
    let client = reqwest::Client::builder().no_proxy().build()?;
    let page = client.get(&http).send().await?;
    assert_eq!(page.status().as_u16(), 200);
    assert!(page.headers()["content-type"].to_str()?.starts_with("text/html"));
    let health = client.get(format!("{http}healthz")).send().await?;
    assert_eq!((health.status().as_u16(), health.text().await?.as_str()), (200, "ok"));
    assert_eq!(client.get(format!("{http}nothing/here")).send().await?.status().as_u16(), 404);
    assert_eq!(client.post(&http).send().await?.status().as_u16(), 405);
    Ok(())
}

#[tokio::test]
async fn invalid_frames_get_an_error_and_the_connection_stays_open() -> Result<()> {
    let host = TestHost::start(without_runtime()).await?;
    let mut client = host.raw().await?;
    let cases = [
        ("{not json", -32700),
        ("", -32700),
        ("[]", -32600),
        ("42", -32600),
        (r#"{"jsonrpc":"2.0"}"#, -32600),
        (r#"{"jsonrpc":"2.0","method":7,"id":1}"#, -32600),
    ];
    for (text, code) in cases {
        client.send_text(text).await?;
        let answer = client.receive().await?;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(code)), "{text}");
    }
    client.send_binary(vec![0, 159, 146]).await?;
    assert_eq!(client.receive().await?["error"]["code"], -32600);
    assert_eq!(client.request("ping", json!({})).await?["result"], Value::Null);
    // The sixteenth invalid frame closes the connection.
    for _ in 7..16 {
        client.send_text("garbage").await?;
    }
    let close = client.closed().await?.context("no close frame")?;
    assert_eq!(u16::from(close.code), 4002, "{close:?}");
    Ok(())
}

#[tokio::test]
async fn oversized_frame_closes_only_its_connection() -> Result<()> {
    let host = TestHost::start(without_runtime()).await?;
    let mut bystander = host.raw().await?;
    let mut client = host.raw().await?;
    let large =
        format!("{{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":\"{}\"}}", "x".repeat(17 * 1024 * 1024));
    client.send_text(&large).await?;
    let close = client.closed().await?.context("no close frame")?;
    assert_eq!(u16::from(close.code), 1009, "{close:?}");
    assert_eq!(bystander.request("ping", json!({})).await?["result"], Value::Null);
    Ok(())
}

#[tokio::test]
async fn rejects_methods_in_the_wrong_state() -> Result<()> {
    let host = TestHost::start(without_runtime()).await?;
    let mut client = host.raw().await?;
    assert_eq!(
        client.request("ping", json!({})).await?["result"],
        Value::Null,
        "ping failed before the handshake"
    );
    assert_eq!(client.request("listSessions", json!({})).await?["error"]["code"], -32601);
    let strange = client
        .request("reconnect", json!({"clientId": "unknown", "lastSeenServerSeq": 3, "subscriptions": []}));
    assert_eq!(strange.await?["error"]["code"], -32008, "reconnect of an unknown client");
    let result = client.initialize("c1", &["ahp-root://", "claude:/unknown"]).await?["result"].clone();
    assert_eq!(result["protocolVersion"], "1.0.0");
    assert_eq!(result["snapshots"].as_array().map(Vec::len), Some(1), "unknown channels are omitted");
    assert_eq!(client.initialize("c1", &[]).await?["error"]["code"], -32600, "second initialize");
    assert_eq!(client.request("no/such/method", json!({})).await?["error"]["code"], -32601);
    assert_eq!(client.request("subscribe", json!({"channel": "x:/1"})).await?["error"]["code"], -32008);
    assert_eq!(
        client.request("createSession", json!({"provider": "claude"})).await?["error"]["code"],
        -32602
    );
    let unknown = json!({"channel": "acme:/1", "provider": "acme"});
    assert_eq!(client.request("createSession", unknown).await?["error"]["code"], -32002);
    client.notify("setClientManagedSettingsPermissions", json!({"permissions": {}})).await?;
    // The id is returned unchanged.
    client.send_text(r#"{"jsonrpc":"2.0","id":"seven","method":"ping"}"#).await?;
    assert_eq!(client.receive().await?["id"], "seven");
    Ok(())
}

#[tokio::test]
async fn unsupported_version_is_rejected_with_the_supported_ones() -> Result<()> {
    let host = TestHost::start(without_runtime()).await?;
    let offer = |versions: Value| json!({"protocolVersions": versions, "clientId": "c1"});
    let vscode = offer(json!(["0.9.0", "0.7.0", "0.6.0", "0.5.2", "0.5.1"]));
    assert_eq!(host.raw().await?.request("initialize", vscode).await?["result"]["protocolVersion"], "0.9.0");
    let malformed = host.raw().await?.request("initialize", offer(json!(["one"]))).await?;
    assert_eq!(malformed["error"]["code"], -32602);
    let mut old = host.raw().await?;
    let refused = old.request("initialize", offer(json!(["0.5.1"]))).await?;
    assert_eq!(refused["error"]["code"], -32005);
    assert_eq!(refused["error"]["data"]["supportedVersions"], json!(["1.0.0", "0.9.0"]));
    assert!(old.closed().await.is_ok(), "the connection was not closed");
    Ok(())
}

#[tokio::test]
async fn missing_channel_means_root() -> Result<()> {
    let host = TestHost::start(without_runtime()).await?;
    let mut client = host.raw().await?;
    client.initialize("c1", &[]).await?;
    let subscribed = client.request("subscribe", json!({})).await?;
    assert_eq!(subscribed["result"]["snapshot"]["resource"], "ahp-root://");
    let change = json!({"clientSeq": 0, "action": {"type": "root/configChanged", "config": {"telemetryLevel": "off"}}});
    for _ in 0..2 {
        client.notify("dispatchAction", change.clone()).await?;
        let echo = client.next_action().await?;
        assert_eq!(echo["origin"], json!({"clientId": "c1", "clientSeq": 0}), "wrong origin in the echo");
    }
    let back = |seen: u64| json!({"clientId": "c1", "lastSeenServerSeq": seen, "subscriptions": ["ahp-root://", "x:/gone"]});
    let replay = host.raw().await?.request("reconnect", back(1)).await?["result"].clone();
    assert_eq!((&replay["type"], &replay["missing"]), (&json!("replay"), &json!(["x:/gone"])));
    assert_eq!(replay["actions"].as_array().map(Vec::len), Some(1), "expected the second action: {replay}");
    assert_eq!(replay["actions"][0]["serverSeq"], 2);
    let strange = host.raw().await?.request("reconnect", back(999)).await?["result"].clone();
    assert_eq!(strange["type"], "snapshot", "the host never used this sequence number");
    assert_eq!(strange["snapshots"][0]["state"]["config"]["values"]["telemetryLevel"], "off");
    Ok(())
}

#[tokio::test]
async fn second_turn_is_rejected_and_changes_nothing() -> Result<()> {
    let [native, _] = runtimes()?;
    let host = TestHost::start(options(native)).await?;
    let Opened { client: mut observer, chat, .. } = Opened::new(&host).await?;
    observer.say(&chat, "turn-1", "#demo\ntext one\nwait 60000\ntext two").await?;
    observer
        .until("the turn runs", |observer| observer.chat(&chat).is_ok_and(|chat| chat.active_turn.is_some()))
        .await?;

    let mut raw = host.raw().await?;
    raw.initialize("second", &[]).await?;
    let started = json!({
        "type": "chat/turnStarted", "turnId": "turn-2", "startedAt": "2025-11-15T09:00:05.000Z",
        "message": {"text": "me too", "origin": {"kind": "user"}}, "unknownField": 1,
    });
    raw.notify("dispatchAction", json!({"channel": chat, "clientSeq": 5, "action": started})).await?;
    let answer = raw.next_action().await?;
    assert!(
        answer["rejectionReason"].as_str().is_some_and(|reason| reason.contains("already running")),
        "{answer}"
    );
    assert_eq!(answer["action"], started, "the action was changed");
    assert_eq!(observer.chat(&chat)?.active_turn.as_ref().map(|turn| turn.id.as_str()), Some("turn-1"));
    observer
        .dispatch(&chat, json!({"type": "chat/turnCancelled", "turnId": "turn-1", "duration": 10}))
        .await?;
    observer.until_turn_over(&chat, "turn-1").await?;
    assert_eq!(observer.chat(&chat)?.turns.len(), 1);
    observer.agrees_with_a_fresh_client(&host.address()?).await?;
    Ok(())
}

#[tokio::test]
async fn message_to_unknown_session_is_ignored_and_the_connection_stays_open() -> Result<()> {
    let host = TestHost::start(without_runtime()).await?;
    let mut client: RawClient = host.raw().await?;
    client.initialize("c1", &["ahp-root://"]).await?;
    let started = json!({
        "type": "chat/turnStarted", "turnId": "t", "startedAt": "2025-11-15T09:00:05.000Z",
        "message": {"text": "hello?", "origin": {"kind": "user"}},
    });
    client
        .notify("dispatchAction", json!({"channel": "ahp-chat:/nowhere", "clientSeq": 1, "action": started}))
        .await?;
    // Not a ping, which is answered out of order.
    client.send_text(r#"{"jsonrpc":"2.0","id":77,"method":"listSessions"}"#).await?;
    let next = client.receive().await?;
    assert_eq!(next["id"], 77, "an echo arrived before the response: {next}");
    Ok(())
}
