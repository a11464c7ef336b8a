//! Tracks the files of a directory: what they were, and what changed since.
//!
//! A tracker keeps the last seen state of each file below a root. Each observation returns the
//! changes since the one before, and stores the new contents. Who made a change is decided by
//! the caller. Invariant: the state changes only after the contents are stored, so that a failed
//! observation can be repeated.

mod baseline;
mod git;
mod index;
mod observing;
mod reading;
mod rules;
mod scan;

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use innkeeper_core::edits::{BlobDigest, EditStorage, EditStorageError, FileVersion, UnknownContent};

pub(crate) use self::git::{GitObject, GitRunner, MAX_LIST, WITHOUT_FILTERS, records};
use self::index::{FileIndex, KnownContent};
pub(crate) use self::reading::{RootHandle, read_version};
use self::rules::IgnoreRules;
use crate::stop_flag::StopFlag;

/// Limits of a tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackingLimits {
    /// Maximum number of files whose contents are recorded.
    pub max_files: usize,
    /// Maximum size of a recorded content.
    pub max_file_size: u64,
    /// Maximum size of all contents together.
    pub max_root_size: u64,
}

impl Default for TrackingLimits {
    fn default() -> Self {
        Self { max_files: 50_000, max_file_size: 1024 * 1024, max_root_size: 512 * 1024 * 1024 }
    }
}

/// A change of a file between two observations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
    /// The absolute path.
    pub(crate) path: PathBuf,
    /// The file at the observation before.
    pub(crate) before: FileVersion,
    /// The file now.
    pub(crate) after: FileVersion,
    /// How many of its parent directories did not exist before.
    pub(crate) new_parents: u32,
}

/// The result of a look at some paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observed {
    /// The files now, with their canonical paths. Paths outside of the root are left out.
    pub(crate) versions: Vec<(PathBuf, FileVersion)>,
    /// What changed since the observation before. A file that was not seen before is not listed.
    pub(crate) transitions: Vec<Transition>,
}

/// The progress of a tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrackingStatus {
    /// Whether the contents are recorded, as far as the limits allow.
    pub(crate) ready: bool,
    /// Number of known files.
    pub(crate) files: usize,
    /// Size of the recorded contents.
    pub(crate) bytes: u64,
    /// A limit that left contents unrecorded.
    pub(crate) limit: Option<UnknownContent>,
}

/// Tracks the files below one directory.
#[derive(Debug)]
pub(crate) struct RootTracker {
    core: Arc<TrackerCore>,
}

/// What the tracker shares with its thread.
#[derive(Debug)]
struct TrackerCore {
    /// The canonical path.
    root: PathBuf,
    limits: TrackingLimits,
    storage: Arc<dyn EditStorage>,
    /// Requested when the tracker is dropped.
    stop: StopFlag,
    /// Locked for a whole observation, so that observations do not overlap.
    index: Mutex<FileIndex>,
    /// The rules from above the root.
    rules: Arc<IgnoreRules>,
    /// Directories below the root that are not tracked.
    excluded: Arc<[PathBuf]>,
    progress: Mutex<BaselineProgress>,
    /// Notified when `progress` changes, and by `stop`.
    progressed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct BaselineProgress {
    started: bool,
    ready: bool,
    /// Whether files were found whose contents have to be recorded.
    has_work: bool,
}

impl RootTracker {
    /// Creates a tracker of all files. Reads no files before an observation or
    /// [`Self::start_baseline`].
    #[cfg(test)]
    pub(crate) fn new(root: PathBuf, limits: TrackingLimits, storage: Arc<dyn EditStorage>) -> Arc<Self> {
        Self::excluding(root, limits, storage, &[])
    }

    /// Creates a tracker that never looks into the canonical directories below the root that are
    /// excluded.
    pub(crate) fn excluding(
        root: PathBuf,
        limits: TrackingLimits,
        storage: Arc<dyn EditStorage>,
        excluded: &[PathBuf],
    ) -> Arc<Self> {
        let root = root.canonicalize().unwrap_or(root);
        let below = |path: &&PathBuf| path.starts_with(&root) && **path != root;
        let excluded: Arc<[PathBuf]> = excluded.iter().filter(below).cloned().collect();
        let core = TrackerCore {
            rules: IgnoreRules::above(&root, &excluded),
            excluded,
            root,
            limits,
            storage,
            stop: StopFlag::default(),
            index: Mutex::default(),
            progress: Mutex::default(),
            progressed: Condvar::new(),
        };
        Arc::new(Self { core: Arc::new(core) })
    }

