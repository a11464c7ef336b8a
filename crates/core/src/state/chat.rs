//! A chat's document, with its finished turns kept encoded.
//!
//! The reducers work on a `ChatState` that holds only the last finished turn. All
//! finished turns are stored next to it as the JSON that goes into snapshots and storage,
//! so each turn is encoded once, and snapshots and writes reuse it. A property test
//! proves that the document equals the result of the official reducers.

use ahp::reducers::{ReduceOutcome, apply_action_to_chat};
use ahp_types::actions::StateAction;
use ahp_types::state::{Changeset, ChatState, Turn};
use serde::ser::SerializeSeq as _;
use serde::{Serialize, Serializer};

use super::parts::PartIndex;
use crate::action::{TurnEffect, meaning};
use crate::storage::{Json, StoredTurn};

/// A published chat.
#[derive(Clone, Debug)]
pub struct ChatDoc {
    /// The chat's state, with at most the last finished turn.
    open: ChatState,
    /// All finished turns, oldest first.
    turns: Vec<StoredTurn>,
    /// The first turn that differs from storage, if any may differ.
    changed_from: Option<usize>,
    /// Positions of the parts of the running turn.
    parts: PartIndex,
}

/// A finished turn cannot be decoded or encoded as JSON.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} a turn: {error}")]
pub struct TurnError {
    operation: &'static str,
    error: serde_json::Error,
}

impl ChatDoc {
    /// Creates a document from a complete state.
    pub fn new(mut state: ChatState) -> Result<Self, TurnError> {
        let turns = state.turns.iter().map(encode).collect::<Result<Vec<_>, _>>()?;
        keep_last(&mut state.turns);
        Ok(Self { open: state, turns, changed_from: Some(0), parts: PartIndex::default() })
    }

    /// Creates a document from stored records.
    pub(crate) fn from_stored(mut state: ChatState, turns: Vec<StoredTurn>) -> Result<Self, TurnError> {
        state.turns = turns.last().map(decode).transpose()?.into_iter().collect();
        Ok(Self { open: state, turns, changed_from: None, parts: PartIndex::default() })
    }

    /// The chat's state. Contains only the last finished turn.
    pub fn open(&self) -> &ChatState {
        &self.open
    }

    /// The finished turns, oldest first.
    pub fn turns(&self) -> &[StoredTurn] {
        &self.turns
    }

    /// Sets the chat's changesets, which depend on its session and on this host. Returns
    /// whether they differ.
    pub(crate) fn set_changesets(&mut self, changesets: Option<Vec<Changeset>>) -> bool {
        let differ = self.open.changesets != changesets;
        self.open.changesets = changesets;
        differ
    }

    /// The complete state, with every turn decoded. Slow; for tests and rare operations.
    pub fn whole(&self) -> Result<ChatState, TurnError> {
        let mut state = self.open.clone();
        state.turns = self.turns.iter().map(decode).collect::<Result<_, _>>()?;
        Ok(state)
    }

    /// Returns the turns that are not stored yet and the number of turns before them. The
    /// caller must store them.
    pub(crate) fn take_changed_turns(&mut self) -> Option<(usize, Vec<StoredTurn>)> {
        let from = self.changed_from.take()?.min(self.turns.len());
        Some((from, self.turns.get(from..).unwrap_or_default().to_vec()))
    }

    /// Marks the turns from this index on as not stored.
    pub(crate) fn mark_changed(&mut self, from: usize) {
        self.changed_from = Some(self.changed_from.map_or(from, |earlier| earlier.min(from)));
    }

    /// Applies an action with the official reducers. The one exception is the title: VS
    /// Code renames a chat with `session/titleChanged` on the chat's channel. No chat
    /// reducer handles that action, so later snapshots would contain the old title.
    pub(crate) fn reduce(&mut self, action: &StateAction) -> Result<ReduceOutcome, TurnError> {
        if let StateAction::SessionTitleChanged(changed) = action {
            self.open.title.clone_from(&changed.title);
            return Ok(ReduceOutcome::Applied);
        }
        if let StateAction::ChatTruncated(truncated) = action
            && let Some(last) = truncated.turn_id.as_deref().and_then(|id| self.position(id))
        {
            // The reducer must find the turn that becomes the last one.
            self.reopen_at(last)?;
        }
        let streamed = self.parts.apply(&mut self.open, action);
        let outcome = streamed.unwrap_or_else(|| apply_action_to_chat(&mut self.open, action));
        self.keep_in_step(action)?;
        Ok(outcome)
    }

    /// Updates the encoded turns after the reducer changed the last turn.
    fn keep_in_step(&mut self, action: &StateAction) -> Result<(), TurnError> {
        match meaning(action).turn {
            Some(TurnEffect::Ends) => {
                let known = self.turns.len().min(1);
                if let Some(ended) = self.open.turns.get(known) {
                    let encoded = encode(ended)?;
                    self.mark_changed(self.turns.len());
                    self.turns.push(encoded);
                }
            }
            Some(TurnEffect::Resumes) if self.open.turns.is_empty() && !self.turns.is_empty() => {
                self.turns.pop();
                self.mark_changed(self.turns.len());
                // The turn before it becomes the last one again.
                if let Some(last) = self.turns.last() {
                    self.open.turns = vec![decode(last)?];
                }
            }
            Some(TurnEffect::Truncates) if keeps_no_turn(action) => {
                self.turns.clear();
                self.mark_changed(0);
            }
            Some(TurnEffect::Starts | TurnEffect::Resumes | TurnEffect::Truncates) | None => return Ok(()),
        }
        keep_last(&mut self.open.turns);
        Ok(())
    }

