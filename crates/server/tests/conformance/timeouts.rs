//! Timeouts, on a paused clock and therefore without sockets: clients that do not reconnect
//! after a restart, and sessions that are not used.

use std::sync::Arc;
use std::time::Duration;

use innkeeper_core::agent::{AgentCommand, StopTarget};
use innkeeper_core::clock::SystemClock;
use innkeeper_core::host::NewSession;
use innkeeper_core::ids::{ClientId, ConnectionId};
use innkeeper_core::session::ChatError;
use innkeeper_core::state::{Action, Frame, Origin, Outbox, Subscription};
use innkeeper_core::storage::{Storage as _, StorageError};
use innkeeper_core::{
    AgentLifetimes, ChannelUri, EditConfig, Host, HostConfig, HostServices, PermissionConfig,
};
use innkeeper_core_fakes::{MemoryStorage, Player, Stage};
use serde_json::json;
use tokio::time::Instant;

use crate::scene::started;

async fn start(stage: &Stage, storage: &Arc<MemoryStorage>) -> Arc<Host> {
    let storage = Arc::clone(storage);
    let config = HostConfig {
        providers: vec![stage.provider()],
        clock: Arc::new(SystemClock),
        storage,
        permissions: PermissionConfig::default(),
        edits: EditConfig::none(),
        lifetimes: AgentLifetimes::default(),
        services: HostServices::default(),
    };
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

/// Creates a session of `c1` with a running turn.
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
async fn idle_session_is_unloaded_once_stored_and_loaded_on_demand() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let host = start(&stage, &storage).await;
    let (session, chat, player) = with_a_turn(&host, &stage).await;
    player.complete("t1").await.unwrap();
    player.crash().await.unwrap();

    storage.fail_writes(Some(StorageError::Full));
    tokio::time::sleep(Duration::from_secs(60 * 60)).await;
    assert!(host.store().has(&chat), "unloaded although it could not be stored");
    storage.fail_writes(None);
    tokio::time::sleep(Duration::from_secs(60 * 60)).await;
    assert!(!host.store().has(&chat) && !host.store().has(&session));
    assert_eq!(host.list_sessions(None, None).rows.len(), 1, "the unloaded session is not listed");

    assert!(open(&host, &chat).await);
    let turns = host.store().read(&chat, |state| state.chat_doc().map(|chat| chat.turns().len())).flatten();
    assert_eq!(turns, Some(1));
}