    /// Records the contents of all files in the background. Does nothing when called again. The
    /// thread ends when the tracker is dropped.
    pub(crate) fn start_baseline(self: &Arc<Self>) {
        let mut progress = self.core.progress();
        if progress.started {
            return;
        }
        progress.started = true;
        drop(progress);
        let core = Arc::clone(&self.core);
        let spawned =
            std::thread::Builder::new().name("file-tracker".to_owned()).spawn(move || core.record());
        if let Err(error) = spawned {
            tracing::warn!(%error, "could not start recording file contents");
            self.core.set_ready();
        }
    }

    /// Waits until the contents are recorded. `false` after the timeout.
    pub(crate) fn wait_ready(&self, timeout: Duration) -> bool {
        let progress = self.core.progress();
        let waited = self.core.progressed.wait_timeout_while(progress, timeout, |progress| !progress.ready);
        waited.unwrap_or_else(PoisonError::into_inner).0.ready
    }

    /// Looks at all files. Returns what changed since the last observation, and stores the new
    /// contents. The first look returns nothing, except for paths that were observed before.
    pub(crate) fn observe_all(&self) -> Result<Vec<Transition>, EditStorageError> {
        self.core.observe_all()
    }

    /// Looks at some paths, with or without a baseline. Links in their directories are resolved.
    pub(crate) fn observe(&self, paths: &[PathBuf]) -> Result<Observed, EditStorageError> {
        self.core.observe(paths)
    }

    /// The last seen version of a file; `None` if it was not seen. Stores a content that so far
    /// is only in git.
    #[cfg(test)]
    pub(crate) fn version(&self, path: &Path) -> Option<FileVersion> {
        self.core.version(path)
    }

    /// The stored contents of the last seen files.
    pub(crate) fn held_blobs(&self) -> HashSet<BlobDigest> {
        self.core.index().stored_blobs()
    }

    /// The progress.
    pub(crate) fn status(&self) -> TrackingStatus {
        let ready = self.core.progress().ready;
        let index = self.core.index();
        let mut status = TrackingStatus { ready, files: 0, bytes: 0, limit: None };
        for known in index.all() {
            status.files += usize::from(known.stamp.is_some());
            match &known.content {
                KnownContent::Version(FileVersion::File { size, stored: true, .. }) => status.bytes += size,
                KnownContent::Version(FileVersion::File { stored: false, .. }) => {
                    status.limit = status.limit.or(Some(UnknownContent::FileTooLarge));
                }
                KnownContent::Version(FileVersion::Unknown(
                    reason @ (UnknownContent::TooManyFiles
                    | UnknownContent::RootTooLarge
                    | UnknownContent::FileTooLarge),
                )) => status.limit = Some(*reason),
                KnownContent::Version(
                    FileVersion::Absent | FileVersion::Link { .. } | FileVersion::Unknown(_),
                )
                | KnownContent::Git(_) => {}
            }
        }
        if index.truncated {
            status.limit = Some(UnknownContent::TooManyFiles);
        }
        status
    }
}

impl Drop for RootTracker {
    fn drop(&mut self) {
        // Request it under the lock: the thread checks the flag before it waits.
        let progress = self.core.progress();
        self.core.stop.request();
        drop(progress);
        self.core.progressed.notify_all();
    }
}

impl TrackerCore {
    fn index(&self) -> MutexGuard<'_, FileIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn progress(&self) -> MutexGuard<'_, BaselineProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_ready(&self) {
        self.progress().ready = true;
        self.progressed.notify_all();
    }

    /// Wakes the baseline thread, since there are files without contents.
    fn request_baseline(&self) {
        self.progress().has_work = true;
        self.progressed.notify_all();
    }

    /// The path relative to the root, with links in its directory resolved; `None` if it is
    /// outside of the root or in a `.git` directory.
    fn relative(&self, path: &Path) -> Option<PathBuf> {
        let absolute = self.root.join(path);
        let name = absolute.file_name()?;
        let mut existing = absolute.parent()?;
        let mut missing: Vec<&std::ffi::OsStr> = Vec::new();
        let canonical = loop {
            match existing.canonicalize() {
                Ok(canonical) => break canonical,
                Err(_) => {
                    missing.push(existing.file_name()?);
                    existing = existing.parent()?;
                }
            }
        };
        if self.excluded.iter().any(|excluded| canonical.starts_with(excluded)) {
            return None;
        }
        let mut relative = canonical.strip_prefix(&self.root).ok()?.to_owned();
        relative.extend(missing.into_iter().rev());
        relative.push(name);
        let is_tracked =
            |component: Component<'_>| matches!(component, Component::Normal(name) if name != ".git");
        relative.components().all(is_tracked).then_some(relative)
    }
}

#[cfg(test)]
mod git_tests;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod scan_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
#[path = "tracking_tests.rs"]
mod tests;
