//! What takes time, on a paused clock and so without sockets: clients that do not come
//! back to the next host, and sessions that nobody uses.

use std::sync::Arc;
use std::time::Duration;

use innkeeper_core::clock::SystemClock;
use innkeeper_core::host::NewSession;
use innkeeper_core::ids::{ClientId, ConnectionId};
use innkeeper_core::state::{Action, Frame, Origin, Outbox, Subscription};
use innkeeper_core::storage::{Storage as _, StorageError};
use innkeeper_core::{ChannelUri, Host, HostConfig};
use innkeeper_testkit::{MemoryStorage, Player, Stage};
use serde_json::json;

use crate::scene::started;

async fn start(stage: &Stage, storage: &Arc<MemoryStorage>) -> Arc<Host> {
    let storage = Arc::clone(storage);
    let config = HostConfig { providers: vec![stage.provider()], clock: Arc::new(SystemClock), storage };
    Host::start(config).await.unwrap()
}

async fn open(host: &Host, channel: &ChannelUri) -> bool {
    let connection = host.store().attach(Arc::new(Outbox::default()));
    let mut found = false;
    let subscribed = host.subscribe(connection, channel, Subscription::default(), |snapshot| {
        found = snapshot.is_some();
        Frame::encode(&found)
    });
    subscribed.await.unwrap().unwrap();
    host.store().detach(connection);
    found
}

/// A session of `c1` with a running turn.
async fn with_a_turn(host: &Host, stage: &Stage) -> (ChannelUri, ChannelUri, Player) {
    let (session, client) = (ChannelUri::new("scripted:/1"), ClientId::new("c1"));
    let chat = ChannelUri::default_chat_of(&session);
    let new = NewSession {
        uri: session.clone(),
        provider: None,
        working_directories: Vec::new(),
        config: Default::default(),
        active_client: None,
        creator: Some(client.clone()),
    };
    host.create_session(new).await.unwrap();
    let connection = host.store().attach(Arc::new(Outbox::default()));
    let action = serde_json::value::to_raw_value(&started("t1")).unwrap();
    let origin = Origin { connection, client, client_seq: 1 };
    host.dispatch(chat.clone(), Action::from_client(action).unwrap(), origin).await;
    let mut player = stage.player().await.unwrap();
    player.prompt().await.unwrap();
    (session, chat, player)
}

#[tokio::test(start_paused = true)]
async fn a_session_that_nobody_uses_leaves_the_memory_once_it_is_stored_and_comes_back_when_it_is_wanted() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let host = start(&stage, &storage).await;
    let (session, chat, player) = with_a_turn(&host, &stage).await;
    player.complete("t1").await.unwrap();
    player.crash().await.unwrap();

    storage.fail_writes(Some(StorageError::Full));
    tokio::time::sleep(Duration::from_secs(60 * 60)).await;
    assert!(host.store().has(&chat), "it could not be stored");
    storage.fail_writes(None);
    tokio::time::sleep(Duration::from_secs(60 * 60)).await;
    assert!(!host.store().has(&chat) && !host.store().has(&session));
    assert_eq!(host.list_sessions(None, None).rows.len(), 1, "it is still in the list");

    assert!(open(&host, &chat).await);
    let turns = host.store().read(&chat, |state| state.chat_doc().map(|chat| chat.turns().len())).flatten();
    assert_eq!(turns, Some(1));
}

#[tokio::test(start_paused = true)]
async fn streamed_text_is_stored_within_a_tenth_of_a_second() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let host = start(&stage, &storage).await;
    let (_, chat, player) = with_a_turn(&host, &stage).await;
    player.text("t1", "p", &["half ", "an ", "answer"]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let next = start(&stage, &Arc::new(storage.after_a_crash())).await;
    assert!(open(&next, &chat).await);
    let turns = next.store().read(&chat, |state| state.chat_doc().map(|chat| chat.whole().unwrap().turns));
    assert!(json!(turns).to_string().contains("half an answer"), "{turns:?}");
}

fn taking_part(host: &Host, session: &ChannelUri) -> Option<usize> {
    host.store().read(session, |state| state.session().map(|session| session.active_clients.len())).flatten()
}

