//! What takes time, on a paused clock and so without sockets: clients that do not come
//! back to the next host, and sessions that nobody uses.

use std::sync::Arc;
use std::time::Duration;

use innkeeper_core::clock::SystemClock;
use innkeeper_core::host::NewSession;
use innkeeper_core::ids::ClientId;
use innkeeper_core::state::{Action, Frame, Origin, Outbox, Subscription};
use innkeeper_core::storage::StorageError;
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
    assert_eq!(host.list_sessions(0, None).rows.len(), 1, "it is still in the list");

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
