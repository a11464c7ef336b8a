//! When changes are stored, and how the host behaves if they cannot be stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use ahp_types::state::{ResponsePart, TurnState};
use innkeeper_core::ChannelUri;
use innkeeper_core::agent::BoxFuture;
use innkeeper_core::audit::{AuditPage, AuditQuery};
use innkeeper_core::clock::Clock;
use innkeeper_core::output::{OutputId, StoredOutput};
use innkeeper_core::storage::{Change, Index, Storage, StorageError, StoredSession};
use innkeeper_core_fakes::{MemoryStorage, Player};
use innkeeper_testkit::Observer;
use serde_json::{Value, json};

use crate::scene::{DIRECTORY, started};
use crate::stage_host::{StageHost, StageOptions};
use crate::wire::Wire;

const SESSION: &str = "scripted:/1";

async fn host_on(storage: &MemoryStorage) -> StageHost {
    let options = StageOptions { storage: Arc::new(storage.clone()), ..StageOptions::default() };
    StageHost::start(options).await.unwrap()
}

async fn opened(host: &StageHost) -> (Observer, String) {
    let mut client = host.observer("alice").await.unwrap();
    client.create(SESSION, &[DIRECTORY]).await.unwrap();
    let chat = client.open_session(SESSION).await.unwrap();
    (client, chat)
}

/// Starts the first turn. Returns its agent.
async fn begun(host: &StageHost, client: &Observer, chat: &str) -> Player {
    client.dispatch(chat, started("t1")).await.unwrap();
    let mut player = host.stage().player().await.unwrap();
    player.prompt().await.unwrap();
    player
}

/// Dispatches an action and waits for the answer. Returns the rejection reason, if any.
async fn answer(client: &mut Observer, channel: &str, action: Value) -> Option<String> {
    let seq = client.dispatch(channel, action).await.unwrap();
    client.until("the answer", |client| !client.answers("alice", seq).is_empty()).await.unwrap();
    client.answers("alice", seq)[0].rejection_reason.clone()
}

fn queued(id: &str) -> Value {
    let message = json!({"text": "next", "origin": {"kind": "user"}});
    json!({"type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": message})
}

#[tokio::test]
async fn turns_and_decisions_are_stored_before_they_are_published() {
    let storage = MemoryStorage::new();
    let host = host_on(&storage).await;
    let (mut client, chat) = opened(&host).await;
    let title = json!({"type": "session/titleChanged", "title": "mine"});
    for (channel, action) in [(chat.as_str(), started("t1")), (SESSION, title)] {
        let held = storage.hold_writes();
        let seq = client.dispatch(channel, action).await.unwrap();
        while storage.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        client.settle().await.unwrap();
        assert!(client.answers("alice", seq).is_empty(), "answered before it was stored");
        drop(held);
        client.until("the echo", |client| !client.answers("alice", seq).is_empty()).await.unwrap();
        assert_eq!(client.answers("alice", seq)[0].rejection_reason, None);
    }
}

#[tokio::test]
async fn initial_title_is_stored_when_it_is_published() {
    let storage = MemoryStorage::new();
    let host = host_on(&storage).await;
    let (mut client, chat) = opened(&host).await;
    client.dispatch(&chat, started("t1")).await.unwrap();
    let named = |client: &Observer| client.session(SESSION).is_ok_and(|session| !session.title.is_empty());
    client.until("the title", named).await.unwrap();
    let next = host_on(&storage.after_a_crash()).await;
    let mut again = next.observer("again").await.unwrap();
    again.subscribe(SESSION).await.unwrap();
    assert_eq!(again.session(SESSION).unwrap().title, client.session(SESSION).unwrap().title);
}

#[tokio::test]
async fn action_that_cannot_be_stored_is_rejected_with_the_reason() {
    let storage = MemoryStorage::new();
    let host = host_on(&storage).await;
    let (mut client, chat) = opened(&host).await;
    storage.fail_writes(Some(StorageError::Full));
    assert!(answer(&mut client, &chat, started("t1")).await.unwrap().contains("disk is full"));
    assert_eq!(host.stage().asked(), 0, "an agent was opened for a rejected turn");
    let created = client.create("scripted:/2", &[DIRECTORY]).await;
    assert!(format!("{:#}", created.unwrap_err()).contains("disk is full"));
    let config = json!({"type": "root/configChanged", "config": {"a": 1}});
    assert!(answer(&mut client, "ahp-root://", config).await.unwrap().contains("disk is full"));
    storage.fail_writes(None);
    assert_eq!(answer(&mut client, &chat, started("t1")).await, None, "rejected although the disk has space");
}

