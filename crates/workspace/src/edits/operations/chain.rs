//! Takes several changes back, one after the other. Pure.
//!
//! The changes of several turns are taken back turn by turn, the newest first, each with a
//! record of its own, so that each turn's changeset shows that its change was taken back.
//! Files that a rename connects are taken back together or not at all.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use innkeeper_core::channel::ChannelUri;
use innkeeper_core::edits::{
    BlobDigest, EditRecord, EditSource, FileVersion, OperationRecord, OperationStep, StoredBlob,
};
use uuid::Uuid;

use super::plan::{
    NetEdit, PlannedFile, PlannedRename, RefusedFile, TakenBack, VersionedFile, undo_file, undo_rename,
};
use super::repair::created_parents;

/// The net change of one file, or of the two files of a rename, by one turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TurnChange {
    /// The chat.
    pub(crate) chat: ChannelUri,
    /// The turn.
    pub(crate) turn: String,
    /// The files.
    pub(crate) edit: TurnEdit,
    /// The version before the change.
    pub(crate) before: VersionedFile,
    /// The version after the change.
    pub(crate) after: VersionedFile,
    /// How many parent directories the change created.
    pub(crate) new_parents: u32,
}

/// The files of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TurnEdit {
    /// One file.
    File(PathBuf),
    /// A file that was moved.
    Rename {
        /// The old path.
        from: PathBuf,
        /// The new path.
        to: PathBuf,
    },
}

impl TurnEdit {
    /// The path that identifies the change.
    fn main(&self) -> &Path {
        match self {
            Self::File(path) | Self::Rename { to: path, .. } => path,
        }
    }
}

/// The result of planning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlannedChain {
    /// The files to change, by path.
    pub(crate) files: Vec<ChainedFile>,
    /// The files to leave alone, with the reasons.
    pub(crate) refused: Vec<(PathBuf, RefusedFile)>,
    /// All contents that the files and records refer to.
    pub(crate) blobs: Vec<StoredBlob>,
}

/// A file to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChainedFile {
    /// The file.
    pub(crate) path: PathBuf,
    /// The current version.
    pub(crate) before: FileVersion,
    /// The new version.
    pub(crate) after: FileVersion,
    /// How many parent directories are removed if they are empty.
    pub(crate) removed_parents: u32,
    /// One record for each change that is taken back, in order.
    pub(crate) records: Vec<RecordDraft>,
}

/// A record that is stored when the operation is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordDraft {
    /// The chat.
    pub(crate) chat: ChannelUri,
    /// The turn whose change is taken back.
    pub(crate) turn: String,
    /// The version before this record.
    pub(crate) before: FileVersion,
    /// The version after this record.
    pub(crate) after: FileVersion,
    /// Whether the record is about changes of others, which moved with the file.
    pub(crate) is_external: bool,
}

/// What all records of an operation have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordFrame {
    /// The session.
    pub(crate) session: ChannelUri,
    /// The operation.
    pub(crate) operation: Uuid,
    /// Undo or redo.
    pub(crate) source: EditSource,
    /// The time, in milliseconds since 1970.
    pub(crate) recorded_at: i64,
}

impl ChainedFile {
    /// The step of an operation. `missing_parents` is how many parent directories of the file
    /// do not exist now.
    pub(crate) fn into_step(self, frame: &RecordFrame, missing_parents: u32) -> OperationStep {
        let path = &self.path;
        let mut missing = missing_parents;
        let record = |draft: RecordDraft| {
            let creates = draft.before == FileVersion::Absent && draft.after != FileVersion::Absent;
            EditRecord {
                number: 0,
                session: frame.session.clone(),
                chat: draft.chat,
                turn: draft.turn,
                tool_call: None,
                source: if draft.is_external { EditSource::External } else { frame.source },
                path: path.clone(),
                before: draft.before,
                after: draft.after,
                new_parents: if creates { std::mem::take(&mut missing) } else { 0 },
                overlaps: false,
                operation: Some(frame.operation),
                recorded_at: frame.recorded_at,
            }
        };
        let records = self.records.into_iter().map(record).collect();
        OperationStep {
            path: self.path,
            before: self.before,
            after: self.after,
            removed_parents: self.removed_parents,
            records,
        }
    }
}

/// Takes the changes of agents back. The changes are sorted newest first; `current` contains
/// all of their files.
pub(crate) fn undo_turns(
    changes: &[TurnChange],
    current: &BTreeMap<PathBuf, VersionedFile>,
    force: bool,
) -> PlannedChain {
    take_back(TakenBack::AgentEdit, changes, current, force)
}

