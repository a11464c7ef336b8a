//! Sessions with several chats: creation, disposal, and the stored state after a restart.

use ahp_types::state::{ChatState, TurnState};
use innkeeper_core::storage::StorageError;
use innkeeper_core_fakes::Player;
use innkeeper_testkit::Observer;
use serde_json::{Value, json};

use crate::room::{ONE, Room, SIDE, TWO, agreed, host_on};
use crate::scene::{DIRECTORY, message, pending};
use crate::wire::Wire;

#[tokio::test]
async fn new_chat_is_published_and_has_its_own_agent() {
    let mut room = Room::with_side().await;
    let main = room.chat.clone();
    assert_eq!(room.chats_of(ONE), [main.as_str(), SIDE]);
    let created = room.alice.chat(SIDE).unwrap();
    assert_eq!((created.movable, created.turns.len()), (Some(true), 0));
    let first = room.begin(&main, "t1").await;
    let second = room.begin(SIDE, "t1").await;
    assert_ne!(first.conversation, second.conversation);
    first.text("t1", "p", &["one"]).await.unwrap();
    second.text("t1", "p", &["two"]).await.unwrap();
    let both = |alice: &Observer| {
        alice.text_so_far(&main).is_ok_and(|text| text == "one")
            && alice.text_so_far(SIDE).is_ok_and(|text| text == "two")
    };
    room.alice.until("both answer", both).await.unwrap();
    room.agree().await;
    let active = |alice: &Observer| json!(alice.state("ahp-root://"))["activeSessions"].clone();
    assert_eq!(active(&room.alice), 1, "a session is counted once");
    second.complete("t1").await.unwrap();
    room.alice.until_turn_over(SIDE, "t1").await.unwrap();
    room.agree().await;
    assert_eq!(active(&room.alice), 1, "the other chat is still busy");
    first.complete("t1").await.unwrap();
    room.alice.until_turn_over(&main, "t1").await.unwrap();
    room.agree().await;
    assert_eq!(active(&room.alice), 0);
}

#[tokio::test]
async fn rejects_invalid_chat_creation_with_the_matching_code() {
    let mut room = Room::with_side().await;
    room.alice.create(TWO, &[DIRECTORY]).await.unwrap();
    let wrong = json!({"text": "x", "origin": {"kind": "agent"}});
    let main = room.chat.clone();
    for (params, code) in [
        (json!({"channel": "scripted:/gone", "chat": "ahp-chat:/new"}), -32001),
        (json!({"channel": ONE, "chat": SIDE}), -32010),
        (json!({"channel": TWO, "chat": SIDE}), -32010),
        (json!({"channel": TWO, "chat": main}), -32010),
        (json!({"channel": ONE, "chat": TWO}), -32010),
        (json!({"channel": ONE, "chat": "nothing"}), -32602),
        (json!({"channel": ONE, "chat": format!("ahp-chat:/{}", "x".repeat(1024))}), -32602),
        (json!({"channel": ONE, "chat": "ahp-chat:/new", "workingDirectories": ["file:///etc"]}), -32602),
        (json!({"channel": ONE, "chat": "ahp-chat:/new", "initialMessage": wrong}), -32602),
        (json!({"channel": ONE, "chat": "ahp-chat:/new", "source": {"kind": "twin", "chat": main}}), -32602),
        (json!({"channel": ONE}), -32602),
    ] {
        assert_eq!(room.wire.refused("createChat", params.clone()).await, code, "{params}");
    }
    room.agree().await;
    for number in 2..64 {
        let params = json!({"channel": ONE, "chat": format!("ahp-chat:/{number}")});
        room.wire.ask("createChat", params).await;
    }
    assert_eq!(
        room.wire.refused("createChat", json!({"channel": ONE, "chat": "ahp-chat:/new"})).await,
        -32602
    );
    room.agree().await;
}

#[tokio::test]
async fn chat_is_created_with_a_message_and_a_directory() {
    let mut room = Room::new().await;
    let more = json!({"initialMessage": message("look around\nplease"), "workingDirectories": [DIRECTORY]});
    room.create(more).await;
    let mut player = room.host.stage().player().await.unwrap();
    let (turn, text) = player.prompt().await.unwrap();
    assert_eq!(text, "look around\nplease");
    room.alice.subscribe(SIDE).await.unwrap();
    let chat = room.alice.chat(SIDE).unwrap();
    assert_eq!(
        (chat.title.as_str(), chat.active_turn.as_ref().unwrap().id.as_str()),
        ("look around", turn.as_str())
    );
    assert_eq!(chat.working_directories, Some(vec![DIRECTORY.to_owned()]));
    player.complete(&turn).await.unwrap();
    room.alice.until_turn_over(SIDE, &turn).await.unwrap();
    room.agree().await;
}

