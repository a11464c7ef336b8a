//! Tool calls that need permission, with both pinned runtimes.

use std::time::Duration;

use anyhow::{Context as _, Result};
use innkeeper_testkit::{Observer, eventually, in_time, runtimes};
use serde_json::{Value, json};

use crate::asking::{AskingSession, CLIENT, confirmation, echo, shell, text, tool, write};
use crate::options;

/// Whether a client shows a request.
fn is_asked(client: &Observer, session: &str) -> bool {
    client.session(session).is_ok_and(|session| session.input_needed.is_some())
}

#[tokio::test]
async fn read_in_working_directory_is_not_asked() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = AskingSession::start(options(claude), json!({})).await?;
        let note = asking.host.work_dir().join("note.txt");
        std::fs::write(&note, "remember the milk")?;
        asking.say("turn-1", &[tool("Read", &json!({"file_path": note})), text("done")]).await?;
        let calls = asking.finish("turn-1").await?;
        assert_eq!(calls.len(), 1, "{calls:#?}");
        assert_eq!((&calls[0]["status"], &calls[0]["success"]), (&json!("completed"), &json!(true)));
        assert_eq!(calls[0]["confirmed"], "not-needed");
        assert!(calls[0].to_string().contains("remember the milk"), "{}", calls[0]);
        assert_eq!(asking.times_asked()?, 0);
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn write_is_asked_on_all_clients_and_runs_when_allowed() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = AskingSession::start(options(claude), json!({})).await?;
        let mut second = asking.second_client().await?;
        let file = asking.host.work_dir().join("made.txt");
        asking.say("turn-1", &[write(&file, "by the agent"), text("done")]).await?;
        let call = asking.permission("turn-1").await?;
        assert_eq!(call["toolName"], "Write");
        assert!(call["confirmationTitle"].to_string().contains("made.txt"), "{call:#}");
        let why = &call["_meta"]["innkeeper.permission"];
        assert!(why["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{call:#}");
        assert!(why["layer"].as_str().is_some_and(|layer| !layer.is_empty()), "{call:#}");
        second.until("the request", |second| is_asked(second, &asking.session)).await?;
        assert!(!file.exists(), "the file was written before the answer");

        asking.approve("turn-1", &call, "allow-once").await?;
        second.until("the answer", |second| !is_asked(second, &asking.session)).await?;
        let calls = asking.finish("turn-1").await?;
        assert_eq!(std::fs::read_to_string(&file)?, "by the agent");
        assert_eq!((&calls[0]["success"], &calls[0]["confirmed"]), (&json!(true), &json!("user-action")));
        assert_eq!(asking.times_asked()?, 1);
        is_in_audit(&asking, &call).await?;

        // Allowed once: the next call is asked again.
        asking.say("turn-2", &[write(&file, "again"), text("done")]).await?;
        let call = asking.permission("turn-2").await?;
        asking.deny("turn-2", &call, "deny", "").await?;
        asking.finish("turn-2").await?;
        assert_eq!(std::fs::read_to_string(&file)?, "by the agent");
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

/// Checks that the audit names the client that allowed a call.
async fn is_in_audit(asking: &AskingSession, call: &Value) -> Result<()> {
    let mut raw = asking.host.raw().await?;
    raw.initialize("auditor", &[]).await?;
    let recorded = async {
        loop {
            let answer = raw.request("innkeeper/audit", json!({"session": asking.session})).await?;
            let records =
                answer["result"]["records"].as_array().with_context(|| format!("no records: {answer}"))?;
            // Records are stored shortly after the decision.
            let of_call = |record: &&Value| record["toolCall"] == call["toolCallId"];
            if let Some(record) = records.iter().find(of_call) {
                return anyhow::Ok(record.clone());
            }
        }
    };
    let record = in_time(Duration::from_secs(30), "the audit record", recorded).await??;
    assert_eq!((&record["decision"], &record["client"]), (&json!("allow"), &json!(CLIENT)), "{record:#}");
    assert_eq!((&record["tool"], &record["layer"]), (&json!("Write"), &json!("user")), "{record:#}");
    Ok(())
}

#[tokio::test]
async fn denied_write_leaves_no_file_and_model_gets_the_reason() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = AskingSession::start(options(claude), json!({})).await?;
        let file = asking.host.work_dir().join("made.txt");
        asking.say("turn-1", &[write(&file, "by the agent"), echo()]).await?;
        let call = asking.permission("turn-1").await?;
        asking.deny("turn-1", &call, "deny", "Use the other folder.").await?;
        let calls = asking.finish("turn-1").await?;
        assert!(!file.exists(), "a denied tool ran");
        assert_eq!((&calls[0]["status"], &calls[0]["reason"]), (&json!("cancelled"), &json!("denied")));
        assert!(calls[0].to_string().contains("made.txt"), "the row does not name the target: {}", calls[0]);
        let said = asking.text("turn-1")?;
        assert!(said.contains("Use the other folder."), "the model did not get the reason: {said}");
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

/// The answer that approves a call with another input.
fn with_input(input: &str) -> Value {
    json!({
        "approved": true, "confirmed": "user-action", "selectedOptionId": "allow-once", "editedToolInput": input,
    })
}

#[tokio::test]
async fn edited_input_replaces_the_input_of_the_model() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = AskingSession::start(options(claude), json!({})).await?;
        let folder = asking.host.work_dir();
        let file = folder.join("made.txt");
        asking.say("turn-1", &[write(&file, "by the agent"), shell("touch agent"), text("done")]).await?;
        let call = asking.permission("turn-1").await?;
        assert_eq!(call["editable"], true, "{call:#}");
        let mut input: Value = serde_json::from_str(call["toolInput"].as_str().context("no input")?)?;
        input["content"] = json!("by the user");
        asking.confirm("turn-1", &call, with_input(&input.to_string())).await?;

        let call = asking.permission("turn-1").await?;
        assert_eq!(call["toolInput"], "touch agent");
        asking.confirm("turn-1", &call, with_input("touch user")).await?;
        let calls = asking.finish("turn-1").await?;
        assert_eq!(std::fs::read_to_string(&file)?, "by the user");
        assert!(folder.join("user").exists() && !folder.join("agent").exists());
        assert_eq!(calls[1]["toolInput"], "touch user", "{}", calls[1]);
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn request_is_removed_when_its_turn_is_cancelled_and_late_approval_is_rejected() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = AskingSession::start(options(claude), json!({})).await?;
        let mut second = asking.second_client().await?;
        let file = asking.host.work_dir().join("made.txt");
        asking.say("turn-1", &[write(&file, "by the agent"), text("done")]).await?;
        let call = asking.permission("turn-1").await?;
        let pids = asking.host.runtimes();

        // The same burst as that of VS Code when the user sends another message.
        let cancel = json!({"type": "chat/turnCancelled", "turnId": "turn-1", "duration": 10});
        asking.client.dispatch(&asking.chat, cancel).await?;
        let late = confirmation("turn-1", &call, json!({"approved": true, "confirmed": "user-action"}));
        let late = asking.client.dispatch(&asking.chat, late).await?;
        assert!(asking.response(late).await?.is_some(), "the approval was accepted after the cancel");
        asking.say("turn-2", &[echo()]).await?;
        asking.finish("turn-2").await?;

        assert!(!file.exists(), "a tool of a cancelled turn ran");
        assert_eq!(asking.turn("turn-1")?["state"], "cancelled");
        assert!(!is_asked(&asking.client, &asking.session));
        second.until_turn_over(&asking.chat, "turn-2").await?;
        assert!(!is_asked(&second, &asking.session));
        assert_eq!(asking.host.runtimes(), pids, "the cancel restarted the process");
        assert_eq!(asking.client.answers(CLIENT, late).len(), 1);
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

/// A step that delegates to a subagent, which runs a command.
fn delegate(command: &str, in_background: bool) -> String {
    let prompt = format!("#demo\n{}\ntext finished", shell(command));
    let input = json!({
        "description": "a subagent", "subagent_type": "general-purpose", "prompt": prompt,
        "run_in_background": in_background,
    });
    tool("Task", &input)
}

#[tokio::test]
async fn call_of_subagent_is_asked_and_runs_only_when_allowed() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = AskingSession::start(options(claude), json!({})).await?;
        let folder = asking.host.work_dir();
        let steps = [delegate("git init one", false), delegate("git init two", false), text("done")];
        asking.say("turn-1", &steps).await?;
        let call = asking.permission("turn-1").await?;
        assert_eq!((&call["toolName"], &call["toolInput"]), (&json!("Bash"), &json!("git init one")));
        asking.approve("turn-1", &call, "allow-once").await?;
        let call = asking.permission("turn-1").await?;
        asking.deny("turn-1", &call, "deny", "").await?;
        let calls = asking.finish("turn-1").await?;
        assert!(folder.join("one").exists() && !folder.join("two").exists());
        let open = calls.iter().find(|call| call["status"] != "completed" && call["status"] != "cancelled");
        assert!(open.is_none(), "a row stays open: {open:?}");
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn call_of_background_subagent_is_asked_again_when_the_turn_ends() -> Result<()> {
    // The older runtime does not end a turn before its subagents.
    let [native, _] = runtimes()?;
    let mut asking = AskingSession::start(options(native), json!({})).await?;
    let folder = asking.host.work_dir();
    let steps = [delegate("git init one", true), "wait 3000".to_owned(), text("done")];
    asking.say("turn-1", &steps).await?;
    let call = asking.permission("turn-1").await?;
    assert_eq!(call["toolInput"], "git init one", "{call:#}");

    let asks_in_own_turn = |client: &Observer| {
        let turn = client.chat(&asking.chat).ok().and_then(|chat| chat.active_turn.clone());
        turn.is_some_and(|turn| turn.id != "turn-1") && is_asked(client, &asking.session)
    };
    asking.client.until("the question in its own turn", asks_in_own_turn).await?;
    let turn = asking.client.chat(&asking.chat)?.active_turn.as_ref().context("no turn")?.id.clone();
    let call = asking.permission(&turn).await?;
    assert!(!folder.join("one").exists(), "the call ran without permission");
    asking.approve(&turn, &call, "allow-once").await?;
    eventually(Duration::from_secs(30), "the allowed call ran", || folder.join("one").exists()).await?;
    let idle = |client: &Observer| client.chat(&asking.chat).is_ok_and(|chat| chat.active_turn.is_none());
    asking.client.until("the end of all turns", idle).await?;
    asking.agrees_with_a_fresh_client().await
}

#[tokio::test]
async fn requests_of_parallel_calls_are_answered_in_any_order() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = AskingSession::start(options(claude), json!({})).await?;
        let files = ["one", "two"].map(|name| asking.host.home().join(name));
        for file in &files {
            std::fs::write(file, "outside of the working directory")?;
        }
        let read = |file: &std::path::Path| tool("Read", &json!({"file_path": file}));
        let steps = [read(&files[0]), format!("+{}", read(&files[1])), text("done")];
        asking.say("turn-1", &steps).await?;
        let both = |client: &Observer| {
            let needed =
                client.session(&asking.session).ok().and_then(|session| session.input_needed.clone());
            needed.is_some_and(|needed| needed.len() == 2)
        };
        asking.client.until("both requests", both).await?;
        let needed = serde_json::to_value(&asking.client.session(&asking.session)?.input_needed)?;
        let [first, last] = [&needed[0]["toolCall"], &needed[1]["toolCall"]];
        asking.approve("turn-1", last, "allow-once").await?;
        asking.deny("turn-1", first, "deny", "").await?;
        let calls = asking.finish("turn-1").await?;
        let state =
            |id: &Value| calls.iter().find(|call| call["toolCallId"] == *id).map(|call| &call["status"]);
        assert_eq!(state(&last["toolCallId"]), Some(&json!("completed")));
        assert_eq!(state(&first["toolCallId"]), Some(&json!("cancelled")));
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}