#[tokio::test]
async fn agent_output_during_a_full_disk_is_published_and_stored_later() {
    let storage = MemoryStorage::new();
    let host = host_on(&storage).await;
    let (mut client, chat) = opened(&host).await;
    let player = begun(&host, &client, &chat).await;
    storage.fail_writes(Some(StorageError::Full));
    player.text("t1", "p", &["it ", "is ", "done"]).await.unwrap();
    player.complete("t1").await.unwrap();
    client.until_turn_over(&chat, "t1").await.unwrap();
    storage.fail_writes(None);
    let told = client.chat(&chat).unwrap().turns.clone();
    // The host retries the write after some delay.
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let next = host_on(&storage.after_a_crash()).await;
        let mut judge = next.observer("judge").await.unwrap();
        judge.subscribe(&chat).await.unwrap();
        if judge.chat(&chat).unwrap().turns == told {
            return;
        }
    }
}

#[tokio::test]
async fn journaled_turn_can_be_resumed_after_a_crash_and_the_queue_waits() {
    let storage = MemoryStorage::new();
    let host = host_on(&storage).await;
    let (mut client, chat) = opened(&host).await;
    let player = begun(&host, &client, &chat).await;
    player.text("t1", "p", &["half ", "an ", "answer"]).await.unwrap();
    player.ask_to_run("t1", "k1", json!({})).await.unwrap();
    let asked =
        |client: &Observer| client.session(SESSION).is_ok_and(|session| session.input_needed.is_some());
    client.until("the question", asked).await.unwrap();
    // Storing a decision also stores all earlier actions.
    assert_eq!(answer(&mut client, &chat, queued("m1")).await, None);
    let next = host_on(&storage.after_a_crash()).await;
    let mut again = next.observer("again").await.unwrap();
    again.open_session(SESSION).await.unwrap();
    let state = again.chat(&chat).unwrap().clone();
    assert!(state.active_turn.is_none());
    let turn = &state.turns[0];
    assert_eq!((turn.id.as_str(), turn.state), ("t1", TurnState::Error));
    let text = turn.response_parts.iter().find_map(|part| match part {
        ResponsePart::Markdown(part) => Some(part.content.as_str()),
        _ => None,
    });
    assert_eq!(text, Some("half an answer"));
    let Some(ResponsePart::Error(error)) = turn.response_parts.last() else { panic!("{turn:?}") };
    assert_eq!(error.resumable, Some(true));
    assert_eq!(state.queued_messages.as_ref().map(Vec::len), Some(1), "the queue was lost");
    assert_eq!(
        again.session(SESSION).unwrap().input_needed,
        None,
        "the interrupted question is still listed"
    );
    assert_eq!(next.stage().asked(), 0, "an agent was opened by reading");

    again.dispatch(&chat, json!({"type": "chat/turnResume", "turnId": "t1"})).await.unwrap();
    let mut player = next.stage().player().await.unwrap();
    assert_eq!(player.prompt().await.unwrap().0, "t1");
    player.complete("t1").await.unwrap();
    assert!(player.prompt().await.unwrap().0.starts_with("m1"), "the queue does not continue");
}

#[tokio::test]
async fn unreadable_session_returns_the_reason_and_stays_listed() {
    let storage = MemoryStorage::new();
    let host = host_on(&storage).await;
    let (mut client, chat) = opened(&host).await;
    let player = begun(&host, &client, &chat).await;
    player.complete("t1").await.unwrap();
    client.until_turn_over(&chat, "t1").await.unwrap();
    tokio::join!(host.stop(), async { player.leave_when_told().await.unwrap() });
    let next = host_on(&storage).await;
    let reason = "checksum mismatch".to_owned();
    storage.fail_loads(Some(StorageError::Damaged { what: "the session".to_owned(), reason }));
    let mut again = next.observer("again").await.unwrap();
    let error = again.subscribe(&chat).await.unwrap_err();
    assert!(format!("{error:#}").contains("checksum mismatch"), "{error:#}");
    assert_eq!(again.list_sessions().await.unwrap().len(), 1);
    storage.fail_loads(None);
    again.subscribe(&chat).await.unwrap();
    assert_eq!(again.chat(&chat).unwrap().turns.len(), 1, "turns were lost");
}

