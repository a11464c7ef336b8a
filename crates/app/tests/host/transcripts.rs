//! Deleting a session or chat deletes what the runtime stored about it. With both pinned runtimes.

use std::path::{Path, PathBuf};

use anyhow::Result;
use innkeeper_testkit::{Observer, TestHost, runtimes};
use serde_json::json;
use uuid::Uuid;

use crate::{Opened, options};

/// Text in prompts, tool inputs and files of the session.
const MARKER: &str = "marker-of-the-session";

/// Files below a folder that contain a text.
fn files_with(folder: &Path, text: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        if kind.is_dir() {
            found.extend(files_with(&path, text)?);
        } else if kind.is_file() && String::from_utf8_lossy(&std::fs::read(&path)?).contains(text) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Runs a turn with a checkpoint, a task list, a subagent and a large tool result.
async fn use_tools(client: &mut Observer, host: &TestHost, chat: &str) -> Result<()> {
    let file = host.work_dir().join("file.txt");
    std::fs::write(&file, MARKER)?;
    let read = json!({"file_path": file});
    let edit = json!({"file_path": file, "old_string": MARKER, "new_string": "other text"});
    let todo = json!({"todos": [{"content": MARKER, "status": "pending", "activeForm": MARKER}]});
    let print =
        json!({"command": format!("for i in $(seq 4000); do echo {MARKER}; done"), "description": "d"});
    let task = json!({"description": "d", "subagent_type": "general-purpose", "run_in_background": false,
        "prompt": format!("#demo\ntext {MARKER}")});
    let script = format!(
        "#demo\ntool Read {read}\ntool Edit {edit}\ntool TodoWrite {todo}\ntool Bash {print}\ntool Task {task}\n\
         text {MARKER}"
    );
    client.say(chat, "turn-1", &script).await?;
    client.until_turn_over(chat, "turn-1").await
}

#[tokio::test]
async fn disposed_session_leaves_nothing_in_the_runtime_directory() -> Result<()> {
    for claude in runtimes()? {
        let mut options = options(claude);
        options.user_settings = Some(json!({"permissions": {"allow": ["Bash", "Edit", "Read", "Task"]}}));
        let host = TestHost::start(options).await?;
        let foreign = host.config_dir().join(format!("projects/-other/{}.jsonl", Uuid::new_v4()));
        std::fs::create_dir_all(host.config_dir().join("projects/-other"))?;
        std::fs::write(&foreign, "{\"type\":\"user\",\"uuid\":\"u1\",\"entrypoint\":\"cli\"}\n")?;
        let Opened { mut client, session, chat } = Opened::new(&host).await?;
        use_tools(&mut client, &host, &chat).await?;
        // The newer runtime continues in another transcript; the older one rejects the command.
        for (turn, text) in [("turn-2", "/clear"), ("turn-3", "#demo\ntext after it")] {
            client.say(&chat, turn, &format!("{text} {MARKER}")).await?;
            client.until_turn_over(&chat, turn).await?;
        }
        let stored = files_with(&host.config_dir(), MARKER)?;
        assert!(stored.len() >= 3, "expected a transcript, a subagent and a tool result: {stored:?}");

        client.dispose_session(&session).await?;
        let left: Vec<PathBuf> = files_with(&host.config_dir(), MARKER)?;
        assert_eq!(left, Vec::<PathBuf>::new());
        assert!(foreign.exists(), "deleted a transcript of another program");
    }
    Ok(())
}

#[tokio::test]
async fn transcript_is_kept_while_its_session_exists() -> Result<()> {
    let [native, _] = runtimes()?;
    let host = TestHost::start(options(native.clone())).await?;
    let Opened { mut client, chat, .. } = Opened::new(&host).await?;
    client.say(&chat, "turn-1", &format!("#demo\ntext {MARKER}")).await?;
    client.until_turn_over(&chat, "turn-1").await?;
    let other = Opened::new(&host).await?;
    other.client.dispose_session(&other.session).await?;
    let host = host.start_again(options(native)).await?;
    assert!(!files_with(&host.config_dir().join("projects"), MARKER)?.is_empty());
    Ok(())
}
