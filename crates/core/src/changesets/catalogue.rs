//! The changesets that sessions and chats offer to clients.

use ahp_types::common::JsonObject;
use ahp_types::state::{Changeset, ChangesetCapabilities};

use super::address::prefix;
use crate::channel::ChannelUri;

/// The changesets of a session. The one with uncommitted changes is always offered, because a
/// directory can become a git work tree at any time; without git it is empty.
pub(crate) fn of_session(session: &ChannelUri) -> Vec<Changeset> {
    let prefix = prefix(session, None);
    let mut changesets = vec![
        entry("All Changes", "All changes of this session", "session", format!("{prefix}session")),
        entry(
            "Uncommitted Changes",
            "The difference to git's last commit",
            "uncommitted",
            format!("{prefix}uncommitted"),
        ),
    ];
    changesets.extend(of_turns(&prefix));
    changesets
}

/// The changesets of a chat.
pub(crate) fn of_chat(session: &ChannelUri, chat: &ChannelUri) -> Vec<Changeset> {
    let prefix = prefix(session, Some(chat));
    let mut changesets =
        vec![entry("All Changes", "All changes of this chat", "session", format!("{prefix}all"))];
    changesets.extend(of_turns(&prefix));
    changesets
}

fn of_turns(prefix: &str) -> [Changeset; 2] {
    [
        entry("Turn Changes", "The changes of one turn", "turn", format!("{prefix}turn/{{turnId}}")),
        entry(
            "Changes Between Turns",
            "The changes after one turn, up to another",
            "compare-turns",
            format!("{prefix}compare/{{originalTurnId}}/{{modifiedTurnId}}"),
        ),
    ]
}

fn entry(label: &str, description: &str, change_kind: &str, uri_template: String) -> Changeset {
    Changeset {
        label: label.to_owned(),
        uri_template,
        description: Some(description.to_owned()),
        change_kind: change_kind.to_owned(),
        capabilities: Some(ChangesetCapabilities { review: Some(JsonObject::new()) }),
    }
}