/// Takes an undo back. `read` returns a version with its content; `edited` are the files that
/// an agent edited since.
pub(crate) fn redo_operation<E>(
    operation: &OperationRecord,
    mut read: impl FnMut(&FileVersion) -> Result<VersionedFile, E>,
    current: &BTreeMap<PathBuf, VersionedFile>,
    edited: &HashSet<PathBuf>,
    force: bool,
) -> Result<PlannedChain, E> {
    let mut changes = Vec::new();
    let mut refused = Vec::new();
    let moves = moves_of(operation);
    let moved: HashMap<&Path, &Path> = moves.iter().map(|(to, from)| (from.path.as_path(), *to)).collect();
    for step in &operation.steps {
        let from = moves.get(step.path.as_path()).copied();
        let other = from.map(|from| from.path.as_path()).or_else(|| moved.get(step.path.as_path()).copied());
        if let Some(path) =
            [Some(step.path.as_path()), other].into_iter().flatten().find(|path| edited.contains(*path))
        {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            let reason = format!("the agent edited {name} again after the undo");
            refused.push((step.path.clone(), RefusedFile { reason, preview: None, can_force: false }));
            continue;
        }
        if moved.contains_key(step.path.as_path()) {
            continue;
        }
        let mut drafts = drafts_of(operation, step);
        let edit = match from {
            Some(from) => {
                drafts.truncate(1);
                for draft in &mut drafts {
                    (draft.before, draft.after) = (from.before.clone(), step.after.clone());
                }
                TurnEdit::Rename { from: from.path.clone(), to: step.path.clone() }
            }
            None => TurnEdit::File(step.path.clone()),
        };
        for draft in drafts.into_iter().rev() {
            changes.push(TurnChange {
                chat: draft.chat,
                turn: draft.turn,
                edit: edit.clone(),
                before: read(&draft.before)?,
                after: read(&draft.after)?,
                new_parents: created_parents(operation, step),
            });
        }
    }
    let mut plan = take_back(TakenBack::Undo, &changes, current, force);
    plan.refused.extend(refused);
    plan.refused.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(plan)
}

/// The files that an operation moved: the step of the old path by the new path. Only moves
/// that belong to one turn are known as such.
pub(super) fn moves_of(operation: &OperationRecord) -> HashMap<&Path, &OperationStep> {
    let turn_of = |step: &OperationStep| {
        let mut own = step.records.iter().filter(|record| record.source != EditSource::External);
        let record = own.next()?;
        own.next().is_none().then(|| (record.chat.clone(), record.turn.clone()))
    };
    let mut deleted: HashMap<_, Vec<&OperationStep>> = HashMap::new();
    for step in operation.steps.iter().filter(|step| step.after == FileVersion::Absent) {
        if let (Some(blob), Some(turn)) = (step.before.stored_blob(), turn_of(step)) {
            deleted.entry((blob, turn)).or_default().push(step);
        }
    }
    let mut moves = HashMap::new();
    for step in operation.steps.iter().filter(|step| step.before == FileVersion::Absent) {
        if let (Some(blob), Some(turn)) = (step.after.stored_blob(), turn_of(step))
            && let Some(from) = deleted.get_mut(&(blob, turn)).and_then(Vec::pop)
        {
            moves.insert(step.path.as_path(), from);
        }
    }
    moves
}

/// The changes that a step made, oldest first.
fn drafts_of(operation: &OperationRecord, step: &OperationStep) -> Vec<RecordDraft> {
    if step.records.is_empty() {
        return vec![RecordDraft {
            chat: operation.chat.clone().unwrap_or_else(|| operation.session.clone()),
            turn: String::new(),
            before: step.before.clone(),
            after: step.after.clone(),
            is_external: false,
        }];
    }
    let draft = |record: &EditRecord| RecordDraft {
        chat: record.chat.clone(),
        turn: record.turn.clone(),
        before: record.before.clone(),
        after: record.after.clone(),
        is_external: record.source == EditSource::External,
    };
    step.records.iter().map(draft).collect()
}

fn take_back(
    origin: TakenBack,
    changes: &[TurnChange],
    current: &BTreeMap<PathBuf, VersionedFile>,
    force: bool,
) -> PlannedChain {
    let mut plan = PlannedChain::default();
    let mut blobs = HashMap::new();
    for group in connected(changes) {
        let mut chain = FileChain { origin, current, force, files: BTreeMap::new() };
        match group.iter().try_for_each(|change| chain.add(change)) {
            Ok(()) => chain.finish(&mut plan, &mut blobs),
            Err((path, refused)) => plan.refused.push((path, refused)),
        }
    }
    plan.files.sort_by(|one, other| one.path.cmp(&other.path));
    plan.refused.sort_by(|one, other| one.0.cmp(&other.0));
    plan.blobs = blobs.into_values().collect();
    plan
}

/// Groups changes of the same file, and of files that renames connect. Keeps the order.
fn connected(changes: &[TurnChange]) -> Vec<Vec<&TurnChange>> {
    let mut links: HashMap<&Path, &Path> = HashMap::new();
    for change in changes {
        if let TurnEdit::Rename { from, to } = &change.edit {
            let (from, to) = (representative(&links, from), representative(&links, to));
            if from != to {
                links.insert(from, to);
            }
        }
    }
    let mut groups: BTreeMap<&Path, Vec<&TurnChange>> = BTreeMap::new();
    for change in changes {
        groups.entry(representative(&links, change.edit.main())).or_default().push(change);
    }
    groups.into_values().collect()
}

