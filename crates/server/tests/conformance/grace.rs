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
use innkeeper_testkit::{MemoryStorage, Stage};
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

#[tokio::test(start_paused = true)]
async fn a_session_that_nobody_uses_leaves_the_memory_once_it_is_stored_and_comes_back_when_it_is_wanted() {
    let (stage, storage) = (Stage::default(), Arc::new(MemoryStorage::new()));
    let (session, client) = (ChannelUri::new("scripted:/1"), ClientId::new("c1"));
    let chat = ChannelUri::default_chat_of(&session);
    let host = start(&stage, &storage).await;
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
