//! Turns: start, cancellation, resumption and truncation as clients see them.

use std::sync::Arc;

use ahp_types::actions::StateAction;
use ahp_types::state::{ErrorInfo, TurnState};
use innkeeper_core::agent::{AgentCommand, AgentEvent, AgentFeatures, TurnOutcome};
use innkeeper_core::ids::TurnId;
use innkeeper_core::storage::{Change, Storage as _};
use innkeeper_core_fakes::{MemoryStorage, StageTraits};
use innkeeper_testkit::Seen;
use serde_json::{Value, json};

use crate::scene::{Scene, cancelled, message, pending, started};
use crate::stage_host::{StageHost, StageOptions};
use crate::wire::Wire;

fn failure() -> TurnOutcome {
    let (error_type, message) = ("overloaded".to_owned(), "the model is busy".to_owned());
    TurnOutcome::Failed(ErrorInfo { error_type, message, stack: None, meta: None })
}

fn truncated(turn: Option<&str>) -> Value {
    match turn {
        Some(turn) => json!({"type": "chat/truncated", "turnId": turn}),
        None => json!({"type": "chat/truncated"}),
    }
}

fn resume(turn: &str) -> Value {
    json!({"type": "chat/turnResume", "turnId": turn})
}

/// The activities of a chat in the order in which they were published.
fn activities(scene: &Scene) -> Vec<Option<String>> {
    let changed = |seen: &Seen| match seen {
        Seen::Action(envelope) if envelope.channel == scene.chat => match &envelope.action {
            StateAction::ChatActivityChanged(changed) => Some(changed.activity.clone()),
            _ => None,
        },
        _ => None,
    };
    scene.alice.seen.iter().filter_map(changed).collect()
}

#[tokio::test]
async fn start_of_the_agent_is_an_activity_until_the_first_output() {
    let mut scene = Scene::new().await;
    scene.host.stage().hold_openings();
    scene.chat_accepts(started("t1")).await;
    let starting = Some("Starting Scripted".to_owned());
    scene.until("the activity", |chat| chat.activity == starting).await;
    assert_eq!(scene.bob.session(&scene.session).unwrap().activity, starting);
    assert_eq!(scene.bob.rows[&scene.session].activity, starting);
    scene.host.stage().release_openings();
    let mut player = scene.host.stage().player().await.unwrap();
    player.prompt().await.unwrap();
    scene.agree().await;
    assert_eq!(scene.alice.chat(&scene.chat).unwrap().activity, starting, "no output yet");
    player.text("t1", "p1", &["a", "b"]).await.unwrap();
    scene.until("no activity", |chat| chat.activity.is_none()).await;
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;

    // The agent is running, so the next turn starts nothing.
    scene.chat_accepts(started("t2")).await;
    player.prompt().await.unwrap();
    player.complete("t2").await.unwrap();
    scene.until_over("t2").await;
    assert_eq!(activities(&scene), [starting, None]);
}

#[tokio::test]
async fn activity_of_a_failed_or_cancelled_start_is_cleared() {
    let mut scene = Scene::new().await;
    scene.host.stage().fail_next_opening("not installed");
    scene.chat_accepts(started("t1")).await;
    scene.until_over("t1").await;
    assert_eq!(scene.bob.chat(&scene.chat).unwrap().activity, None);
    scene.host.stage().hold_openings();
    scene.chat_accepts(started("t2")).await;
    scene.until("the activity", |chat| chat.activity.is_some()).await;
    scene.chat_accepts(cancelled("t2")).await;
    scene.until("no activity", |chat| chat.activity.is_none()).await;
    let starting = Some("Starting Scripted".to_owned());
    assert_eq!(activities(&scene), [starting.clone(), None, starting, None]);
}

#[tokio::test]
async fn turn_runs_from_start_to_completion() {
    let (mut scene, player) = Scene::in_turn("request_1").await;
    assert_eq!(scene.alice.root().unwrap().active_sessions, Some(1));
    player.reasoning("request_1", "r1", &["hm", "…"]).await.unwrap();
    player.text("request_1", "p1", &["Let me ", "look"]).await.unwrap();
    let usage =
        json!({"type": "chat/usage", "turnId": "request_1", "usage": {"inputTokens": 812, "model": "m"}});
    player.act(usage).await.unwrap();
    player.complete("request_1").await.unwrap();
    scene.until_over("request_1").await;
    let chat = scene.alice.chat(&scene.chat).unwrap();
    let turn = &chat.turns[0];
    assert_eq!((turn.state, turn.usage.as_ref().unwrap().input_tokens), (TurnState::Complete, Some(812)));
    let parts = json!(turn.response_parts);
    assert_eq!((&parts[0]["content"], &parts[1]["content"]), (&json!("hm…"), &json!("Let me look")));
    assert_eq!(scene.alice.root().unwrap().active_sessions, Some(0));
    assert_eq!(chat.status, 1);
}

