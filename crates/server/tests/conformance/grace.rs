//! What takes time, on a paused clock and so without sockets: a client that took part
//! in a session and did not come back to the next host.

use std::sync::Arc;
use std::time::Duration;

use innkeeper_core::clock::SystemClock;
use innkeeper_core::host::NewSession;
use innkeeper_core::ids::ClientId;
use innkeeper_core::state::{Action, Frame, Origin, Outbox, Subscription};
use innkeeper_core::{ChannelUri, Host, HostConfig};
use innkeeper_testkit::{MemoryStorage, Stage};
use serde_json::json;

use crate::scene::started;

async fn start(stage: &Stage, storage: &Arc<MemoryStorage>) -> Arc<Host> {
    let storage = Arc::clone(storage);
    let config = HostConfig { providers: vec![stage.provider()], clock: Arc::new(SystemClock), storage };
    Host::start(config).await.unwrap()
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
