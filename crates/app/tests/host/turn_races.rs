//! Turns that several clients, cancels and process deaths race for, with both pinned runtimes.
//!
//! The scenarios are those in which other hosts run a command that the user moved on from,
//! lose a message or start a second process.

use ahp_types::state::TurnState;
use anyhow::{Context as _, Result, ensure};
use innkeeper_testkit::{Observer, TestHost, processes, runtimes};
use serde_json::{Value, json};

use crate::asking::{AskingSession, CLIENT, confirmation, shell, text, write};
use crate::continuing::RecordingRuntime;
use crate::options;

/// The id of the client that [`AskingSession::second_client`] connects.
const SECOND: &str = "second";

/// An answer as VS Code sends it.
fn approval() -> Value {
    json!({"approved": true, "confirmed": "user-action", "selectedOptionId": "allow-once"})
}

fn cancellation(turn: &str) -> Value {
    json!({"type": "chat/turnCancelled", "turnId": turn, "duration": 10})
}

fn queued(id: &str, words: &str) -> Value {
    let message = json!({"text": format!("#demo\ntext {words}"), "origin": {"kind": "user"}});
    json!({"type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": message})
}

/// Waits for the response to a client's dispatch. Returns the reason of a rejection.
async fn response(client: &mut Observer, id: &str, seq: i64) -> Result<Option<String>> {
    client.until("the response to a dispatch", |client| !client.answers(id, seq).is_empty()).await?;
    Ok(client.answers(id, seq).first().context("no response")?.rejection_reason.clone())
}

/// The status of a call in the rows of a finished turn.
fn status_of<'a>(turn: &'a Value, call: &Value) -> Result<&'a Value> {
    let parts = turn["responseParts"].as_array().context("no parts")?;
    let row = parts.iter().find(|part| part["toolCall"]["toolCallId"] == call["toolCallId"]);
    Ok(&row.context("the call has no row")?["toolCall"]["status"])
}

/// Waits until the chat is idle with this many finished turns.
async fn until_idle(client: &mut Observer, chat: &str, turns: usize) -> Result<()> {
    let is_idle = |client: &Observer| {
        client.chat(chat).is_ok_and(|chat| chat.active_turn.is_none() && chat.turns.len() >= turns)
    };
    client.until("the end of all turns", is_idle).await
}

/// Waits until nothing is asked any longer.
async fn until_not_asked(asking: &mut AskingSession) -> Result<()> {
    let session = &asking.session;
    let is_quiet =
        |client: &Observer| client.session(session).is_ok_and(|session| session.input_needed.is_none());
    asking.client.until("the removal of the request", is_quiet).await
}

/// Checks that clients that follow the same session have the same state.
async fn agree(clients: &mut [&mut Observer], session: &str, chat: &str) -> Result<()> {
    for client in clients.iter_mut() {
        client.settle().await?;
    }
    let Some((first, others)) = clients.split_first() else { return Ok(()) };
    for other in others {
        assert_eq!(first.chat(chat)?, other.chat(chat)?, "clients have different chats");
        assert_eq!(first.session(session)?, other.session(session)?, "clients have different sessions");
    }
    Ok(())
}

