//! Changesets: the net changes of turns, and the operations on them.

use ahp_types::common::Uri;
use ahp_types::state::FileEdit;
use uuid::Uuid;

use super::{BlobUri, EditSource};
use crate::channel::ChannelUri;

/// The part of the log that a changeset shows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChangeScope {
    /// The session.
    pub session: ChannelUri,
    /// The chat; `None` for all chats of the session.
    pub chat: Option<ChannelUri>,
    /// The directories of the session, for changes that are not in the log, and as the limit of
    /// operations.
    pub roots: Vec<std::path::PathBuf>,
    /// Which changes.
    pub selection: ChangeSelection,
}

/// Which changes a changeset contains.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChangeSelection {
    /// All changes of the agents.
    All,
    /// The changes of these turns, oldest first.
    Turns(Vec<String>),
    /// The difference between git's last commit and the working directories, whatever made it.
    Uncommitted,
}

/// The files of a changeset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangeList {
    /// The files, sorted by path.
    pub files: Vec<ChangedFile>,
    /// Files that are not listed because there are too many.
    pub omitted: usize,
    /// Limits that were reached, as text for the user: some changes of commands cannot be undone.
    pub limits: Vec<String>,
    /// What the last operation on the session was, if it can be taken back.
    pub redo: Option<String>,
}

/// A file of a changeset.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangedFile {
    /// The `file:` address, which identifies the file in the changeset. For a renamed file, the
    /// new one.
    pub uri: Uri,
    /// The net change.
    pub edit: FileEdit,
    /// What made the changes, without duplicates.
    pub sources: Vec<EditSource>,
    /// Whether the user reviewed this state of the file.
    pub reviewed: bool,
    /// Whether other chats or programs may have made a part of the change.
    pub overlaps: bool,
    /// Whether the file was also changed outside of the agent between its changes.
    pub mixed: bool,
    /// Why the change cannot be undone.
    pub not_undoable: Option<String>,
}

/// Line and file counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCounts {
    /// Changed files.
    pub files: u64,
    /// Added lines.
    pub added: u64,
    /// Removed lines.
    pub removed: u64,
}

/// The counts of a session and of each of its chats with changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionChangeCounts {
    /// All chats together.
    pub session: ChangeCounts,
    /// Each chat.
    pub chats: Vec<(ChannelUri, ChangeCounts)>,
}

/// A client's operation on a changeset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeOperation {
    /// The changeset.
    pub scope: ChangeScope,
    /// What to do.
    pub kind: OperationKind,
    /// The files.
    pub target: OperationTarget,
    /// Whether later changes of the same lines are overwritten instead of refused.
    pub force: bool,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// Takes the changes back. Files that the user keeps are left alone if the target is the
    /// whole changeset.
    Undo,
    /// Marks the changes as reviewed.
    Keep,
    /// Takes the last undo or restore of the session back. The target is the whole changeset.
    Redo,
    /// Like an undo of the whole changeset, including kept files: the selection contains a turn
    /// and all later ones.
    Restore,
}

/// What an operation acts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationTarget {
    /// The whole changeset.
    Changeset,
    /// One file, by its `file:` address.
    File(Uri),
    /// Lines of a file.
    Lines {
        /// The `file:` address.
        uri: Uri,
        /// The first line, counted from 0, in the file after the change.
        start: u64,
        /// The line after the last one.
        end: u64,
    },
}

/// The result of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationReport {
    /// The operation, if it changed files.
    pub operation: Option<Uuid>,
    /// The `file:` addresses of the changed or marked files.
    pub changed: Vec<Uri>,
    /// Files that were left alone, with the reason.
    pub refused: Vec<EditConflict>,
}

/// A file that an operation did not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditConflict {
    /// The `file:` address.
    pub uri: Uri,
    /// Why, as text for the user.
    pub reason: String,
    /// The file with marked conflicts.
    pub preview: Option<BlobUri>,
    /// Whether the operation can be repeated with `force`.
    pub can_force: bool,
}