#[tokio::test]
async fn attached_chat_is_pinned_to_its_last_turn_when_accepted() {
    let (mut scene, mut player) = Scene::after_turn("t1").await;
    let chat = scene.chat.clone();
    let with_chat = |mut action: Value, end: Option<&str>| {
        let mut attached =
            json!({"type": "chat", "label": "it", "resource": chat, "_meta": {"a": 1}, "x": "?"});
        if let Some(end) = end {
            attached["endTurn"] = json!(end);
        }
        let other = json!({"type": "chat", "label": "other", "resource": "ahp-chat:/nowhere"});
        let chosen = json!({"type": "chat", "label": "chosen", "resource": chat, "endTurn": "t0"});
        action["message"]["attachments"] = json!([other, attached, chosen]);
        action
    };
    let pinned = |command: AgentCommand| {
        let (AgentCommand::Prompt { message, .. } | AgentCommand::Steer { message, .. }) = command else {
            panic!("not a message: {command:?}")
        };
        json!(message)["attachments"][1]["modelRepresentation"].as_str().unwrap().to_owned()
    };
    for action in [started("t2"), pending("queued", "m1", "later"), pending("steering", "s1", "now")] {
        let echo = with_chat(action.clone(), Some("t1"));
        scene.completed(&chat, with_chat(action, None), echo).await;
    }
    let first = pinned(player.command().await.unwrap());
    assert!(first.contains("User: list files"), "{first}");
    assert_eq!(pinned(player.command().await.unwrap()), first);
    player.steered("t2", "s1", "now").await.unwrap();
    player.complete("t2").await.unwrap();
    scene.until_over("t2").await;
    assert_eq!(pinned(player.command().await.unwrap()), first, "the pinned turn changed");
    let active = json!(scene.alice.chat(&chat).unwrap().active_turn);
    assert_eq!(active["message"]["attachments"][1]["endTurn"], "t1");
}

#[tokio::test]
async fn rejects_message_with_too_many_attached_chats() {
    let (mut scene, _player) = Scene::after_turn("t1").await;
    let with_chats = |mut action: Value, count: usize| {
        let attached = json!({"type": "chat", "label": "it", "resource": "ahp-chat:/nowhere"});
        action["message"]["attachments"] = json!(vec![attached; count]);
        action
    };
    scene.chat_rejects(with_chats(started("t2"), 33)).await;
    scene.chat_rejects(with_chats(pending("queued", "m1", "later"), 33)).await;
    let chat = scene.chat.clone();
    assert_eq!(scene.alice_dispatches(&chat, with_chats(started("t2"), 32)).await, None);
}

#[tokio::test]
async fn rejects_turn_start_while_a_turn_is_active() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    scene.chat_rejects(started("t2")).await;
    let chat = scene.chat.clone();
    assert!(scene.alice_dispatches(&chat, started("t2")).await.is_some());
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test]
async fn rejects_turn_start_of_non_user_origin() {
    let mut scene = Scene::new().await;
    for kind in ["agent", "tool", "automation", "systemNotification", "unheardOf"] {
        let mut action = started("t1");
        action["message"]["origin"]["kind"] = json!(kind);
        scene.chat_rejects(action).await;
    }
    assert!(scene.host.stage().openings().is_empty());
}

#[tokio::test]
async fn rejects_turn_start_with_a_used_id() {
    let (mut scene, mut player) = Scene::after_turn("t1").await;
    scene.chat_rejects(started("t1")).await;
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test]
async fn rejects_turn_start_with_an_invalid_time() {
    let mut scene = Scene::new().await;
    let times = [
        "yesterday",
        "",
        "2025-11-15",
        "2025-13-01T00:00:00Z",
        "2025-11-15 09:00:05Z",
        "1969-12-31T23:59:59Z",
        "2999-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
    ];
    for time in times {
        let mut action = started("t1");
        action["startedAt"] = json!(time);
        scene.chat_rejects(action).await;
    }
    let mut action = started("t1");
    action["startedAt"] = json!("2025-11-15T10:00:05+01:00");
    scene.chat_accepts(action).await;
}