#[tokio::test]
async fn cancel_of_paused_turn_denies_the_call_and_the_process_answers_the_next_message() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = AskingSession::start(options(claude), json!({})).await?;
        let ran = asking.host.work_dir().join("ran");
        asking.say("turn-1", &[shell("touch ran"), text("never said")]).await?;
        let call = asking.permission("turn-1").await?;
        let pids = asking.host.runtimes();
        asking.cancel("turn-1").await?;
        let turn = asking.turn("turn-1")?;
        assert_eq!((&turn["state"], status_of(&turn, &call)?), (&json!("cancelled"), &json!("cancelled")));

        // The message follows without a pause, while the runtime still ends the turn.
        asking.say("turn-2", &[shell("touch second"), text("said")]).await?;
        let call = asking.permission("turn-2").await?;
        asking.approve("turn-2", &call, "allow-once").await?;
        asking.finish("turn-2").await?;
        assert!(!ran.exists(), "the command of a cancelled turn ran");
        assert!(asking.host.work_dir().join("second").exists());
        assert!(
            !asking.text("turn-2")?.contains("never said"),
            "output of the cancelled turn is in the next"
        );
        assert_eq!(asking.host.runtimes(), pids, "the cancel restarted the process");
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn denied_write_in_parallel_with_allowed_calls_leaves_no_file() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = AskingSession::start(options(claude), json!({})).await?;
        let [denied, allowed] = ["denied", "allowed"].map(|name| asking.host.work_dir().join(name));
        let steps = [
            write(&denied, "x"),
            format!("+{}", write(&allowed, "x")),
            format!("+{}", shell("touch ran")),
            text("done"),
        ];
        asking.say("turn-1", &steps).await?;
        let mut refused = None;
        for _ in 0..3 {
            let call = asking.permission("turn-1").await?;
            if call["toolInput"].to_string().contains("denied") {
                asking.deny("turn-1", &call, "deny", "not this one").await?;
                refused = Some(call);
            } else {
                asking.approve("turn-1", &call, "allow-once").await?;
            }
        }
        let calls = asking.finish("turn-1").await?;
        assert!(!denied.exists(), "a denied file was written");
        assert!(allowed.exists() && asking.host.work_dir().join("ran").exists());
        let refused = refused.context("the call was not asked")?;
        for call in &calls {
            let wanted = if call["toolCallId"] == refused["toolCallId"] { "cancelled" } else { "completed" };
            assert_eq!(call["status"], wanted, "{call:#}");
        }
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn clients_that_join_and_reconnect_during_a_turn_see_the_same_state() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = AskingSession::start(options(claude), json!({})).await?;
        let (session, chat, address) = (asking.session.clone(), asking.chat.clone(), asking.host.address()?);
        let mut second = asking.second_client().await?;
        let steps =
            ["chunk 3", "text one two three", &shell("touch ran"), "text four five six"].map(str::to_owned);
        asking.say("turn-1", &steps).await?;
        second
            .until("the answer", |client| client.text_so_far(&chat).is_ok_and(|text| !text.is_empty()))
            .await?;
        // Misses the rest of the text and the request.
        second.client.shutdown().await;
        let call = asking.permission("turn-1").await?;
        let mut third = asking.host.observer("third").await?;
        third.open_session(&session).await?;
        asking.client.dispatch(&chat, queued("q1", "from the queue")).await?;
        asking.approve("turn-1", &call, "allow-once").await?;
        second.reconnect(&address, SECOND).await?;
        for client in [&mut asking.client, &mut second, &mut third] {
            until_idle(client, &chat, 2).await?;
        }
        agree(&mut [&mut asking.client, &mut second, &mut third], &session, &chat).await?;
        let states: Vec<TurnState> = third.chat(&chat)?.turns.iter().map(|turn| turn.state).collect();
        assert_eq!(states, [TurnState::Complete; 2]);
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn first_of_two_answers_wins_and_the_second_client_gets_a_rejection() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = AskingSession::start(options(claude), json!({})).await?;
        let (session, chat) = (asking.session.clone(), asking.chat.clone());
        let mut second = asking.second_client().await?;
        for (turn, file) in [("turn-1", "one"), ("turn-2", "two")] {
            asking.say(turn, &[shell(&format!("touch {file}")), text("done")]).await?;
            let call = asking.permission(turn).await?;
            let denial = json!({"approved": false, "reason": "denied", "selectedOptionId": "deny"});
            let approves = confirmation(turn, &call, approval());
            let denies = confirmation(turn, &call, denial);
            let (first, last) =
                tokio::join!(asking.client.dispatch(&chat, approves), second.dispatch(&chat, denies));
            let outcomes = [asking.response(first?).await?, response(&mut second, SECOND, last?).await?];
            let [approved, reason] = match &outcomes {
                [None, Some(reason)] => [true.to_string(), reason.clone()],
                [Some(reason), None] => [false.to_string(), reason.clone()],
                both => anyhow::bail!("not exactly one answer was accepted: {both:?}"),
            };
            assert!(reason.contains("waiting"), "the reason does not say why: {reason}");
            until_not_asked(&mut asking).await?;
            asking.finish(turn).await?;
            let ran = asking.host.work_dir().join(file).exists();
            assert_eq!(ran.to_string(), approved, "the call does not follow the first answer");
        }
        until_idle(&mut second, &chat, 2).await?;
        agree(&mut [&mut asking.client, &mut second], &session, &chat).await?;
    }
    Ok(())
}

