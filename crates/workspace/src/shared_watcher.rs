//! The watcher of the system that all watches share.
//!
//! A watcher uses an inotify instance and a thread, and the system allows few instances
//! per user. Every event is passed to all watches, which select their own. Watches may
//! overlap, and removing one from the system's watcher can remove parts of another; then
//! a new watcher replaces the old one, and no event is lost. Invariant: a watcher exists
//! if and only if there are watches.

use std::collections::HashMap;
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};

use crate::new_directories::ArrivalLog;

/// Passes the system's events to all watches.
#[derive(Default)]
pub(crate) struct SharedWatcher {
    registered: Mutex<RegisteredWatch>,
    /// Locked separately: the watcher's thread needs it while a caller holds
    /// `registered` and waits for that thread.
    receivers: Arc<Mutex<Receivers>>,
}

/// Receives the system's events for all watches.
pub(crate) trait EventReceiver: Send + Sync {
    /// Records an event. Runs on the watcher's thread, so it does not wait.
    fn record(&self, event: &notify::Result<Event>);
}

type Receivers = HashMap<u64, Arc<dyn EventReceiver>>;

#[derive(Default)]
struct RegisteredWatch {
    watcher: Option<RecommendedWatcher>,
    paths: HashMap<u64, WatchedPath>,
    next: u64,
}

/// A path that a watch registered.
#[derive(Clone, Debug)]
struct WatchedPath {
    path: PathBuf,
    mode: RecursiveMode,
    /// Device and inode: the system watches these, not the path.
    identity: Option<(u64, u64)>,
}

impl fmt::Debug for SharedWatcher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SharedWatcher")
            .field("watches", &self.receivers().len())
            .finish_non_exhaustive()
    }
}

impl SharedWatcher {
    /// Watches a path until the registration is dropped. Blocks.
    pub(crate) fn register(
        self: &Arc<Self>,
        path: &Path,
        mode: RecursiveMode,
        receiver: Arc<impl EventReceiver + 'static>,
    ) -> notify::Result<WatchRegistration> {
        let mut registered = self.registered();
        let watched = WatchedPath { path: path.to_owned(), mode, identity: identity(path) };
        // The watcher keeps one mode per directory, so a watch below a recursive one must not reset it.
        let mode = if registered.is_below_recursive(path) { RecursiveMode::Recursive } else { mode };
        let mut watcher = match registered.watcher.take() {
            Some(watcher) => watcher,
            None => self.create()?,
        };
        let id = registered.next;
        self.receivers().insert(id, receiver);
        let watching = watcher.watch(path, mode);
        registered.watcher = Some(watcher);
        registered.next += 1;
        registered.paths.insert(id, watched);
        drop(registered);
        let registration = WatchRegistration { watcher: Arc::clone(self), id };
        // Dropping the registration removes what was added before the error.
        watching.map(|()| registration)
    }

    fn create(self: &Arc<Self>) -> notify::Result<RecommendedWatcher> {
        let receivers = Arc::clone(&self.receivers);
        let arrivals = ArrivalLog::start(Arc::downgrade(self)).map_err(notify::Error::io)?;
        let report = move |event: notify::Result<Event>| {
            if let Ok(event) = &event {
                arrivals.note(event);
            }
            report_to(&receivers, &event);
        };
        RecommendedWatcher::new(report, notify::Config::default().with_follow_symlinks(false))
    }

    /// Passes an event to all watches.
    pub(crate) fn report(&self, event: &notify::Result<Event>) {
        report_to(&self.receivers, event);
    }

    /// Waits until the watcher has handled the events that have occurred. Must not run on its thread.
    pub(crate) fn wait_for_events(&self) {
        if let Some(watcher) = &mut self.registered().watcher
            && let Err(error) = watcher.configure(notify::Config::default())
        {
            tracing::debug!(%error, "the file watcher has ended");
        }
    }

    /// Whether a recursive watch includes this path.
    pub(crate) fn is_recursive(&self, path: &Path) -> bool {
        self.registered().is_below_recursive(path)
    }

    /// Ends a watch. Blocks.
    fn release(self: &Arc<Self>, id: u64) {
        self.receivers().remove(&id);
        let mut registered = self.registered();
        let Some(removed) = registered.paths.remove(&id) else { return };
        if registered.paths.is_empty() {
            registered.watcher = None;
            return;
        }
        if registered.is_covered(&removed) {
            return;
        }
        if registered.shares_parts_with(&removed) || identity(&removed.path) != removed.identity {
            match self.rebuilt(&registered) {
                Ok(watcher) => registered.watcher = Some(watcher),
                Err(error) => {
                    tracing::warn!(%error, "cannot replace the file watcher; keeping unneeded watches")
                }
            }
        } else if let Some(watcher) = &mut registered.watcher
            && let Err(error) = watcher.unwatch(&removed.path)
        {
            tracing::debug!(%error, "the system had already ended a watch");
        }
    }

    /// Creates a watcher for the current watches. The old one still reports events until
    /// it is dropped, so none is lost.
    fn rebuilt(self: &Arc<Self>, registered: &RegisteredWatch) -> notify::Result<RecommendedWatcher> {
        let mut watcher = self.create()?;
        // Recursive watches last, because a directory has the mode that was set last.
        let mut paths: Vec<_> = registered.paths.values().collect();
        paths.sort_by_key(|watched| watched.mode == RecursiveMode::Recursive);
        for watched in paths {
            if let Err(error) = watcher.watch(&watched.path, watched.mode) {
                tracing::debug!(%error, "a watched path no longer exists");
            }
        }
        Ok(watcher)
    }

    fn registered(&self) -> MutexGuard<'_, RegisteredWatch> {
        lock(&self.registered)
    }

    fn receivers(&self) -> MutexGuard<'_, Receivers> {
        lock(&self.receivers)
    }
}

impl RegisteredWatch {
    /// Whether another watch includes everything that this one needs.
    fn is_covered(&self, watched: &WatchedPath) -> bool {
        let same = |other: &WatchedPath| watched.path == other.path && watched.mode == other.mode;
        self.is_below_recursive(&watched.path) || self.paths.values().any(same)
    }

    /// Whether a recursive watch includes this path.
    fn is_below_recursive(&self, path: &Path) -> bool {
        let includes =
            |other: &WatchedPath| other.mode == RecursiveMode::Recursive && path.starts_with(&other.path);
        self.paths.values().any(includes)
    }

    /// Whether removing this path would also remove directories of another watch.
    fn shares_parts_with(&self, removed: &WatchedPath) -> bool {
        self.paths.values().any(|other| match removed.mode {
            RecursiveMode::Recursive => other.path.starts_with(&removed.path),
            RecursiveMode::NonRecursive => other.path == removed.path,
        })
    }
}

/// A watch of a path; dropping it ends the watch.
#[derive(Debug)]
pub(crate) struct WatchRegistration {
    watcher: Arc<SharedWatcher>,
    id: u64,
}

impl Drop for WatchRegistration {
    fn drop(&mut self) {
        let (watcher, id) = (Arc::clone(&self.watcher), self.id);
        let release = move || watcher.release(id);
        // The release waits for the watcher's thread and may read directories.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(release)),
            Err(_) => release(),
        }
    }
}

fn report_to(receivers: &Mutex<Receivers>, event: &notify::Result<Event>) {
    let current: Vec<_> = lock(receivers).values().cloned().collect();
    for receiver in current {
        receiver.record(event);
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|found| (found.dev(), found.ino()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "shared_watcher_tests.rs"]
mod tests;
