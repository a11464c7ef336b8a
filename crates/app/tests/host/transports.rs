//! One contract over every way in: a client must not be able to tell WebSocket,
//! unix socket and stdio apart, except by how the end is told.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context as _, Result};
use innkeeper_testkit::{HostOptions, RawClient, TestHost, runtimes};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{new_session, options, without_runtime};

/// A way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    WebSocket,
    Unix,
    Stdio,
}

/// A host that can be reached over every way, so that other clients can watch.
struct Inn {
    host: TestHost,
    way: Way,
    _dir: tempfile::TempDir,
}

impl Inn {
    async fn start(way: Way, mut options: HostOptions) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        match way {
            Way::WebSocket => {}
            Way::Unix => options.listen.push(format!("unix:{}", dir.path().join("s").display())),
            Way::Stdio => options.listen.push("stdio".to_owned()),
        }
        Ok(Self { host: TestHost::start(options).await?, way, _dir: dir })
    }

    /// The client under test. Over stdio there is one in a host's life.
    async fn client(&mut self) -> Result<RawClient> {
        match self.way {
            Way::WebSocket => self.host.raw().await,
            Way::Unix => {
                let path = self.host.ready()["endpoints"][1]["path"].as_str().context("no path")?;
                RawClient::connect_unix(path.as_ref()).await
            }
            Way::Stdio => self.host.take_stdio(),
        }
    }

    /// A client that comes later: over stdio there cannot be a second one.
    async fn later_client(&mut self) -> Result<RawClient> {
        match self.way {
            Way::WebSocket | Way::Unix => self.client().await,
            Way::Stdio => self.host.raw().await,
        }
    }
}

async fn over_every_way<F>(options: impl Fn() -> HostOptions, story: impl Fn(Inn) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    for way in [Way::WebSocket, Way::Unix, Way::Stdio] {
        story(Inn::start(way, options()).await?).await.with_context(|| format!("over {way:?}"))?;
    }
    Ok(())
}