/// Starts a host whose storage contains a session that it has not loaded yet. Returns the
/// chat and the last sequence number that the client has seen.
async fn with_stored_session(storage: &MemoryStorage) -> (StageHost, String, u64) {
    let host = host_on(storage).await;
    let (mut client, chat) = opened(&host).await;
    let player = begun(&host, &client, &chat).await;
    player.complete("t1").await.unwrap();
    client.until_turn_over(&chat, "t1").await.unwrap();
    client.create("scripted:/2", &[DIRECTORY]).await.unwrap();
    client.subscribe("scripted:/2").await.unwrap();
    client.settle().await.unwrap();
    let seen = client.last_seq();
    tokio::join!(host.stop(), async { player.leave_when_told().await.unwrap() });
    (host_on(storage).await, chat, seen)
}

fn damaged() -> StorageError {
    StorageError::Damaged { what: "the session".to_owned(), reason: "checksum mismatch".to_owned() }
}

#[tokio::test]
async fn damaged_session_does_not_block_reconnect_to_other_sessions() {
    let storage = MemoryStorage::new();
    let (host, _, seen) = with_stored_session(&storage).await;
    let mut other = host.observer("other").await.unwrap();
    other.subscribe("scripted:/2").await.unwrap();
    let channels = ["ahp-root://", SESSION, "scripted:/2"];
    for (error, seen, told) in [
        (StorageError::Busy, seen, None),
        (damaged(), seen, Some("replay")),
        (damaged(), 1_000_000_000, Some("snapshot")),
    ] {
        storage.fail_loads(Some(error));
        let mut raw = host.raw().await.unwrap();
        let params = json!({"clientId": "alice", "lastSeenServerSeq": seen, "subscriptions": channels});
        let answer = raw.request("reconnect", params).await.unwrap();
        assert_eq!(answer["result"]["type"].as_str(), told, "{answer}");
        match told {
            Some("replay") => assert_eq!(answer["result"]["missing"], json!([SESSION])),
            Some(_) => assert_eq!(answer["result"]["snapshots"].as_array().unwrap().len(), 2),
            None => assert!(answer["error"]["message"].as_str().unwrap().contains("try again"), "{answer}"),
        }
    }
}

#[tokio::test]
async fn rejects_action_for_an_unreadable_session_with_the_reason() {
    let storage = MemoryStorage::new();
    let (host, chat, _) = with_stored_session(&storage).await;
    storage.fail_loads(Some(damaged()));
    let mut wire = Wire::open(&host, "wire", &["1.0.0"]).await;
    for channel in [SESSION, chat.as_str()] {
        let seq = wire.dispatch(channel, json!({"type": "session/isReadChanged", "isRead": true})).await;
        let answer = wire.envelope(seq).await;
        assert!(answer["rejectionReason"].as_str().unwrap().contains("checksum mismatch"), "{answer}");
    }
    storage.fail_loads(None);
    let seq = wire.dispatch(SESSION, json!({"type": "session/isReadChanged", "isRead": true})).await;
    assert_eq!(wire.envelope(seq).await.get("rejectionReason"), None);
}

/// A storage that can be told to reject writes of session documents.
#[derive(Clone, Debug, Default)]
struct DocumentRejectingStorage {
    storage: MemoryStorage,
    refuses: Arc<AtomicBool>,
}

impl Storage for DocumentRejectingStorage {
    fn load_index(&self) -> BoxFuture<Result<Index, StorageError>> {
        self.storage.load_index()
    }

    fn load_session(&self, session: ChannelUri) -> BoxFuture<Result<Option<StoredSession>, StorageError>> {
        self.storage.load_session(session)
    }

    fn load_output(&self, output: OutputId) -> BoxFuture<Result<Option<StoredOutput>, StorageError>> {
        self.storage.load_output(output)
    }

