//! The system's watches of one repository.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use notify::{Event, RecursiveMode};

use super::FollowedRepositories;
use super::relevance::Relevance;
use super::repository::Repository;
use crate::shared_watcher::{EventReceiver, WatchRegistration};

/// The watches of the repository around one directory.
#[derive(Debug)]
pub(super) struct Watches {
    repository: Option<Repository>,
    /// Number of directories in the working tree, if they are watched.
    tree: Option<usize>,
    /// Ends the watches when dropped.
    _registrations: Vec<WatchRegistration>,
}

impl Watches {
    /// The watches for the present state, of which most may be the known ones. The working tree
    /// is watched if it has at most `room` directories.
    pub(super) fn renew(
        known: Option<Self>,
        shared: &Arc<FollowedRepositories>,
        directory: &Path,
        repository: Option<&Repository>,
        room: usize,
    ) -> Self {
        let tree = repository.and_then(|repository| count_directories(&repository.root, room));
        if let Some(known) = known
            && known.repository.as_ref() == repository
            && known.tree.is_some() == tree.is_some()
        {
            return Self { tree, ..known };
        }
        let receiver = Arc::new(RepositoryEvents {
            shared: Arc::downgrade(shared),
            directory: directory.to_owned(),
            relevance: Relevance::new(directory, repository, &shared.ignored),
        });
        let mut registrations = Vec::new();
        for (path, mode) in places(directory, repository, tree.is_some()) {
            match shared.watcher.register(&path, mode, Arc::clone(&receiver)) {
                Ok(registration) => registrations.push(registration),
                Err(error) => tracing::debug!(%error, path = %path.display(), "cannot watch repository"),
            }
        }
        Self { repository: repository.cloned(), tree, _registrations: registrations }
    }

    /// Number of directories of the working tree that are watched.
    pub(super) fn directories(&self) -> usize {
        self.tree.unwrap_or_default()
    }
}

/// The paths to watch.
fn places(
    directory: &Path,
    repository: Option<&Repository>,
    whole_tree: bool,
) -> Vec<(PathBuf, RecursiveMode)> {
    let Some(Repository { root, git_dir, common_dir, .. }) = repository else {
        return vec![(directory.to_owned(), RecursiveMode::NonRecursive)];
    };
    let tree = if whole_tree { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
    let mut places = vec![(root.clone(), tree)];
    let own = [
        (git_dir.clone(), RecursiveMode::NonRecursive),
        (common_dir.clone(), RecursiveMode::NonRecursive),
        (common_dir.join("refs"), RecursiveMode::Recursive),
    ];
    let is_included = |path: &Path| whole_tree && path.starts_with(root);
    places.extend(own.into_iter().filter(|(path, _)| !is_included(path)));
    places.dedup();
    places
}

/// The number of directories below a root, links excluded; `None` if there are more than `limit`.
fn count_directories(root: &Path, limit: usize) -> Option<usize> {
    let mut waiting = vec![root.to_owned()];
    let mut count = 0;
    while let Some(directory) = waiting.pop() {
        count += 1;
        if count > limit {
            return None;
        }
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            }
        }
        if waiting.len() > limit {
            return None;
        }
    }
    Some(count)
}

/// Receives the system's events for one directory.
#[derive(Debug)]
struct RepositoryEvents {
    /// Weak, because the watcher holds this and is held by the repositories.
    shared: Weak<FollowedRepositories>,
    directory: PathBuf,
    relevance: Relevance,
}

impl EventReceiver for RepositoryEvents {
    fn record(&self, event: &notify::Result<Event>) {
        if self.relevance.concerns(event)
            && let Some(shared) = self.shared.upgrade()
        {
            shared.request_reading(&self.directory);
        }
    }
}