#[tokio::test]
async fn rejects_turn_start_in_a_read_only_or_hidden_chat() {
    for (interactivity, writable) in [("full", true), ("read-only", false), ("hidden", false)] {
        let storage = MemoryStorage::new();
        let options = StageOptions { storage: Arc::new(storage.clone()), ..StageOptions::default() };
        let host = StageHost::start(options.clone()).await.unwrap();
        let mut wire = Wire::open(&host, "wire", &["1.0.0"]).await;
        wire.ask("createSession", json!({"channel": "scripted:/1"})).await;
        host.stop().await;
        // The stored chat is edited directly, since clients cannot create such chats.
        let put = storage.log().into_iter().rev().find(|change| matches!(change, Change::PutChat { .. }));
        let Some(Change::PutChat { chat, session, conversation, state }) = put else {
            panic!("no chat was stored")
        };
        let mut document: Value = serde_json::from_str(state.get()).unwrap();
        document["interactivity"] = json!(interactivity);
        let state = serde_json::value::to_raw_value(&document).unwrap().into();
        let changed = Change::PutChat { chat: chat.clone(), session, conversation, state };
        storage.write(vec![changed]).await.unwrap();
        let host = StageHost::start(options).await.unwrap();
        let mut wire = Wire::open(&host, "wire", &["1.0.0"]).await;
        assert_eq!(wire.snapshot(chat.as_str()).await["interactivity"], interactivity);
        for action in [started("t1"), pending("queued", "m1", "x")] {
            let seq = wire.dispatch(chat.as_str(), action).await;
            let rejected = wire.envelope(seq).await.get("rejectionReason").is_some();
            assert_eq!(rejected, !writable, "{interactivity}");
        }
    }
}

#[tokio::test]
async fn message_fields_besides_the_text_reach_the_agent() {
    let mut scene = Scene::new().await;
    let mut action = started("t1");
    action["message"] = json!({
        "text": "look", "origin": {"kind": "user"}, "model": {"id": "m", "config": {"thinkingLevel": "high"}},
        "attachments": [
            {"type": "simple", "label": "a", "_meta": {"kept": 1}},
            {"type": "resource", "label": "b", "uri": "file:///w/b"},
            {"type": "unheardOf", "label": "c", "x": 1},
        ],
        "_meta": {"vscode.chat.hiddenFromTranscript": true},
    });
    action["_meta"] = json!({"k": 1});
    scene.chat_accepts(action.clone()).await;
    let mut player = scene.host.stage().player().await.unwrap();
    let AgentCommand::Prompt { message, .. } = player.command().await.unwrap() else {
        panic!("not a prompt")
    };
    assert_eq!(json!(message), action["message"], "the agent received another message");
}

#[tokio::test]
async fn cancelled_turn_ends_immediately_and_its_late_output_is_dropped() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    player.text("t1", "p1", &["so far"]).await.unwrap();
    let streamed = |chat: &ahp_types::state::ChatState| {
        json!(chat.active_turn)["responseParts"][0]["content"] == "so far"
    };
    scene.until("the text", streamed).await;
    scene.chat_accepts(cancelled("t1")).await;
    let cancel = AgentCommand::Cancel { turn: TurnId::new("t1") };
    assert_eq!(player.command().await.unwrap(), cancel);
    player.text("t1", "p2", &["late"]).await.unwrap();
    player.ask_to_run("t1", "k1", json!({})).await.unwrap();
    player.ask("q1", json!([])).await.unwrap();
    player.end("t1", TurnOutcome::Cancelled).await.unwrap();
    scene.chat_accepts(started("t2")).await;
    assert_eq!(player.prompt().await.unwrap().0, "t2");
    player.complete("t2").await.unwrap();
    scene.until_over("t2").await;
    let turns = &scene.alice.chat(&scene.chat).unwrap().turns;
    assert_eq!((turns[0].state, turns[0].response_parts.len()), (TurnState::Cancelled, 1));
    assert!(turns[1].response_parts.is_empty());
}