    fn load_audit(&self, query: AuditQuery) -> BoxFuture<Result<AuditPage, StorageError>> {
        self.storage.load_audit(query)
    }

    fn write(&self, changes: Vec<Change>) -> BoxFuture<Result<(), StorageError>> {
        let documents = changes.iter().any(|change| matches!(change, Change::PutSession { .. }));
        if documents && self.refuses.load(Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(StorageError::Full)));
        }
        self.storage.write(changes)
    }
}

#[tokio::test]
async fn failed_write_at_shutdown_counts_as_unclean_shutdown() {
    for (refuses, told) in [(false, "replay"), (true, "snapshot")] {
        let storage = DocumentRejectingStorage::default();
        let options = StageOptions { storage: Arc::new(storage.clone()), ..StageOptions::default() };
        let host = StageHost::start(options).await.unwrap();
        let (mut client, chat) = opened(&host).await;
        // A draft is not journaled immediately, so it is stored with the documents.
        let draft = json!({"text": "half a thou", "origin": {"kind": "user"}});
        let draft = json!({"type": "chat/draftChanged", "draft": draft});
        assert_eq!(answer(&mut client, &chat, draft).await, None);
        storage.refuses.store(refuses, Ordering::SeqCst);
        let seen = client.last_seq();
        host.stop().await;
        let next = host_on(&storage.storage).await;
        let mut raw = next.raw().await.unwrap();
        let params =
            json!({"clientId": "alice", "lastSeenServerSeq": seen, "subscriptions": [SESSION, chat]});
        let answer = raw.request("reconnect", params).await.unwrap();
        assert_eq!(answer["result"]["type"], told, "{answer}");
    }
}

/// A clock that a test sets, in milliseconds since the Unix epoch.
#[derive(Debug)]
struct ManualClock(AtomicI64);

impl Clock for ManualClock {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(self.0.load(Ordering::SeqCst)).unwrap()
    }
}

#[tokio::test]
async fn clock_that_jumps_back_keeps_order_and_durations() {
    let clock = Arc::new(ManualClock(AtomicI64::new(1_800_000_000_000)));
    let storage = MemoryStorage::new();
    let options = StageOptions {
        storage: Arc::new(storage.clone()),
        clock: Arc::<ManualClock>::clone(&clock),
        ..StageOptions::default()
    };
    let host = StageHost::start(options.clone()).await.unwrap();
    let (mut client, chat) = opened(&host).await;
    let mut player = begun(&host, &client, &chat).await;
    clock.0.store(1_700_000_000_000, Ordering::SeqCst);
    assert_eq!(answer(&mut client, &chat, queued("m1")).await, None);
    player.complete("t1").await.unwrap();
    let second = player.prompt().await.unwrap().0;
    clock.0.store(1_600_000_000_000, Ordering::SeqCst);
    player.complete(&second).await.unwrap();
    client.until_turn_over(&chat, &second).await.unwrap();
    let turns = client.chat(&chat).unwrap().turns.clone();
    let ids: Vec<&str> = turns.iter().map(|turn| turn.id.as_str()).collect();
    assert_eq!(ids, ["t1", second.as_str()]);
    let sane = |duration: Option<i64>| duration.is_some_and(|duration| (0..60_000).contains(&duration));
    assert!(turns.iter().all(|turn| sane(turn.duration)), "{turns:?}");
    let seen = client.last_seq();
    let next = StageHost::start(StageOptions { storage: Arc::new(storage.after_a_crash()), ..options })
        .await
        .unwrap();
    let mut again = next.observer("again").await.unwrap();
    again.subscribe(&chat).await.unwrap();
    assert_eq!(again.chat(&chat).unwrap().turns, turns);
    let seq = again.dispatch(&chat, json!({"type": "chat/isReadChanged", "isRead": true})).await.unwrap();
    again.until("the echo", |again| !again.answers("again", seq).is_empty()).await.unwrap();
    assert!(again.last_seq() > seen, "sequence numbers went back with the clock");
}

