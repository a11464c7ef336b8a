//! Runtimes that are ended while they are idle, and runtimes that are started in advance, with
//! both pinned versions.

use std::path::Path;
use std::time::Duration;

use ahp_types::state::TurnState;
use anyhow::{Context as _, Result};
use innkeeper_testkit::{HostOptions, Observer, TestHost, eventually, runtimes};
use innkeeper_workspace::uri_of;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::asking::{AskingSession, open_requests, tool};
use crate::continuing::{RecordingRuntime, answer, run_turn};
use crate::{Opened, options};

/// An MCP server, which the test does not call.
const SERVER: &str = include_str!("elicitation_server.mjs");

/// How long a runtime may take to start or to end on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// Options of a host with this `[agents]` section, and the folder of its configuration.
fn configured(claude: &Path, agents: &str) -> Result<(HostOptions, TempDir)> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("config.toml");
    std::fs::write(&file, format!("[agents]\n{agents}\n"))?;
    let mut options = options(claude.to_owned());
    options.arguments = vec!["--config".to_owned(), file.display().to_string()];
    Ok((options, folder))
}

async fn write(client: &Observer, chat: &str, text: &str) -> Result<()> {
    let draft = json!({"text": text, "origin": {"kind": "user"}});
    client.dispatch(chat, json!({"type": "chat/draftChanged", "draft": draft})).await.map(drop)
}

fn runs_server(host: &TestHost) -> bool {
    let is_server = |argument: &String| argument.ends_with("forms.mjs");
    host.processes().iter().any(|process| process.arguments.iter().any(is_server))
}

#[tokio::test]
async fn released_session_answers_with_everything_as_before() -> Result<()> {
    for claude in runtimes()? {
        let recorded = RecordingRuntime::new(&claude)?;
        let (mut options, _config) = configured(&recorded.program, "idle_minutes = 0.015")?;
        let hook = json!([{"hooks": [{"type": "command", "command": "echo hooked >> \"$HOME/hooks.log\""}]}]);
        options.user_settings =
            Some(json!({"permissions": {"allow": ["Bash"]}, "hooks": {"UserPromptSubmit": hook}}));
        let host = TestHost::start(options).await?;
        let [other, script] = ["other", "forms.mjs"].map(|name| host.home().join(name));
        std::fs::create_dir(&other)?;
        std::fs::write(&script, SERVER)?;
        let server = json!({"type": "stdio", "command": "node", "args": [script]});
        let servers = json!({"mcpServers": {"forms": server}});
        std::fs::write(host.config_dir().join(".claude.json"), servers.to_string())?;
        let config = json!({"permissionMode": "acceptEdits", "environment": {"GREETING": "hello"}});
        let mut asking = AskingSession::on(host, config).await?;
        let (session, chat) = (asking.session.clone(), asking.chat.clone());
        let (client, host) = (&mut asking.client, &asking.host);
        let set = json!({"type": "session/workingDirectorySet", "directory": uri_of(&other)});
        client.dispatch(&session, set).await?;
        let show = tool("Bash", &json!({"command": "echo \"<$GREETING>\""}));
        let message = |turn: &str, steps: &[String], model: Value| {
            let text = format!("#demo\n{}", steps.join("\n"));
            let mut message = json!({"text": text, "origin": {"kind": "user"}});
            if !model.is_null() {
                message["model"] = model;
            }
            let started = "2025-11-16T09:00:00.000Z";
            json!({"type": "chat/turnStarted", "turnId": turn, "startedAt": started, "message": message})
        };
        let model = json!({"id": "claude-opus-4-6", "config": {"thinkingLevel": "high"}});
        client
            .dispatch(&chat, message("turn-1", &[show.clone(), "text remember this".to_owned()], model))
            .await?;
        client.until_turn_over(&chat, "turn-1").await?;
        client.settle().await?;
        let before = (client.chat(&chat)?.clone(), client.session(&session)?.clone());
        eventually(SOON, "the runtime is released", || host.processes().is_empty()).await?;
        client.settle().await?;
        assert_eq!(client.chat(&chat)?, &before.0);
        assert_eq!(client.session(&session)?, &before.1);

        let write = tool("Write", &json!({"file_path": other.join("new.txt"), "content": "new"}));
        let steps = [show, write, "wait 500".to_owned(), "echo".to_owned()];
        client.dispatch(&chat, message("turn-2", &steps, Value::Null)).await?;
        eventually(SOON, "the MCP server runs again", || runs_server(host)).await?;
        client.until_turn_over(&chat, "turn-2").await?;
        assert_eq!(client.chat(&chat)?.turns[1].state, TurnState::Complete);
        let shown = answer(client, &chat)?;
        assert!(shown.contains("<hello>") && shown.contains("remember this"), "{shown}");
        assert_eq!(std::fs::read_to_string(other.join("new.txt"))?, "new");
        assert_eq!(std::fs::read_to_string(host.home().join("hooks.log"))?, "hooked\nhooked\n");
        let directory = other.display().to_string();
        let arguments = ["--model=claude-opus-4-6", "--effort=high"];
        recorded.assert_arguments(2, &arguments)?;
        assert!(recorded.start(2)?.iter().any(|argument| argument.contains(&directory)));
        client.agrees_with_a_fresh_client(&host.address()?).await?;
    }
    Ok(())
}

