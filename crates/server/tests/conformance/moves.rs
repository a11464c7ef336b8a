//! Moves of chats within a session and between sessions, and the stored result after a crash
//! at any moment.

use ahp_types::state::SessionSummary;
use innkeeper_core::agent::History;
use innkeeper_core::storage::Change;
use serde_json::{Value, json};

use crate::room::{ONE, Room, SIDE, TWO, agreed, host_on};
use crate::scene::{DIRECTORY, started};
use crate::wire::Wire;

#[tokio::test]
async fn chats_are_reordered_and_invalid_moves_are_rejected() {
    let mut room = Room::with_side().await;
    let main = room.chat.clone();
    room.wire.ask("createChat", json!({"channel": ONE, "chat": "ahp-chat:/third"})).await;
    room.wire.snapshot(ONE).await;
    for (after, expected) in [
        (json!("ahp-chat:/third"), [main.as_str(), "ahp-chat:/third", SIDE]),
        (Value::Null, [SIDE, main.as_str(), "ahp-chat:/third"]),
        (json!(main), [main.as_str(), SIDE, "ahp-chat:/third"]),
    ] {
        let mut destination = json!({"kind": "session", "session": ONE});
        if !after.is_null() {
            destination["after"] = after;
        }
        assert_eq!(room.move_to(destination).await, ONE);
        room.agree().await;
        assert_eq!(room.chats_of(ONE), expected);
    }
    for (chat, destination, code) in [
        (SIDE, json!({"kind": "session", "session": ONE, "after": SIDE}), -32602),
        (SIDE, json!({"kind": "session", "session": ONE, "after": "ahp-chat:/gone"}), -32602),
        (SIDE, json!({"kind": "session", "session": "scripted:/gone"}), -32001),
        (SIDE, json!({"kind": "elsewhere"}), -32602),
        (SIDE, json!({}), -32602),
        (main.as_str(), json!({"kind": "session", "session": ONE}), -32602),
        (main.as_str(), json!({"kind": "newSession"}), -32602),
        ("ahp-chat:/gone", json!({"kind": "newSession"}), -32008),
        (ONE, json!({"kind": "newSession"}), -32008),
    ] {
        let params = json!({"channel": chat, "destination": destination});
        assert_eq!(room.wire.refused("moveChat", params.clone()).await, code, "{params}");
    }
    room.agree().await;
    assert_eq!(room.chats_of(ONE), [main.as_str(), SIDE, "ahp-chat:/third"]);
    assert_eq!(room.host.host().session_count(), 1, "a failed move left a session");
}

#[tokio::test]
async fn moved_chat_keeps_its_turns_subscribers_and_conversation() {
    let mut room = Room::with_side().await;
    let player = room.turn(SIDE, "t1").await;
    room.alice.create(TWO, &[DIRECTORY]).await.unwrap();
    let other = room.alice.open_session(TWO).await.unwrap();
    room.alice.create("scripted:/elsewhere", &["file:///elsewhere"]).await.unwrap();
    let refused = json!({"kind": "session", "session": "scripted:/elsewhere"});
    assert_eq!(room.wire.refused("moveChat", json!({"channel": SIDE, "destination": refused})).await, -32602);
    let to_two = json!({"kind": "session", "session": TWO, "after": other});
    room.alice.dispatch(SIDE, started("t2")).await.unwrap();
    room.alice
        .until("the turn runs", |alice| alice.chat(SIDE).is_ok_and(|chat| chat.active_turn.is_some()))
        .await
        .unwrap();
    assert_eq!(room.wire.refused("moveChat", json!({"channel": SIDE, "destination": to_two})).await, -32004);
    player.complete("t2").await.unwrap();
    room.alice.until_turn_over(SIDE, "t2").await.unwrap();
    let conversation = player.conversation;
    room.wire.snapshot(ONE).await;
    room.wire.snapshot(TWO).await;
    let (left, moved) = tokio::join!(player.leave_when_told(), room.move_to(to_two));
    left.unwrap();
    assert_eq!(moved, TWO);
    room.agree().await;
    let main = room.chat.clone();
    assert_eq!((room.chats_of(ONE), room.chats_of(TWO)), (vec![main.as_str()], vec![other.as_str(), SIDE]));
    let order: Vec<&str> = room
        .wire
        .envelopes()
        .map(|envelope| envelope["action"]["type"].as_str().unwrap())
        .filter(|kind| ["session/chatRemoved", "session/chatAdded"].contains(kind))
        .collect();
    assert_eq!(order, ["session/chatRemoved", "session/chatAdded"]);
    // The subscription continues, and so does the conversation.
    let player = room.turn(SIDE, "t3").await;
    assert_eq!(player.conversation, conversation);
    assert_eq!(room.host.stage().openings().last().unwrap().history, History::Resume);
    room.agree().await;
    // Disposing its old session keeps the chat; disposing its new session removes it.
    room.wire.ask("disposeSession", json!({"channel": ONE})).await;
    room.wire.ask("subscribe", json!({"channel": SIDE})).await;
    let disposed = room.wire.ask("disposeSession", json!({"channel": TWO}));
    let (left, _) = tokio::join!(player.leave_when_told(), disposed);
    left.unwrap();
    assert_eq!(room.wire.refused("subscribe", json!({"channel": SIDE})).await, -32008);
}

