//! Lists and finds the transcripts of a configuration directory.
//!
//! Owns the cache between two lists, so that the second one reads only changed files, and the rules for
//! filtering and ordering sessions. `watch.rs` watches for changes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::config_dir;
use super::project::{Project, all_projects, projects_of, projects_of_worktrees};
use super::scan::{KnownSession, ProjectSessions, SessionFile, scan, scan_one, session_files};
use super::summary::SessionSummary;

/// Number of folders scanned together. Each stays open until all its files are checked, and the number of
/// open files per process is limited.
const OPEN_FOLDERS_LIMIT: usize = 64;

/// The transcripts of a configuration directory.
///
/// All methods block on the file system. Scan results are cached by modification time and size, so keep
/// and reuse the same value.
#[derive(Debug)]
pub struct Transcripts {
    /// The folder with one subfolder per working directory.
    projects: PathBuf,
    /// Cached scan results by folder. Locked only to get or put an entry, never during file system
    /// access.
    known: Mutex<HashMap<PathBuf, Arc<ProjectSessions>>>,
}

/// Options of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Which sessions to list.
    pub scope: Scope,
    /// Number of newest sessions to skip.
    pub offset: usize,
    /// Maximum number of sessions.
    pub limit: Option<usize>,
}

/// Which sessions to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Scope {
    /// Sessions of all directories.
    #[default]
    Everything,
    /// Sessions of one directory.
    Directory {
        /// The directory; links are resolved.
        path: PathBuf,
        /// Whether to include the other worktrees of its git repository.
        worktrees: Worktrees,
    },
}

/// Whether to include the other worktrees of a git repository.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Worktrees {
    /// Includes them.
    #[default]
    Included,
    /// Only the directory itself.
    Excluded,
}

impl Transcripts {
    /// Uses this configuration directory, which need not exist.
    pub fn new(config_dir: &Path) -> Self {
        Self { projects: config_dir.join("projects"), known: Mutex::default() }
    }

    /// Uses the configuration directory for an environment.
    pub fn from_environment(environment: &BTreeMap<OsString, OsString>) -> Option<Self> {
        Some(Self::new(&config_dir(environment)?))
    }

    /// The sessions of a scope, most recently modified first.
    pub fn list(&self, options: &ListOptions) -> Vec<Arc<SessionSummary>> {
        let projects = self.projects_in(&options.scope);
        self.rescan(projects.iter().map(|project| project.folder.clone()));
        let listed = self.listed(&projects);
        listed.into_iter().skip(options.offset).take(options.limit.unwrap_or(usize::MAX)).collect()
    }

    /// The transcript of a conversation, if it is not empty.
    pub fn find(&self, conversation: Uuid, scope: &Scope) -> Option<PathBuf> {
        let name = format!("{conversation}.jsonl");
        let mut candidates = self.projects_in(scope).into_iter().map(|project| project.folder.join(&name));
        candidates.find(|path| fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0))
    }

    /// The folder with one subfolder per working directory.
    pub(super) fn root(&self) -> &Path {
        &self.projects
    }

    pub(super) fn projects_in(&self, scope: &Scope) -> Vec<Project> {
        match scope {
            Scope::Everything => all_projects(&self.projects),
            Scope::Directory { path, worktrees: Worktrees::Included } => {
                projects_of_worktrees(&self.projects, path)
            }
            Scope::Directory { path, worktrees: Worktrees::Excluded } => projects_of(&self.projects, path),
        }
    }

    /// Updates the cache for the given folders.
    pub(super) fn rescan(&self, folders: impl Iterator<Item = PathBuf>) {
        let folders: Vec<PathBuf> = folders.collect();
        for folders in folders.chunks(OPEN_FOLDERS_LIMIT) {
            self.rescan_few(folders);
        }
    }

    fn rescan_few(&self, folders: &[PathBuf]) {
        let before: Vec<Option<Arc<ProjectSessions>>> = {
            let known = self.known();
            folders.iter().map(|folder| known.get(folder).cloned()).collect()
        };
        let mut owners = Vec::new();
        let mut files = Vec::new();
        for (at, folder) in folders.iter().enumerate() {
            let found = session_files(folder);
            owners.extend(std::iter::repeat_n(at, found.len()));
            files.extend(found);
        }
        let known_before = |at: usize| -> Option<&KnownSession> {
            before.get(*owners.get(at)?)?.as_ref()?.get(&files.get(at)?.id)
        };
        let fresh = scan(&files, &known_before);
        let mut after: Vec<ProjectSessions> = folders.iter().map(|_| ProjectSessions::new()).collect();
        for ((owner, file), known) in owners.iter().zip(&files).zip(fresh) {
            if let (Some(sessions), Some(known)) = (after.get_mut(*owner), known) {
                sessions.insert(file.id, known);
            }
        }
        let mut known = self.known();
        for (folder, sessions) in folders.iter().zip(after) {
            known.insert(folder.clone(), Arc::new(sessions));
        }
    }

    /// Updates the cache for one session.
    pub(super) fn rescan_session(&self, folder: &Path, session: Uuid) {
        let path = folder.join(format!("{session}.jsonl"));
        let file = SessionFile::at(session, path);
        let before = self.known().get(folder).and_then(|sessions| sessions.get(&session).cloned());
        let fresh = scan_one(&file, before.as_ref());
        let mut known = self.known();
        let sessions = Arc::make_mut(known.entry(folder.to_owned()).or_default());
        match fresh {
            Some(fresh) => sessions.insert(session, fresh),
            None => sessions.remove(&session),
        };
    }

    /// The cached sessions of some folders, without file system access.
    pub(super) fn listed(&self, projects: &[Project]) -> Vec<Arc<SessionSummary>> {
        let sessions: Vec<(&Project, Arc<ProjectSessions>)> = {
            let known = self.known();
            let of = |project: &Project| known.get(&project.folder).cloned();
            projects.iter().filter_map(|project| of(project).map(|sessions| (project, sessions))).collect()
        };
        let mut listed = Vec::with_capacity(sessions.iter().map(|(_, sessions)| sessions.len()).sum());
        for (project, sessions) in &sessions {
            let continued = |known: &&KnownSession| {
                known
                    .continued_in
                    .is_some_and(|next| sessions.get(&next).is_some_and(|next| next.summary.is_some()))
            };
            let wanted = sessions.values().filter(|known| !continued(known));
            let summaries = wanted.filter_map(|known| known.summary.as_ref());
            listed
                .extend(summaries.filter(|summary| project.filter.includes(summary.cwd.as_deref())).cloned());
        }
        // Cached keys are contiguous in memory, which halves the sorting time of thousands of sessions.
        listed.sort_by_cached_key(|summary| Reverse((summary.last_modified, summary.id)));
        if sessions.len() > 1 {
            // A conversation may exist in several folders; the newest comes first and is kept.
            let mut seen = HashSet::with_capacity(listed.len());
            listed.retain(|summary| seen.insert(summary.id));
        }
        listed
    }

    /// The session folders next to the transcripts of a folder.
    pub(super) fn session_folders(&self, project: &Path) -> Vec<PathBuf> {
        let sessions = self.known().get(project).cloned().unwrap_or_default();
        let with_folder = sessions.iter().filter(|(_, known)| known.has_folder);
        with_folder.map(|(id, _)| project.join(id.to_string())).collect()
    }

    /// Removes all other folders from the cache.
    pub(super) fn keep_only(&self, folders: &HashSet<PathBuf>) {
        self.known().retain(|folder, _| folders.contains(folder));
    }

    fn known(&self) -> MutexGuard<'_, HashMap<PathBuf, Arc<ProjectSessions>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