#[tokio::test]
async fn the_handshake_the_errors_and_the_ids_are_the_same_everywhere() -> Result<()> {
    over_every_way(without_runtime, |mut inn| async move {
        let mut client = inn.client().await?;
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
async fn a_turn_runs_and_everybody_sees_it_over_every_way() -> Result<()> {
    let [native, _] = runtimes()?;
    over_every_way(
        || options(native.clone()),
        |mut inn| async move {
            let mut client = inn.client().await?;
            client.initialize("first", &["ahp-root://"]).await?;
            let session = new_session();
            let create = json!({"channel": session, "provider": "claude", "workingDirectories": [inn.host.work_uri()]});
            assert_eq!(client.request("createSession", create).await?["result"], Value::Null);
            let opened = client.request("subscribe", json!({"channel": session})).await?;
            let chat = opened["result"]["snapshot"]["state"]["defaultChat"].clone();
            client.request("subscribe", json!({"channel": chat})).await?;
            let mut watcher = inn.host.observer("watcher").await?;
            watcher.subscribe(chat.as_str().context("no chat")?).await?;

            // Over several lines, as a frame may be; on stdio a line is a message.
            let mut started = json!({"jsonrpc": "2.0", "method": "dispatchAction", "params": {
                "channel": chat, "clientSeq": 1,
                "action": {"type": "chat/turnStarted", "turnId": "turn-1", "startedAt": "2026-11-15T09:00:05.000Z",
                    "message": {"text": "#demo\ntext over any wire", "origin": {"kind": "user"}}}}})
            .to_string();
            if inn.way != Way::Stdio {
                started = started.replacen("\"type\":", "\n\"type\":\r\n", 1);
            }
            client.send_text(&started).await?;
            let mut text = String::new();
            let mut last = 0;
            loop {
                let envelope = client.next_action().await?;
                let seq = envelope["serverSeq"].as_u64().context("no number")?;
                assert!(seq > last, "numbers rise: {seq} after {last}");
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
            watcher.agrees_with_a_fresh_client(&inn.host.address()?).await
        },
    )
    .await
}

#[tokio::test]
async fn an_action_sent_over_several_lines_reaches_stdio_as_one() -> Result<()> {
    let mut inn = Inn::start(Way::Stdio, without_runtime()).await?;
    let mut pipe = inn.client().await?;
    pipe.initialize("pipe", &["ahp-root://"]).await?;
    let mut other = inn.host.raw().await?;
    other.initialize("other", &[]).await?;
    let dispatch = "{\"jsonrpc\":\"2.0\",\n\"method\":\"dispatchAction\",\"params\":{\"clientSeq\":4,\"action\":{\r\n  \
        \"type\":\"root/configChanged\",\n  \"config\":{\"telemetryLevel\":\"off\"}\n}}}";
    other.send_text(dispatch).await?;
    let echo = pipe.next_action().await?;
    assert_eq!(echo["action"], json!({"type": "root/configChanged", "config": {"telemetryLevel": "off"}}));
    assert_eq!(pipe.request("ping", json!({})).await?["result"], Value::Null, "the lines are still in step");
    Ok(())
}

#[tokio::test]
async fn garbage_is_answered_and_much_of_it_ends_the_connection_over_every_way() -> Result<()> {
    over_every_way(without_runtime, |mut inn| async move {
        let mut client = inn.client().await?;
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
        assert_eq!(close.map(|close| u16::from(close.code)), (inn.way != Way::Stdio).then_some(4002));
        assert_eq!(inn.later_client().await?.request("ping", json!({})).await?["result"], Value::Null);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_message_that_is_too_large_is_told_so_over_every_way() -> Result<()> {
    over_every_way(without_runtime, |mut inn| async move {
        let mut client = inn.client().await?;
        let large = format!("{{\"id\":1,\"method\":\"x\",\"params\":\"{}\"}}", "x".repeat(17 * 1024 * 1024));
        client.send_text(&large).await?;
        if inn.way == Way::Stdio {
            let answer = client.receive().await?;
            assert!(
                answer["error"]["message"].as_str().is_some_and(|message| message.contains("16 MiB")),
                "{answer}"
            );
            assert_eq!(
                client.request("ping", json!({})).await?["result"],
                Value::Null,
                "the next line counts"
            );
        } else {
            let close = client.closed().await?.context("no close frame")?;
            assert_eq!(u16::from(close.code), 1009, "{close:?}");
        }
        assert_eq!(inn.later_client().await?.request("ping", json!({})).await?["result"], Value::Null);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn who_breaks_off_can_come_back_and_is_told_what_it_missed() -> Result<()> {
    over_every_way(without_runtime, |mut inn| async move {
        let mut watcher = inn.host.raw().await?;
        watcher.initialize("watcher", &["ahp-root://"]).await?;
        let change = |value: &str| json!({"clientSeq": 1, "action": {"type": "root/configChanged", "config": {"a": value}}});
        {
            let mut client = inn.client().await?;
            client.initialize("c1", &["ahp-root://"]).await?;
            client.notify("dispatchAction", change("one")).await?;
            // The last message may even lack the end of its line.
            client.notify("dispatchAction", change("two")).await?;
            assert_eq!(client.next_action().await?["action"]["config"]["a"], "one");
            // And now it is gone, without a goodbye.
        }
        for expected in ["one", "two"] {
            assert_eq!(watcher.next_action().await?["action"]["config"]["a"], expected, "what was sent counts");
        }
        let mut again = inn.later_client().await?;
        let back = json!({"clientId": "c1", "lastSeenServerSeq": 1, "subscriptions": ["ahp-root://"]});
        let replay = again.request("reconnect", back).await?["result"].clone();
        assert_eq!(replay["type"], "replay", "{replay}");
        assert_eq!(replay["actions"][0]["action"]["config"]["a"], "two");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_host_on_stdio_alone_ends_with_its_client() -> Result<()> {
    let mut options = without_runtime();
    options.listen = vec!["stdio".to_owned()];
    let mut host = TestHost::start(options).await?;
    assert_eq!(host.ready()["endpoints"], json!([{"transport": "stdio"}]));
    assert_eq!(host.ready()["page"], Value::Null);
    let mut client = host.take_stdio()?;
    client.initialize("c1", &["ahp-root://"]).await?;
    // Asked just before the end: the answers still come.
    client.send_text(r#"{"jsonrpc":"2.0","id":"last","method":"listSessions"}"#).await?;
    let mut output = client.end_input()?;
    let last = output.receive().await?;
    assert_eq!(last["id"], "last");
    assert_eq!(output.closed().await?, None);
    assert_eq!(host.exit_code(Duration::from_secs(10)).await?, Some(0));
    Ok(())
}

#[tokio::test]
async fn a_signal_ends_a_host_whose_client_on_stdio_stays() -> Result<()> {
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
