//! Changes of files that are not made by the call itself: background commands, hooks and
//! subagents. With both pinned runtimes.

use std::time::Duration;

use anyhow::{Context as _, Result};
use innkeeper_testkit::{Observer, eventually, runtimes};
use innkeeper_workspace::uri_of;
use serde_json::{Value, json};

use crate::asking::{text, tool, write};
use crate::editing::{EditingSession, edits_of, unasked};

#[tokio::test]
async fn changes_of_a_background_command_belong_to_its_turn() -> Result<()> {
    for claude in runtimes()? {
        let mut editing = EditingSession::start(unasked(claude)).await?;
        // The command waits until the next turn has begun.
        let command = "until [ -e go ]; do sleep 0.02; done; echo late > late.txt";
        let background = json!({"command": command, "description": "d", "run_in_background": true});
        editing.turn("turn-1", &[tool("Bash", &background), text("done")]).await?;
        editing.shows("turn/turn-1", &[]).await?;
        let release = json!({"command": "touch go", "description": "d"});
        editing.asking.say("turn-2", &[tool("Bash", &release), text("done")]).await?;
        editing.shows("turn/turn-1", &["go", "late.txt"]).await?;
        let meta = editing.changed("turn/turn-1", "late.txt")?["_meta"]["innkeeper.edit"].clone();
        assert_eq!(meta["sources"], json!(["shell"]));
        // Two commands ran when this file was created.
        assert_eq!(editing.changed("turn/turn-1", "go")?["_meta"]["innkeeper.edit"]["overlaps"], true);
        let idle = |client: &Observer| {
            client.chat(&editing.asking.chat).is_ok_and(|chat| chat.active_turn.is_none())
        };
        editing.asking.client.until("the end of all turns", idle).await?;
        editing.operate("turn/turn-1", "undo", Some("late.txt")).await?;
        assert!(!editing.file("late.txt").exists());
    }
    Ok(())
}

#[tokio::test]
async fn changes_of_hooks_belong_to_the_turn_that_ran_them() -> Result<()> {
    for claude in runtimes()? {
        let mut options = unasked(claude);
        let formatter = "tr a-z A-Z < one.txt > formatted && cat formatted > one.txt && rm formatted && \
                         date +%N > generated.txt";
        let hook = |command: &str| json!([{"hooks": [{"type": "command", "command": command}]}]);
        let mut post = hook(formatter);
        post[0]["matcher"] = json!("Write|Edit");
        options.user_settings = Some(json!({"hooks": {"PostToolUse": post}}));
        let mut editing = EditingSession::start(options).await?;
        let calls =
            editing.turn("turn-1", &[write(&editing.file("one.txt"), "text\n"), text("done")]).await?;
        let edits = edits_of(&calls[0]);
        assert_eq!(edits.len(), 2, "{edits:#?}");
        editing.shows("turn/turn-1", &["generated.txt", "one.txt"]).await?;
        let edit = editing.changed("turn/turn-1", "one.txt")?["edit"].clone();
        assert_eq!(editing.sides(&edit).await?, ("-".into(), "TEXT\n".into()));

        // The user's change between the turns is not the hook's.
        editing.write("mine.txt", "mine\n")?;
        let [read, edit] = editing.edit("one.txt", "TEXT", "more");
        editing.turn("turn-2", &[read, edit, text("done")]).await?;
        editing.shows("turn/turn-2", &["generated.txt", "one.txt"]).await?;
        editing.operate("turn/turn-2", "undo", None).await?;
        assert_eq!((editing.read("one.txt")?, editing.read("mine.txt")?), ("TEXT\n".into(), "mine\n".into()));
        editing.operate("turn/turn-1", "undo", None).await?;
        assert!(!editing.file("one.txt").exists() && !editing.file("generated.txt").exists());
    }
    Ok(())
}

