//! The operations that a changeset offers to clients. Pure.

use ahp_types::common::StringOrMarkdown;
use ahp_types::state::{ChangesetOperation, ChangesetOperationScope, ChangesetOperationStatus};

use super::address::ChangesetView;
use super::document::failed;
use crate::edits::{ChangeList, OperationKind};

/// The group of all operations, so that clients show them together.
const GROUP: &str = "edits";

/// The operation of a changeset that runs, and the last errors of the others.
#[derive(Debug, Default)]
pub(super) struct OperationRuns {
    running: Option<OperationKind>,
    failed: Vec<(OperationKind, String)>,
}

impl OperationRuns {
    /// An operation starts; its last error is obsolete.
    pub(super) fn start(&mut self, kind: OperationKind) {
        self.failed.retain(|(failed, _)| *failed != kind);
        self.running = Some(kind);
    }

    /// The running operation has ended.
    pub(super) fn end(&mut self, error: Option<String>) {
        let ended = self.running.take();
        self.failed.extend(ended.zip(error));
    }
}

/// The operations of a changeset with these files.
pub(super) fn operations(
    view: &ChangesetView,
    list: &ChangeList,
    runs: &OperationRuns,
) -> Vec<ChangesetOperation> {
    let restore = matches!(view, ChangesetView::Turn(_)).then(restore);
    let mut operations = vec![
        (OperationKind::Undo, undo(view, list)),
        (OperationKind::Keep, keep(list)),
        (OperationKind::Redo, redo(list)),
    ];
    operations.extend(restore.map(|restore| (OperationKind::Restore, restore)));
    for (kind, operation) in &mut operations {
        if runs.running == Some(*kind) {
            operation.status = ChangesetOperationStatus::Running;
        } else if let Some((_, error)) = runs.failed.iter().find(|(failed, _)| failed == kind) {
            operation.status = ChangesetOperationStatus::Error;
            operation.error = Some(failed(error));
        }
    }
    operations.into_iter().map(|(_, operation)| operation).collect()
}

/// The id of an operation.
pub(super) fn id_of(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::Undo => "undo",
        OperationKind::Keep => "keep",
        OperationKind::Redo => "redo",
        OperationKind::Restore => "restore",
    }
}

/// The operation with an id.
pub(super) fn kind_of(id: &str) -> Option<OperationKind> {
    [OperationKind::Undo, OperationKind::Keep, OperationKind::Redo, OperationKind::Restore]
        .into_iter()
        .find(|kind| id_of(*kind) == id)
}

fn undo(view: &ChangesetView, list: &ChangeList) -> ChangesetOperation {
    use ChangesetOperationScope::{Changeset, Range, Resource};
    let mut undo = offer(OperationKind::Undo, "Undo", "discard", &[Changeset, Resource, Range]);
    let mut description =
        "Takes these changes back and keeps later changes in other places of the files".to_owned();
    if *view == ChangesetView::Uncommitted {
        undo.label = "Discard".to_owned();
        undo.scopes = vec![Changeset, Resource];
        description = "Restores the last commit".to_owned();
        undo.confirmation = Some(StringOrMarkdown::from(
            "Discard uncommitted changes? This includes your own changes, and deletes new files.".to_owned(),
        ));
    }
    if list.omitted > 0 {
        description.push_str(&format!("; {} more files are changed, but not listed", list.omitted));
    }
    for limit in &list.limits {
        description.push_str("; ");
        description.push_str(limit);
    }
    undo.description = Some(description);
    enabled_if(undo, list.files.iter().any(|file| file.not_undoable.is_none()))
}

fn keep(list: &ChangeList) -> ChangesetOperation {
    use ChangesetOperationScope::{Changeset, Resource};
    let mut keep = offer(OperationKind::Keep, "Keep", "check", &[Changeset, Resource]);
    keep.description = Some("Marks the files as reviewed; undo of all files leaves them alone".to_owned());
    enabled_if(keep, list.files.iter().any(|file| !file.reviewed))
}

fn redo(list: &ChangeList) -> ChangesetOperation {
    let mut redo = offer(OperationKind::Redo, "Redo", "redo", &[ChangesetOperationScope::Changeset]);
    redo.description = Some("Makes the changes again that were undone last".to_owned());
    if let Some(last) = &list.redo {
        redo.label = format!("Redo: {last}");
    }
    enabled_if(redo, list.redo.is_some())
}

fn restore() -> ChangesetOperation {
    let scopes = [ChangesetOperationScope::Changeset];
    let mut restore = offer(OperationKind::Restore, "Restore files to before this turn", "history", &scopes);
    restore.description = Some("Takes back the changes of this turn and of all later ones".to_owned());
    restore.confirmation = Some(StringOrMarkdown::from(
        "Restore the files to their state before this turn? The changes of all later turns are undone, too. You can redo this."
            .to_owned(),
    ));
    restore
}

fn offer(
    kind: OperationKind,
    label: &str,
    icon: &str,
    scopes: &[ChangesetOperationScope],
) -> ChangesetOperation {
    ChangesetOperation {
        id: id_of(kind).to_owned(),
        label: label.to_owned(),
        description: None,
        scopes: scopes.to_vec(),
        confirmation: None,
        icon: Some(icon.to_owned()),
        group: Some(GROUP.to_owned()),
        status: ChangesetOperationStatus::Idle,
        error: None,
    }
}

fn enabled_if(operation: ChangesetOperation, is_enabled: bool) -> ChangesetOperation {
    let status = if is_enabled { ChangesetOperationStatus::Idle } else { ChangesetOperationStatus::Disabled };
    ChangesetOperation { status, ..operation }
}
