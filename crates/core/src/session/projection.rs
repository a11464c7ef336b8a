//! Keeps the copies of a chat's data up to date.
//!
//! The chat document is the source. The session's catalogue entry, the session's input
//! requests (`needs`) and the row in the session list are derived from it. All functions
//! are pure.

mod needs;

pub(super) use needs::{id as request_id, of_others as needs_of_others};

use ahp_types::actions::{
    PartialChatSummary, SessionActivityChangedAction, SessionChatAddedAction, SessionChatUpdatedAction,
    StateAction,
};
use ahp_types::state::{
    ChangesSummary, ChatState, ChatSummary, SessionChatSummary, SessionState, SessionSummary,
};

use super::session_meta;
use crate::channel::ChannelUri;
use crate::edits::{ChangeCounts, SessionChangeCounts};
use crate::state::{leading_chat, newest_chat, session_status};

/// The actions that update the session document after a change of one of its chats.
pub(super) fn session_updates(session: &SessionState, chat: &ChatState) -> Vec<StateAction> {
    catalogue_update(session, chat).into_iter().chain(needs::updates(session, chat)).collect()
}

/// The action that sets the session's activity to that of its leading chat, if it differs.
pub(super) fn activity_update(session: &SessionState) -> Option<StateAction> {
    let activity = leading_chat(session).and_then(|chat| chat.activity.clone());
    (session.activity != activity)
        .then_some(StateAction::SessionActivityChanged(SessionActivityChangedAction { activity }))
}

/// The action that updates the session's catalogue entry, if it differs.
fn catalogue_update(session: &SessionState, chat: &ChatState) -> Option<StateAction> {
    let summary = summary_of(chat);
    let Some(entry) = session.chats.iter().find(|entry| entry.resource == chat.resource) else {
        return Some(StateAction::SessionChatAdded(SessionChatAddedAction { summary }));
    };
    // No action changes the counts in a chat's document, so only the entry has them.
    let wanted = ChatSummary { changes: entry.changes.clone(), ..summary };
    if *entry == wanted {
        return None;
    }
    // A partial update cannot clear a field and does not cover all fields; then the
    // complete entry is sent.
    let whole = entry.movable != wanted.movable
        || entry.interactivity != wanted.interactivity
        || (entry.activity.is_some() && wanted.activity.is_none())
        || (entry.working_directories.is_some() && wanted.working_directories.is_none());
    if whole {
        return Some(StateAction::SessionChatAdded(SessionChatAddedAction { summary: wanted }));
    }
    let changes = PartialChatSummary {
        title: (entry.title != wanted.title).then_some(wanted.title),
        status: (entry.status != wanted.status).then_some(wanted.status),
        activity: wanted.activity.filter(|activity| entry.activity.as_ref() != Some(activity)),
        modified_at: (entry.modified_at != wanted.modified_at).then_some(wanted.modified_at),
        origin: wanted.origin.filter(|origin| entry.origin.as_ref() != Some(origin)),
        working_directories: wanted
            .working_directories
            .filter(|directories| entry.working_directories.as_ref() != Some(directories)),
        ..PartialChatSummary::default()
    };
    Some(StateAction::SessionChatUpdated(SessionChatUpdatedAction { chat: chat.resource.clone(), changes }))
}

/// The actions that set the counts of changed files and lines in the session's catalogue.
pub(super) fn count_updates(session: &SessionState, counts: &SessionChangeCounts) -> Vec<StateAction> {
    let update = |entry: &ChatSummary| {
        let of_chat = counts.chats.iter().find(|(chat, _)| chat.as_str() == entry.resource);
        let changes = changes_summary(of_chat.map(|(_, counts)| *counts), entry.changes.as_ref());
        if changes == entry.changes {
            return None;
        }
        let changes = PartialChatSummary { changes, ..PartialChatSummary::default() };
        let updated = SessionChatUpdatedAction { chat: entry.resource.clone(), changes };
        Some(StateAction::SessionChatUpdated(updated))
    };
    session.chats.iter().filter_map(update).collect()
}

/// Counts for clients. They are left out until there is a change; after that they cannot be
/// removed, and become zero.
pub(super) fn changes_summary(
    counts: Option<ChangeCounts>,
    shown: Option<&ChangesSummary>,
) -> Option<ChangesSummary> {
    let ChangeCounts { files, added, removed } = counts.unwrap_or_default();
    let number = |count: u64| Some(i64::try_from(count).unwrap_or(i64::MAX));
    let changes =
        ChangesSummary { additions: number(added), deletions: number(removed), files: number(files) };
    (files > 0 || shown.is_some()).then_some(changes)
}

/// A chat's entry in its session's catalogue.
pub(crate) fn summary_of(chat: &ChatState) -> ChatSummary {
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

/// The session's row in the session list.
pub(super) fn row(
    uri: &ChannelUri,
    created_at: &str,
    session: &SessionState,
    waiting_since: Option<&str>,
    changes: Option<ChangesSummary>,
) -> SessionSummary {
    SessionSummary {
        provider: session.provider.clone(),
        title: session.title.clone(),
        status: session_status(session),
        activity: session.activity.clone(),
        origin: session.origin.clone(),
        project: session.project.clone(),
        working_directories: session.working_directories.clone(),
        annotations: session.annotations.clone(),
        resource: uri.as_str().to_owned(),
        created_at: created_at.to_owned(),
        modified_at: newest_chat(session).map_or(created_at, |chat| &chat.modified_at).to_owned(),
        changes,
        meta: session_meta::of_row(session, waiting_since),
        chats: Some(session.chats.iter().map(compact).collect()),
        default_chat: session.default_chat.clone(),
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn latest_change_is_found_across_time_zone_offsets() {
        let chat = |number: usize, time: &str| json!({"resource": format!("ahp-chat:/{number}"), "title": "", "status": 1, "modifiedAt": time});
        let newest_of = |times: &[&str]| {
            let chats: Vec<_> = times.iter().enumerate().map(|(at, time)| chat(at, time)).collect();
            let session: SessionState = serde_json::from_value(json!({
                "provider": "x", "title": "", "status": 1, "lifecycle": "ready", "activeClients": [],
                "chats": chats,
            }))
            .unwrap();
            row(&ChannelUri::new("x:/1"), "2026-01-01T00:00:00.000Z", &session, None, None).modified_at
        };
        let (tokyo, utc) = ("2026-11-15T09:00:00+09:00", "2026-11-15T01:00:00.000Z");
        assert_eq!(newest_of(&[tokyo, utc]), utc);
        assert_eq!(newest_of(&[utc, tokyo, "yesterday"]), utc);
        assert_eq!(newest_of(&["yesterday"]), "yesterday");
        assert_eq!(newest_of(&[]), "2026-01-01T00:00:00.000Z");
    }
}
