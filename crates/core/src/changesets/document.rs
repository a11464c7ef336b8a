//! The published document of a changeset, and the actions that update it. Pure.

use std::collections::{HashMap, HashSet};

use ahp_types::actions::{
    ChangesetContentChangedAction, ChangesetFileRemovedAction, ChangesetFileSetAction,
    ChangesetOperationsChangedAction, ChangesetStatusChangedAction, StateAction,
};
use ahp_types::common::JsonObject;
use ahp_types::state::{ChangesetFile, ChangesetOperation, ChangesetState, ChangesetStatus, ErrorInfo};
use serde_json::json;

use super::address::ChangesetView;
use super::offers::{OperationRuns, operations};
use crate::edits::{ChangeList, ChangedFile};

/// The key of a file's `_meta` that describes its change.
const META: &str = "innkeeper.edit";

/// Most files that are published one by one. More are published as a new list.
const MAX_SINGLE_FILES: usize = 16;

/// The content of a changeset's document.
#[derive(Debug)]
pub(super) struct ChangesetContent {
    pub(super) files: Vec<ChangesetFile>,
    pub(super) operations: Vec<ChangesetOperation>,
}

impl ChangesetContent {
    pub(super) fn new(view: &ChangesetView, list: &ChangeList, runs: &OperationRuns) -> Self {
        Self { files: list.files.iter().map(file).collect(), operations: operations(view, list, runs) }
    }
}

/// The document before the files are known.
pub(super) fn computing() -> ChangesetState {
    ChangesetState { status: ChangesetStatus::Computing, error: None, files: Vec::new(), operations: None }
}

/// The actions that give a document this content.
pub(super) fn updates(state: &ChangesetState, content: ChangesetContent) -> Vec<StateAction> {
    let ChangesetContent { files, operations } = content;
    if state.status != ChangesetStatus::Ready {
        let ready = ChangesetStatusChangedAction { status: ChangesetStatus::Ready, error: None };
        return vec![content_changed(files, operations), StateAction::ChangesetStatusChanged(ready)];
    }
    let wanted: HashSet<&str> = files.iter().map(|file| file.id.as_str()).collect();
    let removed = state.files.iter().filter(|file| !wanted.contains(file.id.as_str()));
    let removed: Vec<String> = removed.map(|file| file.id.clone()).collect();
    let known: HashMap<&str, &ChangesetFile> =
        state.files.iter().map(|file| (file.id.as_str(), file)).collect();
    let differs = |file: &&ChangesetFile| known.get(file.id.as_str()) != Some(file);
    let set = files.iter().filter(differs).count();
    if removed.len() + set > MAX_SINGLE_FILES {
        return vec![content_changed(files, operations)];
    }
    let mut actions: Vec<StateAction> = removed
        .into_iter()
        .map(|file_id| StateAction::ChangesetFileRemoved(ChangesetFileRemovedAction { file_id }))
        .collect();
    let set = files.iter().filter(differs).cloned();
    actions.extend(set.map(|file| StateAction::ChangesetFileSet(ChangesetFileSetAction { file })));
    if state.operations.as_ref() != Some(&operations) {
        let operations = Some(operations);
        let changed = ChangesetOperationsChangedAction { operations };
        actions.push(StateAction::ChangesetOperationsChanged(changed));
    }
    actions
}

/// The action that shows a failed computation, if the document does not show it already. The
/// files stay as they were.
pub(super) fn failure(state: &ChangesetState, message: &str) -> Option<StateAction> {
    let error = failed(message);
    let shown = state.status == ChangesetStatus::Error && state.error.as_ref() == Some(&error);
    let status = ChangesetStatusChangedAction { status: ChangesetStatus::Error, error: Some(error) };
    (!shown).then_some(StateAction::ChangesetStatusChanged(status))
}

/// The error of a failed computation or operation.
pub(super) fn failed(message: &str) -> ErrorInfo {
    ErrorInfo { error_type: "edits".to_owned(), message: message.to_owned(), stack: None, meta: None }
}

fn content_changed(files: Vec<ChangesetFile>, operations: Vec<ChangesetOperation>) -> StateAction {
    let operations = Some(operations);
    StateAction::ChangesetContentChanged(Box::new(ChangesetContentChangedAction { files, operations }))
}

fn file(changed: &ChangedFile) -> ChangesetFile {
    let sources: Vec<&str> = changed.sources.iter().map(|source| source.as_str()).collect();
    let mut edit = JsonObject::from_iter([("sources".to_owned(), json!(sources))]);
    let flags = [("overlaps", changed.overlaps), ("mixed", changed.mixed)];
    edit.extend(flags.into_iter().filter(|(_, is)| *is).map(|(name, _)| (name.to_owned(), json!(true))));
    edit.extend(changed.not_undoable.as_ref().map(|reason| ("notUndoable".to_owned(), json!(reason))));
    ChangesetFile {
        id: changed.uri.clone(),
        edit: changed.edit.clone(),
        // Always present: the reducers set it to `false` when a client takes its mark back.
        reviewed: Some(changed.reviewed),
        meta: Some(JsonObject::from_iter([(META.to_owned(), edit.into())])),
    }
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
