//! Changes below a watched path that were not returned yet.
//!
//! Filters the system's events by path, reach and globs, and merges them per path. If
//! there are too many, the watched resource itself is reported as changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use innkeeper_core::files::{ChangeKind, FileChange, Reach};
use notify::event::{ModifyKind, RenameMode};
use notify::{Event, EventKind};
use tokio::sync::Notify;

use crate::address;
use crate::glob::Globs;
use crate::roots::HiddenPaths;
use crate::shared_watcher::EventReceiver;
use crate::write::{REPLACING_DRAFT, REPLACING_UNDO_DRAFT, is_draft_name};

/// Maximum number of paths in a batch. Above it, the watched resource as a whole is
/// reported.
pub(crate) const MAX_PATHS: usize = 1_000;

/// Changes that the system has reported and that were not returned yet.
#[derive(Debug)]
pub(crate) struct PendingChanges {
    pub(crate) root: PathBuf,
    /// The shared watcher also reports changes for other watches.
    pub(crate) reach: Reach,
    /// The URI by which the client knows the root.
    pub(crate) uri: String,
    /// Paths that are hidden, also below the root.
    pub(crate) closed: HiddenPaths,
    pub(crate) includes: Globs,
    pub(crate) excludes: Globs,
    pub(crate) batch: Mutex<ChangeBatch>,
    pub(crate) ready: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct ChangeBatch {
    changes: BTreeMap<PathBuf, ChangeKind>,
    /// More changes occurred than are listed.
    overflowed: bool,
}

impl EventReceiver for PendingChanges {
    fn record(&self, event: &notify::Result<Event>) {
        match event {
            Ok(event) if event.need_rescan() => self.lock().overflow(),
            Ok(event) => self.record_event(event),
            Err(error) if !self.may_concern(error) => return,
            Err(error) => {
                tracing::warn!(%error, root = %self.root.display(), "a watch may have missed changes");
                self.lock().overflow();
            }
        }
        if !self.lock().is_empty() {
            self.ready.notify_one();
        }
    }
}

impl PendingChanges {
    /// Whether an error is about a path of this watch, or may be.
    fn may_concern(&self, error: &notify::Error) -> bool {
        let related = |path: &PathBuf| path.starts_with(&self.root) || self.root.starts_with(path);
        error.paths.is_empty() || error.paths.iter().any(related)
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
                    && is_replacement(from)
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
        if path.file_name().is_some_and(is_draft_name) || self.closed.hides(path) {
            return false;
        }
        if relative.as_os_str().is_empty() {
            return true;
        }
        if self.reach == Reach::Entries && relative.components().count() > 1 {
            return false;
        }
        let relative = relative.to_string_lossy();
        (self.includes.is_empty() || self.includes.matches(&relative)) && !self.excludes.matches(&relative)
    }

    pub(crate) fn take(&self) -> Vec<FileChange> {
        let batch = std::mem::take(&mut *self.lock());
        if batch.overflowed {
            return vec![FileChange { uri: self.uri.clone(), kind: ChangeKind::Updated }];
        }
        let uri = |path: &Path| if path == self.root { self.uri.clone() } else { address::uri_of(path) };
        batch.changes.into_iter().map(|(path, kind)| FileChange { uri: uri(&path), kind }).collect()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ChangeBatch> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChangeBatch {
    pub(crate) fn is_empty(&self) -> bool {
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

/// Whether this is a temporary file that replaces an entry.
fn is_replacement(path: &Path) -> bool {
    path.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with(REPLACING_DRAFT) || name.starts_with(REPLACING_UNDO_DRAFT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_one_path_are_merged() {
        use ChangeKind::{Added, Deleted, Updated};
        for (known, new, both) in [
            (Added, Added, Some(Added)),
            (Added, Updated, Some(Added)),
            (Added, Deleted, None),
            (Updated, Added, Some(Updated)),
            (Updated, Updated, Some(Updated)),
            (Updated, Deleted, Some(Deleted)),
            (Deleted, Added, Some(Updated)),
            (Deleted, Updated, Some(Updated)),
            (Deleted, Deleted, Some(Deleted)),
        ] {
            assert_eq!(merged(Some(known), new), both, "{known:?} {new:?}");
        }
    }
}
