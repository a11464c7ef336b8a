//! Repeated dispatches: a client that has received no answer dispatches an action again. The
//! host never applies it twice and always answers it.

use std::sync::Arc;

use futures_util::FutureExt as _;
use innkeeper_core::ChannelUri;
use innkeeper_core::ids::{ClientId, ConnectionId, ServerSeq};
use innkeeper_core::state::{Action, Frame, Origin, Outbox};
use innkeeper_core_fakes::MemoryStorage;
use serde_json::{Value, json};

use crate::scene::DIRECTORY;
use crate::stage_host::{StageHost, StageOptions};
use crate::wire::Wire;

const ROOT: &str = "ahp-root://";
const SESSION: &str = "scripted:/1";
const OTHER: &str = "scripted:/2";

async fn host_on(storage: &MemoryStorage) -> StageHost {
    let options = StageOptions { storage: Arc::new(storage.clone()), ..StageOptions::default() };
    StageHost::start(options).await.unwrap()
}

/// A client that has created a session and is subscribed to it.
async fn guest(host: &StageHost) -> Wire {
    let mut guest = Wire::open(host, "guest", &["1.0.0"]).await;
    guest.ask("createSession", json!({"channel": SESSION, "workingDirectories": [DIRECTORY]})).await;
    guest.snapshot(SESSION).await;
    guest
}

/// Reconnects the client. Returns the type of the reconnect result.
async fn reconnect(host: &StageHost, seen: u64, channels: &[&str]) -> (Wire, String) {
    let mut wire = Wire::connect(host, "guest").await;
    let params = json!({"clientId": "guest", "lastSeenServerSeq": seen, "subscriptions": channels});
    let told = wire.ask("reconnect", params).await["type"].as_str().unwrap().to_owned();
    (wire, told)
}

fn read(is_read: bool) -> Value {
    json!({"type": "session/isReadChanged", "isRead": is_read})
}

fn title(title: &str) -> Value {
    json!({"type": "session/titleChanged", "title": title})
}

/// The server sequence number of an answer that must not be a rejection.
fn accepted(envelope: &Value) -> u64 {
    assert_eq!(envelope.get("rejectionReason"), None, "{envelope}");
    envelope["serverSeq"].as_u64().unwrap()
}

fn rejected_as_repeated(envelope: &Value) {
    assert!(envelope["rejectionReason"].as_str().unwrap().contains("already handled"), "{envelope}");
}

/// Checks how often a change of the title was published.
async fn check_title_changes(judge: &mut Wire, times: usize) {
    judge.barrier(SESSION).await;
    let count = judge.actions(SESSION).iter().filter(|kind| **kind == "session/titleChanged").count();
    assert_eq!(count, times, "{:?}", judge.log);
}

#[tokio::test]
async fn after_a_crash_only_unanswered_dispatches_are_repetitions() {
    let storage = MemoryStorage::new();
    let host = host_on(&storage).await;
    let mut guest = guest(&host).await;
    guest.dispatch(SESSION, read(true)).await;
    guest.dispatch(SESSION, read(false)).await;
    let seen = accepted(&guest.envelope(2).await);
    guest.dispatch(SESSION, title("lost")).await;
    guest.envelope(3).await;
    let next = host_on(&storage.after_a_crash()).await;
    let (mut guest, told) = reconnect(&next, seen, &[ROOT, SESSION]).await;
    assert_eq!(told, "snapshot");
    for (seq, is_read) in [(1, true), (2, false)] {
        guest.dispatch_as(seq, SESSION, read(is_read)).await;
        accepted(&guest.envelope(seq).await);
    }
    guest.dispatch_as(3, SESSION, title("lost")).await;
    rejected_as_repeated(&guest.envelope(3).await);
    // The client has received an answer, so the same dispatch is a new one.
    guest.log.clear();
    guest.dispatch_as(3, SESSION, title("lost")).await;
    accepted(&guest.envelope(3).await);
}

