//! Keeps the three copies of a chat's facts in agreement.
//!
//! A chat's own document is the source; the session's catalogue entry, what it says
//! it waits for (`needs`), and the row in the session list follow from it. All pure.

mod needs;

use ahp_types::actions::{PartialChatSummary, SessionChatUpdatedAction, StateAction};
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
    catalogue_update(session, chat).into_iter().chain(needs::updates(session, chat)).collect()
}

/// The action that brings the session's catalogue entry up to date, if it is not.
fn catalogue_update(session: &SessionState, chat: &ChatState) -> Option<StateAction> {
    let entry = session.chats.iter().find(|entry| entry.resource == chat.resource)?;
    let changes = PartialChatSummary {
        title: (entry.title != chat.title).then(|| chat.title.clone()),
        status: (entry.status != chat.status).then_some(chat.status),
        modified_at: (entry.modified_at != chat.modified_at).then(|| chat.modified_at.clone()),
        ..PartialChatSummary::default()
    };
    (changes != PartialChatSummary::default()).then(|| {
        StateAction::SessionChatUpdated(SessionChatUpdatedAction { chat: chat.resource.clone(), changes })
    })
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