#[tokio::test]
async fn bursts_of_vscode_run_no_cancelled_command_and_lose_no_message() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = AskingSession::start(options(claude), json!({})).await?;
        message_during_a_request(&mut asking).await.context("a message during a request")?;
        send_immediately(&mut asking).await.context("send immediately")?;
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

/// A message that is sent while a call waits for permission: a cancel, an approval and a
/// queued message within one millisecond.
async fn message_during_a_request(asking: &mut AskingSession) -> Result<()> {
    let chat = asking.chat.clone();
    asking.say("turn-1", &[shell("touch ran"), text("never said")]).await?;
    let call = asking.permission("turn-1").await?;
    let burst = [
        cancellation("turn-1"),
        confirmation("turn-1", &call, json!({"approved": true, "confirmed": "user-action"})),
        queued("m2", "the second message"),
        json!({"type": "chat/draftChanged"}),
    ];
    let mut seqs = Vec::new();
    for action in burst {
        seqs.push(asking.client.dispatch(&chat, action).await?);
    }
    let mut reasons = Vec::new();
    for seq in seqs {
        reasons.push(asking.response(seq).await?);
    }
    let [None, Some(reason), None, None] = reasons.as_slice() else {
        anyhow::bail!("only the approval must be rejected: {reasons:?}")
    };
    assert!(!reason.is_empty());
    until_idle(&mut asking.client, &chat, 2).await?;
    let turns = &asking.client.chat(&chat)?.turns;
    let states: Vec<TurnState> = turns.iter().map(|turn| turn.state).collect();
    assert_eq!(states, [TurnState::Cancelled, TurnState::Complete]);
    assert!(serde_json::to_string(&turns[1])?.contains("the second message"));
    assert!(!asking.host.work_dir().join("ran").exists(), "the command of a cancelled turn ran");
    Ok(())
}

/// "Send Immediately" of the second queued message: it is removed from the queue, the turn
/// is cancelled, and the message starts a turn.
async fn send_immediately(asking: &mut AskingSession) -> Result<()> {
    let chat = asking.chat.clone();
    asking.say("turn-3", &["text it begins".to_owned(), "wait 60000".to_owned()]).await?;
    let begun = |client: &Observer| client.text_so_far(&chat).is_ok_and(|text| text == "it begins");
    asking.client.until("the answer has begun", begun).await?;
    for (id, words) in [("q1", "the first in the queue"), ("q2", "sent at once")] {
        asking.client.dispatch(&chat, queued(id, words)).await?;
    }
    let removed = json!({"type": "chat/pendingMessageRemoved", "kind": "queued", "id": "q2"});
    asking.client.dispatch(&chat, removed).await?;
    asking.client.dispatch(&chat, cancellation("turn-3")).await?;
    let seq = asking.client.say(&chat, "turn-4", "#demo\ntext sent at once").await?;
    assert_eq!(asking.response(seq).await?, None, "the message was rejected");
    until_idle(&mut asking.client, &chat, 5).await?;
    let state = asking.client.chat(&chat)?;
    assert_eq!(state.queued_messages, None);
    let turns: Vec<(&str, TurnState)> =
        state.turns.iter().skip(2).map(|turn| (turn.message.text.as_str(), turn.state)).collect();
    assert_eq!(turns[0].1, TurnState::Cancelled);
    assert_eq!(turns[1], ("#demo\ntext sent at once", TurnState::Complete));
    assert_eq!(turns[2], ("#demo\ntext the first in the queue", TurnState::Complete));
    Ok(())
}

