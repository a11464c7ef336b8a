//! Watches of files and directories.
//!
//! Changes are collected for a short time, merged per path, and returned in batches of
//! bounded size: if there are too many, the watched resource itself is reported as
//! changed. Links are not followed. The system watches a path and not a handle, so the
//! path is checked again once the watch is active. Invariant: no change is returned for a
//! path that is not allowed at that moment.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use innkeeper_core::agent::BoxFuture;
use innkeeper_core::files::{ChangeKind, FileChange, FileError, FileWatch, Links, Reach, WatchRequest};
use notify::event::{ModifyKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::access_request::AccessRequest;
use crate::address;
use crate::files::Parts;
use crate::glob::Globs;
use crate::roots::HiddenPaths;
use crate::write::{NEW_DRAFT, REPLACING_DRAFT};

/// How long changes are collected: not noticeable to a user, and long enough that a build
/// which writes a file a hundred times causes one change.
const GATHER: Duration = Duration::from_millis(50);

/// Maximum number of paths in a batch. Above it, the watched resource as a whole is
/// reported.
const MAX_PATHS: usize = 1_000;

/// An active watch.
pub(crate) struct LocalWatch {
    parts: Arc<Parts>,
    pending: Arc<PendingChanges>,
    /// A running check whether the watched resource is still allowed. It survives a
    /// cancelled call: the next call waits for the same check instead of using another
    /// thread.
    checking: Option<BoxFuture<Result<bool, FileError>>>,
    /// Ends the system's watch when dropped.
    _watcher: RecommendedWatcher,
    /// Counts toward the maximum number of watches.
    _permit: OwnedSemaphorePermit,
}

impl fmt::Debug for LocalWatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LocalWatch").field("root", &self.pending.root).finish_non_exhaustive()
    }
}

/// Changes that the system has reported and that were not returned yet.
#[derive(Debug)]
struct PendingChanges {
    root: PathBuf,
    /// The URI by which the client knows the root.
    uri: String,
    /// Paths that are hidden, also below the root.
    closed: HiddenPaths,
    includes: Globs,
    excludes: Globs,
    batch: Mutex<ChangeBatch>,
    ready: Notify,
}

#[derive(Debug, Default)]
struct ChangeBatch {
    changes: BTreeMap<PathBuf, ChangeKind>,
    /// More changes occurred than are listed.
    overflowed: bool,
}

/// Starts a watch.
pub(crate) fn start(
    parts: Arc<Parts>,
    request: &WatchRequest,
    permit: OwnedSemaphorePermit,
) -> Result<LocalWatch, FileError> {
    let access = AccessRequest::to_read(&request.uri);
    let place = parts.roots.locate(access, Links::Follow)?;
    let found = place.look().map_err(|errno| access.failed(errno))?.ok_or_else(|| access.not_found())?;
    // A file is often replaced by another one of the same name, so its directory is
    // watched.
    let watched = match place.path.parent() {
        Some(parent) if !found.is_dir() => parent,
        _ => &place.path,
    };
    let mode = match request.reach {
        Reach::Descendants if found.is_dir() => RecursiveMode::Recursive,
        Reach::Descendants | Reach::Entries => RecursiveMode::NonRecursive,
    };
    let pending = Arc::new(PendingChanges {
        root: place.path.clone(),
        uri: request.uri.clone(),
        closed: parts.roots.hidden(),
        includes: Globs::parse(&request.includes).map_err(FileError::Invalid)?,
        excludes: Globs::parse(&request.excludes).map_err(FileError::Invalid)?,
        batch: Mutex::default(),
        ready: Notify::new(),
    });
    let reporter = Arc::clone(&pending);
    let config = notify::Config::default().with_follow_symlinks(false);
    let mut watcher = RecommendedWatcher::new(move |event| reporter.record(event), config)
        .map_err(|error| failed(access, error))?;
    watcher.watch(watched, mode).map_err(|error| failed(access, error))?;
    if watched.canonicalize().ok().as_deref() != Some(watched) {
        return Err(access.denied("it was replaced by a link"));
    }
    Ok(LocalWatch { parts, pending, checking: None, _watcher: watcher, _permit: permit })
}

impl FileWatch for LocalWatch {
    fn changes(&mut self) -> Pin<Box<dyn Future<Output = Option<Vec<FileChange>>> + Send + '_>> {
        Box::pin(async {
            loop {
                if self.checking.is_none() {
                    if self.pending.lock().is_empty() {
                        self.pending.ready.notified().await;
                    }
                    tokio::time::sleep(GATHER).await;
                }
                if !self.is_allowed().await {
                    return None;
                }
                let changes = self.pending.take();
                if !changes.is_empty() {
                    return Some(changes);
                }
            }
        })
    }
}

impl LocalWatch {
    /// Whether the watched resource is still allowed, since sessions change.
    async fn is_allowed(&mut self) -> bool {
        let (parts, pending) = (&self.parts, &self.pending);
        // Resolving the directory of a new session accesses the disk.
        let checking = self.checking.get_or_insert_with(|| {
            let pending = Arc::clone(pending);
            Arc::clone(parts).run(move |parts| Ok(parts.roots.allows(&pending.root)))
        });
        let checked = checking.as_mut().await;
        self.checking = None;
        match checked {
            Ok(allowed) => allowed,
            // The caller ends with the host and receives no more changes.
            Err(_) if self.parts.stop.is_requested() => std::future::pending().await,
            Err(error) => {
                tracing::error!(%error, "could not check whether a watch is still allowed; ending it");
                false
            }
        }
    }
}

