use std::sync::Arc;

use ahp_types::actions::{
    ActionEnvelope, ChatDeltaAction, ChatResponsePartAction, ChatTurnCompleteAction, ChatTurnStartedAction,
};
use ahp_types::state::{
    ChatState, MarkdownResponsePart, Message, MessageKind, MessageOrigin, ResponsePart, Snapshot,
    SnapshotState,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::ids::ClientId;

const CHATS: usize = 2;
const CONNECTIONS: usize = 3;

fn root() -> RootState {
    RootState { agents: Vec::new(), active_sessions: Some(0), terminals: None, config: None, meta: None }
}

fn chat_uri(number: usize) -> ChannelUri {
    ChannelUri::new(&format!("ahp-chat:/{number}"))
}

fn empty_chat(number: usize) -> ChatState {
    serde_json::from_value(json!({
        "resource": chat_uri(number).as_str(), "title": "", "status": 1,
        "modifiedAt": "2026-11-15T09:00:00.000Z", "turns": [],
    }))
    .unwrap()
}

fn store_with_chats() -> StateStore {
    let store = StateStore::new(root());
    let chats = (0..CHATS).map(|number| (chat_uri(number), ChannelState::Chat(Box::new(empty_chat(number)))));
    store.create(chats.collect()).unwrap();
    store
}

fn started(turn: &str) -> StateAction {
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

fn part(turn: &str, id: &str) -> StateAction {
    let part = ResponsePart::Markdown(MarkdownResponsePart { id: id.to_owned(), content: String::new() });
    StateAction::ChatResponsePart(ChatResponsePartAction { turn_id: turn.to_owned(), part, meta: None })
}

fn delta(turn: &str, id: &str, content: &str) -> StateAction {
    StateAction::ChatDelta(ChatDeltaAction {
        turn_id: turn.to_owned(),
        part_id: id.to_owned(),
        content: content.to_owned(),
        meta: None,
    })
}

fn complete(turn: &str) -> StateAction {
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
    store
        .subscribe(connection, std::slice::from_ref(channel), |_, snapshots| {
            Frame::encode(&json!({ "snapshots": snapshots }))
        })
        .unwrap();
}

#[test]
fn an_echo_reaches_its_sender_even_without_a_subscription_and_keeps_unknown_fields() {
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
fn a_rejection_goes_to_its_sender_alone_and_changes_nothing() {
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
fn an_action_of_another_kind_of_channel_is_not_published() {
    let store = store_with_chats();
    let error = store.commit(&ChannelUri::root(), &Action::own(started("t")), None).unwrap_err();
    assert!(matches!(error, CommitError::DoesNotFit(_)), "{error}");
    let error = store.commit(&ChannelUri::new("x:/1"), &Action::own(started("t")), None).unwrap_err();
    assert!(matches!(error, CommitError::UnknownChannel(_)), "{error}");
}

#[test]
fn rows_are_announced_changed_and_removed_for_whoever_watches_the_root() {
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
    store.add_row(&uri, row.clone());
    row.title = "b".to_owned();
    store.update_row(&uri, row.clone());
    store.update_row(&uri, row);
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

/// A step of the property test below.
#[derive(Clone, Debug)]
enum Step {
    Subscribe { connection: usize, chat: usize },
    Unsubscribe { connection: usize, chat: usize },
    Commit { chat: usize, action: usize, text: String },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..CONNECTIONS, 0..CHATS).prop_map(|(connection, chat)| Step::Subscribe { connection, chat }),
        1 => (0..CONNECTIONS, 0..CHATS).prop_map(|(connection, chat)| Step::Unsubscribe { connection, chat }),
        8 => (0..CHATS, 0..4usize, "[a-zé\u{1F600}]{0,4}")
            .prop_map(|(chat, action, text)| Step::Commit { chat, action, text }),
    ]
}

/// What one client has folded of one chat.
#[derive(Default)]
struct Fold {
    chats: [Option<ChatState>; CHATS],
    last_seq: u64,
}

impl Fold {
    fn take(&mut self, message: &Value) {
        if let Some(snapshots) = message.get("snapshots") {
            for snapshot in serde_json::from_value::<Vec<Snapshot>>(snapshots.clone()).unwrap() {
                let SnapshotState::Chat(state) = snapshot.state else { panic!("not a chat") };
                assert!(snapshot.from_seq as u64 >= self.last_seq);
                let chat = (0..CHATS).find(|chat| chat_uri(*chat).as_str() == snapshot.resource).unwrap();
                self.chats[chat] = Some(*state);
            }
            return;
        }
        let envelope: ActionEnvelope = serde_json::from_value(message["params"].clone()).unwrap();
        assert!(envelope.server_seq > self.last_seq, "sequence numbers rise");
        self.last_seq = envelope.server_seq;
        let chat = (0..CHATS).find(|chat| chat_uri(*chat).as_str() == envelope.channel).unwrap();
        if let Some(state) = &mut self.chats[chat] {
            ahp::reducers::apply_action_to_chat(state, &envelope.action);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn snapshot_and_tail_equal_the_full_fold_in_any_interleaving(steps in proptest::collection::vec(step(), 0..60)) {
        let store = store_with_chats();
        let outboxes: Vec<Arc<Outbox>> = (0..CONNECTIONS).map(|_| Arc::default()).collect();
        let connections: Vec<ConnectionId> = outboxes.iter().map(|outbox| store.attach(Arc::clone(outbox))).collect();
        let mut subscribed = [[false; CHATS]; CONNECTIONS];
        let mut full: Vec<ChatState> = (0..CHATS).map(empty_chat).collect();
        let mut turns = 0;
        for step in steps {
            match step {
                Step::Subscribe { connection, chat } => {
                    subscribe(&store, connections[connection], &chat_uri(chat));
                    subscribed[connection][chat] = true;
                }
                Step::Unsubscribe { connection, chat } => {
                    store.unsubscribe(connections[connection], &chat_uri(chat));
                    subscribed[connection][chat] = false;
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
        for (connection, outbox) in outboxes.iter().enumerate() {
            let mut fold = Fold::default();
            for message in received(outbox) {
                fold.take(&message);
            }
            for chat in 0..CHATS {
                let stored = store.read(&chat_uri(chat), |state| state.chat().cloned()).unwrap().unwrap();
                prop_assert_eq!(&stored, &full[chat]);
                if subscribed[connection][chat] {
                    prop_assert_eq!(fold.chats[chat].as_ref(), Some(&stored));
                }
            }
        }
    }
}
