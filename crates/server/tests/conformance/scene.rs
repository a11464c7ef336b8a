//! A session with three clients in front of it and a played agent behind it, and the
//! check that must hold after every step: everybody sees the same, everywhere.

use std::collections::BTreeSet;

use ahp_types::state::{ChatState, SessionState, SessionSummary};
use innkeeper_testkit::{Observer, Player, Seen, Stage, StageHost, StageOptions, StageTraits};
use serde_json::{Value, json};

use crate::wire::Wire;

/// The session's directory.
pub(crate) const DIRECTORY: &str = "file:///w";

/// Actions that a client of the older protocol does not know, and ignores. What another
/// client did it is told all the same; of its own accord the host says such things only
/// when a chat moves, which nobody does in these scenes.
const NOT_IN_0_9: [&str; 9] = [
    "session/chatsReordered",
    "session/mcpServerBackgroundRequested",
    "chat/isReadChanged",
    "chat/isArchivedChanged",
    "chat/backgroundWorkSet",
    "chat/backgroundWorkRemoved",
    "chat/movableChanged",
    "chat/changesetsChanged",
    "chat/canvasesChanged",
];

/// Three clients of one session: two official ones, which fold every action, and a raw
/// one, which sees every byte. One of them speaks the older protocol.
pub(crate) struct Scene {
    pub(crate) host: StageHost,
    pub(crate) alice: Observer,
    pub(crate) bob: Observer,
    pub(crate) wire: Wire,
    /// Takes a fresh snapshot whenever the others are compared.
    judge: Wire,
    pub(crate) session: String,
    pub(crate) chat: String,
}

impl Scene {
    /// A session that nobody has said anything in.
    pub(crate) async fn new() -> Self {
        Self::with(StageTraits::default()).await
    }

