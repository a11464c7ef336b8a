//! Every transport behaves the same: a client cannot tell WebSocket, Unix socket and stdio
//! apart, except by how a close is signalled.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context as _, Result};
use innkeeper_testkit::{HostOptions, RawClient, TestHost, runtimes};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{new_session, options, without_runtime};

/// A transport of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransportKind {
    WebSocket,
    Unix,
    Stdio,
}

/// A host that listens on every transport, so that other clients can watch.
struct TransportHost {
    host: TestHost,
    kind: TransportKind,
    _dir: tempfile::TempDir,
}

impl TransportHost {
    async fn start(kind: TransportKind, mut options: HostOptions) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        match kind {
            TransportKind::WebSocket => {}
            TransportKind::Unix => options.listen.push(format!("unix:{}", dir.path().join("s").display())),
            TransportKind::Stdio => options.listen.push("stdio".to_owned()),
        }
        Ok(Self { host: TestHost::start(options).await?, kind, _dir: dir })
    }

    /// Connects the client under test. A host has one stdio client in its lifetime.
    async fn client(&mut self) -> Result<RawClient> {
        match self.kind {
            TransportKind::WebSocket => self.host.raw().await,
            TransportKind::Unix => {
                let path = self.host.ready()["endpoints"][1]["path"].as_str().context("no path")?;
                RawClient::connect_unix(path.as_ref()).await
            }
            TransportKind::Stdio => self.host.take_stdio(),
        }
    }

    /// Connects a later client. It does not use stdio, which allows only one.
    async fn later_client(&mut self) -> Result<RawClient> {
        match self.kind {
            TransportKind::WebSocket | TransportKind::Unix => self.client().await,
            TransportKind::Stdio => self.host.raw().await,
        }
    }
}

async fn over_every_transport<F>(
    options: impl Fn() -> HostOptions,
    scenario: impl Fn(TransportHost) -> F,
) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    for kind in [TransportKind::WebSocket, TransportKind::Unix, TransportKind::Stdio] {
        scenario(TransportHost::start(kind, options()).await?)
            .await
            .with_context(|| format!("over {kind:?}"))?;
    }
    Ok(())
}

