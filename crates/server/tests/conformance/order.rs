//! Orders that clients rely on, and whole exchanges as the protocol describes them.

use innkeeper_core::agent::{AgentCommand, ToolAnswer};
use innkeeper_core::ids::TurnId;
use serde_json::{Value, json};

use crate::scene::{Scene, cancelled, confirmed, message, pending, started, tool_complete};
use crate::wire::Wire;

/// The places of some action types in what came on all channels, in order.
fn places(wire: &Wire, kinds: &[&str]) -> Vec<usize> {
    let all: Vec<&str> =
        wire.envelopes().map(|envelope| envelope["action"]["type"].as_str().unwrap_or_default()).collect();
    let place = |kind: &&str| {
        all.iter().position(|seen| seen == kind).unwrap_or_else(|| panic!("no {kind}: {all:?}"))
    };
    kinds.iter().map(place).collect()
}

#[track_caller]
fn in_order(wire: &Wire, kinds: &[&str]) {
    let places = places(wire, kinds);
    assert!(places.is_sorted(), "{kinds:?} came at {places:?}");
}

#[tokio::test]
async fn a_turn_comes_in_the_order_that_its_parts_need() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    player.text("t1", "p1", &["a", "b"]).await.unwrap();
    player.ask_to_run("t1", "k1", json!({})).await.unwrap();
    scene.until("it asks", |chat| chat.status == 24).await;
    scene.chat_accepts(confirmed("t1", "k1")).await;
    player.command().await.unwrap();
    player.ran("t1", "k1", json!({})).await.unwrap();
    player.ask("q1", json!([])).await.unwrap();
    scene.until("it asks", |chat| chat.status == 24).await;
    scene
        .chat_accepts(json!({"type": "chat/inputCompleted", "requestId": "q1", "response": "decline"}))
        .await;
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    let wire = &scene.wire;
    in_order(
        wire,
        &["chat/turnStarted", "session/ready", "chat/responsePart", "chat/delta", "chat/toolCallStart"],
    );
    in_order(
        wire,
        &["chat/toolCallStart", "chat/toolCallReady", "chat/toolCallConfirmed", "chat/toolCallComplete"],
    );
    in_order(wire, &["chat/toolCallReady", "session/inputNeededSet", "chat/toolCallConfirmed"]);
    in_order(wire, &["chat/toolCallConfirmed", "session/inputNeededRemoved", "chat/inputRequested"]);
    in_order(wire, &["chat/inputRequested", "chat/inputCompleted", "chat/turnComplete"]);
    // What a session waits for is told right beside what causes it.
    let all: Vec<&str> = wire
        .envelopes()
        .filter(|envelope| envelope.get("rejectionReason").is_none() && envelope["channel"] != "ahp-root://")
        .map(|envelope| envelope["action"]["type"].as_str().unwrap())
        .collect();
    let after = |kind: &str| &all[all.iter().position(|seen| *seen == kind).unwrap() + 1..][..3];
    assert!(after("chat/toolCallReady").contains(&"session/inputNeededSet"), "{all:?}");
    assert!(after("chat/toolCallConfirmed").contains(&"session/inputNeededRemoved"), "{all:?}");
    assert!(after("chat/inputCompleted").contains(&"session/inputNeededRemoved"), "{all:?}");
}

#[tokio::test]
async fn statuses_follow_in_the_session_and_in_the_list() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    let statuses: Vec<&Value> = scene
        .wire
        .log
        .iter()
        .filter(|seen| {
            seen["method"] == "root/sessionSummaryChanged" || seen["method"] == "root/sessionAdded"
        })
        .map(|seen| {
            if seen["method"] == "root/sessionAdded" {
                &seen["params"]["summary"]["status"]
            } else {
                &seen["params"]["changes"]["status"]
            }
        })
        .filter(|status| status.is_u64())
        .collect();
    assert_eq!(statuses, [8, 1]);
    let updates: Vec<&Value> = scene
        .wire
        .envelopes()
        .filter(|envelope| envelope["action"]["type"] == "session/chatUpdated")
        .map(|envelope| &envelope["action"]["changes"]["status"])
        .collect();
    assert_eq!(updates, [8, 1]);
}

