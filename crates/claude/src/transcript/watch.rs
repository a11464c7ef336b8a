//! A list of all transcripts, updated by file system notifications.
//!
//! Owns the watches and the changes since the last list. Listing costs nothing if nothing changed,
//! otherwise one file read per change. If watching does not work, every list scans all files, which is
//! slower but correct.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use uuid::Uuid;

use super::list::{ListOptions, Scope, Transcripts};
use super::scan::{ARCHIVED_FILE, TITLE_FILE, session_of_file, session_of_folder};
use super::summary::SessionSummary;

/// Maximum number of tracked changes. More changes at once occur only when a whole tree is copied or
/// deleted; a full scan is then as fast and needs no memory.
const CHANGES_LIMIT: usize = 1024;

/// The watched transcripts of a configuration directory.
///
/// A change appears in the list as soon as the system has reported it, after about a millisecond.
#[derive(Debug)]
pub struct WatchedTranscripts {
    transcripts: Transcripts,
    changes: Arc<Mutex<Changes>>,
    state: Mutex<WatchState>,
}

/// Changes since the last list.
#[derive(Debug, Default)]
struct Changes {
    everything: bool,
    projects: HashSet<PathBuf>,
    sessions: HashSet<(PathBuf, Uuid)>,
}

#[derive(Debug, Default)]
struct WatchState {
    watching: Watching,
    listed: Arc<[Arc<SessionSummary>]>,
}

#[derive(Debug, Default)]
enum Watching {
    /// Nothing to watch yet.
    #[default]
    NotYet,
    /// Watching these folders.
    Active { watcher: RecommendedWatcher, folders: HashSet<PathBuf> },
    /// The system rejects watches, for example because the limit is reached.
    Impossible,
}

impl WatchedTranscripts {
    /// Starts watching at the first list.
    pub fn new(transcripts: Transcripts) -> Self {
        Self { transcripts, changes: Arc::default(), state: Mutex::default() }
    }

    /// All sessions, most recently modified first.
    pub fn all(&self) -> Arc<[Arc<SessionSummary>]> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.update(&mut state);
        Arc::clone(&state.listed)
    }

    /// The sessions of a scope, most recently modified first.
    pub fn list(&self, options: &ListOptions) -> Vec<Arc<SessionSummary>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.update(&mut state);
        let limit = options.limit.unwrap_or(usize::MAX);
        let page = |listed: &[Arc<SessionSummary>]| {
            listed.iter().skip(options.offset).take(limit).cloned().collect::<Vec<_>>()
        };
        match &options.scope {
            Scope::Everything => page(&state.listed),
            Scope::Directory { .. } => {
                page(&self.transcripts.listed(&self.transcripts.projects_in(&options.scope)))
            }
        }
    }

    /// The transcripts without watching, for lookups.
    pub fn transcripts(&self) -> &Transcripts {
        &self.transcripts
    }

    /// Whether watching is active; otherwise every list scans all files.
    pub fn is_watching(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(state.watching, Watching::Active { .. })
    }

    fn update(&self, state: &mut WatchState) {
        if matches!(state.watching, Watching::NotYet) {
            self.start(state);
        }
        let changes = std::mem::take(&mut *self.changes.lock().unwrap_or_else(PoisonError::into_inner));
        if !matches!(state.watching, Watching::Active { .. }) || changes.everything {
            self.rescan_everything(state);
        } else if changes.projects.is_empty() && changes.sessions.is_empty() {
            return;
        } else {
            self.rescan_changed(state, changes);
        }
        let projects = self.transcripts.projects_in(&Scope::Everything);
        state.listed = self.transcripts.listed(&projects).into();
    }

    /// Watches the folder of all projects, if it exists.
    fn start(&self, state: &mut WatchState) {
        let root = self.transcripts.root();
        if !root.is_dir() {
            return;
        }
        let changes = Arc::clone(&self.changes);
        // Some systems resolve links in reported paths, others do not.
        let real_root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let given_root = root.to_owned();
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let mut changes = changes.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Ok(event) => changes.note(&event, &[&given_root, &real_root]),
                Err(_) => changes.everything = true,
            }
        });
        state.watching = match watcher {
            Ok(watcher) => Watching::Active { watcher, folders: HashSet::new() },
            Err(error) => impossible(root, &error),
        };
        state.watching.add(root);
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).everything = true;
    }

    /// Scans everything. Folders are watched before they are read, so that no change is missed.
    fn rescan_everything(&self, state: &mut WatchState) {
        let projects = self.transcripts.projects_in(&Scope::Everything);
        let folders: HashSet<PathBuf> = projects.iter().map(|project| project.folder.clone()).collect();
        state.watching.keep_only(self.transcripts.root(), &folders);
        self.transcripts.keep_only(&folders);
        self.rescan_projects(state, folders);
    }

    fn rescan_projects(&self, state: &mut WatchState, folders: HashSet<PathBuf>) {
        for folder in &folders {
            state.watching.add(folder);
        }
        self.transcripts.rescan(folders.iter().cloned());
        let unwatched = |folder: &PathBuf| self.transcripts.session_folders(folder);
        let beside: Vec<PathBuf> = folders.iter().flat_map(unwatched).collect();
        let fresh: Vec<&PathBuf> = beside.iter().filter(|folder| state.watching.add(folder)).collect();
        // A sidecar may have been written between the scan and the watch.
        for folder in fresh {
            self.rescan_session_of(folder);
        }
    }

    fn rescan_changed(&self, state: &mut WatchState, changes: Changes) {
        for (project, session) in &changes.sessions {
            let folder = project.join(session.to_string());
            if folder.is_dir() {
                state.watching.add(&folder);
            } else {
                state.watching.forget(&folder);
            }
            self.transcripts.rescan_session(project, *session);
        }
        let (there, gone): (HashSet<PathBuf>, HashSet<PathBuf>) =
            changes.projects.into_iter().partition(|folder| folder.is_dir());
        gone.iter().for_each(|folder| state.watching.forget(folder));
        self.rescan_projects(state, there);
    }

    fn rescan_session_of(&self, folder: &Path) {
        let name = folder.file_name().and_then(|name| name.to_str());
        if let (Some(project), Some(session)) = (folder.parent(), name.and_then(session_of_folder)) {
            self.transcripts.rescan_session(project, session);
        }
    }
}