    /// Removes the turns after this index and decodes the turn at it.
    fn reopen_at(&mut self, last: usize) -> Result<(), TurnError> {
        if let Some(turn) = self.turns.get(last) {
            self.open.turns = vec![decode(turn)?];
            if last + 1 < self.turns.len() {
                self.turns.truncate(last + 1);
                self.mark_changed(last + 1);
            }
        }
        Ok(())
    }

    /// The index of a finished turn.
    pub fn position(&self, id: &str) -> Option<usize> {
        self.turns.iter().position(|turn| turn.id == id)
    }

    /// The document with only its newest turns: at most as many as requested, and no more
    /// than fit in one message.
    pub(super) fn window(&self, newest: Option<usize>) -> ChatWindow<'_> {
        let from = page_start(&self.turns, newest.unwrap_or(usize::MAX));
        ChatWindow { open: &self.open, turns: self.turns.get(from..).unwrap_or_default(), older: from > 0 }
    }

    /// The document without turns, as it is stored.
    pub(crate) fn header(&self) -> ChatWindow<'_> {
        ChatWindow { open: &self.open, turns: &[], older: false }
    }
}

/// Most bytes of encoded turns in one message. Clients accept messages of up to 64 MiB, and
/// a snapshot contains a running turn, too.
const PAGE_BYTES: usize = 32 * 1024 * 1024;

/// Where the page starts that ends with the last of these turns. It has at least one turn,
/// at most this many, and as few as are needed to keep it small.
pub(super) fn page_start(turns: &[StoredTurn], most: usize) -> usize {
    let mut bytes = 0_usize;
    let fits = |turn: &&StoredTurn| {
        bytes = bytes.saturating_add(turn.body.get().len());
        bytes <= PAGE_BYTES
    };
    let count = turns.iter().rev().take(most).take_while(fits).count();
    turns.len().saturating_sub(count.max(1))
}

/// Whether an action removes all turns of a chat.
fn keeps_no_turn(action: &StateAction) -> bool {
    matches!(action, StateAction::ChatTruncated(truncated) if truncated.turn_id.is_none())
}

/// Returns the cursor for the turns older than `turn`.
pub(super) fn cursor_before(turn: &str) -> String {
    format!("before:{turn}")
}

/// Returns the turn in a cursor made by [`cursor_before`].
pub(super) fn cursor_turn(cursor: &str) -> Option<&str> {
    cursor.strip_prefix("before:")
}

fn keep_last(turns: &mut Vec<Turn>) {
    let older = turns.len().saturating_sub(1);
    turns.drain(..older);
}

fn encode(turn: &Turn) -> Result<StoredTurn, TurnError> {
    let body =
        serde_json::value::to_raw_value(turn).map_err(|error| TurnError { operation: "encode", error })?;
    Ok(StoredTurn { id: turn.id.clone(), body: body.into() })
}

fn decode(turn: &StoredTurn) -> Result<Turn, TurnError> {
    serde_json::from_str(turn.body.get()).map_err(|error| TurnError { operation: "decode", error })
}

/// A chat's document with a range of its turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChatWindow<'a> {
    open: &'a ChatState,
    turns: &'a [StoredTurn],
    /// Whether older turns exist outside of the range.
    older: bool,
}

impl ChatWindow<'_> {
    /// The oldest turn in the range, if older turns exist.
    pub(super) fn cut_at(&self) -> Option<&str> {
        self.turns.first().filter(|_| self.older).map(|turn| turn.id.as_str())
    }
}

impl Serialize for ChatWindow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The pattern lists every field, so a field that a new protocol version adds is a
        // compile error instead of a gap in every snapshot.
        let ChatState {
            resource,
            title,
            status,
            activity,
            modified_at,
            changes,
            origin,
            movable,
            interactivity,
            working_directories,
            changesets,
            background_work,
            canvases,
            turns: _,
            turns_next_cursor: _,
            active_turn,
            steering_message,
            queued_messages,
            draft,
            meta,
        } = self.open;
        ChatFields {
            resource,
            title,
            status: *status,
            activity,
            modified_at,
            changes,
            origin,
            movable,
            interactivity,
            working_directories,
            changesets,
            background_work,
            canvases,
            turns: Bodies(self.turns),
            turns_next_cursor: self.cut_at().map(cursor_before),
            active_turn,
            steering_message,
            queued_messages,
            draft,
            meta,
        }
        .serialize(serializer)
    }
}

/// The fields of `ChatState`, with encoded turns.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ChatFields<'a, A, B, C, D, E, F, G, H, I, J, K, L, M> {
    resource: &'a str,
    title: &'a str,
    status: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    activity: &'a Option<String>,
    modified_at: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: &'a Option<A>,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: &'a Option<B>,
    #[serde(skip_serializing_if = "Option::is_none")]
    movable: &'a Option<C>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interactivity: &'a Option<D>,
    #[serde(skip_serializing_if = "Option::is_none")]
    working_directories: &'a Option<E>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changesets: &'a Option<F>,
    #[serde(skip_serializing_if = "Option::is_none")]
    background_work: &'a Option<G>,
    #[serde(skip_serializing_if = "Option::is_none")]
    canvases: &'a Option<H>,
    turns: Bodies<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    turns_next_cursor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    active_turn: &'a Option<I>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steering_message: &'a Option<J>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queued_messages: &'a Option<K>,
    #[serde(skip_serializing_if = "Option::is_none")]
    draft: &'a Option<L>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: &'a Option<M>,
}

/// Encoded turns as a JSON array.
pub(super) struct Bodies<'a>(pub(super) &'a [StoredTurn]);

impl Serialize for Bodies<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for turn in self.0 {
            let body: &Json = &turn.body;
            list.serialize_element(&**body)?;
        }
        list.end()
    }
}

#[cfg(test)]
#[path = "chat_tests.rs"]
mod tests;
