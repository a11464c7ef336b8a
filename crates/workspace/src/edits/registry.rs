//! The directories that agents work in, and the recorders that work there.
//!
//! Chats that use the same directory share one tracker. Directories may contain each other;
//! then a call opens its window in all of them, and each one is observed. Invariant: locks
//! of several directories are taken in the order of their paths.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use innkeeper_core::edits::{BlobDigest, EditStorage};
use tokio::time::Instant;

use super::paths;
use super::recorder::RecorderState;
use super::windows::WindowSet;
use crate::tracking::{RootTracker, TrackingLimits};

/// A directory with its tracker, shared by all recorders that use it.
#[derive(Debug)]
pub(crate) struct TrackedRoot {
    /// The canonical path.
    pub(crate) path: PathBuf,
    /// What is known about its files.
    pub(crate) tracker: Arc<RootTracker>,
    windows: Mutex<WindowSet>,
    /// When the first command asked for the contents.
    first_command: OnceLock<Instant>,
}

impl TrackedRoot {
    /// Waits until the contents are recorded, but not longer than `patience` after the first
    /// call.
    pub(crate) fn wait_ready(&self, patience: Duration) -> bool {
        let left = patience.saturating_sub(self.first_command.get_or_init(Instant::now).elapsed());
        self.tracker.wait_ready(left)
    }

    /// Locks the windows, and with them the order of observations.
    pub(crate) fn lock(&self) -> MutexGuard<'_, WindowSet> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All directories and recorders.
#[derive(Debug)]
pub(crate) struct RootRegistry {
    storage: Arc<dyn EditStorage>,
    limits: TrackingLimits,
    /// Directories that are not tracked as part of a directory around them.
    excluded: Vec<PathBuf>,
    roots: Mutex<BTreeMap<PathBuf, Weak<TrackedRoot>>>,
    recorders: Mutex<BTreeMap<u64, Weak<RecorderState>>>,
    next_recorder: AtomicU64,
}

impl RootRegistry {
    pub(crate) fn new(storage: Arc<dyn EditStorage>, limits: TrackingLimits, excluded: Vec<PathBuf>) -> Self {
        Self {
            storage,
            limits,
            excluded,
            roots: Mutex::default(),
            recorders: Mutex::default(),
            next_recorder: AtomicU64::new(1),
        }
    }

    /// The tracker of a canonical directory.
    pub(crate) fn acquire(&self, path: &Path) -> Arc<TrackedRoot> {
        let created = {
            let mut roots = lock(&self.roots);
            roots.retain(|_, root| root.strong_count() > 0);
            if let Some(root) = roots.get(path).and_then(Weak::upgrade) {
                return root;
            }
            let root = Arc::new(TrackedRoot {
                path: path.to_owned(),
                tracker: RootTracker::excluding(
                    path.to_owned(),
                    self.limits,
                    Arc::clone(&self.storage),
                    &self.excluded,
                ),
                windows: Mutex::default(),
                first_command: OnceLock::new(),
            });
            roots.insert(path.to_owned(), Arc::downgrade(&root));
            root
        };
        // Calls that run in a directory around or below this one may change its files.
        let involved = self.involved(&[path.to_owned()]);
        let mut guards: Vec<_> = involved.iter().map(|root| (&root.path, root.lock())).collect();
        let open: Vec<_> = guards.iter().flat_map(|(_, windows)| windows.windows().to_vec()).collect();
        for (_, windows) in guards.iter_mut().filter(|(root, _)| *root == path) {
            open.iter().cloned().for_each(|window| windows.open(window));
        }
        drop(guards);
        created
    }

    /// The directories in use that contain one of the paths or are below one of them, in the
    /// order in which they must be locked.
    pub(crate) fn involved(&self, paths: &[PathBuf]) -> Vec<Arc<TrackedRoot>> {
        let overlaps =
            |root: &Path| paths.iter().any(|path| path.starts_with(root) || root.starts_with(path));
        let roots = lock(&self.roots);
        roots.iter().filter(|(path, _)| overlaps(path)).filter_map(|(_, root)| root.upgrade()).collect()
    }

    /// The limits that the directories have reached, as text for the user.
    pub(crate) fn reached_limits(&self, directories: &[PathBuf]) -> Vec<String> {
        // Not while the lock is held: a file system that does not respond would block all calls.
        let canonical = paths::outermost(directories);
        let roots: Vec<Arc<TrackedRoot>> = {
            let roots = lock(&self.roots);
            canonical.iter().filter_map(|path| roots.get(path)?.upgrade()).collect()
        };
        let reached = |root: &Arc<TrackedRoot>| {
            let limit = root.tracker.status().limit?;
            let (path, reason) = (root.path.display(), limit.explanation());
            Some(format!("some changes of commands in {path} cannot be undone: {reason}"))
        };
        roots.iter().filter_map(reached).collect()
    }

    /// Adds a recorder.
    pub(crate) fn add(&self, create: impl FnOnce(u64) -> RecorderState) -> Arc<RecorderState> {
        let id = self.next_recorder.fetch_add(1, Ordering::Relaxed);
        let recorder = Arc::new(create(id));
        let mut recorders = lock(&self.recorders);
        recorders.retain(|_, recorder| recorder.strong_count() > 0);
        recorders.insert(id, Arc::downgrade(&recorder));
        recorder
    }

    /// A recorder, if it still exists.
    pub(crate) fn recorder(&self, id: u64) -> Option<Arc<RecorderState>> {
        lock(&self.recorders).get(&id).and_then(Weak::upgrade)
    }

    /// All recorders.
    pub(crate) fn recorders(&self) -> Vec<Arc<RecorderState>> {
        lock(&self.recorders).values().filter_map(Weak::upgrade).collect()
    }

    /// The contents that the trackers need.
    pub(crate) fn held_blobs(&self) -> std::collections::HashSet<BlobDigest> {
        let roots: Vec<_> = lock(&self.roots).values().filter_map(Weak::upgrade).collect();
        roots.iter().flat_map(|root| root.tracker.held_blobs()).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
