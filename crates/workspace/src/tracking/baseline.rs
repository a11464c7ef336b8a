//! Records the contents of all files in the background.

use std::collections::HashSet;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use innkeeper_core::edits::{EditStorageError, FileVersion, UnknownContent};

use super::TrackerCore;
use super::index::{EntryKind, FileIndex, FileStamp, KnownContent, KnownFile};
use super::observing::BlobBatch;
use super::reading::{LookedFile, ReadLimits, RootHandle, look_below, now, stamp_at};

/// Number of files that are read between two updates of the index.
const STEP: usize = 256;

/// Maximum number of files that are tracked by git and ignored by the rules.
const MAX_IGNORED: usize = 2048;

/// A file without content.
#[derive(Debug)]
struct PendingFile {
    path: PathBuf,
    stamp: FileStamp,
    /// Why its content is not read.
    skipped: Option<UnknownContent>,
}

impl TrackerCore {
    /// Runs until the tracker is dropped.
    pub(super) fn record(&self) {
        self.index_all();
        self.record_from_git();
        loop {
            if let Err(error) = self.record_pending() {
                tracing::warn!(%error, root = ?self.root, "could not record file contents");
            }
            self.set_ready();
            if !self.wait_for_work() {
                return;
            }
        }
    }

    /// `false` when the tracker was dropped.
    fn wait_for_work(&self) -> bool {
        let mut progress = self.progress();
        while !progress.has_work && !self.stop.is_requested() {
            progress = self.progressed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        progress.has_work = false;
        !self.stop.is_requested()
    }

    /// Uses git's objects as the contents of unchanged tracked files.
    fn record_from_git(&self) {
        let (Some(root), Some(tracked)) = (self.open_root(), self.git().tracked_files()) else { return };
        let (pending, _) = self.pending();
        let mut opened: Option<(PathBuf, OwnedFd)> = None;
        let mut found = Vec::new();
        for file in &pending {
            let Some(object) = tracked.clean.get(&file.path) else { continue };
            if object.size != file.stamp.size || object.size > self.limits.max_file_size {
                continue;
            }
            // The file had this stamp before git looked at it. If it still has, git compared the
            // same content.
            if stamp_in(&root, &mut opened, &file.path) == Some(file.stamp) {
                found.push((file, Arc::clone(&object.id)));
            }
        }
        let mut index = self.index();
        for (file, object) in found {
            if let Some(slot) = index.get_mut(&file.path)
                && slot.is_pending()
                && slot.stamp == Some(file.stamp)
            {
                slot.content = KnownContent::Git(object);
            }
        }
        add_ignored(&root, &mut index, tracked.all);
    }

    fn record_pending(&self) -> Result<(), EditStorageError> {
        let Some(root) = self.open_root() else { return Ok(()) };
        self.progress().has_work = false;
        let (pending, mut spent) = self.pending();
        let mut digested = 0;
        for step in pending.chunks(STEP) {
            if self.stop.is_requested() {
                return Ok(());
            }
            let mut batch = BlobBatch::default();
            let mut results = Vec::with_capacity(step.len());
            for file in step {
                results.push(self.record_file(&root, file, &mut batch, (&mut spent, &mut digested))?);
            }
            batch.flush(self)?;
            let mut index = self.index();
            for (file, known) in step.iter().zip(results) {
                // A file that changed meanwhile is left for the next scan.
                if let Some(slot) = index.get_mut(&file.path)
                    && slot.is_pending()
                    && slot.stamp == Some(file.stamp)
                    && known.stamp == Some(file.stamp)
                {
                    *slot = known;
                }
            }
        }
        Ok(())
    }

    /// The files without contents, and the size of the recorded contents.
    fn pending(&self) -> (Vec<PendingFile>, u64) {
        let index = self.index();
        let mut count = 0_usize;
        let mut bytes = 0_u64;
        let mut pending = Vec::new();
        for (path, known) in files(&index) {
            count += 1;
            if let KnownContent::Version(FileVersion::File { size, stored: true, .. }) = &known.content {
                bytes = bytes.saturating_add(*size);
            }
            if let Some(stamp) = known.stamp.filter(|_| known.is_pending()) {
                let skipped = (count > self.limits.max_files).then_some(UnknownContent::TooManyFiles);
                pending.push(PendingFile { path: path.build(), stamp, skipped });
            }
        }
        (pending, bytes)
    }

    /// Reads a file within the limits: `spent` are the stored bytes, `digested` the bytes of
    /// files that are too large to be stored.
    fn record_file(
        &self,
        root: &RootHandle,
        file: &PendingFile,
        batch: &mut BlobBatch,
        (spent, digested): (&mut u64, &mut u64),
    ) -> Result<KnownFile, EditStorageError> {
        let size = file.stamp.size;
        let is_large = size > self.limits.max_file_size;
        let (used, reason) = if is_large {
            (digested, UnknownContent::FileTooLarge)
        } else {
            (spent, UnknownContent::RootTooLarge)
        };
        let is_full = used.saturating_add(size) > self.limits.max_root_size;
        if let Some(reason) = file.skipped.or(is_full.then_some(reason)) {
            let content = KnownContent::Version(FileVersion::Unknown(reason));
            return Ok(KnownFile { stamp: Some(file.stamp), racy: false, content });
        }
        *used = used.saturating_add(size);
        let LookedFile { known, blob } = look_below(root, &file.path, ReadLimits::new(&self.limits));
        if let Some(blob) = blob {
            batch.add(self, blob)?;
        }
        Ok(known)
    }
}

/// The stamp of a file. Keeps the last directory open, since files are in the order of their
/// directories.
fn stamp_in(root: &RootHandle, opened: &mut Option<(PathBuf, OwnedFd)>, path: &Path) -> Option<FileStamp> {
    let parent = path.parent()?;
    if opened.as_ref().is_none_or(|(directory, _)| directory != parent) {
        *opened = Some((parent.to_owned(), root.directory(parent).ok()?));
    }
    let (_, directory) = opened.as_ref()?;
    stamp_at(directory.as_fd(), path.file_name()?).ok()
}

/// Adds files that are tracked, although the rules ignore them.
fn add_ignored(root: &RootHandle, index: &mut FileIndex, tracked: HashSet<PathBuf>) {
    let now = now();
    let mut ignored: Vec<PathBuf> = tracked.into_iter().filter(|path| index.get(path).is_none()).collect();
    ignored.sort_unstable();
    let mut opened = None;
    for path in ignored.into_iter().take(MAX_IGNORED) {
        if let Some(stamp) = stamp_in(root, &mut opened, &path)
            && matches!(stamp.kind(), EntryKind::File | EntryKind::Link)
        {
            index.set(&path, KnownFile::pending(stamp, now), 0);
        }
    }
}

/// All files.
fn files(index: &FileIndex) -> impl Iterator<Item = (PathOf<'_>, &KnownFile)> {
    let indexed = index.directories.iter().flat_map(|(directory, listed)| {
        listed.files.iter().map(move |file| (PathOf(directory, Some(&file.name)), &file.known))
    });
    indexed.chain(index.extras.iter().map(|(path, extra)| (PathOf(path, None), &extra.known)))
}

/// A path that is put together only if it is needed.
#[derive(Clone, Copy, Debug)]
struct PathOf<'a>(&'a Path, Option<&'a CStr>);

impl PathOf<'_> {
    fn build(self) -> PathBuf {
        self.1.map_or_else(|| self.0.to_owned(), |name| self.0.join(OsStr::from_bytes(name.to_bytes())))
    }
}
