//! Several chats in a session: how they are created, forked, disposed and moved, and what
//! of it survives a host that is killed at any moment.

use std::sync::Arc;

use ahp_types::state::{
    AgentCapabilities, ChatOrigin, ChatState, MultipleChatsCapability, SessionState, SessionSummary,
    TurnState,
};
use innkeeper_core::agent::{AgentCommand, BranchKind, History};
use innkeeper_core::storage::StorageError;
use innkeeper_testkit::{MemoryStorage, Observer, Player, Stage, StageHost, StageOptions, StageTraits};
use serde_json::{Value, json};

use crate::scene::{DIRECTORY, copies_agree, message, pending, started};
use crate::wire::Wire;

const ONE: &str = "scripted:/1";
const TWO: &str = "scripted:/2";
const SIDE: &str = "ahp-chat:/side";

/// Two clients in front of a host whose agent has all there is of chats.
struct Room {
    host: StageHost,
    storage: MemoryStorage,
    alice: Observer,
    wire: Wire,
    /// The default chat of the first session.
    chat: String,
}

fn stage() -> Stage {
    let chats = MultipleChatsCapability { fork: Some(true), side_chat: Some(true) };
    let capabilities = AgentCapabilities { multiple_chats: Some(chats), ..AgentCapabilities::default() };
    Stage::new(StageTraits { rewinds: true, capabilities: Some(capabilities), ..StageTraits::default() })
}

async fn host_on(storage: &MemoryStorage) -> StageHost {
    let options =
        StageOptions { stage: stage(), storage: Arc::new(storage.clone()), ..StageOptions::default() };
    StageHost::start(options).await.unwrap()
}

impl Room {
    async fn new() -> Self {
        let storage = MemoryStorage::new();
        let host = host_on(&storage).await;
        let mut alice = host.observer("alice").await.unwrap();
        let wire = Wire::open(&host, "wire", &["1.0.0"]).await;
        alice.create(ONE, &[DIRECTORY]).await.unwrap();
        let chat = alice.open_session(ONE).await.unwrap();
        Self { host, storage, alice, wire, chat }
    }

    /// A room whose first session has a second chat.
    async fn with_side() -> Self {
        let mut room = Self::new().await;
        room.create(json!({})).await;
        room.alice.subscribe(SIDE).await.unwrap();
        room.alice.settle().await.unwrap();
        room
    }

    /// Creates the second chat.
    async fn create(&mut self, more: Value) {
        let mut params = json!({"channel": ONE, "chat": SIDE});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(self.wire.ask("createChat", params).await, Value::Null);
    }

    async fn move_to(&mut self, destination: Value) -> String {
        let moved = self.wire.ask("moveChat", json!({"channel": SIDE, "destination": destination})).await;
        moved["session"].as_str().unwrap().to_owned()
    }

    /// Starts a turn in a chat whose agent is not there yet; answers that agent.
    async fn begin(&mut self, chat: &str, turn: &str) -> Player {
        self.alice.dispatch(chat, started(turn)).await.unwrap();
        let mut player = self.host.stage().player().await.unwrap();
        assert_eq!(player.prompt().await.unwrap().0, turn);
        player
    }

    /// Runs a whole turn in such a chat.
    async fn turn(&mut self, chat: &str, turn: &str) -> Player {
        let player = self.begin(chat, turn).await;
        player.text(turn, &format!("{turn}-p"), &["an ", "answer"]).await.unwrap();
        player.complete(turn).await.unwrap();
        self.alice.until_turn_over(chat, turn).await.unwrap();
        player
    }

    /// Starts another turn with an agent that is there.
    async fn again(&mut self, player: &mut Player, chat: &str, turn: &str) {
        self.alice.dispatch(chat, started(turn)).await.unwrap();
        assert_eq!(player.prompt().await.unwrap().0, turn);
    }

    /// Everybody has the same of everything.
    async fn agree(&mut self) {
        self.alice.settle().await.unwrap();
        let mut judge = Wire::open(&self.host, "judge", &["1.0.0"]).await;
        let sessions: Vec<String> = [ONE, TWO]
            .iter()
            .filter(|uri| self.alice.state(uri).is_some())
            .map(|uri| (*uri).to_owned())
            .collect();
        for session in sessions {
            let chats = agreed(&mut judge, &session).await;
            assert_eq!(json!(self.alice.state(&session)), judge.snapshot(&session).await, "{session}");
            for chat in chats {
                if let Some(mirror) = self.alice.state(&chat.resource) {
                    assert_eq!(json!(mirror), json!(chat), "{}", chat.resource);
                }
            }
        }
    }