#[tokio::test]
async fn rejects_cancellation_of_a_turn_that_is_not_running() {
    let mut scene = Scene::new().await;
    scene.chat_rejects(cancelled("t1")).await;
    let mut player = scene.begin("t1").await;
    scene.chat_rejects(cancelled("t2")).await;
    assert_eq!(player.waiting_command(), None);
    scene.chat_accepts(cancelled("t1")).await;
    scene.chat_rejects(cancelled("t1")).await;
    let mut endless = cancelled("t2");
    scene.chat_accepts(started("t2")).await;
    endless["duration"] = json!(i64::MAX);
    scene.chat_rejects(endless).await;
    scene.chat_accepts(cancelled("t2")).await;
}

#[tokio::test]
async fn turn_can_be_cancelled_while_its_agent_is_being_opened() {
    let mut scene = Scene::new().await;
    scene.host.stage().hold_openings();
    scene.chat_accepts(started("t1")).await;
    scene.host.stage().opened(1).await.unwrap();
    scene.chat_accepts(cancelled("t1")).await;
    scene.chat_accepts(started("t2")).await;
    scene.host.stage().release_openings();
    let mut player = scene.host.stage().player().await.unwrap();
    assert_eq!(player.prompt().await.unwrap().0, "t2", "the agent received the cancelled turn");
}

#[tokio::test]
async fn turn_that_failed_with_its_agent_is_resumed_under_its_id() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    player.text("t1", "p1", &["half an ans"]).await.unwrap();
    player.crash().await.unwrap();
    scene.until_over("t1").await;
    assert_eq!(scene.alice.chat(&scene.chat).unwrap().status, 2);
    scene.chat_accepts(resume("t1")).await;
    let mut player = scene.host.stage().player().await.unwrap();
    assert_eq!(player.prompt().await.unwrap(), ("t1".to_owned(), "list files".to_owned()));
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    let turns = &scene.alice.chat(&scene.chat).unwrap().turns;
    assert_eq!((turns.len(), turns[0].state), (1, TurnState::Complete));
}

#[tokio::test]
async fn turn_whose_agent_cannot_be_opened_fails_and_can_be_resumed() {
    let mut scene = Scene::new().await;
    scene.host.stage().fail_next_opening("install it first");
    scene.chat_accepts(started("t1")).await;
    scene.until_over("t1").await;
    let turns = json!(scene.alice.chat(&scene.chat).unwrap().turns);
    let error = &turns[0]["responseParts"][0];
    assert_eq!((&error["error"]["message"], &error["resumable"]), (&json!("install it first"), &json!(true)));
    scene.chat_accepts(resume("t1")).await;
    scene.host.stage().player().await.unwrap().prompt().await.unwrap();
}

#[tokio::test]
async fn session_reports_a_failed_opening_and_is_ready_after_the_next() {
    let mut scene = Scene::new().await;
    let lifecycle = |scene: &Scene| json!(scene.bob.session(&scene.session).unwrap().lifecycle);
    for (turn, reason) in [("t1", "install it first"), ("t2", "install it now")] {
        scene.host.stage().fail_next_opening(reason);
        scene.chat_accepts(started(turn)).await;
        scene.until_over(turn).await;
        let session = scene.bob.session(&scene.session).unwrap();
        assert_eq!(session.creation_error.as_ref().unwrap().message, reason);
        assert_eq!((lifecycle(&scene), session.status), (json!("failed"), 2));
        assert_eq!(scene.bob.rows[&scene.session].status, 2, "the row does not show the failure");
    }
    let player = scene.begin("t3").await;
    player.complete("t3").await.unwrap();
    scene.until_over("t3").await;
    assert_eq!(lifecycle(&scene), "ready");
    assert_eq!(scene.wire.actions(&scene.session).iter().filter(|kind| **kind == "session/ready").count(), 1);
}

#[tokio::test]
async fn only_the_last_turn_is_resumed_and_only_after_a_resumable_error() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    scene.chat_rejects(resume("t1")).await;
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    scene.chat_rejects(resume("t1")).await;
    scene.chat_rejects(resume("unknown")).await;
    scene.chat_accepts(started("t2")).await;
    player.prompt().await.unwrap();
    player.end("t2", failure()).await.unwrap();
    scene.until_over("t2").await;
    scene.chat_rejects(resume("t2")).await;
    scene.chat_accepts(started("t3")).await;
    player.prompt().await.unwrap();
    player.crash().await.unwrap();
    scene.until_over("t3").await;
    scene.chat_rejects(resume("t1")).await;
    scene.chat_accepts(started("t4")).await;
    scene.chat_rejects(resume("t3")).await;
}

