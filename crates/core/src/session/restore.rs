//! Restores a session from its documents and its journal. Interrupted turns are closed, and
//! state that belonged to their agents is cleared, before the session is published.

use ahp::reducers::apply_action_to_session;
use ahp_types::actions::{
    ChatWorkingDirectoryRemovedAction, ChatWorkingDirectorySetAction, SessionChatRemovedAction,
    SessionInputNeededRemovedAction, SessionTitleChangedAction, StateAction,
};
use ahp_types::state::{ChatState, SessionState, SessionSummary};
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::chat_todo::ChatTodo;
use super::chats::ChatSeed;
use super::children::stored_parent;
use super::decide::{
    cancel_open_requests, clear_session_agents, clear_turn, holds_queue, interrupted, stop_background_work,
};
use super::projection;
use super::session_meta::{self, MetaSources};
use crate::action::meaning;
use crate::agent::History;
use crate::channel::ChannelUri;
use crate::clock::wire_time_of_millis;
use crate::projects::GitReading;
use crate::state::{ChannelState, ChatDoc, TurnError};
use crate::storage::{JournalEntry, Json, Rewind, StorageError, StoredChat, StoredSession};
use crate::usage::ModelUse;

/// A session that was restored from storage.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) session: SessionState,
    /// Its chats: the actor's data and the document of each.
    pub(crate) chats: Vec<(ChatSeed, ChatDoc)>,
    /// Its row for the session list.
    pub(crate) row: SessionSummary,
    pub(crate) created_at: String,
    pub(crate) next_entry: u64,
    /// Whether the stored documents are out of date.
    pub(crate) stale: bool,
}

/// Restores a session: applies the journal to the documents.
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
        match RestoringChat::new(chat) {
            Ok(chat) => chats.push(chat),
            Err(reason) if is_default => return Err(damaged("the default chat", reason)),
            // The other chats stay usable. The damaged chat is left unchanged in storage.
            Err(reason) => {
                tracing::error!(session = %uri, chat = %name, reason, "skipping unreadable chat");
            }
        }
    }
    let journaled = stored.journal.last().map(|entry| (entry.number, entry.at));
    // Pairs of replaced directory and replacement, oldest first.
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
            // The chat was disposed or moved after this entry.
            Ok(())
        };
        if let Err(reason) = folded {
            tracing::error!(session = %uri, entry = entry.number, reason, "skipping unreadable journal entry");
        }
    }
    let ChannelState::Session(mut session) = session else {
        return Err(damaged("the session document", "the document is of the wrong kind".to_owned()));
    };
    let mut closed = false;
    let mut restored = Vec::with_capacity(chats.len());
    for chat in chats {
        let (mut seed, mut doc) = chat.finish().map_err(|reason| damaged("a chat", reason))?;
        let last_entry_at = journaled.map(|(_, at)| at);
        closed |=
            clear_leftovers(&mut doc, last_entry_at).map_err(|error| damaged("a chat", error.to_string()))?;
        closed |= close_interrupted(&mut doc, last_entry_at)
            .map_err(|error| damaged("the running turn", error.to_string()))?;
        closed |= remove_foreign_directories(&mut doc, &session, &replaced)
            .map_err(|error| damaged("a chat's directories", error.to_string()))?;
        seed.queue_held = holds_queue(doc.open());
        seed.links.retain(|turn| doc.position(turn).is_some());
        seed.todo = session_meta::todo_of(&session, &seed.uri);
        restored.push((seed, doc));
    }
    for stopped in clear_session_agents(&session) {
        apply_action_to_session(&mut session, &stopped);
        closed = true;
    }
    update_session_copies(&mut session, &restored);
    let default = session.default_chat.as_deref();
    if !restored.iter().any(|(seed, _)| Some(seed.uri.as_str()) == default) {
        return Err(damaged("the default chat", "the chat is missing".to_owned()));
    }
    let row = projection::row(uri, &stored.created_at, &session, None, None);
    Ok(Restored {
        session: *session,
        chats: restored,
        row,
        created_at: stored.created_at,
        next_entry: journaled.map_or(1, |(number, _)| number + 1),
        stale: closed || journaled.is_some(),
    })
}

