//! Resuming a conversation with another process: after a crash, a restart of the host,
//! `/clear`, and a lost transcript. With both pinned runtimes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ahp_types::state::{Turn, TurnState};
use anyhow::{Context as _, Result};
use innkeeper_testkit::{Observer, TestHost, processes, runtimes};
use innkeeper_workspace::uri_of;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Opened, options, trust_work_dir};

/// A message with a model, an effort and a custom agent.
fn chosen(turn: &str, text: &str, host: &TestHost) -> Value {
    let agent = uri_of(&host.work_dir().join(".claude/agents/reviewer.md"));
    json!({
        "type": "chat/turnStarted", "turnId": turn, "startedAt": "2025-11-16T09:00:00.000Z",
        "message": {
            "text": text, "origin": {"kind": "user"}, "agent": {"uri": agent},
            "model": {"id": "claude-opus-4-6", "config": {"thinkingLevel": "high"}},
        },
    })
}

fn define_agent(host: &TestHost) -> Result<()> {
    let agents = host.work_dir().join(".claude/agents");
    std::fs::create_dir_all(&agents)?;
    let definition = "---\nname: reviewer\ndescription: Reviews code\n---\nYou review code.\n";
    std::fs::write(agents.join("reviewer.md"), definition)?;
    trust_work_dir(host)
}

/// Wraps a runtime and records the arguments of every start, since one of the runtimes hides
/// its own.
pub(crate) struct RecordingRuntime {
    pub(crate) program: PathBuf,
    log: PathBuf,
    _folder: TempDir,
}

impl RecordingRuntime {
    pub(crate) fn new(claude: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let log = folder.path().join("starts");
        let is_script = claude.extension().is_some_and(|extension| extension == "js");
        let program = folder.path().join(if is_script { "claude.mjs" } else { "claude" });
        let text = if is_script {
            format!(
                "import fs from 'node:fs';\nfs.appendFileSync({log:?}, process.argv.slice(2).join(' ') + '\\n');\n\
                 process.argv[1] = {claude:?};\nawait import({claude:?});\n"
            )
        } else {
            format!("#!/bin/sh\necho \"$*\" >> {log:?}\nexec {claude:?} \"$@\"\n")
        };
        std::fs::write(&program, text)?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
        Ok(Self { program, log, _folder: folder })
    }

    /// Returns the arguments of the latest start; checks the number of starts.
    pub(crate) fn start(&self, number: usize) -> Result<Vec<String>> {
        let log = std::fs::read_to_string(&self.log)?;
        let starts: Vec<&str> = log.lines().collect();
        assert_eq!(starts.len(), number, "{log}");
        Ok(starts.last().context("no start")?.split(' ').map(str::to_owned).collect())
    }

    /// Checks the number of starts and some arguments of the latest one.
    pub(crate) fn assert_arguments(&self, number: usize, wanted: &[&str]) -> Result<()> {
        let arguments = self.start(number)?;
        for wanted in wanted {
            assert!(arguments.iter().any(|argument| argument == wanted), "{wanted}: {arguments:?}");
        }
        Ok(())
    }
}

/// Returns the response of the last turn.
pub(crate) fn answer(client: &Observer, chat: &str) -> Result<String> {
    Ok(serde_json::to_string(&client.chat(chat)?.turns.last().context("no turn")?.response_parts)?)
}

/// Runs a turn that completes.
pub(crate) async fn run_turn(client: &mut Observer, chat: &str, turn: &str, text: &str) -> Result<()> {
    client.say(chat, turn, text).await?;
    client.until_turn_over(chat, turn).await?;
    let last = client.chat(chat)?.turns.last().context("no turn")?;
    assert_eq!(last.state, TurnState::Complete, "{last:?}");
    Ok(())
}

const CHOICE: [&str; 3] = ["--model=claude-opus-4-6", "--effort=high", "--agent=reviewer"];

