//! Commands and subagents that go on after their turn, with both pinned runtimes.

use std::time::Duration;

use ahp_types::state::{BackgroundWork, ChatState, MessageKind};
use anyhow::{Context as _, Result};
use innkeeper_testkit::{HostOptions, Observer, TestHost, eventually, runtimes};
use serde_json::{Value, json};

use crate::asking::{AskingSession, CLIENT, text, tool};
use crate::editing::unasked;

/// A command that runs until a file exists.
pub(crate) fn until_exists(file: &str) -> String {
    format!("until [ -e {file} ]; do sleep 0.05; done")
}

/// A step that runs a command in the background.
pub(crate) fn in_background(command: &str, description: &str) -> String {
    tool("Bash", &json!({"command": command, "description": description, "run_in_background": true}))
}

/// A step that starts a subagent, which runs a command and reports.
pub(crate) fn subagent(command: &str, description: &str, is_background: bool) -> String {
    let step = tool("Bash", &json!({"command": command, "description": "a step of the subagent"}));
    tool(
        "Agent",
        &json!({
            "description": description, "prompt": format!("#demo\n{step}\ntext the report"),
            "subagent_type": "general-purpose", "run_in_background": is_background,
        }),
    )
}

/// Starts a session whose agent does not ask for permission.
pub(crate) async fn start(options: HostOptions) -> Result<AskingSession> {
    AskingSession::start(options, json!({"permissionMode": "bypassPermissions"})).await
}

/// The ids and labels of the chat's work in the background.
pub(crate) fn works(chat: &ChatState) -> Vec<(String, String)> {
    let works = chat.background_work.iter().flatten().map(|work| match work {
        BackgroundWork::Shell(work) => (work.id.clone(), work.label.clone()),
        BackgroundWork::Subagent(work) => (work.id.clone(), work.label.clone()),
        BackgroundWork::Unknown(work) => ("unknown".to_owned(), work.to_string()),
    });
    works.collect()
}

/// Waits until the chat lists this much work, and returns it.
pub(crate) async fn until_works(
    client: &mut Observer,
    chat: &str,
    count: usize,
) -> Result<Vec<(String, String)>> {
    let is_listed = |client: &Observer| client.chat(chat).is_ok_and(|chat| works(chat).len() == count);
    client.until(&format!("{count} entries of background work"), is_listed).await?;
    Ok(works(client.chat(chat)?))
}

/// The turns that the runtime started itself, with their messages' metadata.
fn started_by_runtime(chat: &ChatState) -> Vec<(String, Value)> {
    let own = chat.turns.iter().filter(|turn| turn.message.origin.kind == MessageKind::SystemNotification);
    own.map(|turn| {
        let work = turn.message.meta.as_ref().and_then(|meta| meta.get("innkeeper.work").cloned());
        (turn.message.text.clone(), work.unwrap_or_default())
    })
    .collect()
}

async fn open_again(host: TestHost, options: HostOptions, session: &str) -> Result<AskingSession> {
    let host = host.start_again(options).await?;
    let mut client = host.observer(CLIENT).await?;
    let chat = client.open_session(session).await?;
    Ok(AskingSession { host, client, session: session.to_owned(), chat })
}