#[tokio::test(start_paused = true)]
async fn who_does_not_come_back_to_the_next_host_leaves_the_session_there() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let (session, client) = (ChannelUri::new("scripted:/1"), ClientId::new("gone"));
    let chat = ChannelUri::default_chat_of(&session);
    let host = start(&stage, &storage).await;
    let new = NewSession {
        uri: session.clone(),
        provider: None,
        working_directories: Vec::new(),
        config: Default::default(),
        active_client: serde_json::from_value(json!({"clientId": "gone", "tools": []})).unwrap(),
        creator: Some(client.clone()),
    };
    host.create_session(new).await.unwrap();
    let connection = host.store().attach(Arc::new(Outbox::default()));
    let action = serde_json::value::to_raw_value(&started("t1")).unwrap();
    let origin = Origin { connection, client: client.clone(), client_seq: 1 };
    host.dispatch(chat, Action::from_client(action).unwrap(), origin).await;
    let mut player = stage.player().await.unwrap();
    player.prompt().await.unwrap();
    let ((), left) = tokio::join!(host.shutdown(), player.leave_when_told());
    left.unwrap();
    host.finish().await;

    let host = start(&stage, &storage).await;
    let connection = host.store().attach(Arc::new(Outbox::default()));
    let how = Subscription::default();
    let subscribed = host.subscribe(connection, &session, how, |snapshot| Frame::encode(&snapshot.is_some()));
    subscribed.await.unwrap().unwrap();
    assert_eq!(taking_part(&host, &session), Some(1), "it may come back");
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(taking_part(&host, &session), Some(0));
}

fn activated(client: &str) -> Action {
    let active = json!({"clientId": client, "tools": []});
    let action = json!({"type": "session/activeClientSet", "activeClient": active});
    Action::from_client(serde_json::value::to_raw_value(&action).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn who_says_that_it_takes_part_and_is_gone_before_it_is_heard_leaves_in_time() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let host = start(&stage, &storage).await;
    let session = never_used(&host).await;
    let watcher = connected(&host, "c2");
    subscribed(&host, watcher, &session).await;
    let (connection, client) = (connected(&host, "c1"), ClientId::new("c1"));
    let origin = Origin { connection, client: client.clone(), client_seq: 1 };
    host.dispatch(session.clone(), activated("c1"), origin).await;
    host.store().detach(connection);
    host.disconnected(&client);
    assert_eq!(taking_part(&host, &session), Some(0), "the session has not come to it yet");
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(taking_part(&host, &session), Some(1), "it may come back");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(taking_part(&host, &session), Some(0));
}

#[tokio::test(start_paused = true)]
async fn who_comes_back_to_the_next_host_takes_part_only_where_it_listens() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let host = start(&stage, &storage).await;
    let session = never_used(&host).await;
    for client in ["c1", "c2", "c3"] {
        let connection = connected(&host, client);
        let origin = Origin { connection, client: ClientId::new(client), client_seq: 1 };
        host.dispatch(session.clone(), activated(client), origin).await;
    }
    host.shutdown().await;
    host.finish().await;

    let host = start(&stage, &storage).await;
    connected(&host, "c1");
    subscribed(&host, connected(&host, "c2"), &session).await;
    subscribed(&host, connected(&host, "c3"), &ChannelUri::default_chat_of(&session)).await;
    assert_eq!(taking_part(&host, &session), Some(3));
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(taking_part(&host, &session), Some(3), "who is there has more time");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(taking_part(&host, &session), Some(2), "one of them listens to nothing of it");
}

#[tokio::test(start_paused = true)]
async fn who_is_back_and_joins_late_has_time_to_listen() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let host = start(&stage, &storage).await;
    let (session, client) = (never_used(&host).await, ClientId::new("c1"));
    host.store().detach(connected(&host, "c1"));
    host.disconnected(&client);
    let connection = connected(&host, "c1");
    tokio::time::sleep(Duration::from_secs(29)).await;
    let origin = Origin { connection, client, client_seq: 1 };
    host.dispatch(session.clone(), activated("c1"), origin).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(taking_part(&host, &session), Some(1));
    subscribed(&host, connection, &session).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(taking_part(&host, &session), Some(1));
}

/// A session of `c1` that nobody has said anything in.
async fn never_used(host: &Host) -> ChannelUri {
    let session = ChannelUri::new("scripted:/1");
    let new = NewSession {
        uri: session.clone(),
        provider: None,
        working_directories: Vec::new(),
        config: Default::default(),
        active_client: None,
        creator: Some(ClientId::new("c1")),
    };
    host.create_session(new).await.unwrap();
    session
}

/// A connection of a client that subscribes to nothing.
fn connected(host: &Host, client: &str) -> ConnectionId {
    let connection = host.store().attach(Arc::new(Outbox::default()));
    let introduced = host.store().introduce(connection, &ClientId::new(client), &[], |_, snapshots| {
        Frame::encode(&snapshots.is_empty())
    });
    introduced.unwrap();
    connection
}

