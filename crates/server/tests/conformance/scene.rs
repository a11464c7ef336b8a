//! A session with three clients and a scripted agent, and the check that all clients have
//! the same state of all channels after every step.

use std::collections::BTreeSet;

use ahp_types::state::{ChatState, SessionState, SessionSummary};
use innkeeper_core_fakes::{Player, Stage, StageTraits};
use innkeeper_testkit::{Observer, Seen};
use serde_json::{Value, json};

use crate::stage_host::{StageHost, StageOptions};
use crate::wire::Wire;

/// The working directory of the session.
pub(crate) const DIRECTORY: &str = "file:///w";

/// Actions that protocol 0.9 does not define. Clients of that protocol receive them when
/// another client dispatches them, and ignore them, as they ignore the background work of an
/// agent. The host itself publishes these only when a chat moves, which does not happen in a
/// scene.
const NOT_IN_0_9: [&str; 7] = [
    "session/chatsReordered",
    "session/mcpServerBackgroundRequested",
    "chat/isReadChanged",
    "chat/isArchivedChanged",
    "chat/movableChanged",
    "chat/changesetsChanged",
    "chat/canvasesChanged",
];

/// A host with one session and three clients: two official ones, which apply every action
/// to their state, and a raw one, which records every message. One of them speaks
/// protocol 0.9.
pub(crate) struct Scene {
    pub(crate) host: StageHost,
    pub(crate) alice: Observer,
    pub(crate) bob: Observer,
    pub(crate) wire: Wire,
    /// Fetches the fresh snapshots that the other clients are compared with.
    judge: Wire,
    pub(crate) session: String,
    pub(crate) chat: String,
}

impl Scene {
    /// Creates a session without turns.
    pub(crate) async fn new() -> Self {
        Self::with(StageTraits::default()).await
    }

    /// Creates a session without turns, for an agent with these traits.
    pub(crate) async fn with(traits: StageTraits) -> Self {
        Self::of(StageOptions { stage: Stage::new(traits), ..StageOptions::default() }).await
    }

    /// Creates a session without turns in a host with these options.
    pub(crate) async fn of(options: StageOptions) -> Self {
        let host = StageHost::start(options).await.unwrap();
        let mut alice = host.observer("alice").await.unwrap();
        let mut bob = host.observer_of("bob", &["0.9.0"]).await.unwrap();
        let mut wire = Wire::open(&host, "wire", &["1.0.0"]).await;
        let session = "scripted:/1".to_owned();
        alice.create(&session, &[DIRECTORY]).await.unwrap();
        let chat = alice.open_session(&session).await.unwrap();
        bob.open_session(&session).await.unwrap();
        wire.snapshot(&session).await;
        wire.snapshot(&chat).await;
        let judge = Wire::open(&host, "judge", &["1.0.0"]).await;
        Self { host, alice, bob, wire, judge, session, chat }
    }

    /// Creates a session with a running turn. Returns its agent.
    pub(crate) async fn in_turn(turn: &str) -> (Self, Player) {
        let mut scene = Self::new().await;
        let player = scene.begin(turn).await;
        (scene, player)
    }

    /// Starts the first turn. Returns the agent that was opened for it.
    pub(crate) async fn begin(&mut self, turn: &str) -> Player {
        self.accepted(&self.chat.clone(), started(turn)).await;
        let mut player = self.host.stage().player().await.unwrap();
        assert_eq!(player.prompt().await.unwrap().0, turn);
        player
    }

    /// Creates a session with one completed turn.
    pub(crate) async fn after_turn(turn: &str) -> (Self, Player) {
        let (mut scene, player) = Self::in_turn(turn).await;
        player.complete(turn).await.unwrap();
        scene.until_over(turn).await;
        (scene, player)
    }

    /// Waits until all clients see that a turn has ended.
    pub(crate) async fn until_over(&mut self, turn: &str) {
        let chat = self.chat.clone();
        self.alice.until_turn_over(&chat, turn).await.unwrap();
        self.agree().await;
    }

    /// Waits until the chat meets a condition for all clients.
    pub(crate) async fn until(&mut self, what: &str, holds: impl Fn(&ChatState) -> bool) {
        let chat = self.chat.clone();
        let wanted = |observer: &Observer| observer.chat(&chat).is_ok_and(&holds);
        self.alice.until(what, wanted).await.unwrap();
        self.agree().await;
    }

    /// Dispatches an action, with an added unknown field, and checks that it is accepted
    /// and echoed unchanged, once, to all clients. Returns the envelope.
    pub(crate) async fn accepted(&mut self, channel: &str, action: Value) -> Value {
        self.completed(channel, action.clone(), action).await
    }