#[tokio::test]
async fn a_snapshot_and_what_comes_after_it_are_exactly_everything() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    let chat = scene.chat.clone();
    let part = json!({"kind": "markdown", "id": "p1", "content": ""});
    player.act(json!({"type": "chat/responsePart", "turnId": "t1", "part": part})).await.unwrap();
    let talk = async {
        for number in 0..200 {
            let word = format!("{number} ");
            let delta = json!({"type": "chat/delta", "turnId": "t1", "partId": "p1", "content": word});
            player.act(delta).await.unwrap();
        }
        player.complete("t1").await.unwrap();
    };
    // Clients come while the agent talks.
    let listen = async {
        let mut late = Vec::new();
        for number in 0..8 {
            let mut observer = scene.host.observer(&format!("late{number}")).await.unwrap();
            observer.subscribe(&chat).await.unwrap();
            late.push(observer);
        }
        late
    };
    let ((), mut late) = tokio::join!(talk, listen);
    scene.until_over("t1").await;
    for observer in &mut late {
        observer.until_turn_over(&chat, "t1").await.unwrap();
        assert_eq!(observer.chat(&chat).unwrap(), scene.alice.chat(&chat).unwrap());
    }
}

#[tokio::test]
async fn a_first_turn_with_an_approved_command() {
    let mut scene = Scene::new().await;
    let (session, chat) = (scene.session.clone(), scene.chat.clone());
    let mut player = scene.begin("t1").await;
    player.text("t1", "p1", &["Let me look", " around."]).await.unwrap();
    let options = json!([
        {"id": "once", "label": "Allow", "kind": "approve"},
        {"id": "no", "label": "Deny", "kind": "deny"},
    ]);
    let more = json!({"confirmationTitle": "Run command?", "options": options});
    player.ask_to_run("t1", "k1", more).await.unwrap();
    scene.until("it asks", |chat| chat.status == 24).await;
    let needed = json!(scene.bob.session(&session).unwrap().input_needed);
    let need = &needed[0];
    assert_eq!(
        (&need["kind"], &need["chat"], &need["turnId"]),
        (&json!("toolConfirmation"), &json!(chat), &json!("t1"))
    );
    assert_eq!(need["toolCall"]["status"], "pending-confirmation");
    let mut yes = confirmed("t1", "k1");
    yes["selectedOptionId"] = json!("once");
    assert_eq!(scene.alice_dispatches(&chat, yes).await, None);
    assert!(matches!(player.command().await.unwrap(), AgentCommand::ToolAnswer { .. }));
    player.ran("t1", "k1", json!({})).await.unwrap();
    player.text("t1", "p2", &["There is one file."]).await.unwrap();
    let usage =
        json!({"type": "chat/usage", "turnId": "t1", "usage": {"inputTokens": 812, "outputTokens": 40}});
    player.act(usage).await.unwrap();
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    let mut seen: Vec<&str> = scene.wire.actions(&chat);
    seen.dedup();
    assert_eq!(
        seen,
        [
            "chat/turnStarted",
            "chat/responsePart",
            "chat/delta",
            "chat/toolCallStart",
            "chat/toolCallReady",
            "chat/toolCallConfirmed",
            "chat/toolCallComplete",
            "chat/responsePart",
            "chat/delta",
            "chat/usage",
            "chat/turnComplete",
        ]
    );
    let state = scene.bob.session(&session).unwrap();
    assert_eq!((state.title.as_str(), json!(state.lifecycle)), ("list files", json!("ready")));
}

