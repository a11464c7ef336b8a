//! Listing and finding the transcripts of a configuration directory.
//!
//! Owns what is remembered between two lists, so that the second one reads only what changed, and the rules for
//! which sessions are in a list and in which order. Watching for changes is `watch.rs`'s work.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::config_dir;
use super::project::{Project, all_projects, projects_of, projects_of_worktrees};
use super::scan::{Known, ProjectSessions, SessionFile, scan, scan_one, session_files};
use super::summary::SessionSummary;

/// How many folders are read together. Each is open until all its files have been looked at, and a process may
/// have only so many open.
const OPEN_FOLDERS_LIMIT: usize = 64;

/// The transcripts of a configuration directory.
///
/// All methods block on the file system. A list is remembered in memory by time and size of the files, so that
/// the same value should be kept and asked again.
#[derive(Debug)]
pub struct Transcripts {
    /// The folder with one folder for each working directory.
    projects: PathBuf,
    /// What is known of each of those folders. Locked only to look up or put down a folder, never to read one.
    known: Mutex<HashMap<PathBuf, Arc<ProjectSessions>>>,
}

/// What to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Whose sessions.
    pub scope: Scope,
    /// How many of the newest to leave out.
    pub offset: usize,
    /// How many at most.
    pub limit: Option<usize>,
}

/// Whose sessions are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Scope {
    /// Those of all directories.
    #[default]
    Everything,
    /// Those of one directory.
    Directory {
        /// The directory; links are resolved.
        path: PathBuf,
        /// Whether the other work trees of its git repository count, too.
        worktrees: Worktrees,
    },
}

/// Whether the other work trees of a git repository count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Worktrees {
    /// They do.
    #[default]
    Included,
    /// Only the directory itself does.
    Excluded,
}

impl Transcripts {
    /// The transcripts of a configuration directory, which need not exist.
    pub fn new(config_dir: &Path) -> Self {
        Self { projects: config_dir.join("projects"), known: Mutex::default() }
    }

    /// The transcripts of the configuration directory of an environment.
    pub fn from_environment(environment: &BTreeMap<OsString, OsString>) -> Option<Self> {
        Some(Self::new(&config_dir(environment)?))
    }

    /// The sessions of a scope, those written to last first.
    pub fn list(&self, options: &ListOptions) -> Vec<Arc<SessionSummary>> {
        let projects = self.projects_in(&options.scope);
        self.rescan(projects.iter().map(|project| project.folder.clone()));
        let listed = self.listed(&projects);
        listed.into_iter().skip(options.offset).take(options.limit.unwrap_or(usize::MAX)).collect()
    }

    /// The transcript of a conversation, if something was written to it.
    pub fn find(&self, conversation: Uuid, scope: &Scope) -> Option<PathBuf> {
        let name = format!("{conversation}.jsonl");
        let mut candidates = self.projects_in(scope).into_iter().map(|project| project.folder.join(&name));
        candidates.find(|path| fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0))
    }

    /// The folder with one folder for each working directory.
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

    /// Brings what is known about folders up to date.
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
        let known_before =
            |at: usize| -> Option<&Known> { before.get(*owners.get(at)?)?.as_ref()?.get(&files.get(at)?.id) };
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

    /// Brings what is known about one session up to date.
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

    /// What is known of some folders, without looking at them again.
    pub(super) fn listed(&self, projects: &[Project]) -> Vec<Arc<SessionSummary>> {
        let sessions: Vec<(&Project, Arc<ProjectSessions>)> = {
            let known = self.known();
            let of = |project: &Project| known.get(&project.folder).cloned();
            projects.iter().filter_map(|project| of(project).map(|sessions| (project, sessions))).collect()
        };
        let mut listed = Vec::with_capacity(sessions.iter().map(|(_, sessions)| sessions.len()).sum());
        for (project, sessions) in &sessions {
            let continued = |known: &&Known| {
                known
                    .continued_in
                    .is_some_and(|next| sessions.get(&next).is_some_and(|next| next.summary.is_some()))
            };
            let wanted = sessions.values().filter(|known| !continued(known));
            let summaries = wanted.filter_map(|known| known.summary.as_ref());
            listed.extend(summaries.filter(|summary| project.owner.wants(summary.cwd.as_deref())).cloned());
        }
        // Cached keys lie side by side, which sorts thousands of sessions in half the time.
        listed.sort_by_cached_key(|summary| Reverse((summary.last_modified, summary.id)));
        if sessions.len() > 1 {
            // The same conversation may lie in several folders; the newest comes first and stays.
            let mut seen = HashSet::with_capacity(listed.len());
            listed.retain(|summary| seen.insert(summary.id));
        }
        listed
    }

    /// The folders beside the transcripts of a folder.
    pub(super) fn session_folders(&self, project: &Path) -> Vec<PathBuf> {
        let sessions = self.known().get(project).cloned().unwrap_or_default();
        let with_folder = sessions.iter().filter(|(_, known)| known.has_folder);
        with_folder.map(|(id, _)| project.join(id.to_string())).collect()
    }

    /// Forgets folders that are gone.
    pub(super) fn keep_only(&self, folders: &HashSet<PathBuf>) {
        self.known().retain(|folder, _| folders.contains(folder));
    }

    fn known(&self) -> MutexGuard<'_, HashMap<PathBuf, Arc<ProjectSessions>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
