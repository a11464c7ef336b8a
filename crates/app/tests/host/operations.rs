//! Operations: the discovery record, the wire log, the metrics and the limits in the
//! configuration file.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use innkeeper_testkit::TestHost;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{new_session, without_runtime};

fn records(user_data: &Path) -> Vec<Value> {
    let entries = std::fs::read_dir(user_data.join("agent-host/local-endpoint/entries"));
    let files = entries.into_iter().flatten().flatten();
    files.filter_map(|file| serde_json::from_slice(&std::fs::read(file.path()).ok()?).ok()).collect()
}

#[tokio::test]
async fn announced_host_can_be_discovered_and_removes_its_record() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut options = without_runtime();
    options.listen.push(format!("unix:{}", dir.path().join("s").display()));
    options.arguments = vec!["--announce".to_owned()];
    options = options.with_variable("VSCODE_PORTABLE", dir.path().to_str().context("path is not UTF-8")?);
    let mut host = TestHost::start(options).await?;
    let found = records(&dir.path().join("user-data"));
    let [record] = found.as_slice() else { anyhow::bail!("{found:?}") };
    assert_eq!(record["type"], "standalone");
    assert_eq!(record["pid"], host.pid()?);
    assert_eq!(record["connectionToken"], host.ready()["token"]);
    // The record refers to the host, by TCP if it also listens on a socket file.
    let endpoint = &record["endpoint"];
    assert_eq!(endpoint["type"], "tcp", "{record}");
    let dialled = format!("ws://{}:{}/", endpoint["host"].as_str().context("no host")?, endpoint["port"]);
    assert_eq!(dialled, host.socket()?);
    host.signal(Signal::SIGTERM)?;
    assert_eq!(host.exit_code(Duration::from_secs(10)).await?, Some(0));
    assert_eq!(records(&dir.path().join("user-data")), Vec::<Value>::new());
    Ok(())
}

#[tokio::test]
async fn wire_log_has_both_directions_and_no_token() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("wire.jsonl");
    let mut options = without_runtime();
    options.arguments = vec!["--wire-log".to_owned(), path.to_str().context("path is not UTF-8")?.to_owned()];
    let mut host = TestHost::start(options).await?;
    let mut client = host.raw().await?;
    client.initialize("c1", &["ahp-root://"]).await?;
    client.request("listSessions", json!({})).await?;
    client.send_text("{not json").await?;
    client.receive().await?;
    drop(client);
    host.signal(Signal::SIGTERM)?;
    assert_eq!(host.exit_code(Duration::from_secs(10)).await?, Some(0));
    let text = std::fs::read_to_string(&path)?;
    let lines: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let told: Vec<(&str, &Value)> =
        lines.iter().map(|line| (line["dir"].as_str().unwrap_or_default(), &line["frame"])).collect();
    let [asked, answered, listing, list, garbage, refused] = told.as_slice() else {
        anyhow::bail!("expected six lines: {text}")
    };
    assert_eq!((asked.0, &asked.1["method"]), ("in", &json!("initialize")));
    assert_eq!((answered.0, &answered.1["result"]["protocolVersion"]), ("out", &json!("1.0.0")));
    assert_eq!((listing.0, &listing.1["method"]), ("in", &json!("listSessions")));
    assert_eq!((list.0, &list.1["result"]["items"]), ("out", &json!([])));
    assert_eq!(*garbage, ("in", &json!("{not json")));
    assert_eq!((refused.0, &refused.1["error"]["code"]), ("out", &json!(-32700)));
    assert!(!text.contains(host.ready()["token"].as_str().context("no token")?));
    Ok(())
}

#[tokio::test]
async fn metrics_require_the_token() -> Result<()> {
    let host = TestHost::start(without_runtime()).await?;
    let address = host.socket()?.replace("ws://", "http://") + "metrics";
    let token = host.ready()["token"].as_str().context("no token")?;
    let http = reqwest::Client::builder().no_proxy().build()?;
    assert_eq!(http.get(&address).send().await?.status().as_u16(), 403);
    let mut client = host.raw().await?;
    client.initialize("c1", &["ahp-root://"]).await?;
    let create =
        json!({"channel": new_session(), "provider": "claude", "workingDirectories": [host.work_uri()]});
    client.request("createSession", create).await?;
    let answer = http.get(&address).header("authorization", format!("Bearer {token}")).send().await?;
    assert!(answer.headers()["content-type"].to_str()?.starts_with("text/plain; version=0.0.4"));
    let text = answer.text().await?;
    for line in ["innkeeper_connections 1", "innkeeper_sessions 1", "innkeeper_subscriptions 1"] {
        assert!(text.lines().any(|each| each == line), "{line} is missing in:\n{text}");
    }
    Ok(())
}

#[tokio::test]
async fn configuration_file_limits_sessions_and_connections() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("config.toml");
    std::fs::write(&path, "[limits]\nsessions = 2\nconnections = 2\n")?;
    let mut options = without_runtime();
    options.arguments = vec!["--config".to_owned(), path.to_str().context("path is not UTF-8")?.to_owned()];
    let host = TestHost::start(options).await?;
    let mut client = host.raw().await?;
    client.initialize("c1", &[]).await?;
    let create = |session: &str| json!({"channel": session, "workingDirectories": [host.work_uri()]});
    let sessions = [new_session(), new_session(), new_session()];
    for session in &sessions[..2] {
        assert_eq!(client.request("createSession", create(session)).await?["result"], Value::Null);
    }
    let refused = client.request("createSession", create(&sessions[2])).await?;
    assert!(
        refused["error"]["message"].as_str().is_some_and(|text| text.contains("limits.sessions")),
        "{refused}"
    );
    client.request("disposeSession", json!({"channel": sessions[0]})).await?;
    assert_eq!(client.request("createSession", create(&sessions[2])).await?["result"], Value::Null);

    let second = host.raw().await?;
    let third = host.raw().await;
    assert!(third.is_err_and(|error| error.to_string().contains("503")), "the limit was exceeded");
    drop(second);
    // The slot is freed once the host has noticed the disconnect.
    let deadline = Duration::from_secs(10);
    let mut free = false;
    tokio::time::timeout(deadline, async {
        while !free {
            free = host.raw().await.is_ok();
        }
    })
    .await
    .context("the slot was not freed")
}
