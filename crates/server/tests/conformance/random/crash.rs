//! Crashes of the host: every decision that clients received was stored before it was
//! published, and the next host restores it.

use std::collections::BTreeSet;

use innkeeper_core::storage::Change;
use innkeeper_core_fakes::MemoryStorage;
use innkeeper_testkit::{CameBack, Seen, eventually};
use serde_json::{Value, json};

use super::{RandomTest, TIMEOUT, options};
use crate::stage_host::StageHost;

/// Client actions that the host may publish before they are stored.
const STORED_LATER: [&str; 5] = [
    "chat/draftChanged",
    "chat/inputAnswerChanged",
    "chat/toolCallContentChanged",
    "session/activeClientSet",
    "session/activeClientRemoved",
];

/// Host actions that are stored before they are published.
const STORED_FIRST: [&str; 6] = [
    "chat/turnStarted",
    "chat/turnComplete",
    "chat/turnCancelled",
    "chat/error",
    "chat/pendingMessageRemoved",
    "chat/truncated",
];

/// The start of the note about background work that ended with the host.
const NOTE: &str = "Stopped with the host: ";

/// The states of a chat and its session.
struct ChatDocuments {
    chat: Value,
    session: Value,
}

/// How much of the state must be restored.
#[derive(Clone, Copy, PartialEq)]
enum ExpectedState {
    /// All of the state.
    Everything,
    /// All but the latest agent output and unjournaled client actions such as drafts.
    Decisions,
}

impl RandomTest {
    /// Crashes the host and starts another one on what it stored. `settled`: whether the crash
    /// happens after everything is handled, which allows the restored state to be checked.
    pub(super) async fn kill(&mut self, settled: bool) {
        let before = if settled { Some(self.settled_documents().await) } else { None };
        self.check_published_is_stored();
        self.clients.disconnect_all().await;
        let left = self.storage.after_a_crash();
        self.discard_host().await;
        self.storage = left;
        self.taken = 0;
        let host = StageHost::start(options(&self.storage, &self.log)).await.unwrap();
        self.move_to(host).await;
        for client in self.clients.all() {
            assert_eq!(
                client.came_back,
                Some(CameBack::Snapshots),
                "the host cannot know what the client missed"
            );
        }
        if let Some((expected, before)) = before {
            let after = self.documents().await;
            before.check_restored(&after, expected);
        }
    }

    /// Waits until everything is handled and, if there is an agent whose marker shows it, stored.
    async fn settled_documents(&mut self) -> (ExpectedState, ChatDocuments) {
        self.settle().await;
        let expected = match &self.mark {
            Some(mark) => {
                let text = mark.to_string();
                let stored = || self.storage.log().iter().any(|change| contains(change, &text));
                eventually(TIMEOUT, "the agent output is stored", stored).await.unwrap();
                ExpectedState::Everything
            }
            None => ExpectedState::Decisions,
        };
        (expected, self.documents().await)
    }

    async fn documents(&mut self) -> ChatDocuments {
        let chat = self.judge.snapshot(&self.chat.clone()).await;
        ChatDocuments { chat, session: self.judge.snapshot(&self.session.clone()).await }
    }

    /// Stops the host that counts as crashed. Its remaining output is ignored.
    async fn discard_host(&mut self) {
        self.player = None;
        let host = self.host.take().unwrap();
        let stage = host.stage().clone();
        let agents = async { while stage.player().await.is_ok() {} };
        tokio::select! {
            () = host.stop() => {}
            () = agents => panic!("the host does not stop its agents"),
        }
    }

    /// Checks that every published action that must be stored first is stored.
    pub(super) fn check_published_is_stored(&self) {
        let stored = journal(&self.storage);
        let published = self.clients.all().flat_map(|client| &client.seen);
        for seen in published {
            let Seen::Action(envelope) = seen else { continue };
            let action = json!(envelope.action);
            let kind = action["type"].as_str().unwrap_or_default();
            let must_be_stored = match &envelope.origin {
                Some(_) => envelope.rejection_reason.is_none() && !STORED_LATER.contains(&kind),
                None => STORED_FIRST.contains(&kind),
            };
            // Reviews are in the edit log instead of a journal.
            let in_journal = envelope.channel != "ahp-root://" && envelope.channel != self.changeset;
            if must_be_stored && in_journal {
                assert!(stored.contains(&action.to_string()), "published but not stored: {action}");
            }
        }
    }
}