    fn chats_of(&self, session: &str) -> Vec<&str> {
        self.alice.session(session).unwrap().chats.iter().map(|chat| chat.resource.as_str()).collect()
    }
}

/// Checks that the copies of the facts of all chats of a session agree; answers the chats.
async fn agreed(judge: &mut Wire, session: &str) -> Vec<ChatState> {
    let state: SessionState = serde_json::from_value(judge.snapshot(session).await).unwrap();
    let mut chats = Vec::new();
    for entry in &state.chats {
        chats.push(serde_json::from_value(judge.snapshot(&entry.resource).await).unwrap());
    }
    let listed = judge.ask("listSessions", json!({})).await;
    let rows: Vec<SessionSummary> = serde_json::from_value(listed["items"].clone()).unwrap();
    copies_agree(&chats, &state, rows.iter().find(|row| row.resource == session));
    chats
}

#[tokio::test]
async fn a_new_chat_is_shown_to_all_and_has_an_agent_of_its_own() {
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
    assert_eq!(active(&room.alice), 1, "a session counts once");
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
async fn a_chat_that_cannot_be_is_refused_with_the_reason() {
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
async fn a_chat_can_begin_with_a_message_and_in_a_directory() {
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
async fn a_fork_has_the_turns_up_to_its_source_and_its_agent_is_told_where_it_begins() {
    let mut room = Room::new().await;
    let main = room.chat.clone();
    let mut player = room.turn(&main, "t1").await;
    for turn in ["t2", "t3"] {
        room.again(&mut player, &main, turn).await;
        player.complete(turn).await.unwrap();
        room.alice.until_turn_over(&main, turn).await.unwrap();
    }
    let source = |chat: &str, turn: &str| json!({"kind": "fork", "chat": chat, "turnId": turn});
    room.alice.create(TWO, &[DIRECTORY]).await.unwrap();
    let elsewhere = room.alice.open_session(TWO).await.unwrap();
    room.alice.dispatch(&main, started("t4")).await.unwrap();
    room.alice
        .until("it runs", |alice| alice.chat(&main).is_ok_and(|chat| chat.active_turn.is_some()))
        .await
        .unwrap();
    for source in
        [source(&main, "no"), source(&main, "t4"), source(&elsewhere, "t1"), source("ahp-chat:/no", "t1")]
    {
        let params = json!({"channel": ONE, "chat": SIDE, "source": source});
        assert_eq!(room.wire.refused("createChat", params).await, -32602, "{source}");
    }
    room.create(json!({"source": source(&main, "t2")})).await;
    room.alice.subscribe(SIDE).await.unwrap();
    let (fork, model) = (room.alice.chat(SIDE).unwrap(), room.alice.chat(&main).unwrap());
    assert_eq!(fork.turns, model.turns[..2]);
    assert_eq!(fork.origin, Some(ChatOrigin::Fork { chat: main.clone(), turn_id: "t2".to_owned() }));
    room.agree().await;

    // Also a host that starts later knows where it begins, until its agent has worked on it.
    let (storage, kept) = (room.storage.clone(), room.alice.chat(SIDE).unwrap().turns.clone());
    drop(player);
    room.host.stop().await;
    for expected in [false, true] {
        let host = host_on(&storage).await;
        let mut alice = host.observer("alice").await.unwrap();
        alice.subscribe(SIDE).await.unwrap();
        assert_eq!(alice.chat(SIDE).unwrap().turns[..2], kept);
        alice.dispatch(SIDE, started(if expected { "t6" } else { "t5" })).await.unwrap();
        let player = host.stage().player().await.unwrap();
        let history = host.stage().openings().last().unwrap().history.clone();
        match &history {
            History::Branch(branch) if !expected => {
                assert_eq!((branch.turn.as_str(), &branch.kind), ("t2", &BranchKind::Fork));
                assert_ne!(branch.conversation, player.conversation);
                player.complete("t5").await.unwrap();
                alice.until_turn_over(SIDE, "t5").await.unwrap();
            }
            History::Resume if expected => {}
            other => panic!("{other:?}"),
        }
        let leaving = tokio::spawn(player.leave_when_told());
        host.stop().await;
        leaving.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_side_chat_knows_of_a_running_turn_and_shows_nothing_of_it() {
    let mut room = Room::new().await;
    let main = room.chat.clone();
    let player = room.begin(&main, "t1").await;
    player.text("t1", "p", &["so ", "far"]).await.unwrap();
    room.alice
        .until("it answers", |alice| alice.text_so_far(&main).is_ok_and(|text| text == "so far"))
        .await
        .unwrap();
    let selection = json!({"text": " far ", "responsePartId": "p"});
    let source = json!({"kind": "sideChat", "chat": main, "turnId": "t1", "selection": selection});
    let empty = json!({"kind": "sideChat", "chat": main, "turnId": "t1", "selection": {"text": ""}});
    let gone = json!({"kind": "sideChat", "chat": main, "turnId": "no"});
    for source in [empty, gone] {
        let params = json!({"channel": ONE, "chat": SIDE, "source": source});
        assert_eq!(room.wire.refused("createChat", params).await, -32602, "{source}");
    }
    room.create(json!({"source": source})).await;
    player.text("t1", "q", &["more"]).await.unwrap();
    room.alice.subscribe(SIDE).await.unwrap();
    let side = room.alice.chat(SIDE).unwrap();
    assert_eq!(
        json!(side.origin),
        json!({"kind": "sideChat", "chat": main, "turnId": "t1", "selection": selection})
    );
    assert_eq!(side.turns, []);
    room.begin(SIDE, "s1").await;
    let opened = room.host.stage().openings().last().unwrap().history.clone();
    let History::Branch(branch) = opened else { panic!("{opened:?}") };
    let BranchKind::SideChat { selection: Some(selection), running: Some(running) } = branch.kind else {
        panic!()
    };
    assert_eq!((selection.text.as_str(), branch.turn.as_str(), running.id.as_str()), (" far ", "t1", "t1"));
    assert_eq!(json!(running.response_parts)[0]["content"], "so far");
    assert_eq!(running.response_parts.len(), 1, "what came later is not in it");
    assert_eq!(branch.conversation, player.conversation);
    room.agree().await;
}

#[tokio::test]
async fn what_several_chats_wait_for_is_in_the_session_until_each_is_answered() {
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
async fn a_chat_that_is_disposed_takes_its_turn_and_its_agent_with_it() {
    let mut room = Room::with_side().await;
    let main = room.chat.clone();
    let player = room.begin(SIDE, "t1").await;
    player.ask_to_run("t1", "k", json!({})).await.unwrap();
    for (chat, code) in [(main.as_str(), -32602), ("ahp-chat:/gone", -32008), (ONE, -32008)] {
        assert_eq!(room.wire.refused("disposeChat", json!({"channel": chat})).await, code, "{chat}");
    }
    room.wire.snapshot(SIDE).await;
    let leaving = tokio::spawn(player.leave_when_told());
    assert_eq!(room.wire.ask("disposeChat", json!({"channel": SIDE})).await, Value::Null);
    leaving.await.unwrap().unwrap();
    assert_eq!(room.wire.actions(SIDE).last(), Some(&"chat/turnCancelled"));
    room.alice.settle().await.unwrap();
    assert_eq!(room.chats_of(ONE), [main.as_str()]);
    assert_eq!(room.alice.session(ONE).unwrap().input_needed.as_ref().map_or(0, Vec::len), 0);
    assert_eq!(room.wire.refused("subscribe", json!({"channel": SIDE})).await, -32008);
    assert_eq!(room.wire.refused("disposeChat", json!({"channel": SIDE})).await, -32008);
    room.create(json!({})).await;
    room.alice.subscribe(SIDE).await.unwrap();
    assert_eq!(room.alice.chat(SIDE).unwrap().turns, [], "it is another one at the same address");
    room.agree().await;
}

#[tokio::test]
async fn a_chat_that_cannot_be_stored_or_removed_changes_nothing() {
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

impl Room {
    /// The address of a chat that could not be stored is free.
    async fn create_again(&mut self) {
        self.wire.ask("createChat", json!({"channel": ONE, "chat": "ahp-chat:/new"})).await;
        self.agree().await;
    }
}

#[tokio::test]
async fn a_session_ends_with_the_agents_of_all_of_its_chats() {
    let mut room = Room::with_side().await;
    let main = room.chat.clone();
    let players = [room.begin(&main, "t1").await, room.begin(SIDE, "t1").await];
    let leaving: Vec<_> = players.map(|player| tokio::spawn(player.leave_when_told())).into();
    room.wire.ask("disposeSession", json!({"channel": ONE})).await;
    for left in leaving {
        left.await.unwrap().unwrap();
    }
    for channel in [ONE, &main, SIDE] {
        assert_eq!(room.wire.refused("subscribe", json!({"channel": channel})).await, -32008, "{channel}");
    }
    room.alice.create(TWO, &[DIRECTORY]).await.unwrap();
    room.wire.ask("createChat", json!({"channel": TWO, "chat": SIDE})).await;
}

#[tokio::test]
async fn chats_and_their_turns_survive_the_host() {
    let mut room = Room::with_side().await;
    let main = room.chat.clone();
    room.turn(&main, "t1").await;
    let mut player = room.turn(SIDE, "s1").await;
    room.again(&mut player, SIDE, "s2").await;
    player.text("s2", "p", &["half"]).await.unwrap();
    room.alice
        .until("it answers", |alice| alice.text_so_far(SIDE).is_ok_and(|text| text == "half"))
        .await
        .unwrap();
    // A decision takes all that was before it into the journal.
    room.alice.dispatch(SIDE, pending("queued", "m", "later")).await.unwrap();
    let queued = |alice: &Observer| alice.chat(SIDE).is_ok_and(|chat| chat.queued_messages.is_some());
    room.alice.until("it waits", queued).await.unwrap();
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
async fn chats_can_be_put_into_another_order() {
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
    assert_eq!(room.host.host().session_count(), 1, "what was made for a move that failed is gone");
}

#[tokio::test]
async fn a_chat_moves_to_another_session_with_its_turns_its_clients_and_its_conversation() {
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
        .until("it runs", |alice| alice.chat(SIDE).is_ok_and(|chat| chat.active_turn.is_some()))
        .await
        .unwrap();
    assert_eq!(room.wire.refused("moveChat", json!({"channel": SIDE, "destination": to_two})).await, -32004);
    player.complete("t2").await.unwrap();
    room.alice.until_turn_over(SIDE, "t2").await.unwrap();
    let conversation = player.conversation;
    let leaving = tokio::spawn(player.leave_when_told());
    room.wire.snapshot(ONE).await;
    room.wire.snapshot(TWO).await;
    assert_eq!(room.move_to(to_two).await, TWO);
    leaving.await.unwrap().unwrap();
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
    // Who watched it still does, and it goes on where it was.
    let player = room.turn(SIDE, "t3").await;
    assert_eq!(player.conversation, conversation);
    assert_eq!(room.host.stage().openings().last().unwrap().history, History::Resume);
    room.agree().await;
    // The session that it left can go; the one that it is in takes it along.
    room.wire.ask("disposeSession", json!({"channel": ONE})).await;
    room.wire.ask("subscribe", json!({"channel": SIDE})).await;
    let leaving = tokio::spawn(player.leave_when_told());
    room.wire.ask("disposeSession", json!({"channel": TWO})).await;
    leaving.await.unwrap().unwrap();
    assert_eq!(room.wire.refused("subscribe", json!({"channel": SIDE})).await, -32008);
}

#[tokio::test]
async fn a_chat_can_get_a_session_of_its_own() {
    let mut room = Room::with_side().await;
    room.turn(SIDE, "t1").await.crash().await.unwrap();
    room.alice.dispatch(ONE, json!({"type": "session/titleChanged", "title": "mine"})).await.unwrap();
    room.alice.until("it has a name", |alice| alice.session(ONE).unwrap().title == "mine").await.unwrap();
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
async fn a_host_that_is_killed_at_any_moment_leaves_every_chat_in_one_session_whole() {
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
        // Its session may not have been in the list yet; it is as soon as it is loaded.
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

impl Room {
    /// A turn in the second session, which is listed then.
    async fn turn_in_two(&mut self) {
        let chat = self.alice.open_session(TWO).await.unwrap();
        self.turn(&chat, "o1").await.crash().await.unwrap();
    }
}

#[tokio::test]
async fn going_back_is_not_forgotten_when_the_host_ends_before_the_agent_is_told() {
    let mut room = Room::new().await;
    let main = room.chat.clone();
    let mut player = room.turn(&main, "t1").await;
    room.again(&mut player, &main, "t2").await;
    player.complete("t2").await.unwrap();
    room.alice.until_turn_over(&main, "t2").await.unwrap();
    player.crash().await.unwrap();
    room.alice.dispatch(&main, json!({"type": "chat/truncated", "turnId": "t1"})).await.unwrap();
    room.alice
        .until("it is short", |alice| alice.chat(&main).is_ok_and(|chat| chat.turns.len() == 1))
        .await
        .unwrap();
    let killed = room.storage.after_a_crash();
    room.host.stop().await;
    for storage in [killed, room.storage] {
        let host = host_on(&storage).await;
        let mut alice = host.observer("alice").await.unwrap();
        alice.subscribe(&main).await.unwrap();
        assert_eq!(alice.chat(&main).unwrap().turns.len(), 1);
        alice.dispatch(&main, started("t3")).await.unwrap();
        let mut player = host.stage().player().await.unwrap();
        let AgentCommand::Rewind { to } = player.command().await.unwrap() else { panic!("not told first") };
        assert_eq!(to.unwrap().as_str(), "t1");
        player.prompt().await.unwrap();
    }
}
