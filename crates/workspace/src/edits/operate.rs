//! Runs the operations of clients: undo, restore and redo.
//!
//! The affected files are observed before the plan is made and after it was carried out, so
//! that the change of the operation is not taken for the change of an agent or of the user.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use innkeeper_core::channel::ChannelUri;
use innkeeper_core::edits::{
    BlobUri, ChangeOperation, ChangeScope, ChangeSelection, EditConflict, EditError, EditRecord, EditSource,
    EditStorageError, FileVersion, OperationKind, OperationRecord, OperationReport, OperationStep,
    OperationTarget, StoredBlob,
};
use uuid::Uuid;

use super::attribution::{Attributor, LockedRoots, below, lock_all};
use super::changes::{self, ScopeChanges, name_of};
use super::folding::{self, ShownChange};
use super::operations::{
    self, ChainedFile, FaultPoints, NetEdit, PlannedChain, PlannedFile, RecordDraft, RecordFrame,
    RefusedFile, TakenBack, TurnChange, TurnEdit, VersionedFile,
};
use super::paths;
use super::reviews::ScopeReviews;
use super::shared::LogParts;
use super::view;
use crate::tracking::{RootHandle, read_version};
use crate::uri_of;

/// Contents that one operation may need, in bytes.
const MAX_OPERATION_BYTES: u64 = 1024 * 1024 * 1024;

/// Runs an operation that changes files.
pub(crate) fn operate(log: &LogParts, operation: &ChangeOperation) -> Result<OperationReport, EditError> {
    let roots = paths::outermost(&operation.scope.roots);
    if roots.is_empty() {
        return Err(EditError::Invalid("the session's directories do not exist".to_owned()));
    }
    let affected = affected_paths(log, operation)?;
    let involved = log.registry.involved(&affected);
    let mut locked = lock_all(log, &involved);
    observe(log, &mut locked, &affected, None);
    let request = OperationRequest { log, operation, roots };
    let report = request.run();
    observe(log, &mut locked, &affected, Some(&operation.scope.session));
    drop(locked);
    log.changed.add([operation.scope.session.clone()]);
    report
}

/// The files that an operation may change.
fn affected_paths(log: &LogParts, operation: &ChangeOperation) -> Result<Vec<PathBuf>, EditError> {
    match operation.kind {
        OperationKind::Redo => {
            let last = changes::last_operation(log, &operation.scope.session)?;
            let steps = last.map(|(operation, _)| operation.steps).unwrap_or_default();
            Ok(steps.into_iter().map(|step| step.path).collect())
        }
        OperationKind::Undo | OperationKind::Restore | OperationKind::Keep => {
            let changes = ScopeChanges::read(log, &operation.scope)?;
            let mut paths: HashSet<PathBuf> = changes.nets.into_keys().collect();
            paths.extend(changes.records.iter().map(|record| record.path.clone()));
            Ok(paths.into_iter().collect())
        }
    }
}

/// Observes files. Without an owner, the changes belong to the calls that run; otherwise to
/// the operation of a session, whose records exist already.
fn observe(log: &LogParts, locked: &mut LockedRoots<'_>, paths: &[PathBuf], owner: Option<&ChannelUri>) {
    let mut attributor = Attributor::new(log);
    for (root, windows) in locked {
        let observed = match root.tracker.observe(&below(paths, &root.path)) {
            Ok(observed) => observed,
            Err(error) => {
                tracing::warn!(%error, "cannot observe the files of an operation");
                continue;
            }
        };
        let Some(owner) = owner else {
            attributor.assign(root, windows, observed.transitions);
            continue;
        };
        for transition in observed.transitions {
            windows.restart_claims(&transition.path, &transition.after);
            attributor.add_external(root, &transition, std::slice::from_ref(owner));
        }
    }
    drop(attributor.finish());
}

/// Changes to take back, and files to leave alone.
type SelectedChanges = (Vec<TurnChange>, Vec<(PathBuf, RefusedFile)>);

struct OperationRequest<'a> {
    log: &'a LogParts,
    operation: &'a ChangeOperation,
    roots: Vec<PathBuf>,
}

