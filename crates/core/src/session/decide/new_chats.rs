//! The rules for creating a chat, empty or as a branch of another chat of the session.

use ahp_types::commands::ChatSource;
use ahp_types::state::{
    ChatOrigin, ChatState, MessageKind, MultipleChatsCapability, PendingMessage, SessionState,
    SideChatSelection,
};
use uuid::Uuid;

use super::chats::refused;
use super::titles::title_from;
use crate::agent::{Branch, BranchKind, History, ResumeToken};
use crate::session::amend::has_too_many_chats;
use crate::session::chats::chat_state;
use crate::session::handle::{ChatError, NewChat};
use crate::session::links::TurnLinks;
use crate::state::ChatDoc;
use crate::storage::StoredTurn;

/// The id of the first message of a chat that is created with one.
const INITIAL_MESSAGE: &str = "initial";

/// Most bytes of a side chat's selection. It is part of the session's row, which all
/// clients get. Longer selections are refused; most responses are shorter.
const MAX_SELECTION: usize = 64 * 1024;

/// The state on which the creation of a chat is based.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct NewChatView<'a> {
    pub(in crate::session) session: &'a SessionState,
    /// The chat to branch from; `None` unless it is a chat of this session and not a
    /// subagent's.
    pub(in crate::session) source: Option<BranchSource<'a>>,
    pub(in crate::session) capabilities: &'a MultipleChatsCapability,
    /// The wall-clock time, formatted for the protocol.
    pub(in crate::session) time: &'a str,
}

/// A chat from which another one branches.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct BranchSource<'a> {
    pub(in crate::session) doc: &'a ChatDoc,
    /// The history with which its next agent is opened.
    pub(in crate::session) history: &'a History,
    pub(in crate::session) conversation: Uuid,
    pub(in crate::session) resume_token: Option<&'a ResumeToken>,
    pub(in crate::session) links: &'a TurnLinks,
}

/// The initial content of a chat.
#[derive(Debug)]
pub(in crate::session) struct NewChatContent {
    /// Its document, without turns.
    pub(in crate::session) state: ChatState,
    /// Its finished turns.
    pub(in crate::session) turns: Vec<StoredTurn>,
    /// The agent's messages in these turns.
    pub(in crate::session) links: TurnLinks,
    /// The history for its agent.
    pub(in crate::session) history: History,
}

