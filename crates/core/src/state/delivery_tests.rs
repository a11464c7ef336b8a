//! Property test: for any sequence of delays, merges, disconnects and replays, every
//! client ends with the published state, and receives the echo of each of its own
//! actions.

use std::sync::Arc;

use ahp::reducers::apply_action_to_chat;
use ahp_types::actions::{ActionEnvelope, StateAction};
use ahp_types::state::{ChatState, RootState, Snapshot, SnapshotState};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    Action, ChannelState, ChatDoc, Delivery, Frame, Missed, Origin, Outbox, StateStore, Subscription,
};
use crate::channel::ChannelUri;
use crate::ids::{ClientId, ConnectionId, ServerSeq};

const CHATS: usize = 3;
const CLIENTS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    /// The host publishes an action on a chat.
    Publish { chat: usize, what: What },
    /// Consecutive text deltas of an agent; many are merged in the queue.
    Burst { chat: usize, deltas: usize },
    /// A client dispatches an action on a chat.
    Dispatch { client: usize, chat: usize },
    /// A client reads its whole queue.
    Drain { client: usize },
    /// A client disconnects in the middle of its queue and reconnects.
    Break { client: usize, reads: usize },
    /// A client subscribes again and receives a new snapshot.
    Again { client: usize, chat: usize, latency: i64 },
}

#[derive(Clone, Debug)]
enum What {
    Started,
    Part { id: &'static str },
    Delta { id: &'static str, text: String },
    Reasoning { id: &'static str, text: String },
    Usage(u32),
    Activity(Option<String>),
    Completed,
}

fn id() -> impl Strategy<Value = &'static str> {
    prop_oneof![3 => Just("p"), 1 => Just("q")]
}

fn text() -> impl Strategy<Value = String> {
    "[a-zé\u{1F600}\"\\\\\n]{0,4}"
}

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        1 => Just(What::Started),
        2 => id().prop_map(|id| What::Part { id }),
        8 => (id(), text()).prop_map(|(id, text)| What::Delta { id, text }),
        4 => (id(), text()).prop_map(|(id, text)| What::Reasoning { id, text }),
        2 => (0..9u32).prop_map(What::Usage),
        2 => proptest::option::of(text()).prop_map(What::Activity),
        1 => Just(What::Completed),
    ]
}

fn latency() -> impl Strategy<Value = i64> {
    prop_oneof![Just(0), Just(20), Just(-5), Just(i64::MAX)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        16 => (0..CHATS, what()).prop_map(|(chat, what)| Step::Publish { chat, what }),
        8 => (0..CHATS, 2..6usize).prop_map(|(chat, deltas)| Step::Burst { chat, deltas }),
        1 => (0..CHATS, 200..600usize).prop_map(|(chat, deltas)| Step::Burst { chat, deltas }),
        2 => (0..CLIENTS, 0..CHATS).prop_map(|(client, chat)| Step::Dispatch { client, chat }),
        2 => (0..CLIENTS).prop_map(|client| Step::Drain { client }),
        4 => (0..CLIENTS, 0..6usize).prop_map(|(client, reads)| Step::Break { client, reads }),
        1 => (0..CLIENTS, 0..CHATS, latency())
            .prop_map(|(client, chat, latency)| Step::Again { client, chat, latency }),
    ]
}

fn uri(chat: usize) -> ChannelUri {
    ChannelUri::new(&format!("ahp-chat:/{chat}"))
}

fn empty_chat(chat: usize) -> ChatState {
    serde_json::from_value(json!({
        "resource": uri(chat).as_str(), "title": "", "status": 1,
        "modifiedAt": "2026-11-15T09:00:00.000Z", "turns": [],
    }))
    .unwrap()
}

fn action(value: Value) -> StateAction {
    let action: StateAction = serde_json::from_value(value.clone()).unwrap();
    assert!(!matches!(action, StateAction::Unknown(_)), "unknown action: {value}");
    action
}

