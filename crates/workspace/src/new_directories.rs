//! Entries of directories that are created below a watched one.
//!
//! The system's watcher reports a new directory before it watches it, and does not report what is
//! created in it in between. A thread waits until the directory is watched, reads it, and reports
//! the entries that the watcher did not report.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use notify::event::{CreateKind, Flag, ModifyKind, RenameMode};
use notify::{Event, EventKind};

use crate::shared_watcher::SharedWatcher;

/// Maximum number of directories, and of their entries, that are distinguished. With more, clients
/// are told that everything may have changed.
const MAX_PATHS: usize = 10_000;

/// New directories that were not read yet. The watcher's thread adds them.
#[derive(Debug, Default)]
struct NewDirectories {
    /// The new paths below each directory that the watcher has reported.
    reported: HashMap<PathBuf, HashSet<PathBuf>>,
    /// There were more paths than are distinguished.
    overflowed: bool,
}

/// Notes the new directories among the events of one watcher.
#[derive(Debug)]
pub(crate) struct ArrivalLog {
    directories: Arc<Mutex<NewDirectories>>,
    /// Wakes the thread; a waiting wake-up is enough for all directories.
    wake: SyncSender<()>,
}

impl ArrivalLog {
    /// Starts the thread that reads new directories. It ends when the log is dropped.
    pub(crate) fn start(watcher: Weak<SharedWatcher>) -> io::Result<Self> {
        let directories = Arc::<Mutex<NewDirectories>>::default();
        let (wake, woken) = sync_channel(1);
        let shared = Arc::clone(&directories);
        thread::Builder::new()
            .name("new-directories".to_owned())
            .spawn(move || report_arrivals(&woken, &shared, &watcher))?;
        Ok(Self { directories, wake })
    }

    /// Notes an event. Runs on the thread of the system's watcher, so it does not wait.
    pub(crate) fn note(&self, event: &Event) {
        // An entry that is only opened or written was not reported as a new one.
        let (EventKind::Create(_) | EventKind::Modify(ModifyKind::Name(RenameMode::To))) = event.kind else {
            return;
        };
        let is_new = event.kind == EventKind::Create(CreateKind::Folder);
        let mut directories = lock(&self.directories);
        if !is_new && directories.reported.is_empty() {
            return;
        }
        for path in &event.paths {
            directories.note(path, is_new);
        }
        drop(directories);
        if is_new {
            // A full queue contains a wake-up that also covers this directory.
            self.wake.try_send(()).ok();
        }
    }
}

impl NewDirectories {
    fn note(&mut self, path: &Path, is_new: bool) {
        for parent in path.ancestors().skip(1) {
            if let Some(reported) = self.reported.get_mut(parent) {
                if reported.len() < MAX_PATHS {
                    reported.insert(path.to_owned());
                } else {
                    self.overflowed = true;
                }
            }
        }
        if is_new && self.reported.len() < MAX_PATHS {
            self.reported.entry(path.to_owned()).or_default();
        } else if is_new {
            self.overflowed = true;
        }
    }

    /// Removes directories that were read. Returns the found entries that were not reported; `None` if
    /// there were too many.
    fn take_missed(&mut self, read: &[PathBuf], found: Option<Vec<PathBuf>>) -> Option<Vec<PathBuf>> {
        let reported: HashSet<PathBuf> =
            read.iter().filter_map(|directory| self.reported.remove(directory)).flatten().collect();
        let overflowed = std::mem::take(&mut self.overflowed);
        let missed: Vec<PathBuf> = found?.into_iter().filter(|path| !reported.contains(path)).collect();
        for path in &missed {
            // For directories that were added meanwhile.
            self.note(path, false);
        }
        (!overflowed).then_some(missed)
    }

    /// The directories that are not below another one.
    fn topmost(&self) -> Vec<PathBuf> {
        let is_inner =
            |path: &Path| path.ancestors().skip(1).any(|parent| self.reported.contains_key(parent));
        self.reported.keys().filter(|path| !is_inner(path)).cloned().collect()
    }
}

/// Reads new directories until the log is dropped.
fn report_arrivals(woken: &Receiver<()>, directories: &Mutex<NewDirectories>, watcher: &Weak<SharedWatcher>) {
    while woken.recv().is_ok() {
        let Some(watcher) = watcher.upgrade() else { return };
        let (all, topmost) = {
            let directories = lock(directories);
            (directories.reported.keys().cloned().collect::<Vec<_>>(), directories.topmost())
        };
        // Afterwards, the watcher watches these directories and all that are created in them.
        watcher.wait_for_events();
        let wanted = topmost.into_iter().filter(|directory| watcher.is_recursive(directory));
        let found: Option<Vec<PathBuf>> = wanted
            .map(|directory| entries_below(&directory))
            .collect::<Option<Vec<_>>>()
            .map(|all| all.concat());
        // Afterwards, it has reported most entries that it watched when they were created. Another
        // one may be reported twice.
        watcher.wait_for_events();
        let missed = lock(directories).take_missed(&all, found);
        match missed {
            Some(missed) => {
                for path in missed {
                    watcher.report(&Ok(Event::new(EventKind::Create(CreateKind::Any)).add_path(path)));
                }
            }
            None => watcher.report(&Ok(Event::new(EventKind::Other).set_flag(Flag::Rescan))),
        }
    }
}

/// All entries below a directory, without following links; `None` if there are too many.
fn entries_below(directory: &Path) -> Option<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        // A directory that was removed has no entries.
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            if found.len() >= MAX_PATHS {
                return None;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    Some(found)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
