//! Changes of a session between its messages, with both pinned runtimes.

use ahp_types::state::TurnState;
use anyhow::{Context as _, Result};
use innkeeper_testkit::{Observer, TestHost, runtimes};
use innkeeper_workspace::uri_of;
use serde_json::{Value, json};

use crate::asking::{AskingSession, tool};
use crate::continuing::{RecordingRuntime, answer, run_turn};
use crate::options;

const SHOW: &str = "#demo\ntool Bash {\"command\":\"echo \\\"<$GREETING>\\\"\"}\necho";

/// A session that may run commands.
async fn start(recorded: &RecordingRuntime, config: Value) -> Result<AskingSession> {
    let mut options = options(recorded.program.clone());
    options.user_settings = Some(json!({"permissions": {"allow": ["Bash"]}}));
    AskingSession::start(options, config).await
}

fn environment(greeting: &str) -> Value {
    let config = json!({"environment": {"GREETING": greeting}});
    json!({"type": "session/configChanged", "config": config})
}

#[tokio::test]
async fn model_effort_and_mode_change_without_a_restart() -> Result<()> {
    for claude in runtimes()? {
        let recorded = RecordingRuntime::new(&claude)?;
        let mut asking = start(&recorded, json!({})).await?;
        let chat = asking.chat.clone();
        run_turn(&mut asking.client, &chat, "turn-1", "#demo\ntext first").await?;
        let mode = json!({"type": "session/configChanged", "config": {"permissionMode": "acceptEdits"}});
        asking.client.dispatch(&asking.session, mode).await?;
        let file = asking.host.work_dir().join("new.txt");
        let script = format!("#demo\n{}", tool("Write", &json!({"file_path": file, "content": "new"})));
        let chosen = json!({
            "type": "chat/turnStarted", "turnId": "turn-2", "startedAt": "2025-11-16T09:00:00.000Z",
            "message": {
                "text": script, "origin": {"kind": "user"},
                "model": {"id": "claude-opus-4-6", "config": {"thinkingLevel": "high"}},
            },
        });
        asking.client.dispatch(&chat, chosen).await?;
        asking.client.until_turn_over(&chat, "turn-2").await?;
        assert_eq!(std::fs::read_to_string(&file)?, "new");
        recorded.start(1)?;
    }
    Ok(())
}

#[tokio::test]
async fn directories_and_environment_change_with_one_restart_before_the_next_message() -> Result<()> {
    for claude in runtimes()? {
        let recorded = RecordingRuntime::new(&claude)?;
        let mut asking = start(&recorded, json!({"environment": {"GREETING": "hello"}})).await?;
        let (session, chat) = (asking.session.clone(), asking.chat.clone());
        let other = asking.host.home().join("other");
        std::fs::create_dir(&other)?;
        std::fs::write(other.join("note.txt"), "remember the milk")?;
        let client = &mut asking.client;
        run_turn(client, &chat, "turn-1", SHOW).await?;
        assert!(answer(client, &chat)?.contains("<hello>"), "{}", answer(client, &chat)?);

        // Nothing changes in the middle of a turn.
        let two_calls =
            "#demo\ntext it begins\nwait 1000\ntool Bash {\"command\":\"echo \\\"<$GREETING>\\\"\"}";
        client.say(&chat, "turn-2", two_calls).await?;
        let begun = |client: &Observer| client.text_so_far(&chat).is_ok_and(|text| text == "it begins");
        client.until("the answer has begun", begun).await?;
        client.dispatch(&session, environment("bonjour")).await?;
        let set = json!({"type": "session/workingDirectorySet", "directory": uri_of(&other)});
        client.dispatch(&session, set).await?;
        client.until_turn_over(&chat, "turn-2").await?;
        assert!(answer(client, &chat)?.contains("<hello>"), "{}", answer(client, &chat)?);

        let read = tool("Read", &json!({"file_path": other.join("note.txt")}));
        run_turn(client, &chat, "turn-3", &format!("{SHOW}\n{read}")).await?;
        let shown = answer(client, &chat)?;
        assert!(shown.contains("<bonjour>") && shown.contains("remember the milk"), "{shown}");
        assert!(shown.contains("it begins"), "the conversation is lost: {shown}");
        recorded.start(2)?;
        client.agrees_with_a_fresh_client(&asking.host.address()?).await?;
    }
    Ok(())
}

#[tokio::test]
async fn failed_restart_fails_the_message_and_the_change_stays_pending() -> Result<()> {
    for claude in runtimes()? {
        let recorded = RecordingRuntime::new(&claude)?;
        let mut asking = start(&recorded, json!({"environment": {"GREETING": "hello"}})).await?;
        let (session, chat) = (asking.session.clone(), asking.chat.clone());
        let client = &mut asking.client;
        run_turn(client, &chat, "turn-1", SHOW).await?;
        let away = recorded.program.with_extension("away");
        std::fs::rename(&recorded.program, &away)?;
        client.dispatch(&session, environment("bonjour")).await?;
        for turn in ["turn-2", "turn-3"] {
            client.say(&chat, turn, SHOW).await?;
            client.until_turn_over(&chat, turn).await?;
            let last = client.chat(&chat)?.turns.last().context("no turn")?;
            assert_eq!(last.state, TurnState::Error);
            let shown = answer(client, &chat)?;
            assert!(
                shown.contains("Cannot restart Claude for the changed environment: Cannot find"),
                "{shown}"
            );
        }
        std::fs::rename(&away, &recorded.program)?;
        run_turn(client, &chat, "turn-4", SHOW).await?;
        assert!(answer(client, &chat)?.contains("<bonjour>"), "{}", answer(client, &chat)?);
    }
    Ok(())
}

#[tokio::test]
async fn invalid_environment_is_rejected() -> Result<()> {
    let host = TestHost::start(crate::without_runtime()).await?;
    let mut asking = AskingSession::on(host, json!({"environment": {"A": "b"}})).await?;
    for wrong in [json!({"A": 1}), json!({"A=B": "c"}), json!({"": "c"}), json!({"A": "\u{0}"}), json!([])] {
        let change = json!({"type": "session/configChanged", "config": {"environment": wrong}});
        let seq = asking.client.dispatch(&asking.session, change).await?;
        asking.client.until("an answer", |client| !client.answers("first", seq).is_empty()).await?;
        let answers = asking.client.answers("first", seq);
        let answer = answers.first().context("no answer")?;
        let reason = answer.rejection_reason.as_deref().unwrap_or_default();
        assert!(reason.contains("environment"), "{wrong}: {reason:?}");
    }
    Ok(())
}

#[tokio::test]
async fn variable_that_the_host_sets_fails_the_message_until_it_is_removed() -> Result<()> {
    for claude in runtimes()? {
        let recorded = RecordingRuntime::new(&claude)?;
        let mut asking = start(&recorded, json!({"environment": {"CLAUDE_CONFIG_DIR": "/other"}})).await?;
        let (session, chat) = (asking.session.clone(), asking.chat.clone());
        let client = &mut asking.client;
        client.say(&chat, "turn-1", SHOW).await?;
        client.until_turn_over(&chat, "turn-1").await?;
        let shown = answer(client, &chat)?;
        assert!(shown.contains("CLAUDE_CONFIG_DIR is set by Innkeeper. Remove it"), "{shown}");
        client.dispatch(&session, environment("hello")).await?;
        run_turn(client, &chat, "turn-2", SHOW).await?;
        assert!(answer(client, &chat)?.contains("<hello>"), "{}", answer(client, &chat)?);
    }
    Ok(())
}