    /// Like [`Self::accepted`], for an action to which the host adds fields that the client
    /// left out. Only then does the echo differ from the dispatched action.
    pub(crate) async fn completed(&mut self, channel: &str, mut action: Value, mut echo: Value) -> Value {
        for action in [&mut action, &mut echo] {
            action["x-unknown"] = json!({"kept": ["as", "it", "came"]});
        }
        let seq = self.wire.dispatch(channel, action.clone()).await;
        let envelope = self.wire.envelope(seq).await;
        assert_eq!(envelope.get("rejectionReason"), None, "{action}");
        assert_eq!((&envelope["action"], envelope["channel"].as_str()), (&echo, Some(channel)));
        self.agree().await;
        let name = self.wire.name.clone();
        assert_eq!(self.wire.answers(&name, seq), 1, "{action}");
        for observer in [&self.alice, &self.bob] {
            assert_eq!(observer.answers(&name, seq).len(), 1, "{action}");
        }
        envelope
    }

    /// Dispatches an action and checks that it is rejected: only the sender gets an
    /// envelope, once, with a reason, and the state does not change. Returns the reason.
    pub(crate) async fn rejected(&mut self, channel: &str, action: Value) -> String {
        let envelope = self.answered_to_sender(channel, action).await;
        let reason = envelope["rejectionReason"].as_str().unwrap_or_else(|| panic!("accepted: {envelope}"));
        assert!(!reason.is_empty());
        reason.to_owned()
    }

    /// Dispatches an action and checks that it is accepted without a change: the sender
    /// gets one echo, and other clients get nothing.
    pub(crate) async fn echoed_to_sender(&mut self, channel: &str, action: Value) {
        let envelope = self.answered_to_sender(channel, action).await;
        assert_eq!(envelope.get("rejectionReason"), None, "{envelope}");
    }

    /// Dispatches an action and checks that only its sender gets an envelope and that the
    /// state does not change. Returns the envelope.
    async fn answered_to_sender(&mut self, channel: &str, action: Value) -> Value {
        let before = self.everything().await;
        let seq = self.wire.dispatch(channel, action.clone()).await;
        let envelope = self.wire.envelope(seq).await;
        assert_eq!(envelope["action"], action);
        let after = self.everything().await;
        assert_eq!(after, before, "{action} changed the state");
        let name = self.wire.name.clone();
        assert_eq!(self.wire.answers(&name, seq), 1, "{action}");
        for observer in [&self.alice, &self.bob] {
            assert_eq!(observer.answers(&name, seq).len(), 0, "{action}");
        }
        envelope
    }

    /// [`Self::accepted`] on the chat's channel.
    pub(crate) async fn chat_accepts(&mut self, action: Value) -> Value {
        self.accepted(&self.chat.clone(), action).await
    }

    /// [`Self::rejected`] on the chat's channel.
    pub(crate) async fn chat_rejects(&mut self, action: Value) -> String {
        self.rejected(&self.chat.clone(), action).await
    }

    /// [`Self::accepted`] on the session's channel.
    pub(crate) async fn session_accepts(&mut self, action: Value) -> Value {
        self.accepted(&self.session.clone(), action).await
    }

    /// [`Self::rejected`] on the session's channel.
    pub(crate) async fn session_rejects(&mut self, action: Value) -> String {
        self.rejected(&self.session.clone(), action).await
    }

    /// Dispatches an action with an official client. Returns the rejection reason, if any.
    pub(crate) async fn alice_dispatches(&mut self, channel: &str, action: Value) -> Option<String> {
        let seq = self.alice.dispatch(channel, action).await.unwrap();
        let answered = |observer: &Observer| !observer.answers("alice", seq).is_empty();
        self.alice.until("the answer", answered).await.unwrap();
        let reason = self.alice.answers("alice", seq)[0].rejection_reason.clone();
        self.agree().await;
        assert_eq!(self.alice.answers("alice", seq).len(), 1);
        reason
    }

    /// Checks that all clients have the same state. Can be called repeatedly.
    pub(crate) async fn agree(&mut self) {
        self.everything().await;
    }