fn published(what: What) -> StateAction {
    action(match what {
        What::Started => json!({"type": "chat/turnStarted", "turnId": "t",
            "startedAt": "2026-11-15T09:00:05.000Z", "message": {"text": "hi", "origin": {"kind": "user"}}}),
        What::Part { id: "q" } => json!({"type": "chat/responsePart", "turnId": "t",
            "part": {"kind": "reasoning", "id": "q", "content": ""}}),
        What::Part { id } => json!({"type": "chat/responsePart", "turnId": "t",
            "part": {"kind": "markdown", "id": id, "content": ""}}),
        What::Delta { id, text } => {
            json!({"type": "chat/delta", "turnId": "t", "partId": id, "content": text})
        }
        What::Reasoning { id, text } => {
            json!({"type": "chat/reasoning", "turnId": "t", "partId": id, "content": text})
        }
        What::Usage(tokens) => {
            json!({"type": "chat/usage", "turnId": "t", "usage": {"inputTokens": tokens}})
        }
        What::Activity(activity) => json!({"type": "chat/activityChanged", "activity": activity}),
        What::Completed => json!({"type": "chat/turnComplete", "turnId": "t", "duration": 7}),
    })
}

/// A client that subscribes to every chat and applies the frames it receives.
struct Client {
    id: ClientId,
    connection: ConnectionId,
    outbox: Arc<Outbox>,
    chats: [Option<ChatState>; CHATS],
    last_seq: u64,
    /// Numbers of its own actions, as sent and as echoed.
    sent: Vec<i64>,
    echoed: Vec<i64>,
    frames: usize,
}

impl Client {
    fn new(store: &StateStore, number: usize, latencies: [i64; CHATS]) -> Self {
        let (outbox, id) = (Arc::<Outbox>::default(), ClientId::new(&format!("c{number}")));
        let connection = store.attach(Arc::clone(&outbox));
        store.introduce(connection, &id, &[], |_, _| Frame::encode(&json!({"snapshots": []}))).unwrap();
        let chats = std::array::from_fn(|_| None);
        let mut client =
            Self { id, connection, outbox, chats, last_seq: 0, sent: vec![], echoed: vec![], frames: 0 };
        for (chat, latency) in latencies.into_iter().enumerate() {
            client.subscribe(store, chat, latency);
        }
        client.drain(usize::MAX);
        client
    }

    fn subscribe(&self, store: &StateStore, chat: usize, latency: i64) {
        let delivery = Delivery::within_millis(latency);
        store
            .subscribe(
                self.connection,
                &uri(chat),
                Subscription { newest_turns: None, delivery },
                |snapshots| {
                    let snapshots = Vec::from_iter(snapshots);
                    Frame::encode(&json!({ "snapshots": snapshots }))
                },
            )
            .unwrap();
    }

    /// Takes the queue and handles at most `reads` frames of it.
    fn drain(&mut self, reads: usize) {
        let Some(Ok(frames)) = self.outbox.try_batch() else { return };
        for frame in frames.into_iter().take(reads) {
            self.frames += 1;
            self.take(&serde_json::from_slice(frame.bytes()).unwrap());
        }
    }

    fn take(&mut self, message: &Value) {
        if let Some(snapshots) = message.get("snapshots") {
            for snapshot in serde_json::from_value::<Vec<Snapshot>>(snapshots.clone()).unwrap() {
                let SnapshotState::Chat(state) = snapshot.state else { panic!("not a chat") };
                let chat = (0..CHATS).find(|chat| uri(*chat).as_str() == snapshot.resource).unwrap();
                self.chats[chat] = Some(*state);
                self.last_seq = self.last_seq.max(snapshot.from_seq as u64);
            }
        } else if let Some(actions) = message.get("replay") {
            for action in actions.as_array().unwrap() {
                self.fold(action);
            }
        } else {
            self.fold(&message["params"]);
        }
    }

    fn fold(&mut self, envelope: &Value) {
        let envelope: ActionEnvelope = serde_json::from_value(envelope.clone()).unwrap();
        assert!(envelope.server_seq > self.last_seq, "sequence numbers increase");
        self.last_seq = envelope.server_seq;
        if let Some(origin) = envelope.origin.as_ref().filter(|origin| origin.client_id == self.id.as_str()) {
            self.echoed.push(origin.client_seq);
        }
        let chat = (0..CHATS).find(|chat| uri(*chat).as_str() == envelope.channel).unwrap();
        apply_action_to_chat(self.chats[chat].as_mut().unwrap(), &envelope.action);
    }