#[tokio::test]
async fn chat_moved_to_a_new_session_becomes_its_default_chat() {
    let mut room = Room::with_side().await;
    room.turn(SIDE, "t1").await.crash().await.unwrap();
    room.alice.dispatch(ONE, json!({"type": "session/titleChanged", "title": "mine"})).await.unwrap();
    room.alice.until("the title", |alice| alice.session(ONE).unwrap().title == "mine").await.unwrap();
    let session = room.move_to(json!({"kind": "newSession"})).await;
    room.alice.subscribe(&session).await.unwrap();
    let state = room.alice.session(&session).unwrap();
    assert_eq!(state.default_chat.as_deref(), Some(SIDE));
    assert_eq!(
        (state.title.as_str(), state.working_directories.as_deref()),
        ("mine", Some(&[DIRECTORY.to_owned()][..]))
    );
    room.agree().await;
    assert_eq!(room.alice.chat(SIDE).unwrap().movable, Some(false));
    let mut judge = Wire::open(&room.host, "other", &["1.0.0"]).await;
    assert_eq!(agreed(&mut judge, &session).await.len(), 1);
    assert_eq!(room.wire.refused("disposeChat", json!({"channel": SIDE})).await, -32602);
    room.turn(SIDE, "t2").await.crash().await.unwrap();
    let turns = room.alice.chat(SIDE).unwrap().turns.clone();
    let storage = room.storage.clone();
    room.host.stop().await;
    let host = host_on(&storage).await;
    let mut judge = Wire::open(&host, "judge", &["1.0.0"]).await;
    let chats = agreed(&mut judge, &session).await;
    assert_eq!((chats.len(), &chats[0].turns), (1, &turns));
    assert_eq!(agreed(&mut judge, ONE).await.len(), 1);
}

#[tokio::test]
async fn crash_at_any_write_leaves_every_chat_complete_in_one_session() {
    let mut room = Room::with_side().await;
    let main = room.chat.clone();
    room.turn(&main, "t1").await.crash().await.unwrap();
    room.turn(SIDE, "s1").await.crash().await.unwrap();
    room.alice.create(TWO, &[DIRECTORY]).await.unwrap();
    room.turn_in_two().await;
    room.storage.keep_moments();
    let source = json!({"kind": "fork", "chat": main, "turnId": "t1"});
    room.wire.ask("createChat", json!({"channel": ONE, "chat": "ahp-chat:/fork", "source": source})).await;
    room.move_to(json!({"kind": "session", "session": TWO})).await;
    room.move_to(json!({"kind": "session", "session": ONE})).await;
    room.wire.ask("disposeChat", json!({"channel": "ahp-chat:/fork"})).await;
    room.move_to(json!({"kind": "newSession"})).await;
    let moments = room.storage.moments();
    assert!(moments.len() > 10, "{}", moments.len());
    for storage in moments {
        let host = host_on(&storage).await;
        let mut judge = Wire::open(&host, "judge", &["1.0.0"]).await;
        // Its session may not be listed yet; loading it lists it.
        judge.snapshot(SIDE).await;
        let listed = judge.ask("listSessions", json!({})).await;
        let rows: Vec<SessionSummary> = serde_json::from_value(listed["items"].clone()).unwrap();
        let mut homes = Vec::new();
        for row in &rows {
            for chat in agreed(&mut judge, &row.resource).await {
                if chat.resource == SIDE {
                    assert_eq!(chat.turns.iter().map(|turn| turn.id.as_str()).collect::<Vec<_>>(), ["s1"]);
                    homes.push(row.resource.clone());
                } else if chat.resource == "ahp-chat:/fork" {
                    assert_eq!(chat.turns.len(), 1);
                }
            }
        }
        assert_eq!(homes.len(), 1, "{homes:?}");
        assert!(rows.iter().any(|row| row.resource == ONE) && rows.iter().any(|row| row.resource == TWO));
    }
}