#[tokio::test]
async fn rejects_truncation_if_the_agent_cannot_rewind() {
    let (mut scene, mut player) = Scene::after_turn("t1").await;
    let reason = scene.chat_rejects(truncated(Some("t1"))).await;
    assert!(reason.contains("cannot go back"), "{reason}");
    scene.chat_rejects(truncated(None)).await;
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test]
async fn truncation_rewinds_the_agent() {
    let mut scene = Scene::with(StageTraits { features: AgentFeatures::ALL, ..StageTraits::default() }).await;
    let mut player = scene.begin("t1").await;
    scene.chat_rejects(truncated(Some("t1"))).await;
    scene.chat_rejects(truncated(None)).await;
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    scene.chat_accepts(started("t2")).await;
    player.prompt().await.unwrap();
    player.complete("t2").await.unwrap();
    scene.until_over("t2").await;
    scene.chat_rejects(truncated(Some("unknown"))).await;
    scene.chat_accepts(truncated(Some("t1"))).await;
    let rewind = AgentCommand::Rewind { to: Some(TurnId::new("t1")) };
    assert_eq!(player.command().await.unwrap(), rewind);
    assert_eq!(scene.alice.chat(&scene.chat).unwrap().turns.len(), 1);
    scene.chat_accepts(truncated(None)).await;
    assert_eq!(player.command().await.unwrap(), AgentCommand::Rewind { to: None });
    assert!(scene.alice.chat(&scene.chat).unwrap().turns.is_empty());
}

#[tokio::test]
async fn truncation_without_an_agent_rewinds_the_next_one() {
    let mut scene = Scene::with(StageTraits { features: AgentFeatures::ALL, ..StageTraits::default() }).await;
    let player = scene.begin("t1").await;
    player.complete("t1").await.unwrap();
    player.crash().await.unwrap();
    scene.until_over("t1").await;
    scene.chat_accepts(truncated(None)).await;
    scene.chat_accepts(started("t2")).await;
    let mut player = scene.host.stage().player().await.unwrap();
    assert_eq!(player.command().await.unwrap(), AgentCommand::Rewind { to: None });
    assert_eq!(player.prompt().await.unwrap().0, "t2");
    player.complete("t2").await.unwrap();
    player.crash().await.unwrap();
    scene.until_over("t2").await;
    scene.chat_accepts(started("t3")).await;
    let mut player = scene.host.stage().player().await.unwrap();
    assert_eq!(player.prompt().await.unwrap().0, "t3", "the rewind was repeated");
}

#[tokio::test]
async fn turn_continues_without_subscribers() {
    let (scene, player) = Scene::in_turn("t1").await;
    let Scene { host, alice, bob, wire, chat, session, .. } = scene;
    alice.client.shutdown().await;
    bob.client.shutdown().await;
    drop(wire);
    player.text("t1", "p1", &["unseen"]).await.unwrap();
    player.complete("t1").await.unwrap();
    let mut late = host.observer("late").await.unwrap();
    late.open_session(&session).await.unwrap();
    late.until_turn_over(&chat, "t1").await.unwrap();
    assert_eq!(json!(late.chat(&chat).unwrap().turns[0])["responseParts"][0]["content"], "unseen");
}

#[tokio::test]
async fn forbidden_agent_actions_are_not_published() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    for action in [
        json!({"type": "chat/turnComplete", "turnId": "t1", "duration": 1}),
        json!({"type": "chat/turnStarted", "turnId": "t9", "startedAt": "2025-11-15T09:00:05.000Z", "message": message("x")}),
        pending("queued", "m1", "from the agent"),
        json!({"type": "session/titleChanged", "title": "x"}),
        json!({"type": "root/configChanged", "config": {"x": 1}}),
    ] {
        player.act(action).await.unwrap();
    }
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    assert_eq!(scene.alice.chat(&scene.chat).unwrap().turns.len(), 1);
    assert_eq!(scene.alice.session(&scene.session).unwrap().title, "list files");
}

