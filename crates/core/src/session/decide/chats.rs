//! The rules for a session's list of chats: how many there may be, which chat may be moved
//! or disposed, and the order of the list.

use ahp_types::actions::{
    ChatMovableChangedAction, ChatWorkingDirectoryRemovedAction, SessionChatAddedAction,
    SessionChatRemovedAction, SessionChatsReorderedAction, SessionDefaultChatChangedAction,
    SessionReadyAction, SessionTitleChangedAction, StateAction,
};
use ahp_types::state::{ChatState, SessionState};

use super::ActionTarget;
use crate::channel::ChannelUri;
use crate::session::handle::{ChatError, SessionEnding};
use crate::session::projection;
use crate::session::transfer::{ChatPlacement, Leaving};

/// Most chats per session; each one has its own agent.
pub(in crate::session) const MAX_CHATS: usize = 64;

/// A requested change of a session's list of chats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum ChatChange {
    /// Another position in the list.
    Place,
    /// Deletion.
    Dispose,
    /// Release for another session.
    Release,
}

/// The facts about a chat that decide whether it may be changed.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct ChatFacts<'a> {
    pub(in crate::session) is_default: bool,
    /// Whether it is a subagent's chat.
    pub(in crate::session) is_child: bool,
    pub(in crate::session) has_running_turn: bool,
    pub(in crate::session) leaving: Option<&'a Leaving>,
}

/// Checks whether a chat may be placed, disposed or released.
pub(in crate::session) fn check_change(
    chat: &ChannelUri,
    facts: ChatFacts<'_>,
    change: ChatChange,
) -> Result<(), ChatError> {
    if facts.is_default {
        return Err(refused(match change {
            ChatChange::Place => "the default chat cannot be moved",
            ChatChange::Dispose => "the default chat cannot be disposed; dispose the session instead",
            ChatChange::Release => "the default chat cannot be moved to another session",
        }));
    }
    if facts.is_child && change == ChatChange::Release {
        return Err(refused("a subagent's chat cannot be moved to another session"));
    }
    match facts.leaving {
        None => {}
        Some(Leaving::Disposed(_)) => return Err(ChatError::Unknown(chat.clone())),
        Some(Leaving::Moving(_) | Leaving::InTransit) => {
            return Err(refused("the chat is being moved; try again later"));
        }
    }
    match change {
        ChatChange::Dispose if facts.is_child && facts.has_running_turn => {
            Err(refused("the subagent is still working; cancel its turn first"))
        }
        ChatChange::Release if facts.has_running_turn => Err(ChatError::TurnInProgress(chat.clone())),
        ChatChange::Place | ChatChange::Dispose | ChatChange::Release => Ok(()),
    }
}

/// Checks whether a session with this many chats, without those of subagents, can get
/// another one.
pub(in crate::session) fn check_room(chats: usize, ending: Option<SessionEnding>) -> Result<(), ChatError> {
    if ending.is_some() {
        return Err(ChatError::Gone);
    }
    if chats >= MAX_CHATS {
        return Err(refused(&format!("a session can have at most {MAX_CHATS} chats; dispose of some first")));
    }
    Ok(())
}

/// Checks the new position of a chat of the session.
pub(in crate::session) fn check_placement(
    chat: &ChannelUri,
    after: Option<&ChannelUri>,
    is_here: impl Fn(&ChannelUri) -> bool,
) -> Result<(), ChatError> {
    if after == Some(chat) {
        return Err(refused("cannot move a chat after itself"));
    }
    check_anchor(after, is_here)
}

/// Checks that the chat after which another one is placed is in the session.
pub(in crate::session) fn check_anchor(
    after: Option<&ChannelUri>,
    is_here: impl Fn(&ChannelUri) -> bool,
) -> Result<(), ChatError> {
    match after {
        Some(after) if !is_here(after) => Err(refused("the chat to place it after is not in the session")),
        Some(_) | None => Ok(()),
    }
}

/// The action that moves a chat after another, or first; `None` if it is there already.
pub(in crate::session) fn order_after(
    session: &SessionState,
    chat: &ChannelUri,
    after: Option<&ChannelUri>,
) -> Option<StateAction> {
    let mut before: Vec<String> = session.chats.iter().map(|chat| chat.resource.clone()).collect();
    let mut chats = before.clone();
    chats.retain(|listed| listed != chat.as_str());
    if chats.len() == before.len() {
        // It is about to be added, at the end.
        before.push(chat.as_str().to_owned());
    }
    let anchor = after.and_then(|after| chats.iter().position(|listed| listed == after.as_str()));
    // If the anchor was removed in the meantime, the chat goes to the end.
    let place = if after.is_none() { 0 } else { anchor.map_or(chats.len(), |anchor| anchor + 1) };
    chats.insert(place, chat.as_str().to_owned());
    (chats != before).then_some(StateAction::SessionChatsReordered(SessionChatsReorderedAction { chats }))
}

/// The actions with which a session adopts a chat of another session. `replaced` is the
/// unused default chat that it replaces, if any.
pub(in crate::session) fn adoption(
    (session, listed): (&SessionState, bool),
    chat: &ChatState,
    placement: &ChatPlacement,
    replaced: Option<&ChannelUri>,
) -> Vec<(ActionTarget, StateAction)> {
    let uri = ChannelUri::new(&chat.resource);
    let known = session.working_directories.as_deref().unwrap_or_default();
    let (kept, lost): (Vec<String>, Vec<String>) =
        chat.working_directories.iter().flatten().cloned().partition(|own| known.contains(own));
    let fixed = StateAction::ChatMovableChanged(ChatMovableChangedAction { movable: false });
    let lost = lost.into_iter().map(|directory| {
        StateAction::ChatWorkingDirectoryRemoved(ChatWorkingDirectoryRemovedAction { directory })
    });
    let of_chat = replaced.map(|_| fixed).into_iter().chain(lost);

    let mut summary = projection::summary_of(chat);
    summary.working_directories = summary.working_directories.map(|_| kept);
    let mut of_session = Vec::new();
    match placement {
        ChatPlacement::After(after) => {
            of_session.push(StateAction::SessionChatAdded(SessionChatAddedAction { summary }));
            of_session.extend(order_after(session, &uri, after.as_ref()));
        }
        ChatPlacement::AsDefault { title } => {
            summary.movable = Some(false);
            let title = if chat.title.is_empty() { title } else { &chat.title }.clone();
            let default_chat = Some(chat.resource.clone());
            of_session.extend([
                StateAction::SessionChatAdded(SessionChatAddedAction { summary }),
                StateAction::SessionDefaultChatChanged(SessionDefaultChatChangedAction { default_chat }),
                StateAction::SessionTitleChanged(SessionTitleChangedAction { title }),
            ]);
        }
    }
    of_session.extend((!listed).then_some(StateAction::SessionReady(SessionReadyAction {})));
    of_session.extend(replaced.map(chat_removed));
    let of_chat = of_chat.map(|action| (ActionTarget::Chat, action));
    of_chat.chain(of_session.into_iter().map(|action| (ActionTarget::Session, action))).collect()
}

/// The action that removes a chat from its session's list.
pub(in crate::session) fn chat_removed(chat: &ChannelUri) -> StateAction {
    StateAction::SessionChatRemoved(SessionChatRemovedAction { chat: chat.as_str().to_owned() })
}

pub(super) fn refused(why: &str) -> ChatError {
    ChatError::Refused(why.to_owned())
}

#[cfg(test)]
#[path = "chats_tests.rs"]
mod tests;
