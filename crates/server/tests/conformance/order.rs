//! Message orders that clients rely on, and complete exchanges from the protocol
//! documentation.
//!
//! | order | test |
//! |---|---|
//! | the response to `createSession`, then actions of the session | `creator_receives_no_session_actions_before_the_response` |
//! | older turns, then the response to `fetchTurns` | `older_turns_arrive_before_the_response` |
//! | `session/chatAdded`, then other messages that name the chat | `chat_is_added_before_other_messages_name_it` |
//! | a response part, then its deltas | `turn_actions_arrive_in_protocol_order` |
//! | start, input, readiness and end of a tool call | `tool_call_actions_arrive_in_protocol_order` |
//! | the echo of a turn's start, then its output | `turn_actions_arrive_in_protocol_order` |
//! | an edited input, at the latest with the echo of its confirmation | `edited_tool_input_is_visible_with_the_echo_of_its_confirmation` |
//! | a moved chat: removed, added, reordered, then the rows | `moved_chat_is_removed_then_added_and_rows_change_last` |
//! | removal from the list, then the response to `disposeSession` | `disposed_session_leaves_the_list_before_the_response` |
//! | a pending request in the session, next to its cause | `turn_actions_arrive_in_protocol_order` |
//! | a status, then its copies in the session and the list | `chat_status_is_copied_to_the_session_and_the_list` |
//!
//! The suite checks that the tests in this table exist.

use innkeeper_core::agent::{AgentCommand, ToolAnswer};
use innkeeper_core::ids::TurnId;
use innkeeper_testkit::Seen;
use serde_json::{Value, json};

use crate::room::{ONE, Room, SIDE, TWO};
use crate::scene::{DIRECTORY, Scene, cancelled, confirmed, message, pending, started, tool_complete};
use crate::wire::Wire;