#[tokio::test]
async fn every_start_passes_model_effort_and_agent() -> Result<()> {
    for claude in runtimes()? {
        let recorded = RecordingRuntime::new(&claude)?;
        let host = TestHost::start(options(recorded.program.clone())).await?;
        define_agent(&host)?;
        let Opened { mut client, session, chat } = Opened::new(&host).await?;
        client.dispatch(&chat, chosen("turn-1", "hi", &host)).await?;
        client.until_turn_over(&chat, "turn-1").await?;
        recorded.assert_arguments(1, &CHOICE)?;

        client.dispatch(&chat, chosen("crash", "#demo\ntext it begins\nwait 60000", &host)).await?;
        let begun = |client: &Observer| client.text_so_far(&chat).is_ok_and(|text| text == "it begins");
        client.until("the answer has begun", begun).await?;
        processes::kill(*host.runtimes().first().context("no runtime")?)?;
        client.until_turn_over(&chat, "crash").await?;
        client.dispatch(&chat, chosen("turn-2", "after a crash", &host)).await?;
        client.until_turn_over(&chat, "turn-2").await?;
        recorded.assert_arguments(2, &CHOICE)?;

        let more = host.home().join("more");
        std::fs::create_dir(&more)?;
        let set = json!({"type": "session/workingDirectorySet", "directory": uri_of(&more)});
        client.dispatch(&session, set).await?;
        client.dispatch(&chat, chosen("turn-3", "elsewhere", &host)).await?;
        client.until_turn_over(&chat, "turn-3").await?;
        recorded.assert_arguments(3, &CHOICE)?;

        let host = host.start_again(options(recorded.program.clone())).await?;
        let mut client = host.observer("second").await?;
        client.open_session(&session).await?;
        client.dispatch(&chat, chosen("turn-4", "after a restart", &host)).await?;
        client.until_turn_over(&chat, "turn-4").await?;
        recorded.assert_arguments(4, &CHOICE)?;
        let turns = &client.chat(&chat)?.turns;
        assert_eq!(turns.len(), 5);
        let complete = |turn: &&Turn| turn.state == TurnState::Complete;
        assert_eq!(turns.iter().filter(complete).count(), 4, "{turns:?}");
    }
    Ok(())
}

#[tokio::test]
async fn model_is_kept_after_restart_if_the_message_has_none() -> Result<()> {
    for claude in runtimes()? {
        let recorded = RecordingRuntime::new(&claude)?;
        let host = TestHost::start(options(recorded.program.clone())).await?;
        let Opened { mut client, session, chat } = Opened::new(&host).await?;
        define_agent(&host)?;
        client.dispatch(&chat, chosen("turn-1", "hi", &host)).await?;
        client.until_turn_over(&chat, "turn-1").await?;
        let host = host.start_again(options(recorded.program.clone())).await?;
        let mut client = host.observer("second").await?;
        client.open_session(&session).await?;
        run_turn(&mut client, &chat, "turn-2", "hi again").await?;
        let [model, effort, _] = CHOICE;
        recorded.assert_arguments(2, &[model, effort])?;
        let arguments = recorded.start(2)?;
        assert!(!arguments.iter().any(|argument| argument.starts_with("--agent=")), "{arguments:?}");
    }
    Ok(())
}

#[tokio::test]
async fn effort_and_agent_can_change_between_turns() -> Result<()> {
    for claude in runtimes()? {
        let recorded = RecordingRuntime::new(&claude)?;
        let host = TestHost::start(options(recorded.program.clone())).await?;
        define_agent(&host)?;
        let Opened { mut client, chat, .. } = Opened::new(&host).await?;
        client.dispatch(&chat, chosen("turn-1", "#demo\ntext remember the milk", &host)).await?;
        client.until_turn_over(&chat, "turn-1").await?;
        let mut lower = chosen("turn-2", "hi", &host);
        lower["message"]["model"]["config"]["thinkingLevel"] = json!("low");
        client.dispatch(&chat, lower).await?;
        client.until_turn_over(&chat, "turn-2").await?;
        recorded.assert_arguments(1, &CHOICE)?;
        // Another agent requires another process, which resumes the conversation.
        run_turn(&mut client, &chat, "turn-3", "#demo\necho").await?;
        recorded.assert_arguments(2, &["--effort=low"])?;
        assert!(answer(&client, &chat)?.contains("remember the milk"));
    }
    Ok(())
}

