use std::sync::Arc;

use ahp_types::actions::{
    ActionEnvelope, ChatDeltaAction, ChatResponsePartAction, ChatTurnCompleteAction, ChatTurnStartedAction,
    StateAction,
};
use ahp_types::state::{
    ChatState, MarkdownResponsePart, Message, MessageKind, MessageOrigin, ResponsePart, SessionSummary,
    Snapshot, SnapshotState,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::chat::ChatDoc;
use super::*;
use crate::ids::ClientId;
use crate::state::{Action, Origin};

pub(super) const CHATS: usize = 2;
const CLIENTS: usize = 3;

fn root() -> RootState {
    RootState { agents: Vec::new(), active_sessions: Some(0), terminals: None, config: None, meta: None }
}

pub(super) fn chat_uri(number: usize) -> ChannelUri {
    ChannelUri::new(&format!("ahp-chat:/{number}"))
}

pub(super) fn empty_chat(number: usize) -> ChatState {
    serde_json::from_value(json!({
        "resource": chat_uri(number).as_str(), "title": "", "status": 1,
        "modifiedAt": "2026-11-15T09:00:00.000Z", "turns": [],
    }))
    .unwrap()
}

pub(super) fn store_with_chats() -> StateStore {
    let store = StateStore::new(root());
    let chats = (0..CHATS).map(|number| {
        (chat_uri(number), ChannelState::Chat(Box::new(ChatDoc::new(empty_chat(number)).unwrap())))
    });
    store.create(chats.collect()).unwrap();
    store
}

pub(super) fn started(turn: &str) -> StateAction {
    StateAction::ChatTurnStarted(ChatTurnStartedAction {
        turn_id: turn.to_owned(),
        started_at: "2026-11-15T09:00:05.000Z".to_owned(),
        message: Message {
            text: "hi".to_owned(),
            origin: MessageOrigin { kind: MessageKind::User },
            attachments: None,
            model: None,
            agent: None,
            meta: None,
        },
        queued_message_id: None,
        meta: None,
    })
}

pub(super) fn part(turn: &str, id: &str) -> StateAction {
    let part = ResponsePart::Markdown(MarkdownResponsePart { id: id.to_owned(), content: String::new() });
    StateAction::ChatResponsePart(ChatResponsePartAction { turn_id: turn.to_owned(), part, meta: None })
}

pub(super) fn delta(turn: &str, id: &str, content: &str) -> StateAction {
    StateAction::ChatDelta(ChatDeltaAction {
        turn_id: turn.to_owned(),
        part_id: id.to_owned(),
        content: content.to_owned(),
        meta: None,
    })
}

pub(super) fn complete(turn: &str) -> StateAction {
    StateAction::ChatTurnComplete(ChatTurnCompleteAction {
        turn_id: turn.to_owned(),
        duration: 7,
        meta: None,
    })
}

fn origin(connection: ConnectionId) -> Origin {
    Origin { connection, client: ClientId::new("c1"), client_seq: 9 }
}

fn received(outbox: &Outbox) -> Vec<Value> {
    match outbox.try_batch() {
        Some(Ok(frames)) => {
            frames.iter().map(|frame| serde_json::from_slice(frame.bytes()).unwrap()).collect()
        }
        _ => Vec::new(),
    }
}

fn subscribe(store: &StateStore, connection: ConnectionId, channel: &ChannelUri) {
    subscribe_as(store, connection, channel, 0);
}

/// Subscribes with this request number, which the response contains.
fn subscribe_as(store: &StateStore, connection: ConnectionId, channel: &ChannelUri, request: usize) {
    store
        .subscribe(connection, channel, Subscription::default(), |snapshot| {
            Frame::encode(&json!({ "answers": request, "snapshots": Vec::from_iter(snapshot) }))
        })
        .unwrap();
}

#[test]
fn echo_reaches_unsubscribed_sender_with_unknown_fields() {
    let store = store_with_chats();
    let outbox = Arc::new(Outbox::default());
    let connection = store.attach(Arc::clone(&outbox));
    let raw = r#"{"type":"chat/isReadChanged","isRead":true,"future":{"x":1}}"#;
    let action = Action::from_client(serde_json::from_str(raw).unwrap()).unwrap();
    store.commit(&chat_uri(0), &action, Some(&origin(connection))).unwrap();
    let messages = received(&outbox);
    assert_eq!(
        messages,
        [json!({
            "jsonrpc": "2.0",
            "method": "action",
            "params": {
                "channel": "ahp-chat:/0",
                "action": {"type": "chat/isReadChanged", "isRead": true, "future": {"x": 1}},
                "serverSeq": 1,
                "origin": {"clientId": "c1", "clientSeq": 9},
            },
        })]
    );
}

#[test]
fn rejection_reaches_only_its_sender() {
    let store = store_with_chats();
    let outboxes = [Arc::new(Outbox::default()), Arc::new(Outbox::default())];
    let connections = outboxes.each_ref().map(|outbox| store.attach(Arc::clone(outbox)));
    for connection in connections {
        subscribe(&store, connection, &chat_uri(0));
    }
    let before = store.read(&chat_uri(0), |state| state.chat().cloned()).unwrap();
    store.reject(&chat_uri(0), &Action::own(started("t")), &origin(connections[0]), "busy").unwrap();
    assert_eq!(received(&outboxes[0])[1]["params"]["rejectionReason"], "busy");
    assert_eq!(received(&outboxes[1]).len(), 1, "only its own snapshot");
    assert_eq!(store.read(&chat_uri(0), |state| state.chat().cloned()).unwrap(), before);
}

#[test]
fn rejects_action_for_other_channel_kind() {
    let store = store_with_chats();
    let error = store.commit(&ChannelUri::root(), &Action::own(started("t")), None).unwrap_err();
    assert!(matches!(error, CommitError::DoesNotFit(_)), "{error}");
    let error = store.commit(&ChannelUri::new("x:/1"), &Action::own(started("t")), None).unwrap_err();
    assert!(matches!(error, CommitError::UnknownChannel(_)), "{error}");
}

#[test]
fn row_changes_are_sent_to_root_subscribers() {
    let store = StateStore::new(root());
    let outbox = Arc::new(Outbox::default());
    let connection = store.attach(Arc::clone(&outbox));
    subscribe(&store, connection, &ChannelUri::root());
    received(&outbox);
    let uri = ChannelUri::new("claude:/1");
    let mut row: SessionSummary = serde_json::from_value(json!({
        "resource": "claude:/1", "provider": "claude", "title": "a", "status": 1,
        "createdAt": "2026-11-15T09:00:00.000Z", "modifiedAt": "2026-11-15T09:00:00.000Z",
    }))
    .unwrap();
    store.put_row(&uri, row.clone());
    row.title = "b".to_owned();
    store.put_row(&uri, row.clone());
    store.put_row(&uri, row);
    store.remove_row(&uri);
    store.remove_row(&uri);
    let seen: Vec<(String, Value)> = received(&outbox)
        .into_iter()
        .map(|message| (message["method"].as_str().unwrap().to_owned(), message["params"]["changes"].clone()))
        .collect();
    assert_eq!(
        seen,
        [
            ("root/sessionAdded".to_owned(), Value::Null),
            ("root/sessionSummaryChanged".to_owned(), json!({ "title": "b" })),
            ("root/sessionRemoved".to_owned(), Value::Null),
        ]
    );
}

/// A step of the property test.
#[derive(Clone, Debug)]
enum Step {
    Subscribe {
        client: usize,
        chat: usize,
    },
    Unsubscribe {
        client: usize,
        chat: usize,
    },
    /// The client reads some of its queue, loses the rest, and reconnects.
    Reconnect {
        client: usize,
        reads: usize,
    },
    Commit {
        chat: usize,
        action: usize,
        text: String,
    },
    Reject {
        client: usize,
        chat: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..CLIENTS, 0..CHATS).prop_map(|(client, chat)| Step::Subscribe { client, chat }),
        1 => (0..CLIENTS, 0..CHATS).prop_map(|(client, chat)| Step::Unsubscribe { client, chat }),
        2 => (0..CLIENTS, 0..12usize).prop_map(|(client, reads)| Step::Reconnect { client, reads }),
        8 => (0..CHATS, 0..4usize, "[a-zé\u{1F600}]{0,4}")
            .prop_map(|(chat, action, text)| Step::Commit { chat, action, text }),
        1 => (0..CLIENTS, 0..CHATS).prop_map(|(client, chat)| Step::Reject { client, chat }),
    ]
}