#[tokio::test]
async fn dispatch_being_written_during_a_crash_is_a_repetition() {
    let storage = MemoryStorage::new();
    let host = host_on(&storage).await;
    let mut guest = guest(&host).await;
    guest.ask("createSession", json!({"channel": OTHER, "workingDirectories": [DIRECTORY]})).await;
    let other = guest.snapshot(OTHER).await;
    let chat = other["defaultChat"].as_str().unwrap().to_owned();
    let held = storage.hold_writes();
    let (lost, draft) = (guest.dispatch(SESSION, title("lost")).await, json!({"type": "chat/draftChanged"}));
    while storage.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    let mut seen = 0;
    for _ in 0..3 {
        let seq = guest.dispatch(&chat, draft.clone()).await;
        seen = accepted(&guest.envelope(seq).await);
    }
    drop(held);
    assert!(accepted(&guest.envelope(lost).await) > seen);
    let next = host_on(&storage.after_a_crash()).await;
    let (mut guest, _) = reconnect(&next, seen, &[ROOT, SESSION]).await;
    guest.dispatch_as(lost, SESSION, title("lost")).await;
    rejected_as_repeated(&guest.envelope(lost).await);
    // The client has received an answer, so the same dispatch is a new one.
    guest.log.clear();
    guest.dispatch_as(lost, SESSION, title("lost")).await;
    accepted(&guest.envelope(lost).await);
}

#[tokio::test]
async fn after_a_restart_only_unanswered_dispatches_are_repetitions() {
    let storage = MemoryStorage::new();
    let host = host_on(&storage).await;
    let mut guest = guest(&host).await;
    guest.dispatch(SESSION, read(true)).await;
    guest.dispatch(SESSION, read(false)).await;
    let seen = accepted(&guest.envelope(2).await);
    guest.dispatch(SESSION, title("missed")).await;
    guest.envelope(3).await;
    host.stop().await;
    let next = host_on(&storage).await;
    let (mut guest, told) = reconnect(&next, seen, &[ROOT, SESSION]).await;
    assert_eq!(told, "replay");
    guest.dispatch_as(1, SESSION, read(true)).await;
    accepted(&guest.envelope(1).await);
    guest.dispatch_as(3, SESSION, title("missed")).await;
    rejected_as_repeated(&guest.envelope(3).await);
}

#[tokio::test]
async fn repeated_dispatch_is_rejected_if_its_echo_is_not_sent() {
    let host = host_on(&MemoryStorage::new()).await;
    let mut guest = guest(&host).await;
    let mut judge = Wire::open(&host, "judge", &["1.0.0"]).await;
    judge.snapshot(SESSION).await;
    guest.dispatch(SESSION, read(true)).await;
    let seen = accepted(&guest.envelope(1).await);
    guest.dispatch(SESSION, title("once")).await;
    guest.envelope(2).await;
    drop(guest);
    // Without the channel; with a snapshot; and again, as if the answer had been lost.
    for (seen, channels, told) in
        [(seen, [ROOT].as_slice(), "replay"), (seen, &[ROOT, SESSION], "snapshot"), (seen, &[], "replay")]
    {
        let (mut guest, how) = reconnect(&host, seen, channels).await;
        assert_eq!(how, told);
        guest.dispatch_as(2, SESSION, title("once")).await;
        rejected_as_repeated(&guest.envelope(2).await);
        assert_eq!(guest.answers("guest", 2), 1);
    }
    check_title_changes(&mut judge, 1).await;
}

#[tokio::test]
async fn pending_answer_reaches_the_new_connection_of_its_client() {
    let storage = MemoryStorage::new();
    let host = host_on(&storage).await;
    let mut old = guest(&host).await;
    let mut judge = Wire::open(&host, "judge", &["1.0.0"]).await;
    judge.snapshot(SESSION).await;
    old.dispatch(SESSION, read(true)).await;
    let seen = accepted(&old.envelope(1).await);
    let held = storage.hold_writes();
    old.dispatch(SESSION, title("slow")).await;
    while storage.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    let (mut new, _) = reconnect(&host, seen, &[ROOT]).await;
    new.dispatch_as(2, SESSION, title("slow")).await;
    new.settle().await;
    assert_eq!(new.answers("guest", 2), 0, "answered before the write completed");
    drop(held);
    accepted(&new.envelope(2).await);
    accepted(&old.envelope(2).await);
    check_title_changes(&mut judge, 1).await;
    new.settle().await;
    assert_eq!(new.answers("guest", 2), 1);
}