impl Watching {
    /// Watches a folder; returns whether it was not watched before.
    fn add(&mut self, folder: &Path) -> bool {
        let Self::Active { watcher, folders } = self else { return false };
        if folders.contains(folder) {
            return false;
        }
        match watcher.watch(folder, RecursiveMode::NonRecursive) {
            Ok(()) => folders.insert(folder.to_owned()),
            // Deleted in the meantime; the parent folder reports it.
            Err(_) if !folder.exists() => false,
            Err(error) => {
                *self = impossible(folder, &error);
                false
            }
        }
    }

    /// Removes the watch of a deleted folder, which needs a new watch if it is created again.
    fn forget(&mut self, folder: &Path) {
        if let Self::Active { watcher, folders } = self
            && folders.remove(folder)
            && let Err(error) = watcher.unwatch(folder)
        {
            // The system removes the watch of a deleted folder itself.
            tracing::trace!(folder = %folder.display(), %error, "watch was already removed");
        }
    }

    fn keep_only(&mut self, root: &Path, projects: &HashSet<PathBuf>) {
        let Self::Active { folders, .. } = self else { return };
        let wanted = |folder: &PathBuf| {
            folder == root
                || (folder.is_dir() && folder.ancestors().take(2).any(|folder| projects.contains(folder)))
        };
        let stale: Vec<PathBuf> = folders.iter().filter(|folder| !wanted(folder)).cloned().collect();
        stale.iter().for_each(|folder| self.forget(folder));
    }
}

fn impossible(folder: &Path, error: &notify::Error) -> Watching {
    tracing::warn!(folder = %folder.display(), %error, "cannot watch transcripts; every list scans all files");
    Watching::Impossible
}

impl Changes {
    /// Records the changes that an event reports.
    fn note(&mut self, event: &Event, roots: &[&PathBuf; 2]) {
        if event.need_rescan() {
            self.everything = true;
        }
        // Reading is not a change; the scan's own reads would otherwise cause new scans.
        if event.kind.is_access() || self.everything {
            return;
        }
        for path in &event.paths {
            let [given, _] = roots;
            match roots.iter().find_map(|root| path.strip_prefix(root).ok()) {
                Some(below) => self.note_path(given, below),
                None => self.everything = true,
            }
        }
        if self.sessions.len() + self.projects.len() > CHANGES_LIMIT {
            *self = Self { everything: true, ..Self::default() };
        }
    }

    fn note_path(&mut self, root: &Path, below: &Path) {
        let names: Vec<&str> = below
            .components()
            .filter_map(|part| if let Component::Normal(name) = part { name.to_str() } else { None })
            .collect();
        match names.as_slice() {
            [] => self.everything = true,
            [project] => {
                self.projects.insert(root.join(project));
            }
            [project, name] => {
                if let Some(session) = session_of_file(name).or_else(|| session_of_folder(name)) {
                    self.sessions.insert((root.join(project), session));
                }
            }
            [project, folder, file] if [TITLE_FILE, ARCHIVED_FILE].contains(file) => {
                if let Some(session) = session_of_folder(folder) {
                    self.sessions.insert((root.join(project), session));
                }
            }
            _ => {}
        }
    }
}
