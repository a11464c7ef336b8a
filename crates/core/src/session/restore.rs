//! A session as it was, from its documents and its journal. Turns that were running are
//! closed here, and what their agents showed of their work goes, before anybody sees the
//! session.

use ahp::reducers::apply_action_to_session;
use ahp_types::actions::{
    ChatWorkingDirectoryRemovedAction, ChatWorkingDirectorySetAction, SessionChatRemovedAction,
    SessionInputNeededRemovedAction, SessionTitleChangedAction, StateAction,
};
use ahp_types::state::{ChatState, SessionState, SessionSummary};
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::chats::ChatSeed;
use super::children::stored_parent;
use super::decide::{holds_queue, interrupted, of_agent, of_agents, withdrawn};
use super::projection;
use crate::action::meaning;
use crate::agent::History;
use crate::channel::ChannelUri;
use crate::state::{ChannelState, ChatDoc, TurnError};
use crate::storage::{JournalEntry, Json, Rewind, StorageError, StoredChat, StoredSession};

/// A session that was found in the storage.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) session: SessionState,
    /// Its chats, and what the actor has to know of them.
    pub(crate) chats: Vec<(ChatSeed, ChatDoc)>,
    /// Its row in the list, if it is listed.
    pub(crate) row: SessionSummary,
    pub(crate) created_at: String,
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
    let default = state.default_chat.clone();
    let mut session = ChannelState::Session(Box::new(state));
    let mut chats = Vec::with_capacity(stored.chats.len());
    for chat in stored.chats {
        let (name, is_default) = (chat.uri.clone(), default.as_deref() == Some(chat.uri.as_str()));
        match Reviving::new(chat) {
            Ok(chat) => chats.push(chat),
            Err(reason) if is_default => return Err(damaged("the default chat", reason)),
            // The others need not be missed for it. It stays in the storage as it is.
            Err(reason) => {
                tracing::error!(session = %uri, chat = %name, reason, "a chat cannot be read and is left out");
            }
        }
    }
    let journaled = stored.journal.last().map(|entry| (entry.number, entry.at));
    // Directories and what they were replaced by, oldest first.
    let mut replaced = Vec::new();
    for entry in &stored.journal {
        let folded = if entry.channel == *uri {
            fold(&mut session, entry).map(|action| {
                if let StateAction::SessionWorkingDirectoryReplaced(change) = action {
                    replaced.push((change.directory, change.replacement));
                }
            })
        } else if let Some(chat) = chats.iter_mut().find(|chat| chat.seed.uri == entry.channel) {
            chat.fold(entry)
        } else {
            // It was disposed, or moved, after this was published.
            Ok(())
        };
        if let Err(reason) = folded {
            tracing::error!(session = %uri, entry = entry.number, reason, "an entry of the journal is left out");
        }
    }
    let ChannelState::Session(mut session) = session else {
        return Err(damaged("the session document", "it is of the wrong kind".to_owned()));
    };
    let mut closed = false;
    let mut revived = Vec::with_capacity(chats.len());
    for chat in chats {
        let (mut seed, mut doc) = chat.done().map_err(|reason| damaged("a chat", reason))?;
        closed |= close_interrupted(&mut doc, journaled.map(|(_, at)| at))
            .map_err(|error| damaged("the running turn", error.to_string()))?;
        closed |= clear_leftovers(&mut doc).map_err(|error| damaged("a chat", error.to_string()))?;
        closed |= leave_foreign_directories(&mut doc, &session, &replaced)
            .map_err(|error| damaged("a chat's directories", error.to_string()))?;
        seed.queue_held = holds_queue(doc.open());
        seed.links.retain(|turn| doc.position(turn).is_some());
        revived.push((seed, doc));
    }
    for stopped in of_agents(&session) {
        apply_action_to_session(&mut session, &stopped);
        closed = true;
    }
    agree(&mut session, &revived);
    let default = session.default_chat.as_deref();
    if !revived.iter().any(|(seed, _)| Some(seed.uri.as_str()) == default) {
        return Err(damaged("the default chat", "it is missing".to_owned()));
    }
    let row = projection::row(uri, &stored.created_at, &session);
    Ok(Restored {
        session: *session,
        chats: revived,
        row,
        created_at: stored.created_at,
        next_entry: journaled.map_or(1, |(number, _)| number + 1),
        stale: closed || journaled.is_some(),
    })
}