#[tokio::test]
async fn copies_of_chat_fields_agree_after_a_crash_right_after_a_turn() {
    let storage = MemoryStorage::new();
    let host = host_on(&storage).await;
    let (mut client, chat) = opened(&host).await;
    let player = begun(&host, &client, &chat).await;
    player.complete("t1").await.unwrap();
    client.until_turn_over(&chat, "t1").await.unwrap();
    // The crash happens before anything after the end of the turn is stored.
    let next = host_on(&storage.after_a_crash()).await;
    let mut again = next.observer("again").await.unwrap();
    again.open_session(SESSION).await.unwrap();
    let (state, session) = (again.chat(&chat).unwrap(), again.session(SESSION).unwrap());
    assert_eq!(session.chats[0].status, state.status);
    assert_eq!(session.chats[0].modified_at, state.modified_at);
    let rows = again.list_sessions().await.unwrap();
    assert_eq!(rows[0].chats.as_ref().unwrap()[0].status, Some(state.status));
    assert_eq!(json!(session.lifecycle), json!("ready"));
}

/// Publishes activity, background work and running servers of an agent.
async fn shows_work(player: &Player, client: &mut Observer, chat: &str) {
    let server = |id: &str, state: &str| json!({"type": "mcpServer", "id": id, "uri": "file:///m", "name": "M", "state": {"kind": state}});
    let shell = json!({"kind": "shell", "id": "w1", "title": "Build", "command": "make"});
    let servers = [server("m1", "ready"), server("m2", "starting"), server("m3", "stopped")];
    for action in [
        json!({"type": "session/customizationsChanged", "customizations": servers}),
        json!({"type": "chat/backgroundWorkSet", "work": shell}),
        json!({"type": "chat/activityChanged", "activity": "Building"}),
    ] {
        player.act(action).await.unwrap();
    }
    let busy = |client: &Observer| {
        client.session(SESSION).is_ok_and(|session| session.activity.as_deref() == Some("Building"))
    };
    client.until("the activity", busy).await.unwrap();
    assert_eq!(client.chat(chat).unwrap().background_work.as_ref().unwrap().len(), 1);
}

/// Whether no activity, background work or running server is left.
fn is_idle(client: &Observer, chat: &str) -> bool {
    let (chat, session) = (client.chat(chat).unwrap(), client.session(SESSION).unwrap());
    let servers = json!(session.customizations);
    let stopped = servers.as_array().unwrap().iter().all(|server| server["state"]["kind"] == "stopped");
    let works = chat.background_work.iter().flatten().count();
    stopped && works == 0 && chat.activity.is_none() && session.activity.is_none()
}

#[tokio::test]
async fn activity_of_an_agent_is_cleared_when_it_ends() {
    let storage = MemoryStorage::new();
    let host = host_on(&storage).await;
    let (mut client, chat) = opened(&host).await;
    let player = begun(&host, &client, &chat).await;
    shows_work(&player, &mut client, &chat).await;
    player.crash().await.unwrap();
    client.until("the activity is cleared", |client| is_idle(client, &chat)).await.unwrap();

    client.dispatch(&chat, started("t2")).await.unwrap();
    let mut player = host.stage().player().await.unwrap();
    player.prompt().await.unwrap();
    shows_work(&player, &mut client, &chat).await;
    // Storing a decision also stores all earlier actions.
    let title = json!({"type": "session/titleChanged", "title": "mine"});
    assert_eq!(answer(&mut client, SESSION, title).await, None);
    let next = host_on(&storage.after_a_crash()).await;
    let mut again = next.observer("again").await.unwrap();
    again.open_session(SESSION).await.unwrap();
    assert_eq!(again.session(SESSION).unwrap().title, "mine");
    assert!(
        !json!(again.session(SESSION).unwrap().customizations).is_null(),
        "the customizations were not stored"
    );
    assert!(is_idle(&again, &chat));
    assert_eq!(again.list_sessions().await.unwrap()[0].activity, None);

    // A clean shutdown stores the cleared state.
    let ((), left) = tokio::join!(host.stop(), player.leave_when_told());
    left.unwrap();
    let next = host_on(&storage).await;
    let mut again = next.observer("again").await.unwrap();
    again.open_session(SESSION).await.unwrap();
    assert!(is_idle(&again, &chat));
}

