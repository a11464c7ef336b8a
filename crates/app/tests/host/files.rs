//! Which files the real host exposes to clients.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use innkeeper_testkit::{TestHost, eventually};
use innkeeper_workspace::uri_of;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{new_session, without_runtime};

#[tokio::test]
async fn clients_access_session_and_granted_directories_but_not_the_data_directory() -> Result<()> {
    let granted = tempfile::tempdir()?;
    std::fs::write(granted.path().join("note"), "granted")?;
    let config = tempfile::NamedTempFile::new()?;
    std::fs::write(config.path(), format!("files.roots = [{:?}]\n", granted.path()))?;
    let mut options = without_runtime();
    options.arguments = vec!["--config".to_owned(), config.path().display().to_string()];
    let host = TestHost::start(options).await?;
    std::fs::write(host.work_dir().join("file"), "of the session")?;
    let mut client = host.raw().await?;
    client.initialize("c", &[]).await?;
    let session_file = json!({"uri": format!("{}/file", host.work_uri())});
    let code = |answer: &Value| answer["error"]["code"].as_i64();
    assert_eq!(code(&client.request("resourceRead", session_file.clone()).await?), Some(-32009));
    // A session in the home directory contains the data directory, and one in the data
    // directory itself must not open it either.
    for directory in [host.work_uri(), uri_of(host.home()), uri_of(&host.home().join("data"))] {
        let session = json!({"channel": new_session(), "workingDirectories": [directory]});
        let created = client.request("createSession", session).await?;
        assert_eq!(created["error"], Value::Null);
    }
    let read = client.request("resourceRead", session_file).await?;
    assert_eq!(read["result"]["data"], "of the session");
    let note = json!({"uri": uri_of(&granted.path().join("note"))});
    assert_eq!(client.request("resourceRead", note).await?["result"]["data"], "granted");
    let token = uri_of(&host.home().join("data/token"));
    assert!(host.home().join("data/token").is_file());
    assert_eq!(code(&client.request("resourceRead", json!({"uri": token})).await?), Some(-32009));
    let data = uri_of(&host.home().join("data"));
    assert_eq!(code(&client.request("resourceList", json!({"uri": data})).await?), Some(-32009));
    let workspace = uri_of(&host.home().join("data/workspace"));
    let listed = client.request("resourceList", json!({"uri": workspace})).await?;
    assert_eq!(listed["result"]["entries"], json!([]));
    Ok(())
}

#[tokio::test]
async fn host_stopped_during_a_copy_leaves_no_partial_copy() -> Result<()> {
    let mut host = TestHost::start(without_runtime()).await?;
    let mut client = host.raw().await?;
    client.initialize("c", &[]).await?;
    let session = json!({"channel": new_session(), "workingDirectories": [host.work_uri()]});
    client.request("createSession", session).await?;
    std::fs::create_dir(host.work_dir().join("many"))?;
    for number in 0..5_000 {
        std::fs::File::create(host.work_dir().join(format!("many/{number}")))?;
    }
    let copy = host.work_dir().join("copy");
    let drafts = |work: &Path| {
        let entries = std::fs::read_dir(work).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(".innkeeper-")).count()
    };
    let transfer = json!({
        "source": format!("{}/many", host.work_uri()),
        "destination": format!("{}/copy", host.work_uri()),
    });
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "resourceCopy", "params": transfer});
    client.send_text(&request.to_string()).await?;
    let begun = || drafts(&host.work_dir()) > 0 || copy.exists();
    eventually(Duration::from_secs(10), "the copy starts", begun).await?;
    host.signal(Signal::SIGTERM)?;
    assert_eq!(host.exit_code(Duration::from_secs(10)).await?, Some(0));
    assert_eq!(drafts(&host.work_dir()), 0);
    // On a fast disk the copy may complete before the signal arrives.
    assert!(!copy.exists() || std::fs::read_dir(&copy)?.count() == 5_000);
    Ok(())
}