/// Checks the first message of a new chat.
pub(in crate::session) fn check_initial_message(new: &NewChat) -> Result<(), ChatError> {
    match &new.initial_message {
        Some(message) if message.origin.kind != MessageKind::User => {
            Err(refused("a client can only send messages of origin \"user\""))
        }
        Some(message) if has_too_many_chats(message) => {
            Err(refused("the message has too many attached chats without an endTurn; attach fewer"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Decides about the initial content of a new chat.
pub(in crate::session) fn new_chat(
    new: &NewChat,
    view: NewChatView<'_>,
) -> Result<NewChatContent, ChatError> {
    let mut state = chat_state(&new.uri, view.time);
    state.movable = Some(true);
    let (mut turns, mut links) = (Vec::new(), TurnLinks::default());
    let history = match &new.source {
        None => {
            state.working_directories = directories_for(new, view.session)?;
            History::Fresh
        }
        Some(ChatSource::Fork(fork)) => {
            if view.capabilities.fork != Some(true) {
                return Err(refused("this agent does not support forks"));
            }
            let source = source_of(view)?;
            let history = branch(source, &fork.turn_id, BranchKind::Fork)?;
            let last = source.doc.position(&fork.turn_id).map_or(0, |last| last + 1);
            turns = source.doc.turns().iter().take(last).cloned().collect();
            links = source.links.of_turns(&turns);
            state.title = title_of(view.session, source.doc.open());
            state.working_directories = source.doc.open().working_directories.clone();
            state.origin = Some(ChatOrigin::Fork { chat: fork.chat.clone(), turn_id: fork.turn_id.clone() });
            history
        }
        Some(ChatSource::SideChat(side)) => {
            if view.capabilities.side_chat != Some(true) {
                return Err(refused("this agent does not support side chats"));
            }
            let (chat, turn_id, selection) =
                (side.chat.clone(), side.turn_id.clone(), side.selection.clone());
            selection.as_ref().map_or(Ok(()), check_selection)?;
            let source = source_of(view)?;
            let running = source.doc.open().active_turn.clone().filter(|active| active.id == turn_id);
            let kind = BranchKind::SideChat { selection: selection.clone(), running: running.map(Box::new) };
            let history = branch(source, &turn_id, kind)?;
            state.title = title_of(view.session, source.doc.open());
            state.working_directories = directories_for(new, view.session)?;
            state.origin = Some(ChatOrigin::SideChat { chat, turn_id, selection });
            history
        }
        Some(_) => return Err(refused("unknown kind of chat source")),
    };
    if let Some(message) = new.initial_message.clone() {
        if state.title.is_empty() {
            state.title = title_from(&message.text);
        }
        // The message is part of the first document, so a crash cannot separate the two.
        state.queued_messages = Some(vec![PendingMessage { id: INITIAL_MESSAGE.to_owned(), message }]);
    }
    Ok(NewChatContent { state, turns, links, history })
}

fn source_of(view: NewChatView<'_>) -> Result<BranchSource<'_>, ChatError> {
    view.source.ok_or_else(|| refused("the source must be a chat of this session and not a subagent's chat"))
}

/// The history of a chat that branches from a turn of another one.
fn branch(source: BranchSource<'_>, turn: &str, kind: BranchKind) -> Result<History, ChatError> {
    let running = source.doc.open().active_turn.as_ref().is_some_and(|active| active.id == turn);
    let place = source.doc.position(turn);
    if place.is_none() && (!running || kind == BranchKind::Fork) {
        return Err(refused("the source chat does not have this turn, or the turn is still running"));
    }
    let branch = match source.history {
        // The source has not been opened: its agent knows only what its own origin knows.
        History::Branch(origin) => {
            let last = source.doc.position(&origin.turn);
            let inherited = place.is_some_and(|at| last.is_some_and(|last| at <= last));
            let turn = if inherited { turn } else { &origin.turn };
            let inherited = origin.link.clone().filter(|_| turn == origin.turn);
            Branch {
                conversation: origin.conversation,
                resume_token: origin.resume_token.clone(),
                turn: turn.to_owned(),
                link: source.links.get(turn).cloned().or(inherited),
                kind,
            }
        }
        // The source has no history yet.
        History::Fresh if kind == BranchKind::Fork => return Ok(History::Fresh),
        History::Fresh | History::Resume | History::Rebuild(_) => Branch {
            conversation: source.conversation,
            resume_token: source.resume_token.cloned(),
            turn: turn.to_owned(),
            link: source.links.get(turn).cloned(),
            kind,
        },
    };
    Ok(History::Branch(Box::new(branch)))
}

/// The title of a chat. The default chat uses the session's title unless it has its own.
fn title_of(session: &SessionState, chat: &ChatState) -> String {
    let of_session = session.default_chat.as_ref() == Some(&chat.resource) && chat.title.is_empty();
    if of_session { session.title.clone() } else { chat.title.clone() }
}

/// Checks that the requested directories are directories of the session.
fn directories_for(new: &NewChat, session: &SessionState) -> Result<Option<Vec<String>>, ChatError> {
    let Some(wanted) = new.working_directories.as_ref().filter(|wanted| !wanted.is_empty()) else {
        return Ok(None);
    };
    let known = session.working_directories.as_deref().unwrap_or_default();
    match wanted.iter().find(|directory| !known.contains(directory)) {
        Some(foreign) => Err(refused(&format!("the directory {foreign:?} does not belong to the session"))),
        None => Ok(Some(wanted.clone())),
    }
}

fn check_selection(selection: &SideChatSelection) -> Result<(), ChatError> {
    let part = selection.response_part_id.as_ref().map_or(0, String::len);
    if selection.text.is_empty() {
        return Err(refused("the selection is empty; leave it out instead"));
    }
    if selection.text.len() + part > MAX_SELECTION {
        return Err(refused(&format!(
            "the selection is longer than {MAX_SELECTION} bytes; select less text"
        )));
    }
    Ok(())
}

#[cfg(test)]
#[path = "new_chats_tests.rs"]
mod tests;