    /// The same with an agent that can do more.
    pub(crate) async fn with(traits: StageTraits) -> Self {
        let host = StageHost::start(StageOptions { stage: Stage::new(traits), ..StageOptions::default() })
            .await
            .unwrap();
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

    /// A session in which a turn is running; answers the agent that works on it.
    pub(crate) async fn in_turn(turn: &str) -> (Self, Player) {
        let mut scene = Self::new().await;
        let player = scene.begin(turn).await;
        (scene, player)
    }

    /// Starts the first turn; answers the agent that was opened for it.
    pub(crate) async fn begin(&mut self, turn: &str) -> Player {
        self.accepted(&self.chat.clone(), started(turn)).await;
        let mut player = self.host.stage().player().await.unwrap();
        assert_eq!(player.prompt().await.unwrap().0, turn);
        player
    }

    /// A session with one finished turn.
    pub(crate) async fn after_turn(turn: &str) -> (Self, Player) {
        let (mut scene, player) = Self::in_turn(turn).await;
        player.complete(turn).await.unwrap();
        scene.until_over(turn).await;
        (scene, player)
    }

    /// Waits until a turn is over, for all to see.
    pub(crate) async fn until_over(&mut self, turn: &str) {
        let chat = self.chat.clone();
        self.alice.until_turn_over(&chat, turn).await.unwrap();
        self.agree().await;
    }

    /// Waits until the chat is as wanted, for all to see.
    pub(crate) async fn until(&mut self, what: &str, holds: impl Fn(&ChatState) -> bool) {
        let chat = self.chat.clone();
        let wanted = |observer: &Observer| observer.chat(&chat).is_ok_and(&holds);
        self.alice.until(what, wanted).await.unwrap();
        self.agree().await;
    }

    /// Dispatches an action, with a field that no type knows, which must be accepted:
    /// echoed once to everybody, as it came. Answers the envelope.
    pub(crate) async fn accepted(&mut self, channel: &str, action: Value) -> Value {
        self.completed(channel, action.clone(), action).await
    }

    /// The same with an action that the host completes: this is the one case in which
    /// the echo is another than what was sent, and only in what the client left open.
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

    /// Dispatches an action that must be rejected: its sender is told once and why,
    /// nobody else hears of it, and nothing changes. Answers the reason.
    pub(crate) async fn rejected(&mut self, channel: &str, action: Value) -> String {
        let envelope = self.answered_to_sender(channel, action).await;
        let reason = envelope["rejectionReason"].as_str().unwrap_or_else(|| panic!("accepted: {envelope}"));
        assert!(!reason.is_empty());
        reason.to_owned()
    }

    /// Dispatches an action that must be accepted and changes nothing: its sender gets one
    /// echo, and other clients get nothing.
    pub(crate) async fn echoed_to_sender(&mut self, channel: &str, action: Value) {
        let envelope = self.answered_to_sender(channel, action).await;
        assert_eq!(envelope.get("rejectionReason"), None, "{envelope}");
    }

    /// Dispatches an action that is answered to its sender only and changes nothing.
    /// Returns the answer.
    async fn answered_to_sender(&mut self, channel: &str, action: Value) -> Value {
        let before = self.everything().await;
        let seq = self.wire.dispatch(channel, action.clone()).await;
        let envelope = self.wire.envelope(seq).await;
        assert_eq!(envelope["action"], action);
        let after = self.everything().await;
        assert_eq!(after, before, "{action} changed something");
        let name = self.wire.name.clone();
        assert_eq!(self.wire.answers(&name, seq), 1, "{action}");
        for observer in [&self.alice, &self.bob] {
            assert_eq!(observer.answers(&name, seq).len(), 0, "{action}");
        }
        envelope
    }

    /// Accepted on the chat.
    pub(crate) async fn chat_accepts(&mut self, action: Value) -> Value {
        self.accepted(&self.chat.clone(), action).await
    }

    /// Rejected on the chat.
    pub(crate) async fn chat_rejects(&mut self, action: Value) -> String {
        self.rejected(&self.chat.clone(), action).await
    }

    /// Accepted on the session.
    pub(crate) async fn session_accepts(&mut self, action: Value) -> Value {
        self.accepted(&self.session.clone(), action).await
    }

    /// Rejected on the session.
    pub(crate) async fn session_rejects(&mut self, action: Value) -> String {
        self.rejected(&self.session.clone(), action).await
    }

    /// What an official client dispatches; answers why it was rejected, if it was.
    pub(crate) async fn alice_dispatches(&mut self, channel: &str, action: Value) -> Option<String> {
        let seq = self.alice.dispatch(channel, action).await.unwrap();
        let answered = |observer: &Observer| !observer.answers("alice", seq).is_empty();
        self.alice.until("the answer", answered).await.unwrap();
        let reason = self.alice.answers("alice", seq)[0].rejection_reason.clone();
        self.agree().await;
        assert_eq!(self.alice.answers("alice", seq).len(), 1);
        reason
    }

    /// Checks that all that clients know is the same, as often as one likes.
    pub(crate) async fn agree(&mut self) {
        self.everything().await;
    }

    /// The same; answers what a client learns that comes now.
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
                assert_eq!(json!(observer.state(channel)), *state, "{channel} differs");
            }
            let folded = observer.rows.get(&self.session);
            assert_eq!(folded.map(facts), row.map(facts), "the row differs");
        }
        for kind in NOT_IN_0_9 {
            let of_the_host = |seen: &Seen| matches!(seen, Seen::Action(envelope) if envelope.origin.is_none() && json!(envelope.action)["type"] == kind);
            assert!(!self.bob.seen.iter().any(of_the_host), "{kind} went to a client that does not know it");
        }
        let chat: ChatState = serde_json::from_value(fresh[2].clone()).unwrap();
        let session: SessionState = serde_json::from_value(fresh[1].clone()).unwrap();
        assert_eq!(session.status & 16 != 0, chat.status & 16 != 0);
        copies_agree(&[chat], &session, row);
        fresh.push(json!(row));
        fresh
    }
}

/// What a client folds of a row.
fn facts(row: &SessionSummary) -> Value {
    json!([row.title, row.status, row.modified_at, row.chats, row.default_chat, row.working_directories])
}