    /// Like [`Self::agree`]. Returns the state that a new client receives.
    async fn everything(&mut self) -> Vec<Value> {
        self.wire.barrier(&self.chat).await;
        let channels = ["ahp-root://", &self.session, &self.chat];
        let mut fresh = Vec::new();
        for channel in channels {
            fresh.push(self.judge.snapshot(channel).await);
        }
        let listed = self.judge.ask("listSessions", json!({})).await;
        let rows: Vec<SessionSummary> = serde_json::from_value(listed["items"].clone()).unwrap();
        let row = rows.iter().find(|row| row.resource == self.session);
        self.wire.settle().await;
        for observer in [&mut self.alice, &mut self.bob] {
            observer.settle().await.unwrap();
            for (channel, state) in channels.iter().zip(&fresh) {
                assert_eq!(json!(observer.state(channel)), *state, "{channel} differs from its snapshot");
            }
            let folded = observer.rows.get(&self.session);
            assert_eq!(
                folded.map(maintained_fields),
                row.map(maintained_fields),
                "the row differs from the list"
            );
        }
        for kind in NOT_IN_0_9 {
            let from_host = |seen: &Seen| matches!(seen, Seen::Action(envelope) if envelope.origin.is_none() && json!(envelope.action)["type"] == kind);
            assert!(
                !self.bob.seen.iter().any(from_host),
                "{kind} was sent to a client that does not know it"
            );
        }
        let chat: ChatState = serde_json::from_value(fresh[2].clone()).unwrap();
        let session: SessionState = serde_json::from_value(fresh[1].clone()).unwrap();
        if let Some(row) = row {
            assert_eq!(session.status, row.status, "the snapshot's status differs from the row's");
        }
        assert_eq!(session.status & 16 != 0, chat.status & 16 != 0);
        copies_agree(&[chat], &session, row);
        fresh.push(json!(row));
        fresh
    }
}

/// The fields of a row that clients keep up to date.
fn maintained_fields(row: &SessionSummary) -> Value {
    json!([
        row.title,
        row.status,
        row.modified_at,
        row.chats,
        row.default_chat,
        row.working_directories,
        row.changes,
        row.meta
    ])
}

/// Checks that the copies of chat fields in the session and in the list agree with the
/// chats, and that the session lists what its chats wait for. `chats` are all chats of the
/// session. The counts of changes are only in the session: no action changes those of a chat.
pub(crate) fn copies_agree(chats: &[ChatState], session: &SessionState, row: Option<&SessionSummary>) {
    let listed: BTreeSet<&str> = session.chats.iter().map(|entry| entry.resource.as_str()).collect();
    let there: BTreeSet<&str> = chats.iter().map(|chat| chat.resource.as_str()).collect();
    assert_eq!((listed, session.chats.len()), (there, chats.len()), "the session lists other chats");
    for chat in chats {
        let entry = session.chats.iter().find(|entry| entry.resource == chat.resource).expect("an entry");
        let of_chat = json!([
            chat.title,
            chat.status,
            chat.activity,
            chat.modified_at,
            chat.origin,
            chat.movable,
            chat.interactivity,
            chat.working_directories,
        ]);
        let of_entry = json!([
            entry.title,
            entry.status,
            entry.activity,
            entry.modified_at,
            entry.origin,
            entry.movable,
            entry.interactivity,
            entry.working_directories,
        ]);
        assert_eq!(of_entry, of_chat, "the entry in the session differs from the chat");
        // A tool that a client runs does not need input from a user.
        let blocked = pending_requests(chat).iter().any(|request| request[0] != "toolClientExecution");
        assert_eq!(chat.status & 16 != 0, blocked);
    }
    let leading = leading(chats, session);
    assert_eq!(session.activity, leading.activity);
    let mut wanted: Vec<[String; 2]> = chats.iter().flat_map(pending_requests).collect();
    wanted.sort();
    assert_eq!(listed_requests(session), wanted, "the session lists other pending requests");
    let Some(row) = row else { return };
    let compact: Vec<Value> = row
        .chats
        .iter()
        .flatten()
        .map(|entry| {
            json!([
                entry.resource,
                entry.title,
                entry.status,
                entry.changes,
                entry.origin,
                entry.interactivity
            ])
        })
        .collect();
    let of_session: Vec<Value> = session
        .chats
        .iter()
        .map(|chat| {
            json!([chat.resource, chat.title, chat.status, chat.changes, chat.origin, chat.interactivity])
        })
        .collect();
    assert_eq!(compact, of_session, "the chats in the row differ from those in the session");
    let when = |time: &&String| time.parse::<jiff::Timestamp>().ok();
    let newest = chats.iter().map(|chat| &chat.modified_at).max_by_key(when).expect("a chat");
    assert_eq!((&row.title, &row.modified_at), (&session.title, newest));
    assert_eq!((&row.activity, &row.default_chat), (&leading.activity, &session.default_chat));
    row_meta_agrees(session, row);
    assert_eq!((row.status & 31, row.status & 96), (leading.status & 31, session.status & 96));
}