/// Scenario A of the issue: work that ends after its turn.
#[tokio::test]
async fn work_that_ends_after_its_turn_starts_a_stored_turn() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = start(unasked(claude.clone())).await?;
        let chat = asking.chat.clone();
        let steps = [
            in_background(&until_exists("first"), "wait for the first file"),
            subagent(&until_exists("second"), "wait for the second file", true),
            text("both started"),
        ];
        asking.say("turn-1", &steps).await?;
        // Also with a runtime that holds the result back until the subagent has ended.
        asking.finish("turn-1").await?;
        assert_eq!(asking.text("turn-1")?, "both started");
        let listed = until_works(&mut asking.client, &chat, 2).await?;
        let labels: Vec<_> = listed.iter().map(|(_, label)| label.as_str()).collect();
        assert_eq!(labels, ["wait for the first file", "wait for the second file"]);
        let shell = serde_json::to_value(&asking.client.chat(&chat)?.background_work.as_ref().unwrap()[0])?;
        assert_eq!((&shell["kind"], &shell["command"]), (&json!("shell"), &json!(until_exists("first"))));
        assert_eq!(shell["_meta"]["innkeeper.work"]["turnId"], "turn-1");
        asking.agrees_with_a_fresh_client().await?;

        let mut turns = Vec::new();
        for (number, file) in ["first", "second"].into_iter().enumerate() {
            std::fs::write(asking.host.work_dir().join(file), "")?;
            let follows = |client: &Observer| {
                client.chat(&chat).is_ok_and(|chat| {
                    chat.active_turn.is_none() && started_by_runtime(chat).len() == number + 1
                })
            };
            let followed = asking.client.until("the turn that follows the work", follows).await;
            followed.with_context(|| format!("{:#?}", asking.client.chat(&chat)))?;
            assert_eq!(works(asking.client.chat(&chat)?).len(), 1 - number);
            turns = started_by_runtime(asking.client.chat(&chat)?);
        }
        for ((_, work), (id, label)) in turns.iter().zip(&listed) {
            assert_eq!((&work["id"], &work["label"]), (&json!(id), &json!(label)));
            assert_eq!((&work["status"], &work["turnId"]), (&json!("completed"), &json!("turn-1")));
            assert!(work["toolCallId"].is_string(), "{work}");
        }
        assert!(turns[0].0.contains("wait for the first file"), "{turns:?}");
        assert!(turns[1].0.contains("wait for the second file"), "{turns:?}");
        asking.agrees_with_a_fresh_client().await?;
        let before = asking.client.chat(&chat)?.turns.clone();

        let AskingSession { host, session, .. } = asking;
        let asking = open_again(host, unasked(claude), &session).await?;
        assert_eq!(asking.client.chat(&chat)?.turns, before, "the turns differ after a restart of the host");
    }
    Ok(())
}

#[tokio::test]
async fn stopped_turn_leaves_work_in_the_background_running() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = start(unasked(claude)).await?;
        let chat = asking.chat.clone();
        let steps = [
            in_background(&until_exists("go"), "the command"),
            subagent(&until_exists("./go"), "the subagent", true),
            text("both started"),
            "wait 60000".to_owned(),
            text("never said"),
        ];
        asking.say("turn-1", &steps).await?;
        until_works(&mut asking.client, &chat, 2).await?;
        let has_answered =
            |client: &Observer| client.text_so_far(&chat).is_ok_and(|text| text.contains("both started"));
        asking.client.until("the answer", has_answered).await?;
        // A cancel ends a subagent whose first request is not answered yet.
        eventually(Duration::from_secs(20), "the subagent", || runs(&asking.host, "./go")).await?;
        let pids = asking.host.runtimes();
        asking.cancel("turn-1").await?;

        // The same process answers the next message while the work goes on.
        asking.say("turn-2", &[text("the next answer")]).await?;
        asking.client.until_turn_over(&chat, "turn-2").await?;
        assert_eq!(asking.host.runtimes(), pids, "the cancel restarted the process");
        assert_eq!(works(asking.client.chat(&chat)?).len(), 2);

        // Scenario P: truncation while work runs.
        let truncated = json!({"type": "chat/truncated", "turnId": "turn-1"});
        let seq = asking.client.dispatch(&chat, truncated).await?;
        let reason = asking.response(seq).await?.context("the truncation was accepted")?;
        assert!(!reason.is_empty());
        assert_eq!(works(asking.client.chat(&chat)?).len(), 2);

        std::fs::write(asking.host.work_dir().join("go"), "")?;
        let is_over = |client: &Observer| {
            client.chat(&chat).is_ok_and(|chat| {
                chat.active_turn.is_none() && works(chat).is_empty() && started_by_runtime(chat).len() == 2
            })
        };
        asking.client.until("the turns that follow the work", is_over).await?;
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn work_that_is_killed_with_its_runtime_is_marked_as_stopped() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = start(unasked(claude)).await?;
        let chat = asking.chat.clone();
        asking.say("turn-1", &[in_background(&until_exists("go"), "the command"), text("started")]).await?;
        asking.finish("turn-1").await?;
        until_works(&mut asking.client, &chat, 1).await?;
        let runtime = *asking.host.runtimes().first().context("no runtime")?;
        innkeeper_testkit::processes::kill(runtime)?;
        until_works(&mut asking.client, &chat, 0).await?;
        let is_noted =
            |client: &Observer| client.chat(&chat).is_ok_and(|chat| started_by_runtime(chat).len() == 1);
        asking.client.until("the note about the stopped work", is_noted).await?;
        let (message, work) = started_by_runtime(asking.client.chat(&chat)?).remove(0);
        assert!(message.contains("the command"), "{message}");
        assert_eq!(work["status"], "stopped", "{work}");
        asking.host.no_processes(Duration::from_secs(5)).await?;
        asking.say("turn-2", &[text("again")]).await?;
        asking.finish("turn-2").await?;
    }
    Ok(())
}