#[tokio::test]
async fn dispatch_to_a_moving_chat_is_rejected_and_disposal_of_its_new_session_waits() {
    let mut room = Room::with_side().await;
    let player = room.turn(SIDE, "t1").await;
    room.alice.create(TWO, &[DIRECTORY]).await.unwrap();
    let id = json!("moving");
    let destination = json!({"kind": "session", "session": TWO});
    let moving = json!({"jsonrpc": "2.0", "id": id, "method": "moveChat", "params": {"channel": SIDE, "destination": destination}});
    room.wire.send(&moving.to_string()).await;
    player.close().cancelled().await;
    // Until the agent has ended, the chat rejects actions, and its new session is not disposed.
    let seq = room.alice.dispatch(SIDE, started("t2")).await.unwrap();
    room.alice.until("the answer", |alice| !alice.answers("alice", seq).is_empty()).await.unwrap();
    assert!(room.alice.answers("alice", seq)[0].rejection_reason.is_some());
    let mut judge = Wire::open(&room.host, "judge", &["1.0.0"]).await;
    let ending =
        json!({"jsonrpc": "2.0", "id": "end", "method": "disposeSession", "params": {"channel": TWO}});
    judge.send(&ending.to_string()).await;
    player.leave_when_told().await.unwrap();
    assert_eq!(room.wire.answer(&id).await["result"]["session"], TWO);
    // Then the session is disposed with the chat.
    assert_eq!(judge.answer(&json!("end")).await["result"], Value::Null);
    assert_eq!(judge.refused("subscribe", json!({"channel": SIDE})).await, -32008);
    room.alice.settle().await.unwrap();
    assert_eq!(room.chats_of(ONE), [room.chat.as_str()]);
    room.create(json!({})).await;
}

#[tokio::test]
async fn shutdown_during_a_move_leaves_the_chat_in_one_session() {
    let mut room = Room::with_side().await;
    let player = room.turn(SIDE, "t1").await;
    room.alice.create(TWO, &[DIRECTORY]).await.unwrap();
    room.turn_in_two().await;
    let destination = json!({"kind": "session", "session": TWO});
    let moving = json!({"jsonrpc": "2.0", "id": 99, "method": "moveChat", "params": {"channel": SIDE, "destination": destination}});
    room.wire.send(&moving.to_string()).await;
    player.close().cancelled().await;
    let storage = room.storage.clone();
    let (left, ()) = tokio::join!(player.leave_when_told(), room.host.stop());
    left.unwrap();
    let host = host_on(&storage).await;
    let mut judge = Wire::open(&host, "judge", &["1.0.0"]).await;
    let counts = (agreed(&mut judge, ONE).await.len(), agreed(&mut judge, TWO).await.len());
    assert!(counts == (1, 2) || counts == (2, 1), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn move_that_times_out_in_the_storage_loses_nothing() {
    for to_new in [true, false] {
        let mut room = Room::with_side().await;
        room.turn(SIDE, "t1").await.crash().await.unwrap();
        room.alice.create(TWO, &[DIRECTORY]).await.unwrap();
        let destination =
            if to_new { json!({"kind": "newSession"}) } else { json!({"kind": "session", "session": TWO}) };
        // The storage holds the write that assigns the chat to another session.
        let reassigns = |change: &Change| matches!(change, Change::PutChat { chat, session, .. } if chat.as_str() == SIDE && session.as_str() != ONE);
        let held = room.storage.hold_writes_from(move |changes| changes.iter().any(reassigns));
        let moving = json!({"channel": SIDE, "destination": destination});
        let error = room.wire.request("moveChat", moving).await["error"].clone();
        assert_eq!(error["code"], -32603, "{error}");
        assert!(room.storage.waiting() > 0);
        drop(held);
        // The chat is complete and in one session, now and after a restart.
        room.agree().await;
        assert_eq!(room.chats_of(ONE).len(), 2);
        room.turn(SIDE, "t2").await;
        let host = host_on(&room.storage.after_a_crash()).await;
        let mut judge = Wire::open(&host, "judge", &["1.0.0"]).await;
        let state = judge.snapshot(SIDE).await;
        assert_eq!(state["turns"].as_array().unwrap().len(), 2, "{state}");
        assert_eq!(agreed(&mut judge, ONE).await.len(), 2);
    }
}