/// The positions of the first actions of the given types among all received envelopes.
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
async fn turn_actions_arrive_in_protocol_order() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    player.text("t1", "p1", &["a", "b"]).await.unwrap();
    player.ask_to_run("t1", "k1", json!({})).await.unwrap();
    scene.until("the confirmation request", |chat| chat.status == 24).await;
    scene.chat_accepts(confirmed("t1", "k1")).await;
    player.command().await.unwrap();
    player.ran("t1", "k1", json!({})).await.unwrap();
    player.ask("q1", json!([])).await.unwrap();
    scene.until("the confirmation request", |chat| chat.status == 24).await;
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
    // A change of the pending requests follows its cause within three actions.
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
async fn chat_status_is_copied_to_the_session_and_the_list() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    player.text("t1", "p1", &["one"]).await.unwrap();
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
async fn snapshot_and_following_actions_give_the_full_state() {
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
    // Clients subscribe while the agent streams.
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
async fn first_turn_with_an_approved_command_runs_to_completion() {
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
    scene.until("the confirmation request", |chat| chat.status == 24).await;
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
            "chat/activityChanged",
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
async fn burst_that_cancels_and_approves_does_not_run_the_tool() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    player.ask_to_run("t1", "k1", json!({})).await.unwrap();
    scene.until("the confirmation request", |chat| chat.status == 24).await;
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
    assert_eq!(player.waiting_command(), None, "the agent received another command");
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
async fn client_tool_runs_from_its_call_to_its_result() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    let (session, chat) = (scene.session.clone(), scene.chat.clone());
    let active = json!({
        "type": "session/activeClientSet", "activeClient": {"clientId": "wire", "tools": [{"name": "usages"}]},
    });
    scene.session_accepts(active).await;
    assert!(matches!(player.command().await.unwrap(), AgentCommand::ClientTools(_)));
    player.run_at_client("t1", "k1", "wire").await.unwrap();
    let needed = |message: &Value| message["params"]["action"]["type"] == "session/inputNeededSet";
    let set = scene.wire.until(needed).await;
    let request = &set["params"]["action"]["request"];
    assert_eq!((&request["kind"], &request["clientId"]), (&json!("toolClientExecution"), &json!("wire")));
    assert_eq!(request["toolCall"]["toolInput"], "ls");
    scene.until("the call runs", |chat| chat.status == 8).await;
    scene.chat_accepts(tool_complete("t1", "k1")).await;
    let AgentCommand::ToolAnswer { answer: ToolAnswer::Completed(result), .. } =
        player.command().await.unwrap()
    else {
        panic!("not a result")
    };
    assert_eq!(json!(result.past_tense_message), "Found 3");
    assert_eq!(scene.bob.session(&session).unwrap().input_needed, None);
    in_order(&scene.wire, &["chat/toolCallReady", "session/inputNeededSet", "chat/toolCallComplete"]);
    assert!(scene.wire.actions(&chat).contains(&"chat/toolCallComplete"));
}

#[tokio::test]
async fn first_message_is_accepted_before_any_subscription() {
    let mut scene = Scene::new().await;
    let mut hasty = Wire::open(&scene.host, "hasty", &["0.9.0"]).await;
    let session = "scripted:/hasty";
    // VS Code sends these in one burst without waiting for responses.
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

#[tokio::test]
async fn creator_receives_no_session_actions_before_the_response() {
    let scene = Scene::new().await;
    let mut wire = Wire::open(&scene.host, "creator", &["1.0.0"]).await;
    let session = "scripted:/new";
    // The client does not wait for the response, so an early action would be recorded.
    let message =
        json!({"jsonrpc": "2.0", "id": "new", "method": "createSession", "params": {"channel": session}});
    wire.send(&message.to_string()).await;
    let rename = wire.dispatch(session, json!({"type": "session/titleChanged", "title": "early"})).await;
    assert_eq!(wire.answer(&json!("new")).await["result"], Value::Null);
    assert!(wire.envelopes().all(|envelope| envelope["channel"] != session), "{:?}", wire.log);
    assert_eq!(wire.envelope(rename).await.get("rejectionReason"), None);
}

#[tokio::test]
async fn older_turns_arrive_before_the_response() {
    let (mut scene, mut player) = Scene::after_turn("t1").await;
    for turn in ["t2", "t3"] {
        scene.chat_accepts(started(turn)).await;
        player.prompt().await.unwrap();
        player.complete(turn).await.unwrap();
        scene.until_over(turn).await;
    }
    let mut wire = Wire::open(&scene.host, "short", &["1.0.0"]).await;
    let chat = scene.chat.clone();
    let window = json!({"channel": chat, "view": {"turns": 1}});
    let state = wire.ask("subscribe", window).await["snapshot"]["state"].clone();
    assert_eq!(state["turns"].as_array().unwrap().len(), 1);
    wire.ask("fetchTurns", json!({"channel": chat, "cursor": state["turnsNextCursor"]})).await;
    // The client has read up to the response and no further.
    let loaded = wire.envelopes().find(|envelope| envelope["action"]["type"] == "chat/turnsLoaded");
    let turns = &loaded.expect("older turns before the response")["action"]["turns"];
    assert_eq!((&turns[0]["id"], &turns[1]["id"]), (&json!("t1"), &json!("t2")));
}

#[tokio::test]
async fn chat_is_added_before_other_messages_name_it() {
    let mut room = Room::new().await;
    room.wire.snapshot(ONE).await;
    let main = room.chat.clone();
    room.turn(&main, "t1").await;
    room.wire.settle().await;
    room.wire.log.clear();
    room.create(json!({"initialMessage": message("begin")})).await;
    room.wire.snapshot(SIDE).await;
    let mut player = room.host.stage().player().await.unwrap();
    let (turn, _) = player.prompt().await.unwrap();
    player.complete(&turn).await.unwrap();
    let ended = |seen: &Value| seen["params"]["action"]["type"] == "chat/turnComplete";
    room.wire.until(ended).await;
    let naming: Vec<&Value> = room.wire.log.iter().filter(|seen| seen.to_string().contains(SIDE)).collect();
    assert_eq!(naming[0]["params"]["action"]["type"], "session/chatAdded", "{naming:?}");
    let others = |method: &str, kind: &str| {
        naming.iter().any(|seen| {
            seen["method"] == method && (kind.is_empty() || seen["params"]["action"]["type"] == kind)
        })
    };
    assert!(
        others("root/sessionSummaryChanged", "") && others("action", "session/chatUpdated"),
        "{naming:?}"
    );
}

#[tokio::test]
async fn tool_call_actions_arrive_in_protocol_order() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    let chat = scene.chat.clone();
    let call = |kind: &str, more: Value| {
        let mut action = json!({"type": kind, "turnId": "t1", "toolCallId": "k1"});
        action.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        action
    };
    let named = json!({"toolName": "bash", "displayName": "Run command"});
    player.act(call("chat/toolCallStart", named)).await.unwrap();
    for piece in ["l", "s"] {
        player.act(call("chat/toolCallDelta", json!({"content": piece}))).await.unwrap();
    }
    let ready = json!({"invocationMessage": "Run `ls`", "toolInput": "ls"});
    player.act(call("chat/toolCallReady", ready)).await.unwrap();
    scene.until("the confirmation request", |chat| chat.status == 24).await;
    scene.chat_accepts(confirmed("t1", "k1")).await;
    player.command().await.unwrap();
    player.ran("t1", "k1", json!({})).await.unwrap();
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    let mut seen: Vec<&str> = scene.wire.actions(&chat);
    seen.dedup();
    let whole = [
        "chat/turnStarted",
        "chat/activityChanged",
        "chat/toolCallStart",
        "chat/toolCallDelta",
        "chat/toolCallReady",
        "chat/toolCallConfirmed",
        "chat/toolCallComplete",
        "chat/turnComplete",
    ];
    assert_eq!(seen, whole);
}

#[tokio::test]
async fn edited_tool_input_is_visible_with_the_echo_of_its_confirmation() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    let chat = scene.chat.clone();
    player.ask_to_run("t1", "k1", json!({"editable": true})).await.unwrap();
    scene.until("the confirmation request", |chat| chat.status == 24).await;
    let input = |state: &Value| state["activeTurn"]["responseParts"][0]["toolCall"]["toolInput"].clone();
    let mut edited = confirmed("t1", "k1");
    edited["editedToolInput"] = json!("ls -l");
    let seq = scene.wire.dispatch(&chat, edited).await;
    // A client that has the echo and nothing after it has the input.
    let echo = |seen: &Seen| matches!(seen, Seen::Action(envelope) if envelope.origin.as_ref().is_some_and(|origin| origin.client_seq == seq && origin.client_id == "wire"));
    scene.alice.until("the echo", |alice| alice.seen.iter().any(echo)).await.unwrap();
    assert_eq!(input(&json!(scene.alice.state(&chat))), "ls -l");
    // So has a client that subscribes after the echo.
    let number = scene.wire.envelope(seq).await["serverSeq"].clone();
    let mut late = Wire::open(&scene.host, "late", &["1.0.0"]).await;
    let snapshot = late.ask("subscribe", json!({"channel": chat})).await["snapshot"].clone();
    assert!(snapshot["fromSeq"].as_u64() >= number.as_u64());
    assert_eq!(input(&snapshot["state"]), "ls -l");
    scene.agree().await;
}

