//! Which files of the machine the real host shows to clients.

use anyhow::Result;
use innkeeper_testkit::{TestHost, uri_of};
use serde_json::{Value, json};

use crate::{new_session, without_runtime};

#[tokio::test]
async fn clients_reach_what_sessions_and_the_configuration_allow_and_nothing_of_the_hosts() -> Result<()> {
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
    // A session in the home directory has the data directory below it; one in the data
    // directory opens it no more than that.
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