/// Scenario J.
#[tokio::test]
async fn two_messages_for_a_chat_without_process_start_exactly_one() -> Result<()> {
    for claude in runtimes()? {
        let recorded = RecordingRuntime::new(&claude)?;
        let host = TestHost::start(options(recorded.program.clone())).await?;
        let mut asking = AskingSession::on(host, json!({})).await?;
        asking.say("turn-1", &[text("remember the milk")]).await?;
        asking.finish("turn-1").await?;
        recorded.start(1)?;
        let AskingSession { host, session, chat, client } = asking;
        drop(client);
        let host = host.start_again(options(recorded.program.clone())).await?;
        let mut client = host.observer(CLIENT).await?;
        client.open_session(&session).await?;
        let mut asking = AskingSession { host, client, session, chat };
        let chat = asking.chat.clone();
        let mut second = asking.second_client().await?;
        assert_eq!(asking.host.runtimes(), Vec::<u32>::new());

        let (one, other) = tokio::join!(
            asking.client.say(&chat, "turn-2", "#demo\necho"),
            second.say(&chat, "turn-3", "#demo\necho")
        );
        second.dispatch(&chat, queued("q1", "from the queue")).await?;
        let outcomes = [asking.response(one?).await?, response(&mut second, SECOND, other?).await?];
        let rejected: Vec<&String> = outcomes.iter().flatten().collect();
        let [reason] = rejected.as_slice() else { anyhow::bail!("accepted both or none: {outcomes:?}") };
        assert!(reason.contains("already running"), "{reason}");
        for client in [&mut asking.client, &mut second] {
            until_idle(client, &chat, 3).await?;
        }
        let turns = &second.chat(&chat)?.turns;
        let states: Vec<TurnState> = turns.iter().map(|turn| turn.state).collect();
        assert_eq!(states, [TurnState::Complete; 3]);
        assert!(serde_json::to_string(&turns[1])?.contains("remember the milk"), "not resumed");
        let arguments = recorded.start(2)?;
        assert!(arguments.iter().any(|argument| argument.contains("--resume")), "{arguments:?}");
        assert_eq!(asking.host.runtimes().len(), 1);
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

/// Scenario O.
#[tokio::test]
async fn answer_after_the_death_of_the_process_is_rejected_and_resumed_turn_asks_again() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = AskingSession::start(options(claude), json!({})).await?;
        let chat = asking.chat.clone();
        let ran = asking.host.work_dir().join("ran");
        asking.say("turn-1", &[shell("touch ran"), text("done")]).await?;
        let call = asking.permission("turn-1").await?;
        let killed = kill_runtime(&asking.host)?;
        asking.client.until_turn_over(&chat, "turn-1").await?;
        let error = asking.turn("turn-1")?["responseParts"].to_string();
        for expected in ["runtime_exited", "\"resumable\":true", "SIGKILL", "memory"] {
            ensure!(error.contains(expected), "{expected}: {error}");
        }
        until_not_asked(&mut asking).await?;
        let late = confirmation("turn-1", &call, approval());
        let late = asking.client.dispatch(&chat, late).await?;
        let reason = asking.response(late).await?.context("a late answer was accepted")?;
        assert!(!reason.is_empty());

        // The second time the answer races the host's notice of the death.
        asking.client.dispatch(&chat, json!({"type": "chat/turnResume", "turnId": "turn-1"})).await?;
        let is_running = |client: &Observer| client.chat(&chat).is_ok_and(|chat| chat.active_turn.is_some());
        asking.client.until("the resumed turn", is_running).await?;
        let call = asking.permission("turn-1").await?;
        let again = kill_runtime(&asking.host)?;
        ensure!(killed != again, "the process was not replaced");
        let racing = asking.client.dispatch(&chat, confirmation("turn-1", &call, approval())).await?;
        asking.response(racing).await?;
        let is_over = |client: &Observer| client.chat(&chat).is_ok_and(|chat| chat.active_turn.is_none());
        asking.client.until("the end of the turn", is_over).await?;
        assert_eq!(asking.turn("turn-1")?["state"], "error");
        assert!(!ran.exists(), "the call ran without a process that asked");
        asking.say("turn-2", &[text("works")]).await?;
        asking.finish("turn-2").await?;
        assert_eq!(asking.client.answers(CLIENT, racing).len(), 1);
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

/// Kills the only runtime with SIGKILL. Returns its process id.
fn kill_runtime(host: &TestHost) -> Result<u32> {
    let pid = *host.runtimes().first().context("no runtime")?;
    processes::kill(pid)?;
    Ok(pid)
}
