//! Changes the files of an operation, all or none.
//!
//! The order makes a crash harmless: the operation is stored durably first, then all new
//! files are written beside their targets, then renames and deletions follow, and the
//! records of the operation are stored last. A failure before the end is rolled back; a
//! crash is repaired on the next start. Invariant: a file that another program changes in
//! the meantime is not overwritten.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use innkeeper_core::edits::{
    BlobDigest, EditError, EditRecord, EditStorage, EditStorageError, FileVersion, OperationRecord,
    OperationStep, StoredBlob,
};
use uuid::Uuid;

use super::faults::{FaultPoint, FaultPoints};
use super::places::{Compared, EntryStamp, FileFailure, OpenRoots, StepPlace};
use super::staging::{self, ExpectedEntry, StagedContent, StagedFile};

/// Runs an operation: stores it with the contents it needs, changes its files, and stores
/// its records. After an error, no file is changed. The files must have the versions that
/// the steps begin with. `consumed` is the operation that this one takes back.
pub(crate) fn apply(
    storage: &dyn EditStorage,
    operation: OperationRecord,
    blobs: Vec<StoredBlob>,
    consumed: Option<Uuid>,
    faults: &FaultPoints,
) -> Result<(), EditError> {
    let mut run = OperationRun::new(storage, &operation, faults);
    run.contents = blobs.iter().map(|blob| (blob.digest, blob.content.clone())).collect();
    let all: Vec<usize> = (0..operation.steps.len()).collect();
    run.must_be_complete()?;
    run.check(&all)?;
    run.reach(FaultPoint::Planned)?;
    run.reach(FaultPoint::BeforeBegin)?;
    storage.begin_operation(operation.clone(), blobs)?;
    if let Err(failure) = run.execute(&all) {
        return Err(run.abandon(failure.into()));
    }
    let records = operation.steps.iter().flat_map(|step| step.records.iter().cloned()).collect();
    match run.finish(records, consumed) {
        Ok(()) => Ok(()),
        Err(error) => Err(run.abandon(error)),
    }
}

/// How many parent directories of a file do not exist in the roots.
pub(crate) fn missing_parents(roots: &[PathBuf], path: &Path) -> u32 {
    OpenRoots::open(roots).place(path).map_or(0, |place| place.missing_parents())
}

/// A change that a rollback takes back.
#[derive(Debug)]
enum AppliedChange {
    /// The file of a step has its new version.
    File(usize, Option<EntryStamp>),
    /// A directory in this state was removed.
    RemovedDirectory(PathBuf, EntryStamp),
    /// A directory was created.
    CreatedDirectory(PathBuf),
}

/// An operation that is carried out.
#[derive(Debug)]
pub(super) struct OperationRun<'a> {
    storage: &'a dyn EditStorage,
    operation: &'a OperationRecord,
    faults: &'a FaultPoints,
    roots: OpenRoots,
    /// Contents that need not be read from storage.
    contents: HashMap<BlobDigest, Bytes>,
    /// The staged file of each step.
    staged: HashMap<usize, StagedFile>,
    /// The state of each file before its change.
    stamps: HashMap<usize, Option<EntryStamp>>,
    /// The changes so far, in order.
    done: Vec<AppliedChange>,
}

impl<'a> OperationRun<'a> {
    pub(super) fn new(
        storage: &'a dyn EditStorage,
        operation: &'a OperationRecord,
        faults: &'a FaultPoints,
    ) -> Self {
        Self {
            storage,
            operation,
            faults,
            roots: OpenRoots::open(&operation.roots),
            contents: HashMap::new(),
            staged: HashMap::new(),
            stamps: HashMap::new(),
            done: Vec::new(),
        }
    }

    pub(super) fn reach(&self, point: FaultPoint) -> Result<(), FileFailure> {
        self.faults.reach(point).map_err(|errno| FileFailure::of_errno(Path::new("/"), errno))
    }

