//! Chats of subagents, which an agent starts as children of a tool call.

use ahp_types::state::MessageKind;
use innkeeper_core::agent::{AgentCommand, AgentEvent, ChildChat, ChildId, TurnOutcome};
use innkeeper_core::ids::TurnId;
use innkeeper_core_fakes::{Player, StageTraits};
use innkeeper_testkit::Observer;
use serde_json::{Value, json};

use crate::scene::{cancelled, pending};
use crate::stored_host::{SESSION, StoredHost, said_by};
use crate::wire::Wire;

#[tokio::test]
async fn child_chat_appears_streams_and_ends() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    player.run("t1", "call1").await.unwrap();
    let child = ChildId::of_tool_call("call1");
    let started = ChildChat {
        id: child.clone(),
        title: "Look around".to_owned(),
        turn: TurnId::new("c1"),
        message: said_by(MessageKind::Agent, "look around"),
    };
    player.send(AgentEvent::ChildStarted(Box::new(started))).await.unwrap();
    let chats = |alice: &Observer| alice.session(SESSION).unwrap().chats.len();
    kept.alice.until("the child chat", |alice| chats(alice) == 2).await.unwrap();
    let uri = kept.alice.session(SESSION).unwrap().chats[1].resource.clone();
    assert_eq!(uri, "ahp-chat://subagent/c2NyaXB0ZWQ6LzE/call1");
    kept.alice.subscribe(&uri).await.unwrap();
    let act = |action: Value| {
        let action = serde_json::from_value(action).unwrap();
        player.send(AgentEvent::ChildAction { child: child.clone(), action })
    };
    let part = json!({"kind": "markdown", "id": "p", "content": ""});
    act(json!({"type": "chat/responsePart", "turnId": "c1", "part": part})).await.unwrap();
    act(json!({"type": "chat/delta", "turnId": "c1", "partId": "p", "content": "found it"})).await.unwrap();
    let streamed = |alice: &Observer| alice.text_so_far(&uri).is_ok_and(|text| text == "found it");
    kept.alice.until("the text of the child", streamed).await.unwrap();
    let chat = kept.alice.chat(&uri).unwrap();
    assert_eq!(json!(chat.interactivity), "read-only");
    assert_eq!(json!(chat.origin), json!({"kind": "tool", "chat": kept.chat, "toolCallId": "call1"}));
    // Clients can watch the child chat but not control it.
    let mut wire = Wire::open(&kept.host, "wire", &["1.0.0"]).await;
    for action in [crate::scene::started("x"), cancelled("c1"), pending("queued", "m", "x")] {
        let seq = wire.dispatch(&uri, action.clone()).await;
        assert!(wire.envelope(seq).await["rejectionReason"].is_string(), "{action}");
    }
    let ended = AgentEvent::ChildEnded { child: child.clone(), outcome: TurnOutcome::Completed };
    player.send(ended).await.unwrap();
    kept.alice.until_turn_over(&uri, "c1").await.unwrap();
    act(json!({"type": "chat/delta", "turnId": "c1", "partId": "p", "content": "late"})).await.unwrap();
    kept.finish(&player, "t1").await;
    kept.alice.agrees_with_a_fresh_client(kept.host.address()).await.unwrap();
    let (mut kept, left) = tokio::join!(kept.restart(), player.leave_when_told());
    left.unwrap();
    kept.alice.subscribe(&uri).await.unwrap();
    let turns = json!(kept.alice.chat(&uri).unwrap().turns);
    assert_eq!(turns[0]["responseParts"][0]["content"], "found it");
    assert_eq!(turns[0]["state"], "complete");
}

#[tokio::test]
async fn child_turns_end_with_the_agent_and_cannot_be_resumed() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    let started = ChildChat {
        id: ChildId::of_tool_call("call1"),
        title: String::new(),
        turn: TurnId::new("c1"),
        message: said_by(MessageKind::Agent, "look around"),
    };
    player.send(AgentEvent::ChildStarted(Box::new(started))).await.unwrap();
    let chats = |alice: &Observer| alice.session(SESSION).unwrap().chats.len();
    kept.alice.until("the child chat", |alice| chats(alice) == 2).await.unwrap();
    let uri = kept.alice.session(SESSION).unwrap().chats[1].resource.clone();
    kept.alice.subscribe(&uri).await.unwrap();
    player.crash().await.unwrap();
    kept.alice.until_turn_over(&uri, "c1").await.unwrap();
    let turn = json!(kept.alice.chat(&uri).unwrap().turns[0]);
    assert_eq!((&turn["state"], turn["responseParts"][0].get("resumable")), (&json!("error"), None));
    kept.alice.until_turn_over(&kept.chat, "t1").await.unwrap();
    assert_eq!(kept.last_turn()["responseParts"][0]["resumable"], true);
}