#[tokio::test]
async fn turn_of_killed_runtime_can_be_resumed_and_queue_waits() -> Result<()> {
    for claude in runtimes()? {
        let host = TestHost::start(options(claude)).await?;
        let Opened { mut client, chat, .. } = Opened::new(&host).await?;
        run_turn(&mut client, &chat, "turn-1", "#demo\ntext remember the milk").await?;
        client.say(&chat, "turn-2", "#demo\ntext it begins\nwait 3000\ntext it ends").await?;
        let begun = |client: &Observer| client.text_so_far(&chat).is_ok_and(|text| text == "it begins");
        client.until("the answer has begun", begun).await?;
        let queued = json!({
            "type": "chat/pendingMessageSet", "kind": "queued", "id": "q1",
            "message": {"text": "#demo\ntext from the queue", "origin": {"kind": "user"}},
        });
        client.dispatch(&chat, queued).await?;
        let waits = |client: &Observer| client.chat(&chat).is_ok_and(|chat| chat.queued_messages.is_some());
        client.until("the queue", waits).await?;
        processes::kill(*host.runtimes().first().context("no runtime")?)?;
        client.until_turn_over(&chat, "turn-2").await?;
        client.settle().await?;
        let failed = serde_json::to_value(client.chat(&chat)?.turns.last())?;
        let error = failed["responseParts"].as_array().context("no parts")?.last().context("no part")?;
        assert_eq!(error["resumable"], true, "{failed:#}");
        assert!(waits(&client) && client.chat(&chat)?.active_turn.is_none(), "the queue was not kept");

        client.dispatch(&chat, json!({"type": "chat/turnResume", "turnId": "turn-2"})).await?;
        let over = |client: &Observer| client.chat(&chat).is_ok_and(|chat| chat.turns.len() == 3);
        client.until("the resumed turn and the queue", over).await?;
        let turns = &client.chat(&chat)?.turns;
        assert_eq!((turns[1].id.as_str(), turns[1].state), ("turn-2", TurnState::Complete));
        assert!(serde_json::to_string(&turns[1])?.contains("it ends"));
        assert!(answer(&client, &chat)?.contains("from the queue"));
        client.agrees_with_a_fresh_client(&host.address()?).await?;
    }
    Ok(())
}

/// Starts a conversation, removes its transcript while no runtime is running, and runs a turn
/// that fails because of it.
async fn lost(claude: PathBuf) -> Result<(TestHost, Observer, String, String, PathBuf)> {
    let host = TestHost::start(options(claude.clone())).await?;
    let Opened { mut client, session, chat } = Opened::new(&host).await?;
    run_turn(&mut client, &chat, "turn-1", "#demo\ntext remember the milk").await?;
    drop(client);
    let host = host.start_again(options(claude)).await?;
    let transcript = transcripts(&host)?.pop().context("no transcript")?;
    std::fs::rename(&transcript, transcript.with_extension("gone"))?;
    let mut client = host.observer("second").await?;
    client.open_session(&session).await?;
    client.say(&chat, "turn-2", "#demo\necho").await?;
    client.until_turn_over(&chat, "turn-2").await?;
    let failed = answer(&client, &chat)?;
    for wanted in ["\"resumable\":true", "transcript", "rebuild", "start fresh", "cancel"] {
        assert!(failed.contains(wanted), "{wanted}: {failed}");
    }
    assert_eq!(host.runtimes(), Vec::<u32>::new(), "an empty conversation was started");
    Ok((host, client, session, chat, transcript))
}

fn transcripts(host: &TestHost) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for project in std::fs::read_dir(host.config_dir().join("projects"))? {
        for file in std::fs::read_dir(project?.path())? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                found.push(path);
            }
        }
    }
    Ok(found)
}

async fn resume(client: &Observer, chat: &str) -> Result<()> {
    client.dispatch(chat, json!({"type": "chat/turnResume", "turnId": "turn-2"})).await?;
    Ok(())
}

