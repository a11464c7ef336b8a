//! The project and the git state of sessions, with real repositories and the real runtimes.

use std::path::Path;

use anyhow::Result;
use innkeeper_testkit::{Observer, TestHost, runtimes};
use serde_json::{Value, json};

use crate::asking::{shell, text};
use crate::editing::{EditingSession, git, unasked};
use crate::{new_session, options};

/// Creates a repository with one committed file.
fn repository(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    std::fs::write(directory.join("committed.txt"), "one\n")?;
    git(directory, &["init", "-q", "-b", "main"])?;
    git(directory, &["add", "-A"])?;
    git(directory, &["commit", "-qm", "one"])
}

fn git_state(client: &Observer, session: &str) -> Result<Value> {
    Ok(json!(client.session(session)?.meta)["git"].clone())
}

fn row_git_state(client: &Observer, session: &str) -> Value {
    client.rows.get(session).map(|row| json!(row.meta)["git"].clone()).unwrap_or_default()
}

#[tokio::test]
async fn edits_and_commits_of_the_agent_change_the_published_git_state() -> Result<()> {
    for claude in runtimes()? {
        let host = TestHost::start(unasked(claude)).await?;
        let work = host.work_dir();
        repository(&work)?;
        let mut editing = EditingSession::on(host).await?;
        let session = editing.asking.session.clone();
        let project =
            json!({"uri": format!("file://{}", work.canonicalize()?.display()), "displayName": "work"});
        assert_eq!(json!(editing.asking.client.session(&session)?.project), project);
        let shows = |state: Value| {
            let session = session.clone();
            move |client: &Observer| git_state(client, &session).is_ok_and(|git| git == state)
        };
        let clean = json!({"branchName": "main", "uncommittedChanges": 0});
        editing.asking.client.until("the state", shows(clean)).await?;

        let dirty = json!({"branchName": "main", "uncommittedChanges": 1});
        editing.turn("turn-1", &[shell("echo > new.txt"), text("done")]).await?;
        let client = &mut editing.asking.client;
        client.until("a new file", shows(dirty.clone())).await?;
        client.until("the row", |client| row_git_state(client, &session) == dirty).await?;
        assert_eq!(json!(client.rows[&session].project), project);

        git(&work, &["checkout", "-q", "-b", "next"])?;
        git(&work, &["add", "-A"])?;
        git(&work, &["commit", "-qm", "two"])?;
        let next = json!({"branchName": "next", "uncommittedChanges": 0});
        client.until("a commit", shows(next)).await?;
        editing.asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn project_of_a_linked_working_tree_survives_a_restart_and_a_plain_folder_has_none() -> Result<()> {
    let host = TestHost::start(options("missing".into())).await?;
    let (main, linked) = (host.home().join("main"), host.home().join("linked"));
    repository(&main)?;
    git(&main, &["worktree", "add", "-q", "../linked", "-b", "side"])?;
    let (session, plain) = (new_session(), new_session());
    let mut client = host.observer("first").await?;
    client.create_session(&session, &format!("file://{}", linked.display())).await?;
    let chat = client.open_session(&session).await?;
    client.create_session(&plain, &host.work_uri()).await?;
    client.open_session(&plain).await?;
    let uri = |path: &Path| path.canonicalize().map(|path| format!("file://{}", path.display()));
    let project = json!({"uri": uri(&main)?, "displayName": "main"});
    assert_eq!(json!(client.session(&session)?.project), project);
    let worktree = json!(uri(&linked)?);
    let is_linked = |client: &Observer| {
        git_state(client, &session)
            .is_ok_and(|git| git["branchName"] == "side" && git["worktree"] == worktree)
    };
    client.until("the state", is_linked).await?;
    assert_eq!((&client.session(&plain)?.project, git_state(&client, &plain)?), (&None, Value::Null));

    // The session is listed once it has a message; no runtime can be started.
    client.say(&chat, "turn-1", "hello").await?;
    client.until_turn_over(&chat, "turn-1").await?;
    let host = host.start_again(options("missing".into())).await?;
    let mut client = host.observer("second").await?;
    client.open_session(&session).await?;
    assert_eq!(json!(client.session(&session)?.project), project);
    client.until("the state", is_linked).await?;
    Ok(())
}