#[tokio::test]
async fn a_burst_that_cancels_approves_and_queues_does_not_run_the_tool() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    player.ask_to_run("t1", "k1", json!({})).await.unwrap();
    scene.until("it asks", |chat| chat.status == 24).await;
    let chat = scene.chat.clone();
    let burst = [
        cancelled("t1"),
        confirmed("t1", "k1"),
        pending("queued", "m2", "something else"),
        json!({"type": "chat/draftChanged", "draft": message("")}),
    ];
    let mut sent = Vec::new();
    for action in burst {
        sent.push(scene.wire.dispatch(&chat, action).await);
    }
    let mut reasons = Vec::new();
    for seq in sent {
        reasons.push(scene.wire.envelope(seq).await["rejectionReason"].is_string());
    }
    assert_eq!(reasons, [false, true, false, false]);
    scene.agree().await;
    assert_eq!(player.command().await.unwrap(), AgentCommand::Cancel { turn: TurnId::new("t1") });
    let (turn, text) = player.prompt().await.unwrap();
    assert_eq!(text, "something else");
    assert_eq!(player.waiting_command(), None, "nothing else reaches the agent");
    let state = scene.alice.chat(&chat).unwrap();
    let call = &json!(state.turns)[0]["responseParts"][0]["toolCall"];
    assert_eq!((&call["status"], &call["reason"]), (&json!("cancelled"), &json!("skipped")));
    assert_eq!(state.active_turn.as_ref().unwrap().id, turn);
    in_order(
        &scene.wire,
        &["chat/turnCancelled", "chat/toolCallConfirmed", "chat/pendingMessageSet", "chat/draftChanged"],
    );
    let own = scene.wire.envelopes().find(|envelope| envelope["action"]["queuedMessageId"] == "m2").unwrap();
    assert_eq!(own.get("origin"), None);
}

#[tokio::test]
async fn a_tool_at_a_client_from_its_call_to_its_result() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    let (session, chat) = (scene.session.clone(), scene.chat.clone());
    let active = json!({
        "type": "session/activeClientSet", "activeClient": {"clientId": "wire", "tools": [{"name": "usages"}]},
    });
    scene.session_accepts(active).await;
    player.run_at_client("t1", "k1", "wire").await.unwrap();
    let needed = |message: &Value| message["params"]["action"]["type"] == "session/inputNeededSet";
    let set = scene.wire.until(needed).await;
    let request = &set["params"]["action"]["request"];
    assert_eq!((&request["kind"], &request["clientId"]), (&json!("toolClientExecution"), &json!("wire")));
    assert_eq!(request["toolCall"]["toolInput"], "ls");
    scene.until("it runs", |chat| chat.status == 8).await;
    scene.chat_accepts(tool_complete("t1", "k1")).await;
    let AgentCommand::ToolAnswer { answer: ToolAnswer::Completed(result), .. } =
        player.command().await.unwrap()
    else {
        panic!("no result")
    };
    assert_eq!(json!(result.past_tense_message), "Found 3");
    assert_eq!(scene.bob.session(&session).unwrap().input_needed, None);
    in_order(&scene.wire, &["chat/toolCallReady", "session/inputNeededSet", "chat/toolCallComplete"]);
    assert!(scene.wire.actions(&chat).contains(&"chat/toolCallComplete"));
}

#[tokio::test]
async fn the_first_message_may_come_before_anything_was_subscribed_to() {
    let mut scene = Scene::new().await;
    let mut hasty = Wire::open(&scene.host, "hasty", &["0.9.0"]).await;
    let session = "scripted:/hasty";
    // As VS Code does: one burst, no answer waited for.
    let create =
        json!({"jsonrpc": "2.0", "id": "c", "method": "createSession", "params": {"channel": session}});
    hasty.send(&create.to_string()).await;
    let active =
        json!({"type": "session/activeClientSet", "activeClient": {"clientId": "hasty", "tools": []}});
    let set = hasty.dispatch(session, active).await;
    let chat = scene.chat.replace("c2NyaXB0ZWQ6LzE", "c2NyaXB0ZWQ6L2hhc3R5");
    for channel in [session, &chat] {
        let subscribe =
            json!({"jsonrpc": "2.0", "id": channel, "method": "subscribe", "params": {"channel": channel}});
        hasty.send(&subscribe.to_string()).await;
    }
    let seq = hasty.dispatch(&chat, started("request_1")).await;
    assert_eq!(hasty.answer(&json!("c")).await["result"], Value::Null);
    let state = hasty.answer(&json!(session)).await["result"]["snapshot"]["state"].clone();
    assert_eq!(state["defaultChat"], json!(chat));
    assert_eq!(hasty.envelope(set).await.get("rejectionReason"), None);
    assert!(hasty.answer(&json!(chat)).await["result"]["snapshot"].is_object());
    assert_eq!(hasty.envelope(seq).await.get("rejectionReason"), None);
    assert_eq!(scene.host.stage().player().await.unwrap().prompt().await.unwrap().0, "request_1");
    scene.agree().await;
}