#[tokio::test]
async fn moved_chat_is_removed_then_added_and_rows_change_last() {
    let mut room = Room::with_side().await;
    room.turn(SIDE, "t1").await.crash().await.unwrap();
    room.alice.create(TWO, &[DIRECTORY]).await.unwrap();
    room.turn_in_two().await;
    let other = room.alice.session(TWO).unwrap().default_chat.clone().unwrap();
    for session in [ONE, TWO] {
        room.wire.snapshot(session).await;
    }
    room.wire.settle().await;
    room.wire.log.clear();
    // To the front, so that the reordering is published as well.
    room.move_to(json!({"kind": "session", "session": TWO})).await;
    room.agree().await;
    assert_eq!(room.chats_of(TWO), [SIDE, other.as_str()]);
    room.wire.settle().await;
    let mut told: Vec<(&str, &str)> = Vec::new();
    for seen in &room.wire.log {
        let (channel, kind) = if seen["method"] == "action" {
            (&seen["params"]["channel"], &seen["params"]["action"]["type"])
        } else {
            (&seen["params"]["session"], &seen["method"])
        };
        let step = (channel.as_str().unwrap(), kind.as_str().unwrap());
        if [
            "session/chatRemoved",
            "session/chatAdded",
            "session/chatsReordered",
            "root/sessionSummaryChanged",
        ]
        .contains(&step.1)
        {
            told.push(step);
        }
    }
    // The rows change last, so that a list never shows the chat in no session.
    let row = "root/sessionSummaryChanged";
    let moved = [
        (ONE, "session/chatRemoved"),
        (TWO, "session/chatAdded"),
        (TWO, "session/chatsReordered"),
        (TWO, row),
        (ONE, row),
    ];
    assert_eq!(told, moved);
}

#[tokio::test]
async fn disposed_session_leaves_the_list_before_the_response() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    let session = scene.session.clone();
    let disposed = scene.wire.ask("disposeSession", json!({"channel": session}));
    let (_, left) = tokio::join!(disposed, player.leave_when_told());
    left.unwrap();
    // The client has read up to the response and no further.
    let removed = scene.wire.log.iter().position(|seen| seen["method"] == "root/sessionRemoved");
    let removed = removed.expect("removal before the response");
    let cancelled = |seen: &Value| seen["params"]["action"]["type"] == "chat/turnCancelled";
    let cancelled = scene.wire.log.iter().position(cancelled).expect("cancellation before the removal");
    assert!(cancelled < removed);
    scene.wire.settle().await;
    let after = &scene.wire.log[removed + 1..];
    assert!(!after.iter().any(|seen| seen["params"]["channel"] == json!(session)), "{after:?}");
}
