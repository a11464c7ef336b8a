//! A list of all transcripts that is kept up to date by the file system's notices of changes.
//!
//! Owns the watches and what has changed since the last list. Asking costs nothing while nothing changed, and
//! one file each for what did. Where watching does not work the list is made by looking, which is slower and
//! never wrong.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use uuid::Uuid;

use super::list::{ListOptions, Scope, Transcripts};
use super::scan::{ARCHIVED_FILE, TITLE_FILE, session_of_file, session_of_folder};
use super::summary::SessionSummary;

/// How many changed sessions are remembered by name. More than this change at once only when a whole tree is
/// copied or deleted; then everything is looked at again, which is as fast and needs no memory.
const CHANGES_LIMIT: usize = 1024;

/// The transcripts of a configuration directory, watched.
///
/// A change shows in the list as soon as the system has told of it, which takes about a millisecond.
#[derive(Debug)]
pub struct WatchedTranscripts {
    transcripts: Transcripts,
    changes: Arc<Mutex<Changes>>,
    state: Mutex<State>,
}

/// What has changed since the last list.
#[derive(Debug, Default)]
struct Changes {
    everything: bool,
    projects: HashSet<PathBuf>,
    sessions: HashSet<(PathBuf, Uuid)>,
}

#[derive(Debug, Default)]
struct State {
    watching: Watching,
    listed: Arc<[Arc<SessionSummary>]>,
}

#[derive(Debug, Default)]
enum Watching {
    /// Not yet, because there is nothing to watch.
    #[default]
    NotYet,
    /// These folders are being watched.
    Active { watcher: RecommendedWatcher, folders: HashSet<PathBuf> },
    /// The system does not allow it, for example because it has no watches left.
    Impossible,
}

impl WatchedTranscripts {
    /// Starts to watch at the first list.
    pub fn new(transcripts: Transcripts) -> Self {
        Self { transcripts, changes: Arc::default(), state: Mutex::default() }
    }

    /// All sessions, those written to last first.
    pub fn all(&self) -> Arc<[Arc<SessionSummary>]> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.update(&mut state);
        Arc::clone(&state.listed)
    }

    /// The sessions of a scope, those written to last first.
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

    /// The transcripts without the watch, for finding one.
    pub fn transcripts(&self) -> &Transcripts {
        &self.transcripts
    }

    /// Whether changes are being watched for; if not, every list looks at all files.
    pub fn is_watching(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(state.watching, Watching::Active { .. })
    }

    fn update(&self, state: &mut State) {
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

    /// Watches the folder of all projects, if there is one yet.
    fn start(&self, state: &mut State) {
        let root = self.transcripts.root();
        if !root.is_dir() {
            return;
        }
        let changes = Arc::clone(&self.changes);
        // Where links lead is resolved by some systems in what they tell, and by others not.
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

    /// Looks at everything. Folders are watched before they are read, so that no change falls in between.
    fn rescan_everything(&self, state: &mut State) {
        let projects = self.transcripts.projects_in(&Scope::Everything);
        let folders: HashSet<PathBuf> = projects.iter().map(|project| project.folder.clone()).collect();
        state.watching.keep_only(self.transcripts.root(), &folders);
        self.transcripts.keep_only(&folders);
        self.rescan_projects(state, folders);
    }

    fn rescan_projects(&self, state: &mut State, folders: HashSet<PathBuf>) {
        for folder in &folders {
            state.watching.add(folder);
        }
        self.transcripts.rescan(folders.iter().cloned());
        let unwatched = |folder: &PathBuf| self.transcripts.session_folders(folder);
        let beside: Vec<PathBuf> = folders.iter().flat_map(unwatched).collect();
        let fresh: Vec<&PathBuf> = beside.iter().filter(|folder| state.watching.add(folder)).collect();
        // A sidecar may have been written between the reading and the watch.
        for folder in fresh {
            self.rescan_session_of(folder);
        }
    }

    fn rescan_changed(&self, state: &mut State, changes: Changes) {
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
    /// Watches a folder; says whether it was not watched before.
    fn add(&mut self, folder: &Path) -> bool {
        let Self::Active { watcher, folders } = self else { return false };
        if folders.contains(folder) {
            return false;
        }
        match watcher.watch(folder, RecursiveMode::NonRecursive) {
            Ok(()) => folders.insert(folder.to_owned()),
            // It was deleted in the meantime, which the folder above tells.
            Err(_) if !folder.exists() => false,
            Err(error) => {
                *self = impossible(folder, &error);
                false
            }
        }
    }

    /// A folder that was deleted needs a new watch if it comes back.
    fn forget(&mut self, folder: &Path) {
        if let Self::Active { watcher, folders } = self
            && folders.remove(folder)
            && let Err(error) = watcher.unwatch(folder)
        {
            // The system drops the watch of a deleted folder by itself.
            tracing::trace!(folder = %folder.display(), %error, "a watch was gone already");
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
    tracing::warn!(folder = %folder.display(), %error, "transcripts cannot be watched; every list looks at all of them");
    Watching::Impossible
}

impl Changes {
    /// Notes what an event means for the list.
    fn note(&mut self, event: &Event, roots: &[&PathBuf; 2]) {
        if event.need_rescan() {
            self.everything = true;
        }
        // Reading is no change, and our own reading would otherwise keep us busy.
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
