//! Derives a session's status from its chats, as a client has to between two snapshots: the
//! protocol's reducers do not.

use ahp_types::state::{ChatOrigin, ChatSummary, SessionState, SessionStatus};
use jiff::Timestamp;

/// Sets the activity bits of a session's status to those that the host must report.
pub(crate) fn derive(session: &mut SessionState) {
    const ACTIVITY: u32 = 0b1_1111;
    let waits = |chat: &ChatSummary| chat.status & 24 == 24;
    let is_child = |chat: &ChatSummary| matches!(chat.origin, Some(ChatOrigin::Tool { .. }));
    let failed = |chat: &ChatSummary| chat.status & SessionStatus::Error.0 != 0 && !is_child(chat);
    let activity = if session.chats.iter().any(waits) {
        SessionStatus::InputNeeded.0
    } else if session.chats.iter().any(failed) {
        SessionStatus::Error.0
    } else {
        let newest = || session.chats.iter().max_by_key(|chat| chat.modified_at.parse::<Timestamp>().ok());
        let default = session.chats.iter().find(|chat| session.default_chat.as_ref() == Some(&chat.resource));
        default.or_else(newest).map_or(SessionStatus::Idle.0, |chat| chat.status & ACTIVITY)
    };
    session.status = (session.status & !ACTIVITY) | activity;
}