#[tokio::test]
async fn activity_is_published_and_cleared_in_every_copy() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    for activity in [json!("Reading"), json!("Writing")] {
        player.act(json!({"type": "chat/activityChanged", "activity": activity})).await.unwrap();
        scene.until("the activity", |chat| json!(chat.activity) == activity).await;
        assert_eq!(json!(scene.alice.session(&scene.session).unwrap().activity), activity);
        let changed = |message: &Value| message["params"]["changes"]["activity"] == activity;
        scene.wire.until(changed).await;
    }
    player.act(json!({"type": "chat/activityChanged"})).await.unwrap();
    scene.until("the activity is cleared", |chat| chat.activity.is_none()).await;
    let cleared = |message: &Value| message["params"]["changes"].get("activity") == Some(&Value::Null);
    scene.wire.until(cleared).await;
}

#[tokio::test]
async fn activity_is_cleared_when_its_turn_ends() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    let busy = json!({"type": "chat/activityChanged", "activity": "Reading"});
    for (turn, next) in [("t1", "t2"), ("t2", "t3"), ("t3", "t4")] {
        player.act(busy.clone()).await.unwrap();
        scene.until("the activity", |chat| chat.activity.is_some()).await;
        match turn {
            "t1" => player.complete(turn).await.unwrap(),
            "t2" => player.end(turn, failure()).await.unwrap(),
            _ => {
                scene.chat_accepts(cancelled(turn)).await;
                assert!(matches!(player.command().await.unwrap(), AgentCommand::Cancel { .. }));
                scene.until("the activity is cleared immediately", |chat| chat.activity.is_none()).await;
                player.end(turn, TurnOutcome::Cancelled).await.unwrap();
            }
        }
        scene
            .until("the activity is cleared", |chat| chat.activity.is_none() && chat.active_turn.is_none())
            .await;
        scene.chat_accepts(started(next)).await;
        player.prompt().await.unwrap();
    }
}

#[tokio::test]
async fn activity_without_a_turn_is_dropped() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    let busy = json!({"type": "chat/activityChanged", "activity": "Reading"});
    scene.chat_accepts(cancelled("t1")).await;
    assert!(matches!(player.command().await.unwrap(), AgentCommand::Cancel { .. }));
    // The agent has not stopped yet, then it is idle.
    player.act(busy.clone()).await.unwrap();
    player.end("t1", TurnOutcome::Cancelled).await.unwrap();
    player.act(busy.clone()).await.unwrap();
    // A later event shows that the ones before it are handled.
    player.act(json!({"type": "session/serverToolsChanged", "tools": [{"name": "last"}]})).await.unwrap();
    let tools = |observer: &innkeeper_testkit::Observer| {
        observer.session("scripted:/1").is_ok_and(|session| session.server_tools.is_some())
    };
    scene.alice.until("the tools", tools).await.unwrap();
    scene.agree().await;
    assert_eq!(scene.alice.chat(&scene.chat).unwrap().activity, None);
    assert_eq!(activities(&scene), [Some("Starting Scripted".to_owned()), None]);
}

#[tokio::test]
async fn unread_prompt_is_sent_to_the_next_agent() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    let unsent = innkeeper_core::agent::TurnMessage {
        turn: TurnId::new("t1"),
        message: serde_json::from_value(message("list files")).unwrap(),
    };
    player.crash_before(unsent).await.unwrap();
    let mut next = scene.host.stage().player().await.unwrap();
    assert_eq!(next.prompt().await.unwrap().0, "t1");
    next.send(AgentEvent::TurnEnded { turn: TurnId::new("t1"), outcome: TurnOutcome::Completed })
        .await
        .unwrap();
    scene.until_over("t1").await;
}

#[tokio::test]
async fn prompt_for_an_ending_agent_is_sent_to_the_next_agent() {
    let (mut scene, mut player) = Scene::after_turn("t1").await;
    player.stop_listening();
    scene.chat_accepts(started("t2")).await;
    player.crash().await.unwrap();
    let mut next = scene.host.stage().player().await.unwrap();
    assert_eq!(next.prompt().await.unwrap().0, "t2");
    next.complete("t2").await.unwrap();
    scene.until_over("t2").await;
    assert_eq!(scene.bob.chat(&scene.chat).unwrap().turns[1].state, TurnState::Complete);
}