#[tokio::test(start_paused = true)]
async fn streamed_text_is_stored_within_100_ms() {
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

fn active_clients(host: &Host, session: &ChannelUri) -> Option<usize> {
    host.store().read(session, |state| state.session().map(|session| session.active_clients.len())).flatten()
}

#[tokio::test(start_paused = true)]
async fn active_client_is_removed_if_it_does_not_reconnect_after_a_restart() {
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
    host.record_clean_shutdown().await;

    let host = start(&stage, &storage).await;
    let connection = host.store().attach(Arc::new(Outbox::default()));
    let how = Subscription::default();
    let subscribed = host.subscribe(connection, &session, how, |snapshot| Frame::encode(&snapshot.is_some()));
    subscribed.await.unwrap().unwrap();
    assert_eq!(active_clients(&host, &session), Some(1), "removed before its reconnect time is over");
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(active_clients(&host, &session), Some(0));
}

fn activated(client: &str) -> Action {
    let active = json!({"clientId": client, "tools": []});
    let action = json!({"type": "session/activeClientSet", "activeClient": active});
    Action::from_client(serde_json::value::to_raw_value(&action).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn client_that_disconnects_before_its_activation_is_handled_is_removed() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let host = start(&stage, &storage).await;
    let session = unused_session(&host).await;
    let watcher = connected(&host, "c2");
    subscribed(&host, watcher, &session).await;
    let (connection, client) = (connected(&host, "c1"), ClientId::new("c1"));
    let origin = Origin { connection, client: client.clone(), client_seq: 1 };
    host.dispatch(session.clone(), activated("c1"), origin).await;
    host.store().detach(connection);
    host.disconnected(&client);
    assert_eq!(active_clients(&host, &session), Some(0), "the session has already handled the activation");
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(active_clients(&host, &session), Some(1), "removed before its reconnect time is over");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(active_clients(&host, &session), Some(0));
}

#[tokio::test(start_paused = true)]
async fn reconnected_client_stays_active_only_in_subscribed_sessions() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let host = start(&stage, &storage).await;
    let session = unused_session(&host).await;
    for client in ["c1", "c2", "c3"] {
        let connection = connected(&host, client);
        let origin = Origin { connection, client: ClientId::new(client), client_seq: 1 };
        host.dispatch(session.clone(), activated(client), origin).await;
    }
    host.shutdown().await;
    host.record_clean_shutdown().await;

    let host = start(&stage, &storage).await;
    connected(&host, "c1");
    subscribed(&host, connected(&host, "c2"), &session).await;
    subscribed(&host, connected(&host, "c3"), &ChannelUri::default_chat_of(&session)).await;
    assert_eq!(active_clients(&host, &session), Some(3));
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(active_clients(&host, &session), Some(3), "a connected client has more time");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(active_clients(&host, &session), Some(2), "a client without a subscription is still active");
}

#[tokio::test(start_paused = true)]
async fn reconnected_client_that_activates_late_has_time_to_subscribe() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let host = start(&stage, &storage).await;
    let (session, client) = (unused_session(&host).await, ClientId::new("c1"));
    host.store().detach(connected(&host, "c1"));
    host.disconnected(&client);
    let connection = connected(&host, "c1");
    tokio::time::sleep(Duration::from_secs(29)).await;
    let origin = Origin { connection, client, client_seq: 1 };
    host.dispatch(session.clone(), activated("c1"), origin).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(active_clients(&host, &session), Some(1));
    subscribed(&host, connection, &session).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(active_clients(&host, &session), Some(1));
}

/// Creates a session of `c1` without turns.
async fn unused_session(host: &Host) -> ChannelUri {
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

/// Connects a client without subscriptions.
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

/// Waits longer than any unused session is kept.
async fn wait_an_hour() {
    tokio::time::sleep(Duration::from_secs(60 * 60)).await;
}

async fn is_stored(storage: &MemoryStorage, session: &ChannelUri) -> bool {
    storage.load_session(session.clone()).await.unwrap().is_some()
}

#[tokio::test(start_paused = true)]
async fn unused_session_is_removed_after_its_creator_disconnects() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let host = start(&stage, &storage).await;
    let creator = connected(&host, "c1");
    let session = unused_session(&host).await;
    let chat = ChannelUri::default_chat_of(&session);
    wait_an_hour().await;
    assert!(
        host.store().has(&session) && is_stored(&storage, &session).await,
        "removed although its creator is connected"
    );

    host.store().detach(creator);
    tokio::time::sleep(Duration::from_secs(4 * 60)).await;
    assert!(host.store().has(&session), "removed before its creator could reconnect");
    let creator = connected(&host, "c1");
    tokio::time::sleep(Duration::from_secs(4 * 60)).await;
    host.store().detach(creator);
    tokio::time::sleep(Duration::from_secs(4 * 60)).await;
    assert!(host.store().has(&session), "the timeout did not restart");

    tokio::time::sleep(Duration::from_secs(2 * 60)).await;
    assert!(!host.store().has(&session) && !host.store().has(&chat));
    assert!(!is_stored(&storage, &session).await, "the removed session is stored");
    assert_eq!((host.session_count(), stage.asked()), (0, 0));
    unused_session(&host).await;
}