/// Brings the session's copies of its chats' facts into agreement with them: a host that
/// was killed may have left them behind, and a chat that cannot be read is gone.
fn agree(session: &mut SessionState, chats: &[(ChatSeed, ChatDoc)]) {
    let here = |uri: &str| chats.iter().any(|(seed, _)| seed.uri.as_str() == uri);
    let gone = session.chats.iter().map(|chat| chat.resource.clone()).filter(|uri| !here(uri));
    for chat in gone.collect::<Vec<_>>() {
        // The default one stays named, and is missed.
        if session.default_chat.as_ref() != Some(&chat) {
            let removed = StateAction::SessionChatRemoved(SessionChatRemovedAction { chat });
            apply_action_to_session(session, &removed);
        }
    }
    for id in projection::needs_of_others(session, here) {
        let removed = StateAction::SessionInputNeededRemoved(SessionInputNeededRemovedAction { id });
        apply_action_to_session(session, &removed);
    }
    for (_, doc) in chats {
        for update in projection::session_updates(session, doc.open()) {
            apply_action_to_session(session, &update);
        }
    }
    if let Some(update) = projection::activity_update(session) {
        apply_action_to_session(session, &update);
    }
    // A chat and its session are renamed with one write each.
    let default =
        |(seed, _): &&(ChatSeed, ChatDoc)| session.default_chat.as_deref() == Some(seed.uri.as_str());
    let title = chats.iter().find(default).map(|(_, doc)| doc.open().title.clone());
    if let Some(title) = title.filter(|title| !title.is_empty() && *title != session.title) {
        let renamed = StateAction::SessionTitleChanged(SessionTitleChangedAction { title });
        apply_action_to_session(session, &renamed);
    }
}

/// A chat that is being put together.
struct Reviving {
    seed: ChatSeed,
    document: ChannelState,
}

impl Reviving {
    fn new(stored: StoredChat) -> Result<Self, String> {
        let StoredChat { uri, conversation, links, state, turns } = stored;
        let header: ChatState = decode(&state)?;
        let doc = ChatDoc::from_stored(header, turns).map_err(|error| error.to_string())?;
        Ok(Self {
            seed: ChatSeed {
                parent: stored_parent(&doc),
                links: links.into(),
                queue_held: false,
                uri,
                conversation,
            },
            document: ChannelState::Chat(Box::new(doc)),
        })
    }

    fn fold(&mut self, entry: &JournalEntry) -> Result<(), String> {
        let action = fold(&mut self.document, entry)?;
        let conversation = &mut self.seed.conversation;
        let meaning = meaning(&action);
        if meaning.shows_work {
            conversation.history = History::Resume;
            conversation.rewind = None;
        } else if conversation.history == History::Fresh {
            // An agent may have it, and finds nothing otherwise.
            if meaning.begins_turn() {
                conversation.history = History::Resume;
            }
        } else if let StateAction::ChatTruncated(truncated) = action {
            // Whether the agent was told, nobody knows; being told again does not hurt.
            conversation.rewind = Some(Rewind { to: truncated.turn_id });
        }
        Ok(())
    }

    fn done(self) -> Result<(ChatSeed, ChatDoc), String> {
        match self.document {
            ChannelState::Chat(doc) => Ok((self.seed, *doc)),
            ChannelState::Root(_) | ChannelState::Session(_) | ChannelState::ResourceWatch(_) => {
                Err("its document is of the wrong kind".to_owned())
            }
        }
    }
}

/// Closes a turn that an earlier host left open. Answers whether there was one.
fn close_interrupted(chat: &mut ChatDoc, last_entry_at: Option<i64>) -> Result<bool, TurnError> {
    let Some(turn) = &chat.open().active_turn else { return Ok(false) };
    let started = turn.started_at.parse::<Timestamp>().unwrap_or_default().as_millisecond();
    let ran = last_entry_at.unwrap_or(started).saturating_sub(started).max(0);
    let action = interrupted(chat.open(), &turn.id, ran);
    for action in withdrawn(chat.open()).into_iter().chain([action]) {
        chat.reduce(&action)?;
    }
    Ok(true)
}

/// Takes from a chat what went with its agent. Answers whether there was anything.
fn clear_leftovers(chat: &mut ChatDoc) -> Result<bool, TurnError> {
    let leftovers = of_agent(chat.open());
    for action in &leftovers {
        chat.reduce(action)?;
    }
    Ok(!leftovers.is_empty())
}

/// Takes directories from a chat that its session does not have, and gives it what took
/// their place: a host may have been killed after the session had changed and before the
/// chat followed. Answers whether there were any.
fn leave_foreign_directories(
    chat: &mut ChatDoc,
    session: &SessionState,
    replaced: &[(String, String)],
) -> Result<bool, TurnError> {
    let known = session.working_directories.as_deref().unwrap_or_default();
    let own = chat.open().working_directories.iter().flatten();
    let foreign: Vec<String> = own.filter(|directory| !known.contains(directory)).cloned().collect();
    let any = !foreign.is_empty();
    for directory in foreign {
        let mut place = &directory;
        for (old, new) in replaced {
            if place == old {
                place = new;
            }
        }
        if known.contains(place) {
            let set = ChatWorkingDirectorySetAction { directory: place.clone() };
            chat.reduce(&StateAction::ChatWorkingDirectorySet(set))?;
        }
        let removed = ChatWorkingDirectoryRemovedAction { directory };
        chat.reduce(&StateAction::ChatWorkingDirectoryRemoved(removed))?;
    }
    Ok(any)
}

fn fold(target: &mut ChannelState, entry: &JournalEntry) -> Result<StateAction, String> {
    let action: StateAction = decode(&entry.action)?;
    target.reduce(&action).map_err(|error| error.to_string())?;
    Ok(action)
}

fn decode<T: DeserializeOwned>(json: &Json) -> Result<T, String> {
    serde_json::from_str(json.get()).map_err(|error| error.to_string())
}
