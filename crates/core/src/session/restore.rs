//! A session as it was, from its documents and its journal.

use ahp_types::actions::StateAction;
use ahp_types::state::{ChatState, SessionState};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::agent::History;
use crate::channel::ChannelUri;
use crate::state::{ChannelState, ChatDoc};
use crate::storage::{JournalEntry, Json, StorageError, StoredSession};

/// A session that was found in the storage.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) session: SessionState,
    pub(crate) chat: ChatDoc,
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
    pub(crate) last_entry_at: Option<i64>,
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
    let (ChannelState::Session(session), ChannelState::Chat(doc)) = (session, document) else {
        return Err(damaged("the documents", "they are of the wrong kind".to_owned()));
    };
    // The agent may have been started after the documents were written.
    let history = if journaled.is_some() { History::Resume } else { chat.history };
    Ok(Restored {
        session: *session,
        chat: *doc,
        seed: RestoredSeed {
            chat: chat.uri,
            created_at: stored.created_at,
            conversation: chat.conversation,
            history,
            next_entry: journaled.map_or(1, |(number, _)| number + 1),
            last_entry_at: journaled.map(|(_, at)| at),
        },
    })
}

fn fold(target: &mut ChannelState, entry: &JournalEntry) -> Result<(), String> {
    let action: StateAction = decode(&entry.action)?;
    target.reduce(&action).map(|_| ()).map_err(|error| error.to_string())
}

fn decode<T: DeserializeOwned>(json: &Json) -> Result<T, String> {
    serde_json::from_str(json.get()).map_err(|error| error.to_string())
}