/// Checks that the row counts the items of the session's to-do lists, says since when the
/// session waits for the user if it does, and has nothing else.
fn row_meta_agrees(session: &SessionState, row: &SessionSummary) {
    let (lists, meta) = (json!(session.meta)["innkeeper.todo"].clone(), json!(row.meta));
    let sum = |key: &str| -> u64 {
        lists.as_object().into_iter().flatten().map(|(_, list)| list[key].as_u64().unwrap()).sum()
    };
    let todo = json!({"done": sum("done"), "total": sum("total")});
    let expected = if lists.is_null() { Value::Null } else { todo };
    assert_eq!(meta["innkeeper.todo"], expected, "the row counts other items");
    let waits = listed_requests(session).iter().any(|request| request[0] != "toolClientExecution");
    let since = meta["innkeeper.waitingSince"].as_str();
    assert_eq!(since.is_some(), waits, "{meta}");
    assert!(since.is_none_or(|since| since.parse::<jiff::Timestamp>().is_ok()));
    let git = &json!(session.meta)["git"];
    assert_eq!(meta["git"], *git, "the row has another git state");
    let known = usize::from(!lists.is_null()) + usize::from(waits) + usize::from(!git.is_null());
    assert_eq!(meta.as_object().map_or(0, serde_json::Map::len), known, "{meta}");
}

/// The chat whose status and activity its session shows: one that waits for input, else one
/// that failed, else the default chat. Among several, the default chat, else the first one
/// in the list.
fn leading<'a>(chats: &'a [ChatState], session: &SessionState) -> &'a ChatState {
    let default = |chat: &ChatState| Some(&chat.resource) == session.default_chat.as_ref();
    let place = |chat: &ChatState| session.chats.iter().position(|entry| entry.resource == chat.resource);
    let rank = |chat: &&ChatState| {
        let waits = chat.status & 24 == 24;
        let failed = chat.status & 2 != 0;
        (!waits, !failed && !waits, !default(chat), place(chat))
    };
    chats.iter().min_by_key(rank).expect("a chat")
}

/// The pending requests of a chat, as kind and id.
fn pending_requests(chat: &ChatState) -> Vec<[String; 2]> {
    let active = json!(chat.active_turn);
    let parts = active["responseParts"].as_array().cloned().unwrap_or_default();
    let mut needs: Vec<[String; 2]> = parts.iter().filter_map(pending_request).collect();
    needs.sort();
    needs
}

fn pending_request(part: &Value) -> Option<[String; 2]> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    if part["kind"] == "inputRequest" && part.get("response").is_none() {
        return Some(["chatInput".to_owned(), text(&part["request"]["id"])]);
    }
    let call = &part["toolCall"];
    let kind = match call["status"].as_str()? {
        "pending-confirmation" | "pending-result-confirmation" => "toolConfirmation",
        "auth-required" => "toolAuthentication",
        "running" if call["contributor"]["kind"] == "client" => "toolClientExecution",
        _ => return None,
    };
    Some([kind.to_owned(), text(&call["toolCallId"])])
}

/// The pending requests that a session lists, as kind and id.
fn listed_requests(session: &SessionState) -> Vec<[String; 2]> {
    let named = json!(session.input_needed);
    let mut ids = Vec::new();
    let mut needs = Vec::new();
    for need in named.as_array().into_iter().flatten() {
        ids.push(need["id"].as_str().unwrap().to_owned());
        let inner = if need["kind"] == "chatInput" {
            &need["request"]["id"]
        } else {
            &need["toolCall"]["toolCallId"]
        };
        needs.push([need["kind"].as_str().unwrap().to_owned(), inner.as_str().unwrap().to_owned()]);
    }
    let all = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), all, "ids of pending requests repeat");
    needs.sort();
    needs
}

/// A message from a user.
pub(crate) fn message(text: &str) -> Value {
    json!({"text": text, "origin": {"kind": "user"}})
}

/// An action that starts a turn.
pub(crate) fn started(turn: &str) -> Value {
    json!({
        "type": "chat/turnStarted", "turnId": turn, "startedAt": "2025-11-15T09:00:05.000Z",
        "message": message("list files"),
    })
}

/// An action that cancels a turn.
pub(crate) fn cancelled(turn: &str) -> Value {
    json!({"type": "chat/turnCancelled", "turnId": turn, "duration": 6994})
}

/// An action with the result of a tool that a client ran.
pub(crate) fn tool_complete(turn: &str, call: &str) -> Value {
    json!({
        "type": "chat/toolCallComplete", "turnId": turn, "toolCallId": call,
        "result": {"success": true, "pastTenseMessage": "Found 3", "content": [{"type": "text", "text": "…"}]},
    })
}

/// An action that approves a tool call.
pub(crate) fn confirmed(turn: &str, call: &str) -> Value {
    json!({
        "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": call, "approved": true,
        "confirmed": "user-action",
    })
}

/// An action that adds a pending message.
pub(crate) fn pending(kind: &str, id: &str, text: &str) -> Value {
    json!({"type": "chat/pendingMessageSet", "kind": kind, "id": id, "message": message(text)})
}
