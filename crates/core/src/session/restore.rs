//! A session as it was, from its documents and its journal. A turn that was running is
//! closed here, before anybody sees the session.

use ahp::reducers::apply_action_to_session;
use ahp_types::actions::StateAction;
use ahp_types::state::{ChatState, SessionState, SessionSummary};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::decide::interrupted;
use super::projection;
use crate::agent::History;
use crate::channel::ChannelUri;
use crate::state::{ChannelState, ChatDoc, TurnError};
use crate::storage::{JournalEntry, Json, StorageError, StoredSession};

/// A session that was found in the storage.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) session: SessionState,
    pub(crate) chat: ChatDoc,
    /// Its row in the list, if it is listed.
    pub(crate) row: SessionSummary,
    pub(crate) seed: RestoredSeed,
}

/// What its actor goes on from.
#[derive(Debug)]
pub(crate) struct RestoredSeed {
    pub(crate) chat: ChannelUri,
    pub(crate) created_at: String,
    pub(crate) conversation: Uuid,
    pub(crate) history: History,
    pub(crate) next_entry: u64,
    /// Whether the documents in the storage are behind.
    pub(crate) stale: bool,
}

/// Puts a session together: the documents, and what was published since then.
pub(crate) fn restore(uri: &ChannelUri, stored: StoredSession) -> Result<Restored, StorageError> {
    let damaged =
        |what: &str, reason: String| StorageError::Damaged { what: format!("{what} of {uri}"), reason };
    let state: SessionState =
        decode(&stored.state).map_err(|reason| damaged("the session document", reason))?;
    let mut chats = stored.chats.into_iter();
    let chat = chats.next().ok_or_else(|| damaged("the chat", "it is missing".to_owned()))?;
    let header: ChatState = decode(&chat.state).map_err(|reason| damaged("the chat document", reason))?;
    let doc = ChatDoc::from_stored(header, chat.turns)
        .map_err(|error| damaged("the last turn", error.to_string()))?;
    let mut session = ChannelState::Session(Box::new(state));
    let mut document = ChannelState::Chat(Box::new(doc));
    let journaled = stored.journal.last().map(|entry| (entry.number, entry.at));
    for entry in &stored.journal {
        let target = if entry.channel == *uri { &mut session } else { &mut document };
        if let Err(reason) = fold(target, entry) {
            tracing::error!(session = %uri, entry = entry.number, reason, "an entry of the journal is left out");
        }
    }
    let (ChannelState::Session(mut session), ChannelState::Chat(mut doc)) = (session, document) else {
        return Err(damaged("the documents", "they are of the wrong kind".to_owned()));
    };
    let closed = close_interrupted(&mut doc, journaled.map(|(_, at)| at))
        .map_err(|error| damaged("the running turn", error.to_string()))?;
    // A host that was killed may have left the copies of the chat's facts behind it.
    for update in projection::session_updates(&session, doc.open()) {
        apply_action_to_session(&mut session, &update);
    }
    let row = projection::row(uri, &stored.created_at, &session);
    // The agent may have been started after the documents were written.
    let history = if journaled.is_some() { History::Resume } else { chat.history };
    Ok(Restored {
        session: *session,
        chat: *doc,
        row,
        seed: RestoredSeed {
            chat: chat.uri,
            created_at: stored.created_at,
            conversation: chat.conversation,
            history,
            next_entry: journaled.map_or(1, |(number, _)| number + 1),
            stale: closed || journaled.is_some(),
        },
    })
}

/// Closes a turn that an earlier host left open. Answers whether there was one.
fn close_interrupted(chat: &mut ChatDoc, last_entry_at: Option<i64>) -> Result<bool, TurnError> {
    let Some(turn) = &chat.open().active_turn else { return Ok(false) };
    let started = turn.started_at.parse::<Timestamp>().unwrap_or_default().as_millisecond();
    let ran = last_entry_at.unwrap_or(started).saturating_sub(started).max(0);
    let action = interrupted(&turn.id, ran);
    chat.reduce(&action)?;
    Ok(true)
}

fn fold(target: &mut ChannelState, entry: &JournalEntry) -> Result<(), String> {
    let action: StateAction = decode(&entry.action)?;
    target.reduce(&action).map(|_| ()).map_err(|error| error.to_string())
}

fn decode<T: DeserializeOwned>(json: &Json) -> Result<T, String> {
    serde_json::from_str(json.get()).map_err(|error| error.to_string())
}
