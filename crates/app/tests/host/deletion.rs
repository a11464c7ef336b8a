//! A deleted session leaves no trace in the data directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use innkeeper_testkit::{TestHost, eventually, runtimes};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::{Opened, options};

/// Text of the prompt and of the reply.
const MARKERS: [&str; 2] = ["prompt-that-must-vanish", "reply-that-must-vanish"];

/// The files below a directory that contain one of the markers.
fn files_with_markers(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files_with_markers(&path)?);
        } else if let Ok(bytes) = std::fs::read(&path)
            && MARKERS
                .iter()
                .any(|marker| bytes.windows(marker.len()).any(|window| window == marker.as_bytes()))
        {
            found.push(path);
        }
    }
    Ok(found)
}

#[tokio::test]
async fn deleted_session_leaves_no_trace_and_reconnecting_client_is_told() -> Result<()> {
    let [native, _] = runtimes()?;
    let mut host = TestHost::start(options(native.clone())).await?;
    let Opened { mut client, session, chat } = Opened::new(&host).await?;
    let kept = Opened::new(&host).await?;
    let mut absent = host.raw().await?;
    let channels = ["ahp-root://", &session, &chat, &kept.session];
    let hello = absent.initialize("absent", &channels).await?;
    let seen = hello["result"]["serverSeq"].clone();
    drop(absent);

    let [prompt, reply] = MARKERS;
    client.say(&chat, "turn-1", &format!("#demo\nthink {prompt}\ntext {reply}")).await?;
    client.until_turn_over(&chat, "turn-1").await?;
    client.settle().await?;
    let data = host.data_dir();
    assert!(!files_with_markers(&data)?.is_empty(), "the turn is stored");
    let backup = data.join("innkeeper.db.backup-1");
    eventually(Duration::from_secs(20), "a backup is taken", || backup.exists()).await?;
    let title = json!({"type": "session/titleChanged", "title": "still here"});
    kept.client.dispatch(&kept.session, title).await?;
    client.dispose_session(&session).await?;
    let gone = || files_with_markers(&data).is_ok_and(|found| found.is_empty());
    eventually(Duration::from_secs(20), "no file contains the text", gone).await?;

    drop((client, kept.client));
    host.signal(Signal::SIGTERM)?;
    assert_eq!(host.exit_code(Duration::from_secs(10)).await?, Some(0));
    assert_eq!(files_with_markers(&data)?, Vec::<PathBuf>::new(), "after a clean shutdown");
    let host = host.start_again(options(native)).await?;
    assert_eq!(files_with_markers(&data)?, Vec::<PathBuf>::new(), "after a restart");
    let back = json!({"clientId": "absent", "lastSeenServerSeq": seen, "subscriptions": channels});
    let answer = host.raw().await?.request("reconnect", back).await?;
    let result = &answer["result"];
    assert_eq!(result["type"], "replay", "{answer:#}");
    let mut missing: Vec<&str> =
        result["missing"].as_array().context("no list")?.iter().filter_map(|uri| uri.as_str()).collect();
    missing.sort_unstable();
    let mut expected = [session.as_str(), chat.as_str()];
    expected.sort_unstable();
    assert_eq!(missing, expected);
    assert!(answer.to_string().contains("still here"), "the other session is replayed: {answer:#}");
    assert!(!MARKERS.iter().any(|marker| answer.to_string().contains(marker)), "{answer:#}");
    Ok(())
}