    /// Reconnects after losing all frames except the first `reads`.
    fn reconnect(&mut self, store: &StateStore, reads: usize) {
        self.drain(reads);
        store.detach(self.connection);
        self.outbox = Arc::default();
        self.connection = store.attach(Arc::clone(&self.outbox));
        let channels: Vec<ChannelUri> = (0..CHATS).map(uri).collect();
        let seen = ServerSeq(self.last_seq);
        let mut resynced = false;
        store
            .resume(self.connection, &self.id, seen, &channels, |missed| match missed {
                Missed::Replay { actions, .. } => Frame::encode(&json!({ "replay": actions })),
                Missed::Snapshots(snapshots) => {
                    resynced = true;
                    Frame::encode(&json!({ "snapshots": snapshots }))
                }
            })
            .unwrap();
        if resynced {
            // Echoes in the gap are not sent again, so the client drops its pending
            // actions.
            self.sent.clear();
            self.echoed.clear();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn delays_merges_and_reconnects_do_not_change_client_state(
        latencies in proptest::array::uniform3(proptest::array::uniform3(latency())),
        steps in proptest::collection::vec(step(), 0..60),
    ) {
        let root = RootState { agents: vec![], active_sessions: Some(0), terminals: None, config: None, meta: None };
        let store = StateStore::new(root);
        let mut expected: Vec<ChatState> = (0..CHATS).map(empty_chat).collect();
        let channels = (0..CHATS).map(|chat| (uri(chat), ChannelState::Chat(Box::new(ChatDoc::new(empty_chat(chat)).unwrap()))));
        store.create(channels.collect()).unwrap();
        let mut clients: Vec<Client> =
            latencies.into_iter().enumerate().map(|(number, own)| Client::new(&store, number, own)).collect();
        // So that most of the later actions have a target.
        let parts = (0..CHATS).flat_map(|chat| {
            [What::Started, What::Part { id: "p" }, What::Part { id: "q" }]
                .map(|what| Step::Publish { chat, what })
        });
        for step in parts.chain(steps) {
            let mut publish = |chat: usize, what: What| {
                let action = published(what);
                apply_action_to_chat(&mut expected[chat], &action);
                store.commit(&uri(chat), &Action::own(action), None).unwrap();
            };
            match step {
                Step::Publish { chat, what } => publish(chat, what),
                Step::Burst { chat, deltas } => {
                    for number in 0..deltas {
                        let id = if number % 50 == 49 { "q" } else { "p" };
                        publish(chat, What::Delta { id, text: number.to_string() });
                    }
                }
                Step::Dispatch { client, chat } => {
                    let client = &mut clients[client];
                    let client_seq = client.sent.last().map_or(1, |last| last + 1);
                    client.sent.push(client_seq);
                    let raw = json!({"type": "chat/activityChanged", "activity": client_seq.to_string(), "x": 1});
                    let sent = Action::from_client(serde_json::value::to_raw_value(&raw).unwrap()).unwrap();
                    apply_action_to_chat(&mut expected[chat], sent.typed());
                    let origin = Origin { connection: client.connection, client: client.id.clone(), client_seq };
                    store.commit(&uri(chat), &sent, Some(&origin)).unwrap();
                }
                Step::Drain { client } => clients[client].drain(usize::MAX),
                Step::Break { client, reads } => clients[client].reconnect(&store, reads),
                Step::Again { client, chat, latency } => clients[client].subscribe(&store, chat, latency),
            }
        }
        for client in &mut clients {
            client.drain(usize::MAX);
            for (chat, expected) in expected.iter().enumerate() {
                prop_assert_eq!(client.chats[chat].as_ref(), Some(expected));
            }
            prop_assert_eq!(&client.sent, &client.echoed);
        }
    }
}

#[test]
fn client_that_does_not_read_stays_connected_with_small_queue() {
    let store = StateStore::new(RootState {
        agents: vec![],
        active_sessions: None,
        terminals: None,
        config: None,
        meta: None,
    });
    store.create(vec![(uri(0), ChannelState::Chat(Box::new(ChatDoc::new(empty_chat(0)).unwrap())))]).unwrap();
    let outbox = Arc::<Outbox>::default();
    let connection = store.attach(Arc::clone(&outbox));
    store
        .subscribe(connection, &uri(0), Subscription::default(), |_| Frame::encode(&json!({"snapshots": []})))
        .unwrap();
    for what in [What::Started, What::Part { id: "p" }] {
        store.commit(&uri(0), &Action::own(published(what)), None).unwrap();
    }
    let delta = Action::own(published(What::Delta { id: "p", text: "0123456789".to_owned() }));
    for _ in 0..100_000 {
        store.commit(&uri(0), &delta, None).unwrap();
    }
    let frames = outbox.try_batch().unwrap().unwrap();
    assert!(frames.len() < 600, "{} frames", frames.len());
    let bytes: usize = frames.iter().map(Frame::len).sum();
    assert!(bytes < 1_200_000, "{bytes} bytes");
}
