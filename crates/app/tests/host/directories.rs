//! Several working directories in one session, with both pinned runtimes.

use std::path::{Path, PathBuf};

use ahp_types::state::{ResponsePart, ToolCallState, TurnState};
use anyhow::{Context as _, Result};
use innkeeper_testkit::{Observer, TestHost, runtimes};
use innkeeper_workspace::uri_of;
use serde_json::json;

use crate::{new_session, options};

/// Lets the agent read a file; returns whether it could without asking. A request is denied.
async fn reads(client: &mut Observer, chat: &str, turn: &str, file: &Path) -> Result<bool> {
    let script = format!("#demo\ntool Read {{\"file_path\":\"{}\"}}\necho", file.display());
    client.say(chat, turn, &script).await?;
    let is_settled = |client: &Observer| {
        client.chat(chat).is_ok_and(|chat| match &chat.active_turn {
            Some(active) => active.response_parts.iter().any(|part| waiting_call(part).is_some()),
            None => chat.turns.iter().any(|past| past.id == turn),
        })
    };
    client.until("the end of the turn or a request", is_settled).await?;
    let parts = client.chat(chat)?.active_turn.as_ref().map(|active| active.response_parts.clone());
    if let Some(call) = parts.iter().flatten().find_map(waiting_call) {
        let denied = json!({
            "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": call, "approved": false, "reason": "denied",
        });
        client.dispatch(chat, denied).await?;
        client.until_turn_over(chat, turn).await?;
        return Ok(false);
    }
    let last = client.chat(chat)?.turns.last().context("no turn")?;
    assert_eq!(last.state, TurnState::Complete);
    let parts = serde_json::to_value(&last.response_parts)?;
    let mut calls = parts.as_array().into_iter().flatten().filter(|part| part["kind"] == "toolCall");
    let call = calls.next().with_context(|| format!("no call: {parts:#}"))?;
    let success = call["toolCall"]["success"].as_bool().context("no result")?;
    assert_eq!(call.to_string().contains("remember the milk"), success, "{call:#}");
    Ok(success)
}

/// The id of a call that waits for permission.
fn waiting_call(part: &ResponsePart) -> Option<&str> {
    match part {
        ResponsePart::ToolCall(part) => match &part.tool_call {
            ToolCallState::PendingConfirmation(call) => Some(&call.tool_call_id),
            _ => None,
        },
        _ => None,
    }
}

#[tokio::test]
async fn native_runtime_follows_working_directory_changes() -> Result<()> {
    let [native, _] = runtimes()?;
    follows_working_directory_changes(native).await
}

#[tokio::test]
async fn node_runtime_follows_working_directory_changes() -> Result<()> {
    let [_, node] = runtimes()?;
    follows_working_directory_changes(node).await
}

async fn follows_working_directory_changes(claude: PathBuf) -> Result<()> {
    let host = TestHost::start(options(claude)).await?;
    let [other, third] = ["other", "third"].map(|name| host.home().join(name));
    for directory in [&other, &third] {
        std::fs::create_dir(directory)?;
        std::fs::write(directory.join("note.txt"), "remember the milk")?;
    }
    let session = new_session();
    let mut client = host.observer("first").await?;
    client.create(&session, &[&host.work_uri(), &uri_of(&other)]).await?;
    let chat = client.open_session(&session).await?;
    assert!(reads(&mut client, &chat, "turn-1", &other.join("note.txt")).await?, "initial directory");
    assert!(!reads(&mut client, &chat, "turn-2", &third.join("note.txt")).await?, "not yet added");

    // The next message follows immediately and must go to the restarted runtime.
    let set = json!({"type": "session/workingDirectorySet", "directory": uri_of(&third)});
    client.dispatch(&session, set).await?;
    assert!(reads(&mut client, &chat, "turn-3", &third.join("note.txt")).await?, "added");
    let answer = serde_json::to_string(&client.chat(&chat)?.turns.last())?;
    assert!(answer.contains("other/note.txt"), "the first turn is missing from the context: {answer}");

    let removed = json!({"type": "session/workingDirectoryRemoved", "directory": uri_of(&other)});
    client.dispatch(&session, removed).await?;
    assert!(!reads(&mut client, &chat, "turn-4", &other.join("note.txt")).await?, "removed");
    assert!(reads(&mut client, &chat, "turn-5", &third.join("note.txt")).await?);

    std::fs::remove_dir_all(&third)?;
    let gone = json!({"type": "session/workingDirectorySet", "directory": uri_of(&other)});
    client.dispatch(&session, gone).await?;
    assert!(
        reads(&mut client, &chat, "turn-6", &other.join("note.txt")).await?,
        "a deleted directory broke the session"
    );
    assert_eq!(host.runtimes().len(), 1, "{:?}", host.processes());
    client.agrees_with_a_fresh_client(&host.address()?).await?;
    Ok(())
}