#[tokio::test]
async fn attached_chat_of_an_unloaded_session_is_pinned() {
    let mut room = Room::new().await;
    let elsewhere = room.chat.clone();
    room.turn(&elsewhere, "t1").await;
    // This host has not loaded the first session yet.
    let host = host_on(&room.storage.after_a_crash()).await;
    let mut wire = Wire::open(&host, "wire", &["1.0.0"]).await;
    wire.ask("createSession", json!({"channel": TWO, "provider": "scripted"})).await;
    let mut attached = message("what was said there?");
    attached["attachments"] = json!([{"type": "chat", "label": "there", "resource": elsewhere}]);
    wire.ask("createChat", json!({"channel": TWO, "chat": SIDE, "initialMessage": attached})).await;
    let mut player = host.stage().player().await.unwrap();
    player.prompt().await.unwrap();
    let asked = wire.snapshot(SIDE).await["activeTurn"]["message"].clone();
    assert_eq!(asked["attachments"][0]["endTurn"], "t1");
}

#[tokio::test]
async fn session_lists_pending_requests_of_all_chats_until_answered() {
    let mut room = Room::with_side().await;
    let main = room.chat.clone();
    let first = room.begin(&main, "t1").await;
    let second = room.begin(SIDE, "t1").await;
    first.ask_to_run("t1", "k", json!({})).await.unwrap();
    second.ask_to_run("t1", "k", json!({})).await.unwrap();
    let waits = |count: usize| {
        move |alice: &Observer| {
            alice.session(ONE).is_ok_and(|session| session.input_needed.as_ref().map_or(0, Vec::len) == count)
        }
    };
    room.alice.until("both wait", waits(2)).await.unwrap();
    room.agree().await;
    let yes = json!({"type": "chat/toolCallConfirmed", "turnId": "t1", "toolCallId": "k", "approved": true, "confirmed": "user-action"});
    room.alice.dispatch(SIDE, yes).await.unwrap();
    room.alice.until("one waits", waits(1)).await.unwrap();
    room.agree().await;
    first.complete("t1").await.unwrap();
    room.alice.until("none waits", waits(0)).await.unwrap();
    room.agree().await;
}

#[tokio::test]
async fn disposed_chat_ends_its_turn_and_its_agent() {
    let mut room = Room::with_side().await;
    let main = room.chat.clone();
    let player = room.begin(SIDE, "t1").await;
    player.ask_to_run("t1", "k", json!({})).await.unwrap();
    for (chat, code) in [(main.as_str(), -32602), ("ahp-chat:/gone", -32008), (ONE, -32008)] {
        assert_eq!(room.wire.refused("disposeChat", json!({"channel": chat})).await, code, "{chat}");
    }
    room.wire.snapshot(SIDE).await;
    let disposed = room.wire.ask("disposeChat", json!({"channel": SIDE}));
    let (left, disposed) = tokio::join!(player.leave_when_told(), disposed);
    left.unwrap();
    assert_eq!(disposed, Value::Null);
    assert_eq!(room.wire.actions(SIDE).last(), Some(&"chat/turnCancelled"));
    room.alice.settle().await.unwrap();
    assert_eq!(room.chats_of(ONE), [main.as_str()]);
    assert_eq!(room.alice.session(ONE).unwrap().input_needed.as_ref().map_or(0, Vec::len), 0);
    assert_eq!(room.wire.refused("subscribe", json!({"channel": SIDE})).await, -32008);
    assert_eq!(room.wire.refused("disposeChat", json!({"channel": SIDE})).await, -32008);
    room.create(json!({})).await;
    room.alice.subscribe(SIDE).await.unwrap();
    assert_eq!(room.alice.chat(SIDE).unwrap().turns, [], "the new chat has turns of the disposed one");
    room.agree().await;
}

#[tokio::test]
async fn failed_write_of_a_chat_command_changes_nothing() {
    let mut room = Room::with_side().await;
    room.turn(SIDE, "t1").await.crash().await.unwrap();
    room.storage.fail_writes(Some(StorageError::Full));
    assert_eq!(room.wire.refused("disposeChat", json!({"channel": SIDE})).await, -32603);
    assert_eq!(
        room.wire.refused("createChat", json!({"channel": ONE, "chat": "ahp-chat:/new"})).await,
        -32603
    );
    let first = json!({"kind": "session", "session": ONE});
    assert_eq!(room.wire.refused("moveChat", json!({"channel": SIDE, "destination": first})).await, -32603);
    room.storage.fail_writes(None);
    room.agree().await;
    assert_eq!(room.chats_of(ONE), [room.chat.as_str(), SIDE]);
    room.turn(SIDE, "t2").await;
    room.create_again().await;
}