impl OperationRequest<'_> {
    fn run(&self) -> Result<OperationReport, EditError> {
        match self.operation.kind {
            OperationKind::Redo => self.redo(),
            OperationKind::Undo | OperationKind::Restore | OperationKind::Keep => self.undo(),
        }
    }

    fn scope(&self) -> &ChangeScope {
        &self.operation.scope
    }

    fn redo(&self) -> Result<OperationReport, EditError> {
        let Some((last, edited)) = changes::last_operation(self.log, &self.scope().session)? else {
            return Err(EditError::Invalid("there is nothing to redo".to_owned()));
        };
        let current = self.current(last.steps.iter().map(|step| step.path.as_path()))?;
        let read = |version: &FileVersion| self.versioned(version.clone());
        let plan = operations::redo_operation(&last, read, &current, &edited, self.operation.force)?;
        self.apply(plan, EditSource::Redo, Some(last.id), Vec::new())
    }

    fn undo(&self) -> Result<OperationReport, EditError> {
        let changes = ScopeChanges::read(self.log, self.scope())?;
        let shown = folding::shown(changes.nets.values());
        let reviews = ScopeReviews::read(self.log, self.scope(), &changes)?;
        let mut left = Vec::new();
        let selected: Vec<ShownChange<'_>> =
            match &self.operation.target {
                OperationTarget::Changeset => {
                    let is_kept = |change: &ShownChange<'_>| {
                        self.operation.kind == OperationKind::Undo && reviews.is_reviewed(change)
                    };
                    let wanted = shown.iter().filter(|change| !is_kept(change));
                    let (selected, others): (Vec<_>, Vec<_>) =
                        wanted.copied().partition(|change| self.operation.force || !is_external(change));
                    left.extend(others.iter().map(|change| not_the_agents(change)));
                    selected
                }
                OperationTarget::File(uri) | OperationTarget::Lines { uri, .. } => {
                    let found = ScopeChanges::find(&shown, uri);
                    vec![found.ok_or_else(|| {
                        EditError::Invalid(format!("the file {uri} is not in this changeset"))
                    })?]
                }
            };
        let plan = match &self.operation.target {
            OperationTarget::Lines { start, end, .. } => {
                let change = selected.first();
                change.map(|change| self.plan_lines(&changes, change, *start..*end)).transpose()?
            }
            OperationTarget::Changeset | OperationTarget::File(_) => {
                let (turns, mixed) = self.turn_changes(&changes, &selected)?;
                let paths = turns.iter().flat_map(|change| paths_of(&change.edit));
                let current = self.current(paths)?;
                let mut plan = operations::undo_turns(&turns, &current, self.operation.force);
                plan.refused.extend(mixed);
                Some(plan)
            }
        };
        self.apply(plan.unwrap_or_default(), EditSource::Undo, None, left)
    }

    /// The changes of each turn that lead to the selected changes, the newest turn first, and
    /// the files that are left alone because the changes of others cannot be separated.
    fn turn_changes(
        &self,
        changes: &ScopeChanges,
        selected: &[ShownChange<'_>],
    ) -> Result<SelectedChanges, EditError> {
        let mut budget = MAX_OPERATION_BYTES;
        if self.scope().selection == ChangeSelection::Uncommitted {
            let chat = self.scope().chat.clone().unwrap_or_else(|| self.scope().session.clone());
            let one = |change: &ShownChange<'_>| self.turn_change(&chat, "", change, &mut budget);
            return Ok((selected.iter().map(one).collect::<Result<_, _>>()?, Vec::new()));
        }
        let mut turns: BTreeMap<(&ChannelUri, &str), Vec<&EditRecord>> = BTreeMap::new();
        for record in &changes.records {
            turns.entry((&record.chat, &record.turn)).or_default().push(record);
        }
        let mut folded = Vec::new();
        for ((chat, turn), records) in turns {
            let last_edit = records.iter().filter(|record| is_edit(record)).map(|record| record.number).max();
            if let Some(last_edit) = last_edit {
                folded.push((last_edit, chat, turn, folding::fold(records, self.log)?));
            }
        }
        folded.sort_by_key(|(last_edit, ..)| std::cmp::Reverse(*last_edit));
        let all: Vec<_> = folded
            .iter()
            .flat_map(|(_, chat, turn, nets)| {
                folding::shown(nets.values()).into_iter().map(move |change| (*chat, *turn, change))
            })
            .collect();
        let shown: Vec<ShownChange<'_>> = all.iter().map(|(_, _, change)| *change).collect();
        let wanted = connected_paths(selected, &shown);
        let touches = |change: &ShownChange<'_>, paths: &HashSet<&Path>| {
            change.files().any(|net| paths.contains(net.path.as_path()))
        };
        let is_mixed = |change: &ShownChange<'_>| {
            !self.operation.force && touches(change, &wanted) && change.files().any(|net| net.mixed)
        };
        let mixed: Vec<ShownChange<'_>> = shown.iter().copied().filter(is_mixed).collect();
        let blocked = connected_paths(&mixed, &shown);
        let mut changes = Vec::new();
        for (chat, turn, change) in all {
            if touches(&change, &wanted) && !touches(&change, &blocked) {
                changes.push(self.turn_change(chat, turn, &change, &mut budget)?);
            }
        }
        let refused: BTreeMap<_, _> =
            mixed.iter().map(|change| (change.main().path.clone(), not_separable(change))).collect();
        Ok((changes, refused.into_iter().collect()))
    }

    fn turn_change(
        &self,
        chat: &ChannelUri,
        turn: &str,
        change: &ShownChange<'_>,
        budget: &mut u64,
    ) -> Result<TurnChange, EditError> {
        let (before, after) = view::versions_of(change);
        for version in [before, after] {
            if let FileVersion::File { size, stored: true, .. } = version {
                *budget = budget.checked_sub(*size).ok_or_else(|| {
                    EditError::Invalid(
                        "the changes are too large for one operation; undo single files".to_owned(),
                    )
                })?;
            }
        }
        let edit = match change {
            ShownChange::One(net) => TurnEdit::File(net.path.clone()),
            ShownChange::Renamed { from, to } => {
                TurnEdit::Rename { from: from.path.clone(), to: to.path.clone() }
            }
        };
        Ok(TurnChange {
            chat: chat.clone(),
            turn: turn.to_owned(),
            edit,
            before: self.versioned(before.clone())?,
            after: self.versioned(after.clone())?,
            new_parents: change.main().new_parents,
        })
    }

    fn plan_lines(
        &self,
        changes: &ScopeChanges,
        change: &ShownChange<'_>,
        lines: std::ops::Range<u64>,
    ) -> Result<PlannedChain, EditError> {
        let path = &change.main().path;
        let (before, after) = view::versions_of(change);
        let (before, after) = (self.versioned(before.clone())?, self.versioned(after.clone())?);
        let edit = NetEdit { origin: TakenBack::AgentEdit, path, before: &before, after: &after };
        let mut plan = PlannedChain::default();
        let current = self.current([path.as_path()])?;
        let Some(current) = current.get(path) else {
            plan.refused.push((path.clone(), outside()));
            return Ok(plan);
        };
        if change.files().any(|net| net.mixed) && !self.operation.force {
            plan.refused.push((path.clone(), not_separable(change)));
            return Ok(plan);
        }
        // The last turn that changed the file owns the record.
        let of_file = changes.records.iter().rev().find(|record| record.path == *path && is_edit(record));
        let (chat, turn) = of_file.map_or_else(
            || (self.scope().chat.clone().unwrap_or_else(|| self.scope().session.clone()), String::new()),
            |record| (record.chat.clone(), record.turn.clone()),
        );
        match operations::undo_lines(&edit, current, lines, self.operation.force) {
            PlannedFile::Unchanged => {}
            PlannedFile::Refused(refused) => plan.refused.push((path.clone(), refused)),
            PlannedFile::Write(target) => {
                plan.blobs.extend([current.blob(), target.blob()].into_iter().flatten());
                let (before, after) = (current.version.clone(), target.version.clone());
                let removes = after == FileVersion::Absent;
                plan.files.push(ChainedFile {
                    path: path.clone(),
                    before: before.clone(),
                    after: after.clone(),
                    removed_parents: if removes { change.main().new_parents } else { 0 },
                    records: vec![RecordDraft { chat, turn, before, after, is_external: false }],
                });
            }
        }
        Ok(plan)
    }

    fn versioned(&self, version: FileVersion) -> Result<VersionedFile, EditStorageError> {
        VersionedFile::read(version, |digest| self.log.storage.read_blob(digest))
    }

    /// Reads files, as far as they are in the directories.
    fn current<'p>(
        &self,
        paths: impl IntoIterator<Item = &'p Path>,
    ) -> Result<BTreeMap<PathBuf, VersionedFile>, EditError> {
        let roots: Vec<_> = self
            .roots
            .iter()
            .filter_map(|root| Some((root.as_path(), RootHandle::open(root).ok()?)))
            .collect();
        let mut files = BTreeMap::new();
        let mut budget = MAX_OPERATION_BYTES;
        for path in paths {
            let Some((_, root)) = roots.iter().find(|(root, _)| path.starts_with(root)) else { continue };
            if files.contains_key(path) {
                continue;
            }
            let (version, blob) = read_version(root, path, &self.log.config.limits);
            let content = blob.map(|blob| blob.content);
            let size = content.as_ref().map_or(0, |content| u64::try_from(content.len()).unwrap_or(u64::MAX));
            budget = budget.checked_sub(size).ok_or_else(|| {
                EditError::Invalid("the files are too large for one operation; undo single files".to_owned())
            })?;
            files.insert(path.to_owned(), VersionedFile { version, content });
        }
        Ok(files)
    }

    /// Carries a plan out.
    fn apply(
        &self,
        plan: PlannedChain,
        source: EditSource,
        consumed: Option<Uuid>,
        left: Vec<EditConflict>,
    ) -> Result<OperationReport, EditError> {
        let mut report = OperationReport { refused: left, ..OperationReport::default() };
        for (path, refused) in plan.refused {
            report.refused.push(self.conflict(&path, refused)?);
        }
        if plan.files.is_empty() {
            return Ok(report);
        }
        let id = Uuid::now_v7();
        let session = self.scope().session.clone();
        let frame =
            RecordFrame { session: session.clone(), operation: id, source, recorded_at: self.log.now() };
        let step = |file: ChainedFile| {
            let missing = operations::missing_parents(&self.roots, &file.path);
            file.into_step(&frame, missing)
        };
        let mut operation = OperationRecord {
            id,
            session: session.clone(),
            chat: self.scope().chat.clone(),
            label: String::new(),
            can_redo: consumed.is_none(),
            roots: self.roots.clone(),
            steps: plan.files.into_iter().map(step).collect(),
        };
        let storage = self.log.storage.as_ref();
        for (path, refused) in operations::refuse_blocked(storage, &mut operation) {
            report.refused.push(self.conflict(&path, refused)?);
        }
        if operation.steps.is_empty() {
            return Ok(report);
        }
        operation.label = self.label(&operation.steps);
        report.changed = operation.steps.iter().map(|step| uri_of(&step.path)).collect();
        let entry = self.log.sessions.entry(&session);
        entry
            .changing(|| operations::apply(storage, operation, plan.blobs, consumed, &FaultPoints::none()))?;
        report.operation = Some(id);
        Ok(report)
    }

    fn label(&self, files: &[OperationStep]) -> String {
        let verb = match self.operation.kind {
            OperationKind::Undo | OperationKind::Keep => "Undo",
            OperationKind::Restore => "Restore",
            OperationKind::Redo => "Redo",
        };
        match files {
            [file] => format!("{verb} {}", name_of(&file.path)),
            files => format!("{verb} {} files", files.len()),
        }
    }

    fn conflict(&self, path: &Path, refused: RefusedFile) -> Result<EditConflict, EditError> {
        let preview = match refused.preview {
            Some(preview) => {
                let blob = StoredBlob::new(preview);
                let name = path.file_name().unwrap_or_default();
                let uri = BlobUri::new(blob.digest, std::os::unix::ffi::OsStrExt::as_bytes(name));
                self.log.storage.put_blobs(vec![blob])?;
                Some(uri)
            }
            None => None,
        };
        Ok(EditConflict { uri: uri_of(path), reason: refused.reason, preview, can_force: refused.can_force })
    }
}

