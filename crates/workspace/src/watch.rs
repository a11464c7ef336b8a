//! Watches of files and directories.
//!
//! Changes are collected for a short time, merged per path, and returned in batches of
//! bounded size (`pending_changes`). Links are not followed. The system watches a path and not a handle, so the
//! path is checked again once the watch is active. Invariant: no change is returned for a
//! path that is not allowed at that moment.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use innkeeper_core::agent::BoxFuture;
use innkeeper_core::files::{FileChange, FileError, FileWatch, Links, Reach, WatchRequest};
use notify::RecursiveMode;
use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::access_request::AccessRequest;
use crate::files::Parts;
use crate::glob::Globs;
use crate::pending_changes::PendingChanges;
use crate::shared_watcher::WatchRegistration;

/// How long changes are collected: not noticeable to a user, and long enough that a build
/// which writes a file a hundred times causes one change.
const GATHER: Duration = Duration::from_millis(50);

/// An active watch.
pub(crate) struct LocalWatch {
    parts: Arc<Parts>,
    pending: Arc<PendingChanges>,
    /// A running check whether the watched resource is still allowed. It survives a
    /// cancelled call: the next call waits for the same check instead of using another
    /// thread.
    checking: Option<BoxFuture<Result<bool, FileError>>>,
    /// Ends the system's watch when dropped.
    _registration: WatchRegistration,
    /// Counts toward the maximum number of watches.
    _permit: OwnedSemaphorePermit,
}

impl fmt::Debug for LocalWatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LocalWatch").field("root", &self.pending.root).finish_non_exhaustive()
    }
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
        reach: request.reach,
        uri: request.uri.clone(),
        closed: parts.roots.hidden(),
        includes: Globs::parse(&request.includes).map_err(FileError::Invalid)?,
        excludes: Globs::parse(&request.excludes).map_err(FileError::Invalid)?,
        batch: Mutex::default(),
        ready: Notify::new(),
    });
    let registration =
        parts.watcher.register(watched, mode, Arc::clone(&pending)).map_err(|error| failed(access, error))?;
    if watched.canonicalize().ok().as_deref() != Some(watched) {
        return Err(access.denied("it was replaced by a link"));
    }
    Ok(LocalWatch { parts, pending, checking: None, _registration: registration, _permit: permit })
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