/// A client that applies the frames it receives, and its connection.
struct Client {
    id: ClientId,
    connection: ConnectionId,
    outbox: Arc<Outbox>,
    chats: [Option<ChatState>; CHATS],
    /// Sequence number of each chat's snapshot.
    from: [u64; CHATS],
    wanted: [bool; CHATS],
    /// How often each chat was dropped; responses to requests from before that are stale.
    requests: [usize; CHATS],
    last_seq: u64,
    replays: usize,
}

impl Client {
    fn new(store: &StateStore, number: usize) -> Self {
        let (outbox, id) = (Arc::<Outbox>::default(), ClientId::new(&format!("c{number}")));
        let connection = store.attach(Arc::clone(&outbox));
        store
            .introduce(connection, &id, &[], |_, snapshots| Frame::encode(&json!({ "snapshots": snapshots })))
            .unwrap();
        let (chats, from, wanted) = (std::array::from_fn(|_| None), [0; CHATS], [false; CHATS]);
        let requests = [0; CHATS];
        Self { id, connection, outbox, chats, from, wanted, requests, last_seq: 0, replays: 0 }
    }

    fn chat_of(uri: &str) -> usize {
        (0..CHATS).find(|chat| chat_uri(*chat).as_str() == uri).unwrap()
    }

    fn take(&mut self, message: &Value) {
        if let Some(snapshots) = message.get("snapshots") {
            for snapshot in serde_json::from_value::<Vec<Snapshot>>(snapshots.clone()).unwrap() {
                let SnapshotState::Chat(state) = snapshot.state else { panic!("not a chat") };
                let chat = Self::chat_of(&snapshot.resource);
                let stale =
                    message.get("answers").is_some_and(|request| *request != json!(self.requests[chat]))
                        || message
                            .get("since")
                            .is_some_and(|requests| requests[chat] != json!(self.requests[chat]));
                if stale {
                    continue;
                }
                self.chats[chat] = Some(*state);
                self.from[chat] = snapshot.from_seq as u64;
            }
        } else if let Some(actions) = message.get("replay") {
            self.replays += 1;
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
        if let Some(origin) = &envelope.origin {
            assert_eq!(origin.client_id, self.id.as_str(), "only the sender receives a rejection");
            return;
        }
        let chat = Self::chat_of(&envelope.channel);
        if let Some(state) = &mut self.chats[chat] {
            assert!(envelope.server_seq > self.from[chat], "actions in the snapshot are not sent again");
            ahp::reducers::apply_action_to_chat(state, &envelope.action);
        }
    }

    fn reconnect(&mut self, store: &StateStore, reads: usize) {
        for message in received(&self.outbox).iter().take(reads) {
            self.take(message);
        }
        store.detach(self.connection);
        self.outbox = Arc::default();
        self.connection = store.attach(Arc::clone(&self.outbox));
        // A client that lost the response to a subscribe does not know the channel.
        for chat in 0..CHATS {
            self.wanted[chat] &= self.chats[chat].is_some();
        }
        let channels: Vec<ChannelUri> = (0..CHATS).filter(|chat| self.wanted[*chat]).map(chat_uri).collect();
        let seen = ServerSeq(self.last_seq);
        store
            .resume(self.connection, &self.id, seen, &channels, |missed| match missed {
                Missed::Replay { actions, missing } => {
                    assert!(missing.is_empty());
                    Frame::encode(&json!({ "replay": actions }))
                }
                Missed::Snapshots(snapshots) => {
                    Frame::encode(&json!({ "since": self.requests, "snapshots": snapshots }))
                }
            })
            .unwrap();
    }
}

fn chat_state(store: &StateStore, chat: usize) -> ChatState {
    store.read(&chat_uri(chat), |state| state.chat_doc().unwrap().whole().unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reconnected_client_state_equals_published_state(
        steps in proptest::collection::vec(step(), 0..80)
    ) {
        let store = store_with_chats();
        let mut clients: Vec<Client> = (0..CLIENTS).map(|number| Client::new(&store, number)).collect();
        let mut full: Vec<ChatState> = (0..CHATS).map(empty_chat).collect();
        let mut turns = 0;
        for step in steps {
            match step {
                Step::Subscribe { client, chat } => {
                    let client = &mut clients[client];
                    subscribe_as(&store, client.connection, &chat_uri(chat), client.requests[chat]);
                    client.wanted[chat] = true;
                }
                Step::Unsubscribe { client, chat } => {
                    store.unsubscribe(clients[client].connection, &chat_uri(chat));
                    let client = &mut clients[client];
                    client.requests[chat] += 1;
                    client.wanted[chat] = false;
                    client.chats[chat] = None;
                }
                Step::Reconnect { client, reads } => clients[client].reconnect(&store, reads),
                Step::Reject { client, chat } => {
                    let client = &clients[client];
                    let mut origin = origin(client.connection);
                    origin.client = client.id.clone();
                    store.reject(&chat_uri(chat), &Action::own(started("no")), &origin, "no").unwrap();
                }
                Step::Commit { chat, action, text } => {
                    let turn = format!("t{turns}");
                    let action = match action {
                        0 => {
                            turns += 1;
                            started(&format!("t{turns}"))
                        }
                        1 => part(&turn, "p"),
                        2 => delta(&turn, "p", &text),
                        _ => complete(&turn),
                    };
                    ahp::reducers::apply_action_to_chat(&mut full[chat], &action);
                    store.commit(&chat_uri(chat), &Action::own(action), None).unwrap();
                }
            }
        }
        for client in &mut clients {
            for message in received(&client.outbox) {
                client.take(&message);
            }
            for (chat, full) in full.iter().enumerate() {
                prop_assert_eq!(&chat_state(&store, chat), full);
                if client.wanted[chat] {
                    prop_assert_eq!(client.chats[chat].as_ref(), Some(full));
                }
            }
        }
    }
}

#[test]
fn reconnecting_client_receives_only_missed_actions() {
    let store = store_with_chats();
    let mut client = Client::new(&store, 0);
    subscribe(&store, client.connection, &chat_uri(0));
    client.wanted[0] = true;
    store.commit(&chat_uri(0), &Action::own(started("t")), None).unwrap();
    client.reconnect(&store, 2);
    store.commit(&chat_uri(0), &Action::own(complete("t")), None).unwrap();
    for message in received(&client.outbox) {
        client.take(&message);
    }
    assert_eq!(client.replays, 1, "a replay, not a snapshot");
    assert_eq!(client.chats[0], Some(chat_state(&store, 0)));
}