/// Updates the session's copies of its chats' data: they may be out of date after a crash,
/// and unreadable chats are removed from the list.
fn update_session_copies(session: &mut SessionState, chats: &[(ChatSeed, ChatDoc)]) {
    let here = |uri: &str| chats.iter().any(|(seed, _)| seed.uri.as_str() == uri);
    let gone = session.chats.iter().map(|chat| chat.resource.clone()).filter(|uri| !here(uri));
    for chat in gone.collect::<Vec<_>>() {
        // The default chat stays in the list; the caller reports that it is missing.
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
    let todos = chats.iter().map(|(seed, _)| (seed.uri.as_str(), &seed.todo)).collect();
    let sources = MetaSources { todos, git: GitReading::Unknown, used: ModelUse::default() };
    if let Some(update) = session_meta::update(session, &sources) {
        apply_action_to_session(session, &update);
    }
    // The titles of a chat and its session are written separately.
    let default =
        |(seed, _): &&(ChatSeed, ChatDoc)| session.default_chat.as_deref() == Some(seed.uri.as_str());
    let title = chats.iter().find(default).map(|(_, doc)| doc.open().title.clone());
    if let Some(title) = title.filter(|title| !title.is_empty() && *title != session.title) {
        let renamed = StateAction::SessionTitleChanged(SessionTitleChangedAction { title });
        apply_action_to_session(session, &renamed);
    }
}

/// A chat that is being restored.
struct RestoringChat {
    seed: ChatSeed,
    document: ChannelState,
}

impl RestoringChat {
    fn new(stored: StoredChat) -> Result<Self, String> {
        let StoredChat { uri, conversation, links, state, turns } = stored;
        let header: ChatState = decode(&state)?;
        let doc = ChatDoc::from_stored(header, turns).map_err(|error| error.to_string())?;
        Ok(Self {
            seed: ChatSeed {
                parent: stored_parent(&doc),
                links: links.into(),
                queue_held: false,
                todo: ChatTodo::default(),
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
            // The agent may have a record of this turn. If not, opening it reports that.
            if meaning.begins_turn() {
                conversation.history = History::Resume;
            }
        } else if let StateAction::ChatTruncated(truncated) = action {
            // It is unknown whether the agent was told; telling it again is harmless.
            conversation.rewind = Some(Rewind { to: truncated.turn_id });
        }
        Ok(())
    }

    fn finish(self) -> Result<(ChatSeed, ChatDoc), String> {
        match self.document {
            ChannelState::Chat(doc) => Ok((self.seed, *doc)),
            ChannelState::Root(_)
            | ChannelState::Session(_)
            | ChannelState::ResourceWatch(_)
            | ChannelState::Changeset(_) => Err("the document is of the wrong kind".to_owned()),
        }
    }
}

/// Closes a turn that was interrupted by the end of the host. Returns whether there was one.
fn close_interrupted(chat: &mut ChatDoc, last_entry_at: Option<i64>) -> Result<bool, TurnError> {
    let Some(turn) = &chat.open().active_turn else { return Ok(false) };
    let started = turn.started_at.parse::<Timestamp>().unwrap_or_default().as_millisecond();
    let ran = last_entry_at.unwrap_or(started).saturating_sub(started).max(0);
    let action = interrupted(chat.open(), &turn.id, ran);
    for action in cancel_open_requests(chat.open()).into_iter().chain([action]) {
        chat.reduce(&action)?;
    }
    Ok(true)
}

/// Clears the state that belonged to a chat's agent. Returns whether there was any.
fn clear_leftovers(chat: &mut ChatDoc, last_entry_at: Option<i64>) -> Result<bool, TurnError> {
    let time = last_entry_at.and_then(wire_time_of_millis);
    let time = time.unwrap_or_else(|| chat.open().modified_at.clone());
    let mut leftovers = stop_background_work(chat.open(), chat.turns(), "the host", &time);
    leftovers.extend(clear_turn(chat.open()));
    for action in &leftovers {
        chat.reduce(action)?;
    }
    Ok(!leftovers.is_empty())
}

/// Removes the directories of a chat that its session does not have, and adds their
/// replacements: the host may have been killed after the session changed and before the
/// chat was updated. Returns whether there were any.
fn remove_foreign_directories(
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