#[tokio::test(start_paused = true)]
async fn unused_session_is_kept_while_it_or_its_chat_has_a_subscriber() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let host = start(&stage, &storage).await;
    let session = unused_session(&host).await;
    let chat = ChannelUri::default_chat_of(&session);
    for channel in [&session, &chat] {
        let other = connected(&host, "c2");
        subscribed(&host, other, channel).await;
        wait_an_hour().await;
        assert!(
            host.store().has(&session) && is_stored(&storage, &session).await,
            "{channel} has a subscriber"
        );
        host.store().detach(other);
    }
    // A connected client that is neither its creator nor a subscriber does not keep it.
    connected(&host, "c2");
    wait_an_hour().await;
    assert!(!host.store().has(&session) && !is_stored(&storage, &session).await);
}

#[tokio::test(start_paused = true)]
async fn unused_session_is_removed_after_a_restart() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let host = start(&stage, &storage).await;
    let session = unused_session(&host).await;
    host.shutdown().await;
    host.record_clean_shutdown().await;
    assert!(is_stored(&storage, &session).await);

    let host = start(&stage, &storage).await;
    wait_an_hour().await;
    assert!(!is_stored(&storage, &session).await);
    assert_eq!(host.session_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn used_session_is_never_removed() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let host = start(&stage, &storage).await;
    let (session, _, player) = with_a_turn(&host, &stage).await;
    player.complete("t1").await.unwrap();
    player.crash().await.unwrap();
    wait_an_hour().await;
    assert!(is_stored(&storage, &session).await);
    assert_eq!(host.session_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn session_whose_agent_cannot_be_opened_is_listed_and_never_removed() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let host = start(&stage, &storage).await;
    let (session, client) = (unused_session(&host).await, ClientId::new("c1"));
    let chat = ChannelUri::default_chat_of(&session);
    stage.hold_openings();
    stage.fail_next_opening("install it first");
    let connection = host.store().attach(Arc::new(Outbox::default()));
    let action = serde_json::value::to_raw_value(&started("t1")).unwrap();
    let origin = Origin { connection, client, client_seq: 1 };
    host.dispatch(chat.clone(), Action::from_client(action).unwrap(), origin).await;
    stage.opened(1).await.unwrap();
    assert_eq!(host.list_sessions(None, None).rows.len(), 1, "not listed after its first message");
    stage.release_openings();
    host.store().detach(connection);
    wait_an_hour().await;
    assert!(!host.store().has(&session), "the idle session is still loaded");
    assert!(is_stored(&storage, &session).await);
    assert_eq!((host.list_sessions(None, None).rows.len(), host.session_count()), (1, 1));
    assert!(open(&host, &chat).await);
    let turns = host.store().read(&chat, |state| state.chat_doc().map(|chat| chat.turns().len())).flatten();
    assert_eq!(turns, Some(1));
}

#[tokio::test(start_paused = true)]
async fn request_to_an_agent_that_does_not_answer_fails() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let host = start(&stage, &storage).await;
    let (_, chat, mut player) = with_a_turn(&host, &stage).await;
    let began = Instant::now();
    let late = host.stop_work(&chat, StopTarget::Background).await.unwrap().await.unwrap_err();
    assert!(late.to_string().contains("restart the agent"), "{late}");
    assert_eq!(began.elapsed().as_secs(), 10);
    while player.waiting_command().is_some() {}
    player.run_in_background("t1", "k1", "w1", "npm run dev").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Requests whose callers have stopped waiting leave room for others.
    for _ in 0..40 {
        let stopped = host.stop_work(&chat, StopTarget::Work("w1".to_owned())).await.unwrap();
        let late = stopped.await.unwrap_err();
        assert!(matches!(late, ChatError::TimedOut(_)), "{late}");
        assert!(matches!(player.command().await.unwrap(), AgentCommand::StopWork { .. }));
    }
    let began = Instant::now();
    let late = host.restart_agent(&chat).await.unwrap().await.unwrap_err();
    assert!(late.to_string().contains("restart the host"), "{late}");
    assert_eq!(began.elapsed().as_secs(), 30);
}
