//! Keeps the three copies of a chat's facts in agreement.
//!
//! A chat's own document is the source; the session's catalogue entry, what it says
//! it waits for (`needs`), and the row in the session list follow from it. All pure.

mod needs;

use ahp_types::actions::{
    PartialChatSummary, SessionActivityChangedAction, SessionChatAddedAction, SessionChatUpdatedAction,
    StateAction,
};
use ahp_types::state::{
    ChatState, ChatSummary, SessionChatSummary, SessionState, SessionStatus, SessionSummary,
};

use crate::channel::ChannelUri;

/// Bits of a status that say what a chat or session is doing.
const ACTIVITY_BITS: u32 = 0b1_1111;

/// Whether an action only adds to a running turn, which no summary shows. Such
/// actions come by the thousand, so the summaries are not even looked at.
pub(super) fn only_streams(action: &StateAction) -> bool {
    matches!(
        action,
        StateAction::ChatDelta(_)
            | StateAction::ChatReasoning(_)
            | StateAction::ChatResponsePart(_)
            | StateAction::ChatToolCallDelta(_)
            | StateAction::ChatUsage(_)
    )
}

/// The actions that bring the session's document up to date with its chat.
pub(super) fn session_updates(session: &SessionState, chat: &ChatState) -> Vec<StateAction> {
    let activity = (session.default_chat.as_ref() == Some(&chat.resource)
        && session.activity != chat.activity)
        .then(|| {
            let activity = chat.activity.clone();
            StateAction::SessionActivityChanged(SessionActivityChangedAction { activity })
        });
    catalogue_update(session, chat).into_iter().chain(activity).chain(needs::updates(session, chat)).collect()
}

/// The action that brings the session's catalogue entry up to date, if it is not.
fn catalogue_update(session: &SessionState, chat: &ChatState) -> Option<StateAction> {
    let entry = session.chats.iter().find(|entry| entry.resource == chat.resource)?;
    let wanted = summary_of(chat);
    if *entry == wanted {
        return None;
    }
    // An update can say neither that something is gone nor all that there is; then
    // the whole entry is sent again.
    let whole = entry.movable != wanted.movable
        || entry.interactivity != wanted.interactivity
        || (entry.activity.is_some() && wanted.activity.is_none())
        || (entry.changes.is_some() && wanted.changes.is_none())
        || (entry.working_directories.is_some() && wanted.working_directories.is_none());
    if whole {
        return Some(StateAction::SessionChatAdded(SessionChatAddedAction { summary: wanted }));
    }
    let changes = PartialChatSummary {
        title: (entry.title != wanted.title).then_some(wanted.title),
        status: (entry.status != wanted.status).then_some(wanted.status),
        activity: wanted.activity.filter(|activity| entry.activity.as_ref() != Some(activity)),
        modified_at: (entry.modified_at != wanted.modified_at).then_some(wanted.modified_at),
        changes: wanted.changes.filter(|changes| entry.changes.as_ref() != Some(changes)),
        origin: wanted.origin.filter(|origin| entry.origin.as_ref() != Some(origin)),
        working_directories: wanted
            .working_directories
            .filter(|directories| entry.working_directories.as_ref() != Some(directories)),
        ..PartialChatSummary::default()
    };
    Some(StateAction::SessionChatUpdated(SessionChatUpdatedAction { chat: chat.resource.clone(), changes }))
}

fn summary_of(chat: &ChatState) -> ChatSummary {
    ChatSummary {
        resource: chat.resource.clone(),
        title: chat.title.clone(),
        status: chat.status,
        activity: chat.activity.clone(),
        modified_at: chat.modified_at.clone(),
        changes: chat.changes.clone(),
        origin: chat.origin.clone(),
        movable: chat.movable,
        interactivity: chat.interactivity,
        working_directories: chat.working_directories.clone(),
    }
}

/// The session's row in the list.
pub(super) fn row(uri: &ChannelUri, created_at: &str, session: &SessionState) -> SessionSummary {
    SessionSummary {
        provider: session.provider.clone(),
        title: session.title.clone(),
        status: row_status(session),
        activity: session.activity.clone(),
        origin: session.origin.clone(),
        project: session.project.clone(),
        working_directories: session.working_directories.clone(),
        annotations: session.annotations.clone(),
        resource: uri.as_str().to_owned(),
        created_at: created_at.to_owned(),
        modified_at: session
            .chats
            .iter()
            .map(|chat| chat.modified_at.as_str())
            .max()
            .unwrap_or(created_at)
            .to_owned(),
        changes: None,
        meta: session.meta.clone(),
        chats: Some(session.chats.iter().map(compact).collect()),
        default_chat: session.default_chat.clone(),
    }
}

/// The session's own flags with the activity of its chats: what the default chat
/// does, unless another one waits for input or has failed.
fn row_status(session: &SessionState) -> u32 {
    let default = session.default_chat.as_ref();
    let of_default = session
        .chats
        .iter()
        .find(|chat| Some(&chat.resource) == default)
        .or_else(|| session.chats.iter().max_by_key(|chat| &chat.modified_at))
        .map_or(SessionStatus::Idle.0, |chat| chat.status & ACTIVITY_BITS);
    let any = |wanted: u32| session.chats.iter().any(|chat| chat.status & wanted == wanted);
    let activity = if any(SessionStatus::InputNeeded.0) {
        SessionStatus::InputNeeded.0
    } else if any(SessionStatus::Error.0) {
        SessionStatus::Error.0
    } else {
        of_default
    };
    (session.status & !ACTIVITY_BITS) | activity
}

fn compact(chat: &ChatSummary) -> SessionChatSummary {
    SessionChatSummary {
        resource: chat.resource.clone(),
        title: chat.title.clone(),
        origin: chat.origin.clone(),
        interactivity: chat.interactivity,
        status: Some(chat.status),
        changes: chat.changes.clone(),
    }
}