#[tokio::test]
async fn windowed_client_pages_back_and_gets_a_snapshot_on_reconnect() {
    let host = host_on(&MemoryStorage::new()).await;
    let (mut client, chat) = opened(&host).await;
    let mut player = begun(&host, &client, &chat).await;
    player.complete("t1").await.unwrap();
    client.until_turn_over(&chat, "t1").await.unwrap();
    for number in 2..=120 {
        let turn = format!("t{number}");
        client.dispatch(&chat, started(&turn)).await.unwrap();
        player.prompt().await.unwrap();
        player.complete(&turn).await.unwrap();
        client.until_turn_over(&chat, &turn).await.unwrap();
    }
    let mut raw = host.raw().await.unwrap();
    raw.initialize("raw", &[]).await.unwrap();
    let answer = raw.request("subscribe", json!({"channel": chat, "view": {"turns": 10}})).await.unwrap();
    let state = &answer["result"]["snapshot"]["state"];
    assert_eq!(state["turns"].as_array().unwrap().len(), 10);
    assert_eq!(state["turns"][0]["id"], "t111");
    let mut cursor = state["turnsNextCursor"].clone();
    let mut pages = Vec::new();
    while !cursor.is_null() {
        // The turns arrive before the response.
        let fetch = json!({"jsonrpc": "2.0", "id": 77, "method": "fetchTurns", "params": {"channel": chat, "cursor": cursor}});
        raw.send_text(&fetch.to_string()).await.unwrap();
        let loaded = raw.receive().await.unwrap();
        assert_eq!(loaded["params"]["action"]["type"], "chat/turnsLoaded", "{loaded}");
        assert_eq!(raw.receive().await.unwrap()["result"], json!({}));
        let turns = loaded["params"]["action"]["turns"].as_array().unwrap().clone();
        pages.push((turns[0]["id"].clone(), turns.len()));
        cursor = loaded["params"]["action"]["turnsNextCursor"].clone();
    }
    assert_eq!(pages, [(json!("t61"), 50), (json!("t11"), 50), (json!("t1"), 10)]);
    for (params, code) in [
        (json!({"channel": chat, "cursor": "no"}), -32602),
        (json!({"channel": chat, "cursor": 7}), -32602),
        (json!({}), -32602),
        (json!({"channel": "ahp-chat:/gone"}), -32008),
        (json!({"channel": "scripted:/1"}), -32008),
    ] {
        let refused = raw.request("fetchTurns", params.clone()).await.unwrap();
        assert_eq!(refused["error"]["code"], code, "{params}");
    }

    let mut short = host.raw().await.unwrap();
    short.initialize("short", &[]).await.unwrap();
    let answer = short.request("subscribe", json!({"channel": chat, "view": {"turns": 1}})).await.unwrap();
    let seen = answer["result"]["snapshot"]["fromSeq"].clone();
    drop(short);
    let mut back = host.raw().await.unwrap();
    let params = json!({"clientId": "short", "lastSeenServerSeq": seen, "subscriptions": [chat]});
    let answer = back.request("reconnect", params).await.unwrap();
    assert_eq!(answer["result"]["type"], "snapshot", "the host does not know which turns the client has");
    assert_eq!(answer["result"]["snapshots"][0]["state"]["turns"].as_array().unwrap().len(), 120);
}

/// The state that a new client receives: the root, the session, the chat and the list.
async fn everything(host: &StageHost, chat: &str) -> Vec<Value> {
    let mut judge = Wire::open(host, "judge", &["1.0.0"]).await;
    let mut seen = Vec::new();
    for channel in ["ahp-root://", SESSION, chat] {
        seen.push(judge.snapshot(channel).await);
    }
    seen.push(judge.ask("listSessions", json!({})).await["items"].clone());
    // The number of loaded sessions is not stored.
    seen[0]["activeSessions"] = Value::Null;
    seen
}

/// Checks that a new client receives the same state after a crash and after a restart.
async fn survives(host: StageHost, storage: &MemoryStorage, chat: &str) -> (StageHost, Vec<Value>) {
    let before = everything(&host, chat).await;
    // The crash comes first, since a clean shutdown writes more.
    let killed = host_on(&storage.after_a_crash()).await;
    assert_eq!(everything(&killed, chat).await, before, "after a crash");
    host.stop().await;
    let next = host_on(storage).await;
    assert_eq!(everything(&next, chat).await, before, "after a restart");
    next.stop().await;
    let third = host_on(storage).await;
    assert_eq!(everything(&third, chat).await, before, "after a restart without changes");
    (third, before)
}

