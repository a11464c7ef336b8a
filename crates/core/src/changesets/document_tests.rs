use ahp::reducers::apply_action_to_changeset;
use ahp_types::state::{ChangesetOperationStatus, FileEdit};

use super::*;
use crate::edits::{EditSource, OperationKind};

fn changed(name: usize, added: i64) -> ChangedFile {
    let mut edit = FileEdit::default();
    edit.diff.get_or_insert_default().added = Some(added);
    ChangedFile {
        uri: format!("file:///w/{name}"),
        edit,
        sources: vec![EditSource::Tool, EditSource::Shell],
        reviewed: false,
        overlaps: false,
        mixed: false,
        not_undoable: None,
    }
}

fn list(files: Vec<ChangedFile>) -> ChangeList {
    ChangeList { files, ..ChangeList::default() }
}

/// Applies the updates for a list. Returns the types of the actions.
fn apply(state: &mut ChangesetState, view: &ChangesetView, list: &ChangeList) -> Vec<String> {
    let content = ChangesetContent::new(view, list, &OperationRuns::default());
    let actions = updates(state, content);
    for action in &actions {
        apply_action_to_changeset(state, action);
    }
    let wanted = ChangesetContent::new(view, list, &OperationRuns::default());
    let by_id = |mut files: Vec<ChangesetFile>| {
        files.sort_by(|one, other| one.id.cmp(&other.id));
        files
    };
    assert_eq!(by_id(state.files.clone()), by_id(wanted.files));
    assert_eq!(state.operations.as_ref(), Some(&wanted.operations));
    assert_eq!(state.status, ChangesetStatus::Ready);
    let name = |action: &StateAction| json!(action)["type"].as_str().unwrap().to_owned();
    actions.iter().map(name).collect()
}

#[test]
fn only_differences_are_published() {
    let (mut state, view) = (computing(), ChangesetView::All);
    let mut files: Vec<ChangedFile> = (0..20).map(|name| changed(name, 1)).collect();
    let first = apply(&mut state, &view, &list(files.clone()));
    assert_eq!(first, ["changeset/contentChanged", "changeset/statusChanged"]);
    assert_eq!(apply(&mut state, &view, &list(files.clone())), [""; 0]);
    files.remove(3);
    files[0] = changed(0, 2);
    files.push(changed(30, 1));
    let few = apply(&mut state, &view, &list(files.clone()));
    assert_eq!(few, ["changeset/fileRemoved", "changeset/fileSet", "changeset/fileSet"]);
    for (name, file) in files.iter_mut().enumerate() {
        file.edit.diff.get_or_insert_default().removed = i64::try_from(name).ok();
    }
    assert_eq!(apply(&mut state, &view, &list(files)), ["changeset/contentChanged"]);
    let emptied = apply(&mut state, &view, &list(Vec::new()));
    assert_eq!(emptied, ["changeset/contentChanged"]);
}

#[test]
fn failure_is_shown_once_and_keeps_the_files() {
    let (mut state, view) = (computing(), ChangesetView::All);
    apply(&mut state, &view, &list(vec![changed(1, 1)]));
    let failed = failure(&state, "disk full").unwrap();
    apply_action_to_changeset(&mut state, &failed);
    assert_eq!((state.files.len(), &state.status), (1, &ChangesetStatus::Error));
    assert_eq!(failure(&state, "disk full"), None);
    assert!(failure(&state, "disk broken").is_some());
    let repaired = apply(&mut state, &view, &list(vec![changed(1, 1)]));
    assert_eq!(repaired, ["changeset/contentChanged", "changeset/statusChanged"]);
    assert_eq!(state.error, None);
}

#[test]
fn file_describes_its_change() {
    let plain = file(&changed(1, 1));
    assert_eq!(
        plain.meta,
        Some(serde_json::from_value(json!({META: {"sources": ["tool", "shell"]}})).unwrap())
    );
    assert_eq!((plain.id.as_str(), plain.reviewed), ("file:///w/1", Some(false)));
    let not_undoable = Some("too large".to_owned());
    let special = ChangedFile { overlaps: true, mixed: true, not_undoable, reviewed: true, ..changed(1, 1) };
    let special = file(&special);
    let meta = json!({META: {"sources": ["tool", "shell"], "overlaps": true, "mixed": true, "notUndoable": "too large"}});
    assert_eq!((json!(special.meta), special.reviewed), (meta, Some(true)));
}

/// The ids and statuses of the operations.
fn offered(view: &ChangesetView, list: &ChangeList, runs: &OperationRuns) -> Vec<(String, &'static str)> {
    let status = |operation: ChangesetOperation| {
        let status = match operation.status {
            ChangesetOperationStatus::Idle => "idle",
            ChangesetOperationStatus::Running => "running",
            ChangesetOperationStatus::Error => "error",
            ChangesetOperationStatus::Disabled => "disabled",
            ChangesetOperationStatus::Unknown(_) => "unknown",
        };
        (operation.label, status)
    };
    operations(view, list, runs).into_iter().map(status).collect()
}

#[test]
fn operations_are_offered_where_they_apply() {
    let of = |view: &ChangesetView, list: &ChangeList| offered(view, list, &OperationRuns::default());
    let named = |pairs: &[(&str, &'static str)]| {
        pairs.iter().map(|(label, status)| ((*label).to_owned(), *status)).collect::<Vec<_>>()
    };
    let nothing = named(&[("Undo", "disabled"), ("Keep", "disabled"), ("Redo", "disabled")]);
    assert_eq!(of(&ChangesetView::All, &ChangeList::default()), nothing);
    let mut two = list(vec![changed(1, 1), changed(2, 1)]);
    two.redo = Some("undo of 3 files".to_owned());
    let turn = ChangesetView::Turn("t".to_owned());
    let all = named(&[
        ("Undo", "idle"),
        ("Keep", "idle"),
        ("Redo: undo of 3 files", "idle"),
        ("Restore files to before this turn", "idle"),
    ]);
    assert_eq!(of(&turn, &two), all);
    for file in &mut two.files {
        (file.reviewed, file.not_undoable) = (true, Some("too large".to_owned()));
    }
    let redo_only =
        named(&[("Discard", "disabled"), ("Keep", "disabled"), ("Redo: undo of 3 files", "idle")]);
    assert_eq!(of(&ChangesetView::Uncommitted, &two), redo_only);
}

#[test]
fn running_and_failed_operations_are_shown() {
    let (view, list) = (ChangesetView::All, list(vec![changed(1, 1)]));
    let statuses = |runs: &OperationRuns| {
        offered(&view, &list, runs).into_iter().map(|(_, status)| status).collect::<Vec<_>>()
    };
    let mut runs = OperationRuns::default();
    runs.start(OperationKind::Undo);
    assert_eq!(statuses(&runs), ["running", "idle", "disabled"]);
    runs.end(Some("disk full".to_owned()));
    assert_eq!(statuses(&runs), ["error", "idle", "disabled"]);
    runs.start(OperationKind::Undo);
    runs.end(None);
    assert_eq!(statuses(&runs), ["idle", "idle", "disabled"]);
}