#[tokio::test]
async fn edits_of_subagents_belong_to_the_turn_that_started_them() -> Result<()> {
    for claude in runtimes()? {
        let mut editing = EditingSession::start(unasked(claude)).await?;
        for (turn, name, in_background) in [("turn-1", "one.txt", false), ("turn-2", "two.txt", true)] {
            let prompt = format!("#demo\n{}\ntext sub done", write(&editing.file(name), "by a subagent\n"));
            let input = json!({
                "description": "d", "prompt": prompt, "subagent_type": "general-purpose",
                "run_in_background": in_background,
            });
            editing.turn(turn, &[tool("Agent", &input), text("done")]).await?;
            editing.shows(&format!("turn/{turn}"), &[name]).await?;
            let chat = editing.asking.chat.clone();
            let idle = |client: &Observer| client.chat(&chat).is_ok_and(|chat| chat.active_turn.is_none());
            editing.asking.client.until("the end of all turns", idle).await?;
        }
        editing.shows("session", &["one.txt", "two.txt"]).await?;
        editing.operate("session", "undo", None).await?;
        assert!(!editing.file("one.txt").exists() && !editing.file("two.txt").exists());
    }
    Ok(())
}

#[tokio::test]
async fn changes_of_a_cancelled_command_belong_to_its_turn() -> Result<()> {
    for claude in runtimes()? {
        let mut editing = EditingSession::start(unasked(claude)).await?;
        editing.write("one.txt", "1\n")?;
        let command = "echo 2 >> one.txt; touch begun; sleep 60 && echo 3 >> one.txt";
        let call = tool("Bash", &json!({"command": command, "description": "d"}));
        editing.asking.say("turn-1", &[call, text("done")]).await?;
        let begun = || editing.file("begun").exists();
        eventually(Duration::from_secs(30), "the command runs", begun).await?;
        editing.asking.cancel("turn-1").await?;
        editing.shows("turn/turn-1", &["begun", "one.txt"]).await?;
        editing.operate("turn/turn-1", "undo", None).await?;
        assert_eq!(editing.read("one.txt")?, "1\n");
        assert!(!editing.file("begun").exists());
    }
    Ok(())
}

/// Replaces the session with one in other directories.
async fn work_in(editing: &mut EditingSession, directories: Value) -> Result<()> {
    let session = crate::new_session();
    let params = json!({
        "channel": session, "provider": "claude", "workingDirectories": directories,
        "config": {"permissionMode": "bypassPermissions"},
    });
    let () = editing.asking.client.client.request("createSession", params).await?;
    let chat = editing.asking.client.open_session(&session).await?;
    (editing.asking.session, editing.asking.chat) = (session, chat);
    Ok(())
}

#[tokio::test]
async fn data_directory_of_the_host_is_not_recorded_except_for_its_workspace() -> Result<()> {
    let [native, _] = runtimes()?;
    let mut editing = EditingSession::start(unasked(native)).await?;
    let home = uri_of(editing.asking.host.home());
    work_in(&mut editing, json!([home])).await?;
    // The database of the edit log and the runtime's files change during the turn.
    let run = |command: &str| tool("Bash", &json!({"command": command, "description": "d"}));
    let steps = [run("echo 1 > work/a.txt"), run("echo 2 > work/b.txt"), text("done")];
    editing.turn("turn-1", &steps).await?;
    assert!(editing.asking.host.data_dir().join("blobs.db").is_file());
    editing.shows("turn/turn-1", &["a.txt", "b.txt"]).await.context("files of the host")?;

    // The default directory of sessions is in the data directory.
    work_in(&mut editing, Value::Null).await?;
    editing.turn("turn-1", &[run("echo 1 > c.txt"), text("done")]).await?;
    let made = editing.asking.host.data_dir().join("workspace/c.txt");
    let name = made.display().to_string();
    editing.shows("turn/turn-1", &[&name]).await?;
    editing.operate("turn/turn-1", "undo", None).await?;
    assert!(!made.exists());
    Ok(())
}