#[tokio::test]
async fn work_that_ends_during_a_turn_is_noted_in_it() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = start(unasked(claude)).await?;
        let chat = asking.chat.clone();
        let steps = [
            in_background(&until_exists("done"), "the short command"),
            tool("Bash", &json!({"command": "touch done; sleep 0.5", "description": "the gate"})),
            text("done"),
        ];
        asking.say("turn-1", &steps).await?;
        asking.client.until_turn_over(&chat, "turn-1").await?;
        until_works(&mut asking.client, &chat, 0).await?;
        // Depending on the moment, the runtime tells the model in this turn or in one of its own.
        let is_noted = |client: &Observer| {
            let turns = client.chat(&chat).ok().and_then(|chat| serde_json::to_value(&chat.turns).ok());
            let names = |text: &Value| text.to_string().contains("the short command");
            turns.is_some_and(|turns| {
                let parts = turns[0]["responseParts"].as_array();
                let is_note = |part: &Value| part["kind"] == "systemNotification" && names(&part["content"]);
                parts.is_some_and(|parts| parts.iter().any(is_note)) || names(&turns[1]["message"]["text"])
            })
        };
        asking.client.until("the note, or a finished turn about the command", is_noted).await?;
        assert_eq!(asking.text("turn-1")?, "done");
    }
    Ok(())
}

/// Whether a process of the host runs a command with this text.
pub(crate) fn runs(host: &TestHost, command: &str) -> bool {
    host.processes().iter().any(|process| process.arguments.iter().any(|each| each.contains(command)))
}

/// Scenario P: the chat cannot be truncated, and the work in the background is not disturbed.
#[tokio::test]
async fn truncation_is_rejected_while_work_runs_and_the_work_goes_on() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = start(unasked(claude)).await?;
        let chat = asking.chat.clone();
        asking.say("turn-1", &[text("first")]).await?;
        asking.finish("turn-1").await?;
        asking.say("turn-2", &[in_background(&until_exists("go"), "wait"), text("started")]).await?;
        asking.finish("turn-2").await?;
        until_works(&mut asking.client, &chat, 1).await?;
        let truncated = json!({"type": "chat/truncated", "turnId": "turn-1"});
        let seq = asking.client.dispatch(&chat, truncated).await?;
        let reason = asking.response(seq).await?.context("the truncation was accepted")?;
        assert!(reason.contains("truncate") || reason.contains("earlier"), "{reason}");
        assert_eq!(asking.client.chat(&chat)?.turns.len(), 2);
        assert_eq!(works(asking.client.chat(&chat)?).len(), 1);
        std::fs::write(asking.host.work_dir().join("go"), "")?;
        until_works(&mut asking.client, &chat, 0).await?;
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}
