//! The status of a session, which the host derives from its chats.
//!
//! The reducers of the protocol do not derive it, so a session's document contains only
//! its own flags and whether it waits for input. Snapshots and rows contain the whole
//! status.

use ahp_types::state::{ChatOrigin, ChatSummary, SessionState, SessionStatus};
use jiff::Timestamp;

/// The status bits for the activity of a chat or session.
const ACTIVITY_BITS: u32 = 0b1_1111;

/// The session's own flags and the activity of its leading chat.
pub(crate) fn session_status(session: &SessionState) -> u32 {
    let activity = leading_chat(session).map_or(SessionStatus::Idle.0, |chat| chat.status & ACTIVITY_BITS);
    (session.status & !ACTIVITY_BITS) | activity
}

/// The chat that determines the session's status: a chat that waits for input, else a failed
/// one, else the default chat. A subagent's chat counts only while it waits for input: its
/// failure is handled by the parent chat, and it cannot be resumed.
pub(crate) fn leading_chat(session: &SessionState) -> Option<&ChatSummary> {
    let default = |chat: &&ChatSummary| session.default_chat.as_ref() == Some(&chat.resource);
    let with = |wanted: SessionStatus| {
        let has = move |chat: &&ChatSummary| {
            let is_child = matches!(chat.origin, Some(ChatOrigin::Tool { .. }));
            chat.status & wanted.0 == wanted.0 && (wanted == SessionStatus::InputNeeded || !is_child)
        };
        let first = session.chats.iter().find(|chat| default(chat) && has(chat));
        first.or_else(|| session.chats.iter().find(has))
    };
    with(SessionStatus::InputNeeded)
        .or_else(|| with(SessionStatus::Error))
        .or_else(|| session.chats.iter().find(default))
        .or_else(|| newest_chat(session))
}

/// The chat with the latest change. Times are parsed, because clients send any offset. An
/// invalid time counts as older than all others.
pub(crate) fn newest_chat(session: &SessionState) -> Option<&ChatSummary> {
    session.chats.iter().max_by_key(|chat| chat.modified_at.parse::<Timestamp>().ok())
}