/// Follows the links of a path to its end. There are no cycles: only ends are linked.
fn representative<'a>(links: &HashMap<&'a Path, &'a Path>, path: &'a Path) -> &'a Path {
    let mut path = path;
    while let Some(next) = links.get(path) {
        path = next;
    }
    path
}

type Refusal = (PathBuf, RefusedFile);

/// Connected files while changes are taken back.
struct FileChain<'a> {
    origin: TakenBack,
    current: &'a BTreeMap<PathBuf, VersionedFile>,
    force: bool,
    files: BTreeMap<&'a Path, ChainState>,
}

/// One file while changes are taken back.
struct ChainState {
    /// All versions, the current one first.
    versions: Vec<VersionedFile>,
    records: Vec<RecordDraft>,
    removed_parents: u32,
}

impl<'a> FileChain<'a> {
    fn add(&mut self, change: &'a TurnChange) -> Result<(), Refusal> {
        let path = change.edit.main();
        let refused = |refused| (path.to_owned(), refused);
        let edit = NetEdit { origin: self.origin, path, before: &change.before, after: &change.after };
        match &change.edit {
            TurnEdit::File(path) => {
                let planned = undo_file(&edit, &self.version(path)?, self.force);
                self.advance(change, path, planned).map_err(refused)
            }
            TurnEdit::Rename { from, to } => {
                let (current_old, current_new) = (self.version(from)?, self.version(to)?);
                match undo_rename(&edit, from, &current_old, &current_new, self.force) {
                    PlannedRename::Refused(reason) => Err(refused(reason)),
                    PlannedRename::Move { old, new } => {
                        self.advance(change, to, new).map_err(refused)?;
                        self.move_back(change, from, old).map_err(refused)
                    }
                }
            }
        }
    }

    /// Records the move of a file to its old path. Changes that others made at the new path
    /// are recorded apart from it: they do not belong to the turn.
    fn move_back(
        &mut self,
        change: &TurnChange,
        path: &'a Path,
        planned: PlannedFile,
    ) -> Result<(), RefusedFile> {
        let has_others_changes =
            matches!(&planned, PlannedFile::Write(moved) if !moved.is_same(&change.before));
        if !has_others_changes || self.version(path).is_ok_and(|current| !current.is_absent()) {
            return self.advance(change, path, planned);
        }
        self.advance(change, path, PlannedFile::Write(change.before.clone()))?;
        self.advance(change, path, planned)?;
        if let Some(draft) = self.files.get_mut(path).and_then(|state| state.records.last_mut()) {
            draft.is_external = true;
        }
        Ok(())
    }

    /// The version of a file after the changes that were taken back so far.
    fn version(&self, path: &Path) -> Result<VersionedFile, Refusal> {
        let latest = self.files.get(path).and_then(|state| state.versions.last());
        latest.or_else(|| self.current.get(path)).cloned().ok_or_else(|| {
            let reason = "the file could not be read".to_owned();
            (path.to_owned(), RefusedFile { reason, preview: None, can_force: false })
        })
    }

    fn advance(
        &mut self,
        change: &TurnChange,
        path: &'a Path,
        planned: PlannedFile,
    ) -> Result<(), RefusedFile> {
        let next = match planned {
            PlannedFile::Unchanged => return Ok(()),
            PlannedFile::Refused(refused) => return Err(refused),
            PlannedFile::Write(next) => next,
        };
        let Some(first) = self.current.get(path) else { return Ok(()) };
        let state = self.files.entry(path).or_insert_with(|| ChainState {
            versions: vec![first.clone()],
            records: Vec::new(),
            removed_parents: 0,
        });
        let before = state.versions.last().map_or(FileVersion::Absent, |last| last.version.clone());
        if next.version == FileVersion::Absent {
            state.removed_parents = state.removed_parents.max(change.new_parents);
        }
        state.records.push(RecordDraft {
            chat: change.chat.clone(),
            turn: change.turn.clone(),
            before,
            after: next.version.clone(),
            is_external: false,
        });
        state.versions.push(next);
        Ok(())
    }

    fn finish(self, plan: &mut PlannedChain, blobs: &mut HashMap<BlobDigest, StoredBlob>) {
        for (path, state) in self.files {
            let (Some(first), Some(last)) = (state.versions.first(), state.versions.last()) else { continue };
            if first.is_same(last) {
                continue;
            }
            blobs.extend(
                state.versions.iter().filter_map(VersionedFile::blob).map(|blob| (blob.digest, blob)),
            );
            plan.files.push(ChainedFile {
                path: path.to_owned(),
                before: first.version.clone(),
                after: last.version.clone(),
                removed_parents: if last.version == FileVersion::Absent { state.removed_parents } else { 0 },
                records: state.records,
            });
        }
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