async fn answer_question(client: &mut Observer, session: &str, chat: &str, choice: &str) -> Result<()> {
    let asked =
        |client: &Observer| client.session(session).is_ok_and(|session| session.input_needed.is_some());
    client.until("the question", asked).await?;
    let needed = serde_json::to_value(&client.session(session)?.input_needed)?;
    let completed = json!({
        "type": "chat/inputCompleted", "requestId": needed[0]["request"]["id"], "response": "accept",
        "answers": {"choice": {"state": "submitted", "value": {"kind": "selected", "value": choice}}},
    });
    client.dispatch(chat, completed).await?;
    let over = |client: &Observer| client.chat(chat).is_ok_and(|chat| chat.active_turn.is_none());
    client.until("the turn's end", over).await
}

#[tokio::test]
async fn lost_transcript_is_an_error_and_restored_transcript_is_resumed() -> Result<()> {
    for claude in runtimes()? {
        let (_host, mut client, _, chat, transcript) = lost(claude).await?;
        std::fs::rename(transcript.with_extension("gone"), &transcript)?;
        resume(&client, &chat).await?;
        let resumed = |client: &Observer| {
            let last = client.chat(&chat).ok().and_then(|chat| chat.turns.last().map(|turn| turn.state));
            last == Some(TurnState::Complete) && client.chat(&chat).is_ok_and(|chat| chat.turns.len() == 2)
        };
        client.until("the resumed turn", resumed).await?;
        let said = answer(&client, &chat)?;
        assert!(said.contains("remember the milk"), "the model does not see the earlier turns: {said}");
    }
    Ok(())
}

#[tokio::test]
async fn lost_transcript_is_rebuilt_from_the_record_of_the_host() -> Result<()> {
    for claude in runtimes()? {
        let (host, mut client, session, chat, _) = lost(claude.clone()).await?;
        resume(&client, &chat).await?;
        answer_question(&mut client, &session, &chat, "rebuild").await?;
        let said = answer(&client, &chat)?;
        assert!(said.contains("remember the milk"), "the model does not see the record: {said}");
        // The new conversation has its own transcript, which the next host finds.
        let host = host.start_again(options(claude)).await?;
        let mut client = host.observer("third").await?;
        client.open_session(&session).await?;
        run_turn(&mut client, &chat, "turn-3", "#demo\necho").await?;
        assert!(answer(&client, &chat)?.contains("remember the milk"));
    }
    Ok(())
}

#[tokio::test]
async fn lost_transcript_is_abandoned_if_the_user_chooses_so() -> Result<()> {
    for claude in runtimes()? {
        let (_host, mut client, session, chat, _) = lost(claude).await?;
        resume(&client, &chat).await?;
        answer_question(&mut client, &session, &chat, "fresh").await?;
        let turn = client.chat(&chat)?.turns.last().context("no turn")?;
        assert_eq!(turn.state, TurnState::Complete, "{turn:?}");
        let said = answer(&client, &chat)?;
        assert!(!said.contains("remember the milk"), "{said}");
    }
    Ok(())
}

/// Only with the newer runtime: the older one rejects `/clear`.
#[tokio::test]
async fn cleared_conversation_stays_cleared_after_restart() -> Result<()> {
    let [native, _] = runtimes()?;
    // With and without a message between the command and the restart.
    for said_more in [true, false] {
        let host = TestHost::start(options(native.clone())).await?;
        let Opened { mut client, session, chat } = Opened::new(&host).await?;
        run_turn(&mut client, &chat, "turn-1", "#demo\ntext remember the milk").await?;
        run_turn(&mut client, &chat, "turn-2", "/clear").await?;
        if said_more {
            run_turn(&mut client, &chat, "turn-3", "#demo\ntext buy the bread").await?;
        }
        let host = host.start_again(options(native.clone())).await?;
        let mut client = host.observer("second").await?;
        client.open_session(&session).await?;
        run_turn(&mut client, &chat, "turn-4", "#demo\necho").await?;
        let said = answer(&client, &chat)?;
        assert!(!said.contains("remember the milk"), "the old context was restored: {said}");
        assert_eq!(said.contains("buy the bread"), said_more, "{said}");
    }
    Ok(())
}
