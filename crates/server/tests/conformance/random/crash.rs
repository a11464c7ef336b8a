//! Hosts that are killed: what anybody was told of was written down before, and the next
//! host has it.

use std::collections::BTreeSet;

use innkeeper_core::storage::Change;
use innkeeper_testkit::{CameBack, MemoryStorage, Seen, StageHost, eventually};
use serde_json::{Value, json};

use super::{PATIENCE, World, options};

/// What a client dispatches that may be told of before it is written down.
const MAY_FOLLOW: [&str; 5] = [
    "chat/draftChanged",
    "chat/inputAnswerChanged",
    "chat/toolCallContentChanged",
    "session/activeClientSet",
    "session/activeClientRemoved",
];

/// What the host itself does not tell of before it is written down.
const BOUNDARIES: [&str; 6] = [
    "chat/turnStarted",
    "chat/turnComplete",
    "chat/turnCancelled",
    "chat/error",
    "chat/pendingMessageRemoved",
    "chat/truncated",
];

/// A chat and its session.
struct Documents {
    chat: Value,
    session: Value,
}

/// How much of it must be there again.
#[derive(Clone, Copy, PartialEq)]
enum Written {
    /// All of it.
    Everything,
    /// All but what the agent said last and what clients only began.
    Decisions,
}

impl World {
    /// The host is gone from one moment to the next, and another one finds what it left.
    pub(super) async fn kill(&mut self, calm: bool) {
        let before = if calm { Some(self.calm().await) } else { None };
        self.what_was_told_is_stored();
        self.guests.all_go().await;
        let left = self.storage.after_a_crash();
        self.bury().await;
        self.storage = left;
        self.taken = 0;
        let host = StageHost::start(options(&self.storage)).await.unwrap();
        self.move_to(host).await;
        for client in self.guests.all() {
            assert_eq!(client.came_back, Some(CameBack::Snapshots), "nobody knows what it missed");
        }
        if let Some((written, before)) = before {
            let after = self.documents().await;
            before.are_found_again(&after, written);
        }
    }

    /// Waits until all is handled and, if there is an agent to know it by, written down.
    async fn calm(&mut self) -> (Written, Documents) {
        self.settle().await;
        let written = match &self.mark {
            Some(mark) => {
                let text = mark.to_string();
                let stored = || self.storage.log().iter().any(|change| says(change, &text));
                eventually(PATIENCE, "what the agent said is written down", stored).await.unwrap();
                Written::Everything
            }
            None => Written::Decisions,
        };
        (written, self.documents().await)
    }

    async fn documents(&mut self) -> Documents {
        let chat = self.judge.snapshot(&self.chat.clone()).await;
        Documents { chat, session: self.judge.snapshot(&self.session.clone()).await }
    }

    /// Lets go of the host that is thought to be dead. What it still does, nobody sees.
    async fn bury(&mut self) {
        self.player = None;
        let host = self.host.take().unwrap();
        let stage = host.stage().clone();
        let agents = async { while stage.player().await.is_ok() {} };
        tokio::select! {
            () = host.stop() => {}
            () = agents => panic!("the host does not let go of its agents"),
        }
    }

    /// What clients have heard so far was in the storage before they did.
    pub(super) fn what_was_told_is_stored(&self) {
        let stored = journal(&self.storage);
        let told = self.guests.all().flat_map(|client| &client.seen);
        for seen in told {
            let Seen::Action(envelope) = seen else { continue };
            let action = json!(envelope.action);
            let kind = action["type"].as_str().unwrap_or_default();
            let decided = match &envelope.origin {
                Some(_) => envelope.rejection_reason.is_none() && !MAY_FOLLOW.contains(&kind),
                None => BOUNDARIES.contains(&kind),
            };
            if decided && envelope.channel != "ahp-root://" {
                assert!(stored.contains(&action.to_string()), "told and not stored: {action}");
            }
        }
    }
}

/// Every action that was ever written into a journal.
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

/// Whether some text is in what was written: in the journal, or in a chat's document.
fn says(change: &Change, text: &str) -> bool {
    match change {
        Change::Journal { entries, .. } => entries.iter().any(|entry| entry.action.get().contains(text)),
        Change::PutChat { state, .. } => state.get().contains(text),
        _ => false,
    }
}

impl Documents {
    /// The next host has all of this, with a turn that was running as a failed one.
    fn are_found_again(&self, after: &Self, written: Written) {
        let turns = |documents: &Self| documents.chat["turns"].as_array().unwrap().clone();
        let (old, mut new) = (turns(self), turns(after));
        let active = &self.chat["activeTurn"];
        if active.is_object() {
            let interrupted = new.pop().expect("the turn that was running");
            is_closed(active, &interrupted, written);
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
        if named || written == Written::Everything {
            assert_eq!(after.session["title"], self.session["title"]);
        }
        if written == Written::Everything {
            for own in ["draft", "workingDirectories"] {
                assert_eq!(after.chat.get(own), self.chat.get(own));
            }
            assert_eq!(after.session["activeClients"], self.session["activeClients"]);
        }
    }
}

/// A turn that was running is over, with what was written of it.
fn is_closed(active: &Value, interrupted: &Value, written: Written) {
    assert_eq!((&interrupted["id"], &interrupted["state"]), (&active["id"], &json!("error")));
    assert_eq!(interrupted["message"], active["message"]);
    let parts = |turn: &Value| -> Vec<Value> {
        turn["responseParts"].as_array().unwrap().iter().map(essence).collect()
    };
    let (old, mut new) = (parts(active), parts(interrupted));
    let error = new.pop().expect("why it is over");
    assert_eq!(error["kind"], "error");
    match written {
        Written::Everything => assert_eq!(new, old, "all that the agent said"),
        Written::Decisions => assert!(old.starts_with(&new), "{new:?} is no beginning of {old:?}"),
    }
}

/// What of a part is the same when its turn is over.
fn essence(part: &Value) -> Value {
    json!({
        "kind": part["kind"], "id": part["id"], "content": part["content"],
        "call": part["toolCall"]["toolCallId"], "question": part["request"]["id"],
    })
}