    pub(super) fn step(&self, index: usize) -> Result<&'a OperationStep, FileFailure> {
        self.operation.steps.get(index).ok_or_else(|| FileFailure::new(Path::new("/"), "unknown step"))
    }

    pub(super) fn place(&self, index: usize) -> Result<StepPlace<'_>, FileFailure> {
        self.roots.place(&self.step(index)?.path)
    }

    /// Rejects an operation that could not be rolled back or repaired.
    fn must_be_complete(&self) -> Result<(), EditError> {
        let mut paths = HashSet::new();
        let mut needed = Vec::new();
        for step in &self.operation.steps {
            if !paths.insert(&step.path) {
                return Err(FileFailure::new(&step.path, "the operation contains it twice").into());
            }
            for version in [&step.before, &step.after] {
                match version {
                    FileVersion::Absent | FileVersion::Link { .. } => {}
                    FileVersion::File { stored: false, .. } => {
                        return Err(FileFailure::new(&step.path, "its content is not stored").into());
                    }
                    FileVersion::Unknown(reason) => {
                        return Err(FileFailure::new(&step.path, reason.explanation()).into());
                    }
                    FileVersion::File { blob, .. } if self.contents.contains_key(blob) => {}
                    FileVersion::File { blob, .. } => needed.push((*blob, &step.path)),
                }
            }
        }
        let digests: Vec<BlobDigest> = needed.iter().map(|(digest, _)| *digest).collect();
        let stored = self.storage.stored_blobs(&digests)?;
        match needed.into_iter().find(|(digest, _)| !stored.contains(digest)) {
            Some((_, path)) => Err(FileFailure::new(path, "its content is not stored").into()),
            None => Ok(()),
        }
    }

    /// Checks that files have the versions before the operation, and that nothing is in their
    /// way. Remembers their state.
    pub(super) fn check(&mut self, indexes: &[usize]) -> Result<(), FileFailure> {
        for &index in indexes {
            self.must_be_accessible(index)?;
            let place = self.place(index)?;
            let Some(stamp) = self.has_version(&place, &self.step(index)?.before)? else {
                return Err(staging::changed(&place));
            };
            drop(place);
            self.stamps.insert(index, stamp);
        }
        Ok(())
    }

    /// Checks that the file of a step is in a root, and that no link, directory or special file
    /// is in its way. Does not read the file.
    pub(super) fn must_be_accessible(&self, index: usize) -> Result<(), FileFailure> {
        let step = self.step(index)?;
        let place = self.place(index)?;
        if step.after != FileVersion::Absent
            && let Some(obstacle) = place.obstacle()?
            && !self.deletes(&obstacle)
        {
            let reason = format!("{} is not a directory", obstacle.display());
            return Err(FileFailure::new(&step.path, reason));
        }
        match place.foreign_entry()? {
            Some(Compared::Special) => {
                Err(FileFailure::new(&step.path, "a device, pipe or socket is in its place"))
            }
            Some(Compared::Directory) if self.has_version(&place, &step.before)?.is_none() => {
                Err(FileFailure::new(&step.path, "a directory is in its place"))
            }
            _ => Ok(()),
        }
    }

    /// Whether a file has a version; if it does, its state. A directory counts as absent if
    /// the operation removes it, or puts files into it.
    pub(super) fn has_version(
        &self,
        place: &StepPlace<'_>,
        version: &FileVersion,
    ) -> Result<Option<Option<EntryStamp>>, FileFailure> {
        Ok(match place.compare(version)? {
            Compared::Same(stamp) => Some(stamp),
            Compared::Directory
                if *version == FileVersion::Absent
                    && (self.frees(&place.path) || self.fills(&place.path)) =>
            {
                Some(None)
            }
            Compared::Directory | Compared::Special | Compared::Different => None,
        })
    }

    /// Whether the operation deletes a file.
    fn deletes(&self, path: &Path) -> bool {
        self.operation.steps.iter().any(|step| step.path == path && step.after == FileVersion::Absent)
    }

    /// Whether the operation removes a directory if it is empty.
    fn frees(&self, directory: &Path) -> bool {
        self.emptied().any(|parent| parent == directory)
    }

    /// Whether the operation puts files into a directory that has the place of a deleted file.
    fn fills(&self, directory: &Path) -> bool {
        let inside = |step: &OperationStep| step.path != directory && step.path.starts_with(directory);
        self.deletes(directory)
            && self.operation.steps.iter().any(|step| inside(step) && step.after != FileVersion::Absent)
    }

    /// The directories that the operation removes if they are empty.
    fn emptied(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let deletions = self.operation.steps.iter().filter(|step| step.after == FileVersion::Absent);
        deletions.flat_map(|step| {
            self.roots.place(&step.path).map(|place| place.parents(step.removed_parents)).unwrap_or_default()
        })
    }

    /// Stages, checks again and changes the files of some steps.
    pub(super) fn execute(&mut self, indexes: &[usize]) -> Result<(), FileFailure> {
        self.reach(FaultPoint::AfterBegin)?;
        for batch in indexes.chunks(staging::SYNC_BATCH) {
            for &index in batch {
                let replaced = self.stamps.get(&index).copied().flatten();
                self.stage(index, &self.step(index)?.after, replaced)?;
                self.reach(FaultPoint::Staged(index))?;
            }
            self.sync_staged(batch)?;
        }
        self.check(indexes)?;
        self.reach(FaultPoint::Checked)?;
        let (deletions, writes): (Vec<usize>, Vec<usize>) = indexes
            .iter()
            .partition(|index| self.step(**index).is_ok_and(|step| step.after == FileVersion::Absent));
        // First, because a deleted file may be in the place of a directory, and the other
        // way round.
        for index in deletions {
            self.change(index)?;
        }
        self.remove_directories()?;
        self.reach(FaultPoint::DirectoriesRemoved)?;
        for index in writes {
            self.change(index)?;
        }
        self.sync_directories(&self.changed_paths());
        Ok(())
    }

    fn stage(
        &mut self,
        index: usize,
        version: &FileVersion,
        replaced: Option<EntryStamp>,
    ) -> Result<(), FileFailure> {
        let step = self.step(index)?;
        let place = self.place(index)?;
        let content = match version {
            FileVersion::File { blob, .. } => self.content(&step.path, *blob)?,
            FileVersion::Absent | FileVersion::Link { .. } | FileVersion::Unknown(_) => Bytes::new(),
        };
        let name = staging::staged_name(self.operation.id, index, step);
        let staged = staging::stage(&place, name, &StagedContent { version, content, replaced })?;
        drop(place);
        if let Some(staged) = staged {
            self.staged.insert(index, staged);
        }
        Ok(())
    }

    /// Makes staged files durable.
    fn sync_staged(&mut self, batch: &[usize]) -> Result<(), FileFailure> {
        let Self { staged, operation, roots, .. } = self;
        let files =
            staged.iter_mut().filter(|(index, _)| batch.contains(index)).filter_map(|(index, staged)| {
                let step = operation.steps.get(*index)?;
                Some((roots.place(&step.path), staged))
            });
        let synced = staging::at_once(files.collect(), |(place, staged)| staged.sync(&place?));
        synced.into_iter().collect()
    }

    fn content(&self, path: &Path, blob: BlobDigest) -> Result<Bytes, FileFailure> {
        if let Some(content) = self.contents.get(&blob) {
            return Ok(content.clone());
        }
        match self.storage.read_blob(blob) {
            Ok(Some(content)) => Ok(content),
            Ok(None) => Err(FileFailure::new(path, "its content is not stored")),
            Err(error) => Err(FileFailure::new(path, error.to_string())),
        }
    }

    /// Brings the file of a step to its new version.
    fn change(&mut self, index: usize) -> Result<(), FileFailure> {
        self.reach(FaultPoint::BeforeRename(index))?;
        let stamp = self.stamps.get(&index).copied().flatten();
        self.put(index, ExpectedEntry { version: &self.step(index)?.before, stamp })?;
        self.done.push(AppliedChange::File(index, stamp));
        self.reach(FaultPoint::AfterRename(index))
    }

    /// Puts the staged file of a step into place, or deletes the file if nothing is staged.
    fn put(&mut self, index: usize, expected: ExpectedEntry<'_>) -> Result<(), FileFailure> {
        let staged = self.staged.remove(&index);
        let mut created = Vec::new();
        let place = self.place(index)?;
        let put = match &staged {
            Some(staged) => staging::put_in_place(&place, staged, expected, &mut created),
            None if expected.stamp.is_none() => Ok(()),
            None => staging::remove(&place, expected),
        };
        drop(place);
        self.done.extend(created.into_iter().map(AppliedChange::CreatedDirectory));
        if let (Err(_), Some(staged)) = (&put, staged) {
            // It is still there, and is removed with the others.
            self.staged.insert(index, staged);
        }
        put
    }

    /// Removes the parent directories of deleted files that the agent created, if they are
    /// empty, innermost first.
    fn remove_directories(&mut self) -> Result<(), FileFailure> {
        let directories: BTreeSet<PathBuf> = self.emptied().collect();
        for directory in directories.into_iter().rev() {
            let removed = staging::remove_directory(&self.roots.place(&directory)?)?;
            if let Some(stamp) = removed {
                self.done.push(AppliedChange::RemovedDirectory(directory, stamp));
            }
        }
        Ok(())
    }

    /// The files and directories that were changed so far.
    fn changed_paths(&self) -> Vec<PathBuf> {
        let path = |done: &AppliedChange| match done {
            AppliedChange::File(index, _) => self.step(*index).ok().map(|step| step.path.clone()),
            AppliedChange::RemovedDirectory(path, _) | AppliedChange::CreatedDirectory(path) => {
                Some(path.clone())
            }
        };
        self.done.iter().filter_map(path).collect()
    }

    /// Makes changes durable before the storage says that they were made or taken back.
    fn sync_directories(&self, changed: &[PathBuf]) {
        let mut parents = HashSet::new();
        let once = changed.iter().filter(|path| parents.insert(path.parent()));
        let places = once.filter_map(|path| self.roots.place(path).ok()).collect();
        staging::at_once(places, |place| staging::sync_parent(&place));
    }

    /// Stores the records of the operation.
    pub(super) fn finish(&self, records: Vec<EditRecord>, consumed: Option<Uuid>) -> Result<(), EditError> {
        self.reach(FaultPoint::BeforeFinish)?;
        self.storage.finish_operation(self.operation.id, records, consumed)?;
        if let Err(failure) = self.reach(FaultPoint::AfterFinish) {
            tracing::debug!(reason = failure.reason, "failure after the end of an operation");
        }
        Ok(())
    }

    /// Takes all changes of a failed operation back, and deletes the operation. If that
    /// fails, too, the next start of the host completes it.
    fn abandon(&mut self, error: EditError) -> EditError {
        if let Err(failure) = self.roll_back() {
            let path = failure.path.display().to_string();
            tracing::error!(path, reason = failure.reason, %error, "could not roll back an operation");
            return EditError::Storage(EditStorageError::Failed(format!(
                "{error}; {path} could not be restored: {}; restart the host to complete the operation",
                failure.reason
            )));
        }
        if let Err(error) = self.storage.cancel_operation(self.operation.id) {
            tracing::error!(%error, "could not delete a failed operation; the next start completes it");
        }
        error
    }

    /// Takes the changes so far back, the last one first, and removes staged files.
    pub(super) fn roll_back(&mut self) -> Result<(), FileFailure> {
        self.remove_staged();
        self.staged.clear();
        let changed = self.changed_paths();
        let mut first_failure = Ok(());
        while let Some(done) = self.done.pop() {
            let taken_back = match &done {
                AppliedChange::File(index, replaced) => self.take_back(*index, *replaced),
                AppliedChange::RemovedDirectory(path, removed) => self.recreate_directory(path, *removed),
                AppliedChange::CreatedDirectory(path) => {
                    self.roots.place(path).and_then(|place| staging::remove_directory(&place)).map(drop)
                }
            };
            // The others are restored nevertheless.
            if first_failure.is_ok() {
                first_failure = taken_back;
            }
        }
        self.sync_directories(&changed);
        first_failure
    }

    /// Restores the file of a step, unless another program changed it again.
    fn take_back(&mut self, index: usize, replaced: Option<EntryStamp>) -> Result<(), FileFailure> {
        let step = self.step(index)?;
        let place = self.place(index)?;
        let Compared::Same(current) = place.compare(&step.after)? else {
            tracing::warn!(path = %step.path.display(), "a file was changed during an operation; left as it is");
            return Ok(());
        };
        drop(place);
        self.stage(index, &step.before, replaced)?;
        self.sync_staged(&[index])?;
        let done = self.done.len();
        let put = self.put(index, ExpectedEntry { version: &step.after, stamp: current });
        self.done.truncate(done);
        put.inspect_err(|_| self.remove_staged())
    }

    fn recreate_directory(&self, path: &Path, removed: EntryStamp) -> Result<(), FileFailure> {
        staging::create_directory(&self.roots.place(path)?, removed)
    }

    /// Removes the staged files of all steps.
    pub(super) fn remove_staged(&self) {
        for (index, step) in self.operation.steps.iter().enumerate() {
            if let Ok(place) = self.roots.place(&step.path) {
                staging::unstage(&place, &staging::staged_name(self.operation.id, index, step));
            }
        }
    }
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