async fn subscribed(host: &Host, connection: ConnectionId, channel: &ChannelUri) {
    let how = Subscription::default();
    let subscribed = host.subscribe(connection, channel, how, |snapshot| Frame::encode(&snapshot.is_some()));
    subscribed.await.unwrap().unwrap();
}

/// Waits longer than any session stays that nobody wants.
async fn an_hour() {
    tokio::time::sleep(Duration::from_secs(60 * 60)).await;
}

async fn is_stored(storage: &MemoryStorage, session: &ChannelUri) -> bool {
    storage.load_session(session.clone()).await.unwrap().is_some()
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_never_used_goes_away_when_its_creator_is_gone() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let host = start(&stage, &storage).await;
    let creator = connected(&host, "c1");
    let session = never_used(&host).await;
    let chat = ChannelUri::default_chat_of(&session);
    an_hour().await;
    assert!(host.store().has(&session) && is_stored(&storage, &session).await, "its creator is there");

    host.store().detach(creator);
    tokio::time::sleep(Duration::from_secs(4 * 60)).await;
    assert!(host.store().has(&session), "a window that reloads comes back");
    let creator = connected(&host, "c1");
    tokio::time::sleep(Duration::from_secs(4 * 60)).await;
    host.store().detach(creator);
    tokio::time::sleep(Duration::from_secs(4 * 60)).await;
    assert!(host.store().has(&session), "the time begins anew when it leaves again");

    tokio::time::sleep(Duration::from_secs(2 * 60)).await;
    assert!(!host.store().has(&session) && !host.store().has(&chat));
    assert!(!is_stored(&storage, &session).await, "nothing of it is left");
    assert_eq!((host.session_count(), stage.asked()), (0, 0));
    never_used(&host).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_never_used_stays_while_somebody_watches_it_or_its_chat() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let host = start(&stage, &storage).await;
    let session = never_used(&host).await;
    let chat = ChannelUri::default_chat_of(&session);
    for channel in [&session, &chat] {
        let other = connected(&host, "c2");
        subscribed(&host, other, channel).await;
        an_hour().await;
        assert!(host.store().has(&session) && is_stored(&storage, &session).await, "{channel} is watched");
        host.store().detach(other);
    }
    // Somebody who is only connected, and did not create it, does not keep it.
    connected(&host, "c2");
    an_hour().await;
    assert!(!host.store().has(&session) && !is_stored(&storage, &session).await);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_never_used_goes_away_at_the_next_host_too() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let host = start(&stage, &storage).await;
    let session = never_used(&host).await;
    host.shutdown().await;
    host.finish().await;
    assert!(is_stored(&storage, &session).await);

    let host = start(&stage, &storage).await;
    an_hour().await;
    assert!(!is_stored(&storage, &session).await);
    assert_eq!(host.session_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_used_is_never_thrown_away() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let host = start(&stage, &storage).await;
    let (session, _, player) = with_a_turn(&host, &stage).await;
    player.complete("t1").await.unwrap();
    player.crash().await.unwrap();
    an_hour().await;
    assert!(is_stored(&storage, &session).await);
    assert_eq!(host.session_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_agent_cannot_be_opened_is_listed_at_once_and_never_thrown_away() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let host = start(&stage, &storage).await;
    let (session, client) = (never_used(&host).await, ClientId::new("c1"));
    let chat = ChannelUri::default_chat_of(&session);
    stage.hold_openings();
    stage.fail_next_opening("install it first");
    let connection = host.store().attach(Arc::new(Outbox::default()));
    let action = serde_json::value::to_raw_value(&started("t1")).unwrap();
    let origin = Origin { connection, client, client_seq: 1 };
    host.dispatch(chat.clone(), Action::from_client(action).unwrap(), origin).await;
    stage.opened(1).await.unwrap();
    assert_eq!(host.list_sessions(None, None).rows.len(), 1, "from its first message on");
    stage.release_openings();
    host.store().detach(connection);
    an_hour().await;
    assert!(!host.store().has(&session), "it is not needed in memory");
    assert!(is_stored(&storage, &session).await);
    assert_eq!((host.list_sessions(None, None).rows.len(), host.session_count()), (1, 1));
    assert!(open(&host, &chat).await);
    let turns = host.store().read(&chat, |state| state.chat_doc().map(|chat| chat.turns().len())).flatten();
    assert_eq!(turns, Some(1));
}