fn child(call: &str, turn: &str) -> AgentEvent {
    AgentEvent::ChildStarted(Box::new(ChildChat {
        id: ChildId::of_tool_call(call),
        title: String::new(),
        turn: TurnId::new(turn),
        message: said_by(MessageKind::Agent, "look around"),
    }))
}

/// Creates a session with a running turn and a subagent. Returns the URI of the child chat.
async fn with_child() -> (StoredHost, Player, String) {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    player.send(child("call1", "c1")).await.unwrap();
    let chats = |alice: &Observer| alice.session(SESSION).unwrap().chats.len();
    kept.alice.until("the child chat", |alice| chats(alice) == 2).await.unwrap();
    let uri = kept.alice.session(SESSION).unwrap().chats[1].resource.clone();
    kept.alice.subscribe(&uri).await.unwrap();
    (kept, player, uri)
}

#[tokio::test]
async fn answer_in_a_child_chat_reaches_the_parents_agent() {
    let (mut kept, mut player, uri) = with_child().await;
    let request = json!({"id": "q1", "message": "Which one?", "questions": []});
    let asked = serde_json::from_value(json!({"type": "chat/inputRequested", "request": request})).unwrap();
    let event = AgentEvent::ChildAction { child: ChildId::of_tool_call("call1"), action: asked };
    player.send(event).await.unwrap();
    let needed = |alice: &Observer| !json!(alice.session(SESSION).unwrap().input_needed).is_null();
    kept.alice.until("the question", needed).await.unwrap();
    let completed = json!({"type": "chat/inputCompleted", "requestId": "q1", "response": "decline"});
    kept.alice.dispatch(&uri, completed).await.unwrap();
    assert!(
        matches!(player.command().await.unwrap(), AgentCommand::InputAnswer(answer) if answer.request == "q1")
    );
}

#[tokio::test]
async fn failed_subagent_does_not_set_the_status_of_its_session() {
    let (mut kept, player, uri) = with_child().await;
    let error = serde_json::from_value(json!({"errorType": "x", "message": "y"})).unwrap();
    let outcome = TurnOutcome::Failed(error);
    player.send(AgentEvent::ChildEnded { child: ChildId::of_tool_call("call1"), outcome }).await.unwrap();
    kept.alice.until_turn_over(&uri, "c1").await.unwrap();
    kept.finish(&player, "t1").await;
    kept.alice.settle().await.unwrap();
    assert_eq!(kept.alice.chat(&uri).unwrap().status & 2, 2);
    assert_eq!(kept.alice.rows[SESSION].status & 31, 1, "the session is idle");
}

#[tokio::test]
async fn child_chat_is_started_once_and_only_by_its_parent() {
    let (mut kept, player, uri) = with_child().await;
    player.send(child("call1", "c1")).await.unwrap();
    player.send(child("call1", "c2")).await.unwrap();
    player.send(child(&"x".repeat(300), "c3")).await.unwrap();
    kept.finish(&player, "t1").await;
    assert_eq!(kept.alice.session(SESSION).unwrap().chats.len(), 2);
    assert_eq!(kept.alice.chat(&uri).unwrap().active_turn.as_ref().unwrap().id, "c1");
}

#[tokio::test]
async fn finished_child_chats_are_evicted_and_can_be_disposed() {
    let (mut kept, player, uri) = with_child().await;
    let mut wire = Wire::open(&kept.host, "wire", &["1.0.0"]).await;
    assert_eq!(
        wire.refused("disposeChat", json!({"channel": uri})).await,
        -32602,
        "disposed while its turn runs"
    );
    let ended = |call: &str| AgentEvent::ChildEnded {
        child: ChildId::of_tool_call(call),
        outcome: TurnOutcome::Completed,
    };
    player.send(ended("call1")).await.unwrap();
    for number in 0..256 {
        let call = format!("more{number}");
        player.send(child(&call, "c1")).await.unwrap();
        player.send(ended(&call)).await.unwrap();
    }
    kept.finish(&player, "t1").await;
    let chats = &kept.alice.session(SESSION).unwrap().chats;
    assert_eq!(chats.len(), 257);
    assert!(chats.iter().all(|chat| chat.resource != uri), "the oldest child chat was not evicted");
    let last = chats.last().unwrap().resource.clone();
    assert_eq!(wire.ask("disposeChat", json!({"channel": last})).await, Value::Null);
    let gone = |alice: &Observer| alice.session(SESSION).unwrap().chats.len() == 256;
    kept.alice.until("the removal of the disposed chat", gone).await.unwrap();
}