#[tokio::test]
async fn settings_and_usage_survive_a_restart_and_a_crash() {
    let storage = MemoryStorage::new();
    let host = host_on(&storage).await;
    let (mut client, chat) = opened(&host).await;
    let player = begun(&host, &client, &chat).await;
    let usage = json!({"inputTokens": 812, "outputTokens": 40, "model": "m", "cacheReadTokens": 3});
    player.act(json!({"type": "chat/usage", "turnId": "t1", "usage": usage})).await.unwrap();
    player.text("t1", "p", &["an ", "answer"]).await.unwrap();
    player.complete("t1").await.unwrap();
    client.until_turn_over(&chat, "t1").await.unwrap();
    player.crash().await.unwrap();
    let values = json!({"mode": "bold", "effort": 4, "loud": true, "names": ["a"]});
    let draft = json!({"text": "half a thou", "origin": {"kind": "user"}});
    for (channel, action) in [
        ("ahp-root://", json!({"type": "root/configChanged", "config": {"anything": {"deep": [1]}}})),
        (SESSION, json!({"type": "session/configChanged", "config": values})),
        (SESSION, json!({"type": "session/isReadChanged", "isRead": true})),
        (SESSION, json!({"type": "session/isArchivedChanged", "isArchived": true})),
        (&chat, json!({"type": "chat/isReadChanged", "isRead": true})),
        (&chat, json!({"type": "chat/isArchivedChanged", "isArchived": true})),
        (&chat, json!({"type": "chat/draftChanged", "draft": draft})),
        // Storing a decision also stores all earlier actions.
        (SESSION, json!({"type": "session/titleChanged", "title": "mine"})),
    ] {
        assert_eq!(answer(&mut client, channel, action.clone()).await, None, "{action}");
    }
    client.client.shutdown().await;
    let (_host, seen) = survives(host, &storage, &chat).await;
    let [root, session, state, rows] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(root["config"]["values"]["anything"], json!({"deep": [1]}));
    assert_eq!((&session["title"], &rows[0]["title"]), (&json!("mine"), &json!("mine")));
    let values = json!({"fixed": "at first", "mode": "bold", "effort": 4, "loud": true, "names": ["a"]});
    assert_eq!(session["config"]["values"], values);
    // Idle, read and archived.
    for status in [&session["status"], &state["status"], &session["chats"][0]["status"], &rows[0]["status"]] {
        assert_eq!(*status, 1 + 32 + 64, "{seen:?}");
    }
    assert_eq!((&state["draft"], &state["turns"][0]["usage"]), (&draft, &usage));
}

#[tokio::test]
async fn queue_order_and_usage_of_a_failed_turn_survive_a_restart_and_a_crash() {
    let storage = MemoryStorage::new();
    let host = host_on(&storage).await;
    let (mut client, chat) = opened(&host).await;
    let player = begun(&host, &client, &chat).await;
    let usage = json!({"inputTokens": 7});
    player.act(json!({"type": "chat/usage", "turnId": "t1", "usage": usage})).await.unwrap();
    let removed = json!({"type": "chat/pendingMessageRemoved", "kind": "queued", "id": "m1"});
    let order = json!({"type": "chat/queuedMessagesReordered", "order": ["m3", "m1", "m2"]});
    for action in [queued("m1"), queued("m2"), queued("m3"), order, removed] {
        assert_eq!(answer(&mut client, &chat, action).await, None);
    }
    // After a failed turn the queue waits for a client.
    player.crash().await.unwrap();
    client.until_turn_over(&chat, "t1").await.unwrap();
    client.client.shutdown().await;
    let (host, seen) = survives(host, &storage, &chat).await;
    let state = &seen[2];
    let waiting: Vec<&Value> =
        state["queuedMessages"].as_array().unwrap().iter().map(|queued| &queued["id"]).collect();
    assert_eq!(waiting, ["m3", "m2"]);
    assert_eq!(state["turns"][0]["usage"], usage);
    assert_eq!(host.stage().asked(), 0, "an agent was opened by reading");
}