fn is_edit(record: &EditRecord) -> bool {
    matches!(record.source, EditSource::Tool | EditSource::Shell)
}

/// Whether no agent changed the file.
fn is_external(change: &ShownChange<'_>) -> bool {
    change.files().all(|net| net.sources.iter().all(|source| *source == EditSource::External))
}

fn not_the_agents(change: &ShownChange<'_>) -> EditConflict {
    let path = &change.main().path;
    EditConflict {
        uri: uri_of(path),
        reason: format!("the agent did not change {}; undo the file itself", name_of(path)),
        preview: None,
        can_force: true,
    }
}

fn not_separable(change: &ShownChange<'_>) -> RefusedFile {
    let name = name_of(&change.main().path);
    let reason = format!("{name} was also changed by others between the agent's edits, in the same lines");
    RefusedFile { reason, preview: None, can_force: true }
}

fn outside() -> RefusedFile {
    let reason = "the file is outside of the session's directories".to_owned();
    RefusedFile { reason, preview: None, can_force: false }
}

fn paths_of(edit: &TurnEdit) -> Vec<&Path> {
    match edit {
        TurnEdit::File(path) => vec![path],
        TurnEdit::Rename { from, to } => vec![from, to],
    }
}

/// The paths of the selected changes, and all paths that renames connect with them.
fn connected_paths<'a>(selected: &[ShownChange<'a>], all: &[ShownChange<'a>]) -> HashSet<&'a Path> {
    let mut wanted: HashSet<&Path> = HashSet::new();
    for change in selected {
        wanted.extend(change.files().map(|net| net.path.as_path()));
    }
    loop {
        let before = wanted.len();
        for change in all {
            if change.files().any(|net| wanted.contains(net.path.as_path())) {
                wanted.extend(change.files().map(|net| net.path.as_path()));
            }
        }
        if wanted.len() == before {
            return wanted;
        }
    }
}