#[tokio::test]
async fn handshake_errors_and_ids_are_the_same_on_every_transport() -> Result<()> {
    over_every_transport(without_runtime, |mut host| async move {
        let mut client = host.client().await?;
        assert_eq!(client.request("ping", json!({})).await?["result"], Value::Null);
        assert_eq!(client.request("listSessions", json!({})).await?["error"]["code"], -32601);
        let result = client.initialize("c1", &["ahp-root://"]).await?["result"].clone();
        assert_eq!(result["protocolVersion"], "1.0.0");
        assert_eq!(result["snapshots"][0]["resource"], "ahp-root://");
        assert_eq!(client.initialize("c1", &[]).await?["error"]["code"], -32600);
        client.send_text(r#"{"jsonrpc":"2.0","id":"seven","method":"ping"}"#).await?;
        assert_eq!(client.receive().await?["id"], "seven");
        assert_eq!(client.request("no/such/method", json!({})).await?["error"]["code"], -32601);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn turn_is_visible_to_all_clients_on_every_transport() -> Result<()> {
    let [native, _] = runtimes()?;
    over_every_transport(
        || options(native.clone()),
        |mut host| async move {
            let mut client = host.client().await?;
            client.initialize("first", &["ahp-root://"]).await?;
            let session = new_session();
            let create = json!({"channel": session, "provider": "claude", "workingDirectories": [host.host.work_uri()]});
            assert_eq!(client.request("createSession", create).await?["result"], Value::Null);
            let opened = client.request("subscribe", json!({"channel": session})).await?;
            let chat = opened["result"]["snapshot"]["state"]["defaultChat"].clone();
            client.request("subscribe", json!({"channel": chat})).await?;
            let mut watcher = host.host.observer("watcher").await?;
            watcher.subscribe(chat.as_str().context("no chat")?).await?;

            // Spans several lines, which a frame may; on stdio a line is a message.
            let mut started = json!({"jsonrpc": "2.0", "method": "dispatchAction", "params": {
                "channel": chat, "clientSeq": 1,
                "action": {"type": "chat/turnStarted", "turnId": "turn-1", "startedAt": "2025-11-15T09:00:05.000Z",
                    "message": {"text": "#demo\ntext over any wire", "origin": {"kind": "user"}}}}})
            .to_string();
            if host.kind != TransportKind::Stdio {
                started = started.replacen("\"type\":", "\n\"type\":\r\n", 1);
            }
            client.send_text(&started).await?;
            let mut text = String::new();
            let mut last = 0;
            loop {
                let envelope = client.next_action().await?;
                let seq = envelope["serverSeq"].as_u64().context("no number")?;
                assert!(seq > last, "sequence number {seq} after {last}");
                last = seq;
                match envelope["action"]["type"].as_str().unwrap_or_default() {
                    "chat/delta" => text += envelope["action"]["content"].as_str().unwrap_or_default(),
                    "chat/turnComplete" => break,
                    "chat/error" => anyhow::bail!("the turn failed: {envelope}"),
                    _ => {}
                }
            }
            assert!(text.contains("over any wire"), "{text}");
            watcher.until_turn_over(chat.as_str().context("no chat")?, "turn-1").await?;
            watcher.agrees_with_a_fresh_client(&host.host.address()?).await
        },
    )
    .await
}

#[tokio::test]
async fn action_sent_on_several_lines_reaches_stdio_as_one_line() -> Result<()> {
    let mut host = TransportHost::start(TransportKind::Stdio, without_runtime()).await?;
    let mut pipe = host.client().await?;
    pipe.initialize("pipe", &["ahp-root://"]).await?;
    let mut other = host.host.raw().await?;
    other.initialize("other", &[]).await?;
    let dispatch = "{\"jsonrpc\":\"2.0\",\n\"method\":\"dispatchAction\",\"params\":{\"clientSeq\":4,\"action\":{\r\n  \
        \"type\":\"root/configChanged\",\n  \"config\":{\"telemetryLevel\":\"off\"}\n}}}";
    other.send_text(dispatch).await?;
    let echo = pipe.next_action().await?;
    assert_eq!(echo["action"], json!({"type": "root/configChanged", "config": {"telemetryLevel": "off"}}));
    assert_eq!(pipe.request("ping", json!({})).await?["result"], Value::Null, "lines are out of step");
    Ok(())
}

#[tokio::test]
async fn garbage_gets_errors_and_then_closes_every_transport() -> Result<()> {
    over_every_transport(without_runtime, |mut host| async move {
        let mut client = host.client().await?;
        for (text, code) in [("{not json", -32700), ("[]", -32600), (r#"{"jsonrpc":"2.0"}"#, -32600)] {
            client.send_text(text).await?;
            let answer = client.receive().await?;
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(code)), "{text}");
        }
        client.send_binary(vec![0xff, 0xfe]).await?;
        assert_eq!(client.receive().await?["error"]["code"], -32600);
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"ping","params":{}}}"#,
            "[".repeat(200_000) + &"]".repeat(200_000)
        );
        client.send_text(&deep).await?;
        let answer = client.receive().await?;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(-32600)));
        assert!(
            answer["error"]["message"].as_str().is_some_and(|message| message.contains("nested")),
            "{answer}"
        );
        assert_eq!(client.request("ping", json!({})).await?["result"], Value::Null);
        for _ in 4..16 {
            client.send_text("garbage").await?;
        }
        let close = client.closed().await?;
        assert_eq!(
            close.map(|close| u16::from(close.code)),
            (host.kind != TransportKind::Stdio).then_some(4002)
        );
        assert_eq!(host.later_client().await?.request("ping", json!({})).await?["result"], Value::Null);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn oversized_message_is_reported_on_every_transport() -> Result<()> {
    over_every_transport(without_runtime, |mut host| async move {
        let mut client = host.client().await?;
        let large = format!("{{\"id\":1,\"method\":\"x\",\"params\":\"{}\"}}", "x".repeat(17 * 1024 * 1024));
        client.send_text(&large).await?;
        if host.kind == TransportKind::Stdio {
            let answer = client.receive().await?;
            assert!(
                answer["error"]["message"].as_str().is_some_and(|message| message.contains("16 MiB")),
                "{answer}"
            );
            assert_eq!(
                client.request("ping", json!({})).await?["result"],
                Value::Null,
                "the next line was not read"
            );
        } else {
            let close = client.closed().await?.context("no close frame")?;
            assert_eq!(u16::from(close.code), 1009, "{close:?}");
        }
        assert_eq!(host.later_client().await?.request("ping", json!({})).await?["result"], Value::Null);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn disconnected_client_can_resume_and_receives_missed_actions() -> Result<()> {
    over_every_transport(without_runtime, |mut host| async move {
        let mut watcher = host.host.raw().await?;
        watcher.initialize("watcher", &["ahp-root://"]).await?;
        let change = |value: &str| json!({"clientSeq": 1, "action": {"type": "root/configChanged", "config": {"a": value}}});
        {
            let mut client = host.client().await?;
            client.initialize("c1", &["ahp-root://"]).await?;
            client.notify("dispatchAction", change("one")).await?;
            // The last message may lack the line end.
            client.notify("dispatchAction", change("two")).await?;
            assert_eq!(client.next_action().await?["action"]["config"]["a"], "one");
            // The client disconnects without a close handshake.
        }
        for expected in ["one", "two"] {
            assert_eq!(watcher.next_action().await?["action"]["config"]["a"], expected, "an action was lost");
        }
        let mut again = host.later_client().await?;
        let back = json!({"clientId": "c1", "lastSeenServerSeq": 1, "subscriptions": ["ahp-root://"]});
        let replay = again.request("reconnect", back).await?["result"].clone();
        assert_eq!(replay["type"], "replay", "{replay}");
        assert_eq!(replay["actions"][0]["action"]["config"]["a"], "two");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn host_on_stdio_only_exits_with_its_client() -> Result<()> {
    let mut options = without_runtime();
    options.listen = vec!["stdio".to_owned()];
    let mut host = TestHost::start(options).await?;
    assert_eq!(host.ready()["endpoints"], json!([{"transport": "stdio"}]));
    assert_eq!(host.ready()["page"], Value::Null);
    let mut client = host.take_stdio()?;
    client.initialize("c1", &["ahp-root://"]).await?;
    // Sent immediately before the end of input; it is still answered.
    client.send_text(r#"{"jsonrpc":"2.0","id":"last","method":"listSessions"}"#).await?;
    let mut output = client.end_input()?;
    let last = output.receive().await?;
    assert_eq!(last["id"], "last");
    assert_eq!(output.closed().await?, None);
    assert_eq!(host.exit_code(Duration::from_secs(10)).await?, Some(0));
    Ok(())
}

#[tokio::test]
async fn signal_stops_a_host_whose_stdio_client_stays() -> Result<()> {
    let mut options = without_runtime();
    options.listen = vec!["stdio".to_owned()];
    let mut host = TestHost::start(options).await?;
    let mut client = host.take_stdio()?;
    client.initialize("c1", &["ahp-root://"]).await?;
    host.signal(Signal::SIGTERM)?;
    assert_eq!(client.closed().await?, None);
    assert_eq!(host.exit_code(Duration::from_secs(10)).await?, Some(0));
    Ok(())
}