/// A chat's facts are in three places, and what it waits for in two. These are all chats
/// of the session.
pub(crate) fn copies_agree(chats: &[ChatState], session: &SessionState, row: Option<&SessionSummary>) {
    let listed: BTreeSet<&str> = session.chats.iter().map(|entry| entry.resource.as_str()).collect();
    let there: BTreeSet<&str> = chats.iter().map(|chat| chat.resource.as_str()).collect();
    assert_eq!((listed, session.chats.len()), (there, chats.len()), "the session's list of chats");
    for chat in chats {
        let entry = session.chats.iter().find(|entry| entry.resource == chat.resource).expect("an entry");
        let of_chat = json!([
            chat.title,
            chat.status,
            chat.activity,
            chat.modified_at,
            chat.changes,
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
            entry.changes,
            entry.origin,
            entry.movable,
            entry.interactivity,
            entry.working_directories,
        ]);
        assert_eq!(of_entry, of_chat, "the session's entry differs from the chat");
        // The client's own work is nothing that a person has to do.
        let blocked = needs(chat).iter().any(|need| need[0] != "toolClientExecution");
        assert_eq!(chat.status & 16 != 0, blocked);
    }
    let leading = leading(chats, session);
    assert_eq!(session.activity, leading.activity);
    let mut wanted: Vec<[String; 2]> = chats.iter().flat_map(needs).collect();
    wanted.sort();
    assert_eq!(named_needs(session), wanted, "what the session waits for");
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
    assert_eq!(compact, of_session, "the row's chats differ from the session's");
    let when = |time: &&String| time.parse::<jiff::Timestamp>().ok();
    let newest = chats.iter().map(|chat| &chat.modified_at).max_by_key(when).expect("a chat");
    assert_eq!((&row.title, &row.modified_at), (&session.title, newest));
    assert_eq!((&row.activity, &row.default_chat), (&leading.activity, &session.default_chat));
    assert_eq!((row.status & 31, row.status & 96), (leading.status & 31, session.status & 96));
}

/// The chat that stands for its session: one that waits, else one that failed, else the
/// default one. Of several the default one, else the first in the list.
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

/// What a chat waits for: kind and id.
fn needs(chat: &ChatState) -> Vec<[String; 2]> {
    let active = json!(chat.active_turn);
    let parts = active["responseParts"].as_array().cloned().unwrap_or_default();
    let mut needs: Vec<[String; 2]> = parts.iter().filter_map(need).collect();
    needs.sort();
    needs
}

fn need(part: &Value) -> Option<[String; 2]> {
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

/// What a session says that it waits for: kind and id.
fn named_needs(session: &SessionState) -> Vec<[String; 2]> {
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
    assert_eq!(ids.len(), all, "ids of needs are unique");
    needs.sort();
    needs
}

/// A user's message.
pub(crate) fn message(text: &str) -> Value {
    json!({"text": text, "origin": {"kind": "user"}})
}

/// The start of a turn.
pub(crate) fn started(turn: &str) -> Value {
    json!({
        "type": "chat/turnStarted", "turnId": turn, "startedAt": "2026-11-15T09:00:05.000Z",
        "message": message("list files"),
    })
}

/// The cancellation of a turn.
pub(crate) fn cancelled(turn: &str) -> Value {
    json!({"type": "chat/turnCancelled", "turnId": turn, "duration": 6994})
}

/// What a tool gave, from the client that ran it.
pub(crate) fn tool_complete(turn: &str, call: &str) -> Value {
    json!({
        "type": "chat/toolCallComplete", "turnId": turn, "toolCallId": call,
        "result": {"success": true, "pastTenseMessage": "Found 3", "content": [{"type": "text", "text": "…"}]},
    })
}

/// A yes to a tool call.
pub(crate) fn confirmed(turn: &str, call: &str) -> Value {
    json!({
        "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": call, "approved": true,
        "confirmed": "user-action",
    })
}

/// A message that waits.
pub(crate) fn pending(kind: &str, id: &str, text: &str) -> Value {
    json!({"type": "chat/pendingMessageSet", "kind": kind, "id": id, "message": message(text)})
}