/// Every action that was written to a journal.
fn journal(storage: &MemoryStorage) -> BTreeSet<String> {
    let mut actions = BTreeSet::new();
    for change in storage.log() {
        if let Change::Journal { entries, .. } = change {
            for entry in entries {
                let action: Value = serde_json::from_str(entry.action.get()).unwrap();
                actions.insert(action.to_string());
            }
        }
    }
    actions
}

/// Whether a change contains a text, in journal entries or in a document.
fn contains(change: &Change, text: &str) -> bool {
    match change {
        Change::Journal { entries, .. } => entries.iter().any(|entry| entry.action.get().contains(text)),
        Change::PutChat { state, .. } | Change::PutSession { state, .. } => state.get().contains(text),
        _ => false,
    }
}

impl ChatDocuments {
    /// Checks that the next host has this state, with a running turn as a failed one.
    fn check_restored(&self, after: &Self, expected: ExpectedState) {
        let turns = |documents: &Self| documents.chat["turns"].as_array().unwrap().clone();
        let (old, mut new) = (turns(self), turns(after));
        let active = &self.chat["activeTurn"];
        let works = self.chat["backgroundWork"].as_array().map_or(0, Vec::len);
        let is_note = |turn: &Value| turn["message"]["text"].as_str().unwrap().starts_with(NOTE);
        if new.len() > old.len() && new.last().is_some_and(is_note) {
            assert!(works > 0 && !active.is_object(), "a note without work");
            new.pop();
        }
        let left = after.chat["backgroundWork"].as_array().map_or(0, Vec::len);
        assert_eq!(left, 0, "background work without an agent");
        if active.is_object() {
            let interrupted = new.pop().expect("the interrupted turn");
            check_interrupted(active, &interrupted, expected);
        }
        assert_eq!(new, old, "finished turns");
        assert_eq!(after.chat.get("activeTurn"), None);
        for waiting in ["queuedMessages", "steeringMessage"] {
            assert_eq!(after.chat.get(waiting), self.chat.get(waiting), "{waiting}");
        }
        let archived = |document: &Value| document["status"].as_u64().unwrap() & 64;
        assert_eq!(archived(&after.chat), archived(&self.chat));
        assert_eq!(archived(&after.session), archived(&self.session));
        for set in ["config", "workingDirectories"] {
            assert_eq!(after.session[set], self.session[set]);
        }
        let named = self.session["title"].as_str().unwrap().starts_with("named");
        if named || expected == ExpectedState::Everything {
            assert_eq!(after.session["title"], self.session["title"]);
        }
        if expected == ExpectedState::Everything {
            for own in ["draft", "workingDirectories"] {
                assert_eq!(after.chat.get(own), self.chat.get(own));
            }
            assert_eq!(after.session["activeClients"], self.session["activeClients"]);
            assert_eq!(after.session.get("_meta"), self.session.get("_meta"));
        }
    }
}

/// Checks that a running turn was restored as a failed one with its stored output.
fn check_interrupted(active: &Value, interrupted: &Value, expected: ExpectedState) {
    assert_eq!((&interrupted["id"], &interrupted["state"]), (&active["id"], &json!("error")));
    assert_eq!(interrupted["message"], active["message"]);
    let parts = |turn: &Value| -> Vec<Value> {
        turn["responseParts"].as_array().unwrap().iter().map(stable_fields).collect()
    };
    let (old, mut new) = (parts(active), parts(interrupted));
    let error = new.pop().expect("an error part");
    assert_eq!(error["kind"], "error");
    new.pop_if(|part| part["content"].as_str().is_some_and(|text| text.starts_with(NOTE)));
    match expected {
        ExpectedState::Everything => assert_eq!(new, old, "agent output"),
        ExpectedState::Decisions => assert!(old.starts_with(&new), "{new:?} is not a prefix of {old:?}"),
    }
}

/// The fields of a part that stay the same when its turn ends.
fn stable_fields(part: &Value) -> Value {
    json!({
        "kind": part["kind"], "id": part["id"], "content": part["content"],
        "call": part["toolCall"]["toolCallId"], "question": part["request"]["id"],
    })
}