/// A connection without a transport, which a test can drop at any moment.
struct BareConnection<'a> {
    host: &'a StageHost,
    id: ConnectionId,
    outbox: Arc<Outbox>,
}

impl<'a> BareConnection<'a> {
    fn new(host: &'a StageHost) -> Self {
        let outbox = Arc::new(Outbox::default());
        let id = host.host().store().attach(Arc::clone(&outbox));
        Self { host, id, outbox }
    }

    fn client() -> ClientId {
        ClientId::new("bare")
    }

    async fn introduce(&self) {
        let answer = |_, _| Frame::encode(&json!({}));
        self.host.host().introduce(self.id, &Self::client(), &[], answer).await.unwrap();
    }

    async fn resume(&self, seen: u64) {
        let (host, client) = (self.host.host(), Self::client());
        let answer = |_| Frame::encode(&json!({}));
        host.resume(self.id, &client, ServerSeq(seen), &[], answer).await.unwrap().unwrap();
    }

    fn dispatch(
        &self,
        client_seq: i64,
        channel: &str,
        action: &Value,
    ) -> impl Future<Output = ()> + Send + 'a {
        let action = Action::from_client(serde_json::value::to_raw_value(action).unwrap()).unwrap();
        let origin = Origin { connection: self.id, client: Self::client(), client_seq };
        self.host.host().dispatch(ChannelUri::new(channel), action, origin)
    }

    /// For each received answer, whether it is a rejection.
    fn answers(&self) -> Vec<bool> {
        let frames = self.outbox.try_batch().and_then(Result::ok).unwrap_or_default();
        let messages = frames.iter().map(|frame| serde_json::from_slice::<Value>(frame.bytes()).unwrap());
        let answers = messages.filter(|message| message["params"]["origin"]["clientId"] == "bare");
        answers.map(|message| message["params"].get("rejectionReason").is_some()).collect()
    }
}

#[tokio::test]
async fn dispatch_dropped_by_a_lost_connection_is_applied_on_the_next() {
    let storage = MemoryStorage::new();
    let host = host_on(&storage).await;
    let (old, new) = (BareConnection::new(&host), BareConnection::new(&host));
    old.introduce().await;
    let config = json!({"type": "root/configChanged", "config": {"a": 1}});
    let held = storage.hold_writes();
    let mut first = Box::pin(old.dispatch(1, ROOT, &config));
    assert!(first.as_mut().now_or_never().is_none());
    new.resume(0).await;
    let mut again = Box::pin(new.dispatch(1, ROOT, &config));
    assert!(again.as_mut().now_or_never().is_none(), "the first dispatch may still be applied");
    drop(first);
    drop(held);
    again.await;
    assert_eq!((old.answers(), new.answers()), (vec![], vec![false]));
}

#[tokio::test]
async fn dispatch_sent_on_two_connections_is_applied_once() {
    let host = host_on(&MemoryStorage::new()).await;
    let (old, new) = (BareConnection::new(&host), BareConnection::new(&host));
    old.introduce().await;
    let seen = host.host().store().seq().0;
    new.resume(seen).await;
    for (first, second) in [(&new, &old), (&old, &new)] {
        let config = json!({"type": "root/configChanged", "config": {"a": first.id.number()}});
        first.dispatch(2, ROOT, &config).await;
        assert_eq!(first.answers(), [false]);
        second.dispatch(2, ROOT, &config).await;
        assert_eq!(second.answers(), [true]);
    }
    // A new handshake restarts the sequence numbers.
    let config = json!({"type": "root/configChanged", "config": {"a": new.id.number()}});
    let fresh = BareConnection::new(&host);
    fresh.introduce().await;
    for connection in [&fresh, &old] {
        connection.dispatch(2, ROOT, &config).await;
        assert_eq!(connection.answers(), [false]);
    }
}