#[tokio::test]
async fn runtime_is_not_released_while_a_command_runs_in_the_background() -> Result<()> {
    for claude in runtimes()? {
        let (mut options, _config) = configured(&claude, "idle_minutes = 0.005")?;
        options.user_settings = Some(json!({"permissions": {"allow": ["Bash"]}}));
        let host = TestHost::start(options).await?;
        let Opened { mut client, chat, .. } = Opened::new(&host).await?;
        let command = "while [ ! -e \"$HOME/go\" ]; do sleep 0.05; done";
        let input = json!({"command": command, "run_in_background": true});
        run_turn(&mut client, &chat, "turn-1", &format!("#demo\n{}\ntext started", tool("Bash", &input)))
            .await?;
        let before = host.runtimes();
        tokio::time::sleep(Duration::from_millis(800)).await;
        assert_eq!((host.runtimes(), before.len()), (before, 1));
        std::fs::write(host.home().join("go"), "")?;
        eventually(SOON, "the runtime is released", || host.processes().is_empty()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn message_is_answered_by_the_runtime_that_typing_started() -> Result<()> {
    for claude in runtimes()? {
        let recorded = RecordingRuntime::new(&claude)?;
        let (options, _config) = configured(&recorded.program, "prewarm_minutes = 5")?;
        let host = TestHost::start(options).await?;
        let Opened { mut client, chat, .. } = Opened::new(&host).await?;
        write(&client, &chat, "h").await?;
        eventually(SOON, "the runtime starts", || host.runtimes().len() == 1).await?;
        let pids = host.runtimes();
        write(&client, &chat, "hello").await?;
        run_turn(&mut client, &chat, "turn-1", "#demo\ntext done").await?;
        assert_eq!(host.runtimes(), pids);
        recorded.start(1)?;
        client.agrees_with_a_fresh_client(&host.address()?).await?;
    }
    Ok(())
}

#[tokio::test]
async fn unused_runtime_goes_away_and_the_message_starts_another() -> Result<()> {
    for claude in runtimes()? {
        let (options, _config) = configured(&claude, "prewarm_minutes = 0.005")?;
        let host = TestHost::start(options).await?;
        let Opened { mut client, chat, .. } = Opened::new(&host).await?;
        write(&client, &chat, "h").await?;
        eventually(SOON, "the runtime starts", || !host.processes().is_empty()).await?;
        eventually(SOON, "the runtime is released", || host.processes().is_empty()).await?;
        run_turn(&mut client, &chat, "turn-1", "#demo\ntext done").await?;
    }
    Ok(())
}

#[tokio::test]
async fn typing_does_not_ask_whether_the_folder_is_trusted() -> Result<()> {
    let [native, _] = runtimes()?;
    let (options, _config) = configured(&native, "")?;
    let host = TestHost::start(options).await?;
    let project = host.work_dir().join(".claude");
    std::fs::create_dir_all(&project)?;
    let hook = json!([{"hooks": [{"type": "command", "command": "true"}]}]);
    std::fs::write(project.join("settings.json"), json!({"hooks": {"Stop": hook}}).to_string())?;
    let Opened { mut client, session, chat } = Opened::new(&host).await?;
    write(&client, &chat, "h").await?;
    // Long enough for the folder to be checked; typing shows nothing.
    tokio::time::sleep(Duration::from_millis(500)).await;
    client.settle().await?;
    assert!(open_requests(&client, &session).is_empty() && client.chat(&chat)?.active_turn.is_none());
    client.say(&chat, "turn-1", "#demo\ntext done").await?;
    client.until("the question", |client| !open_requests(client, &session).is_empty()).await?;
    let active = client.chat(&chat)?.active_turn.as_ref().context("the question has no turn")?;
    assert_eq!(active.id, "turn-1");
    assert_eq!(open_requests(&client, &session).len(), 1);
    assert_eq!(host.runtimes(), Vec::<u32>::new());
    Ok(())
}