impl PendingChanges {
    /// Records an event of the system. Runs on the thread of the system's watch.
    fn record(&self, event: notify::Result<Event>) {
        match event {
            Ok(event) if event.need_rescan() => self.lock().overflow(),
            Ok(event) => self.record_event(&event),
            Err(error) => {
                tracing::warn!(%error, root = %self.root.display(), "a watch may have missed changes");
                self.lock().overflow();
            }
        }
        if !self.lock().is_empty() {
            self.ready.notify_one();
        }
    }

    fn record_event(&self, event: &Event) {
        let paths = event.paths.as_slice();
        let kind = match event.kind {
            EventKind::Access(_) => return,
            EventKind::Create(_) | EventKind::Modify(ModifyKind::Name(RenameMode::To)) => ChangeKind::Added,
            EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From)) => {
                ChangeKind::Deleted
            }
            EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => {
                // Both halves were already reported. If the host itself replaced an
                // entry, report an update instead of a new entry.
                if let [from, to] = paths
                    && is_draft(from, &[REPLACING_DRAFT])
                    && let Some(known) = self.lock().changes.get_mut(to)
                {
                    *known = ChangeKind::Updated;
                }
                return;
            }
            EventKind::Modify(ModifyKind::Name(RenameMode::Any | RenameMode::Other)) => {
                for path in paths {
                    // Without the lock: a hanging disk must not block the caller that
                    // takes the batch.
                    let exists = path.symlink_metadata().is_ok();
                    let kind = if exists { ChangeKind::Added } else { ChangeKind::Deleted };
                    self.note(&mut self.lock(), path, kind);
                }
                return;
            }
            EventKind::Any | EventKind::Modify(_) | EventKind::Other => ChangeKind::Updated,
        };
        let mut batch = self.lock();
        for path in paths {
            self.note(&mut batch, path, kind);
        }
    }

    fn note(&self, batch: &mut ChangeBatch, path: &Path, kind: ChangeKind) {
        if !self.wants(path) {
            return;
        }
        let known = batch.changes.get(path).copied();
        match merged(known, kind) {
            Some(kind) if known.is_some() || batch.changes.len() < MAX_PATHS => {
                batch.changes.insert(path.to_owned(), kind);
            }
            Some(_) => batch.overflow(),
            None => {
                batch.changes.remove(path);
            }
        }
    }

    fn wants(&self, path: &Path) -> bool {
        let Ok(relative) = path.strip_prefix(&self.root) else { return false };
        if is_draft(path, &[NEW_DRAFT, REPLACING_DRAFT]) || self.closed.hides(path) {
            return false;
        }
        if relative.as_os_str().is_empty() {
            return true;
        }
        let relative = relative.to_string_lossy();
        (self.includes.is_empty() || self.includes.matches(&relative)) && !self.excludes.matches(&relative)
    }

    fn take(&self) -> Vec<FileChange> {
        let batch = std::mem::take(&mut *self.lock());
        if batch.overflowed {
            return vec![FileChange { uri: self.uri.clone(), kind: ChangeKind::Updated }];
        }
        let uri = |path: &Path| if path == self.root { self.uri.clone() } else { address::uri_of(path) };
        batch.changes.into_iter().map(|(path, kind)| FileChange { uri: uri(&path), kind }).collect()
    }

    fn lock(&self) -> MutexGuard<'_, ChangeBatch> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChangeBatch {
    fn is_empty(&self) -> bool {
        self.changes.is_empty() && !self.overflowed
    }

    fn overflow(&mut self) {
        self.overflowed = true;
        self.changes.clear();
    }
}

/// Merges two changes of the same path; `None` if they cancel out.
fn merged(known: Option<ChangeKind>, new: ChangeKind) -> Option<ChangeKind> {
    match (known, new) {
        (None, new) => Some(new),
        (Some(ChangeKind::Added), ChangeKind::Deleted) => None,
        (Some(ChangeKind::Added), ChangeKind::Added | ChangeKind::Updated) => Some(ChangeKind::Added),
        (Some(ChangeKind::Updated | ChangeKind::Deleted), ChangeKind::Deleted) => Some(ChangeKind::Deleted),
        (Some(ChangeKind::Updated | ChangeKind::Deleted), ChangeKind::Added | ChangeKind::Updated) => {
            Some(ChangeKind::Updated)
        }
    }
}

fn is_draft(path: &Path, prefixes: &[&str]) -> bool {
    path.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
}

fn failed(access: AccessRequest<'_>, error: notify::Error) -> FileError {
    match error.kind {
        notify::ErrorKind::MaxFilesWatch => FileError::TooLarge {
            what: access.uri.to_owned(),
            limit: "the system's number of watched directories (fs.inotify.max_user_watches)",
        },
        notify::ErrorKind::PathNotFound | notify::ErrorKind::WatchNotFound => access.not_found(),
        notify::ErrorKind::Io(error) if error.raw_os_error() == Some(nix::libc::EMFILE) => {
            FileError::TooLarge {
                what: "the number of watches".to_owned(),
                limit: "the system's number of watches per user (fs.inotify.max_user_instances)",
            }
        }
        notify::ErrorKind::Io(error) => access.failed_io(&error),
        notify::ErrorKind::Generic(_) | notify::ErrorKind::InvalidConfig(_) => {
            access.invalid("cannot be watched")
        }
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