#[tokio::test]
async fn disposed_session_ends_the_agents_of_all_chats() {
    let mut room = Room::with_side().await;
    let main = room.chat.clone();
    let players = [room.begin(&main, "t1").await, room.begin(SIDE, "t1").await];
    let [first, second] = players.map(Player::leave_when_told);
    let (first, second, _) =
        tokio::join!(first, second, room.wire.ask("disposeSession", json!({"channel": ONE})));
    first.and(second).unwrap();
    for channel in [ONE, &main, SIDE] {
        assert_eq!(room.wire.refused("subscribe", json!({"channel": channel})).await, -32008, "{channel}");
    }
    room.alice.create(TWO, &[DIRECTORY]).await.unwrap();
    room.wire.ask("createChat", json!({"channel": TWO, "chat": SIDE})).await;
}

#[tokio::test]
async fn chats_and_turns_survive_a_crash() {
    let mut room = Room::with_side().await;
    let main = room.chat.clone();
    room.turn(&main, "t1").await;
    let mut player = room.turn(SIDE, "s1").await;
    room.again(&mut player, SIDE, "s2").await;
    player.text("s2", "p", &["half"]).await.unwrap();
    room.alice
        .until("the text", |alice| alice.text_so_far(SIDE).is_ok_and(|text| text == "half"))
        .await
        .unwrap();
    // Storing a decision also stores all earlier actions.
    room.alice.dispatch(SIDE, pending("queued", "m", "later")).await.unwrap();
    let queued = |alice: &Observer| alice.chat(SIDE).is_ok_and(|chat| chat.queued_messages.is_some());
    room.alice.until("the queued message", queued).await.unwrap();
    let host = host_on(&room.storage.after_a_crash()).await;
    let mut judge = Wire::open(&host, "judge", &["1.0.0"]).await;
    let chats = agreed(&mut judge, ONE).await;
    let ids = |chat: &ChatState| chat.turns.iter().map(|turn| turn.id.clone()).collect::<Vec<_>>();
    assert_eq!(chats.iter().map(ids).collect::<Vec<_>>(), [vec!["t1"], vec!["s1", "s2"]]);
    let interrupted = &chats[1].turns[1];
    assert_eq!(interrupted.state, TurnState::Error);
    assert_eq!(json!(interrupted.response_parts)[0]["content"], "half");
    assert_eq!(chats[1].queued_messages.as_ref().unwrap()[0].id, "m");
}

#[tokio::test]
async fn rejects_reuse_of_the_uri_of_an_unloaded_chat_or_session() {
    let mut room = Room::with_side().await;
    let main = room.chat.clone();
    room.turn(&main, "t1").await.crash().await.unwrap();
    let storage = room.storage.clone();
    room.host.stop().await;
    let host = host_on(&storage).await;
    let mut wire = Wire::open(&host, "wire", &["1.0.0"]).await;
    wire.ask("createSession", json!({"channel": TWO, "workingDirectories": [DIRECTORY]})).await;
    for chat in [main.as_str(), ONE, SIDE] {
        assert_eq!(wire.refused("createChat", json!({"channel": TWO, "chat": chat})).await, -32010, "{chat}");
    }
    let others = "ahp-chat://default/c2NyaXB0ZWQ6L25vYm9keQ";
    assert_eq!(wire.refused("createChat", json!({"channel": TWO, "chat": others})).await, -32602);
    assert_eq!(wire.refused("createSession", json!({"channel": SIDE})).await, -32003);
    assert_eq!(wire.refused("createSession", json!({"channel": main})).await, -32003);
    assert_eq!(wire.refused("createSession", json!({"channel": others})).await, -32602);
    let chats = agreed(&mut wire, ONE).await;
    assert_eq!(chats.iter().map(|chat| chat.turns.len()).collect::<Vec<_>>(), [1, 0]);
}

#[tokio::test]
async fn chat_recreated_at_the_same_uri_starts_empty() {
    let mut room = Room::with_side().await;
    room.alice.dispatch(SIDE, json!({"type": "chat/draftChanged", "draft": message("old")})).await.unwrap();
    room.alice.until("a draft", |alice| alice.chat(SIDE).unwrap().draft.is_some()).await.unwrap();
    let mut bob = room.host.observer("bob").await.unwrap();
    bob.subscribe(ONE).await.unwrap();
    bob.subscribe(SIDE).await.unwrap();
    bob.client.shutdown().await;
    room.wire.ask("disposeChat", json!({"channel": SIDE})).await;
    room.create(json!({"initialMessage": message("new")})).await;
    room.host.stage().player().await.unwrap().prompt().await.unwrap();
    // A reconnecting client gets the new chat, not the old chat with the new actions.
    bob.reconnect(room.host.address(), "bob").await.unwrap();
    let fresh = room.wire.snapshot(SIDE).await;
    assert_eq!(json!(bob.state(SIDE)), fresh);
    assert_eq!(fresh.get("draft"), None);
    let host = host_on(&room.storage.after_a_crash()).await;
    let mut judge = Wire::open(&host, "judge", &["1.0.0"]).await;
    let chats = agreed(&mut judge, ONE).await;
    assert_eq!((&chats[1].draft, chats[1].turns.len()), (&None, 1));
}
