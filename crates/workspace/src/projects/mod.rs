//! The repositories of sessions: finds them, and reads their states when files change.
//!
//! One thread reads all states, so at most one git runs at a time. Changes are collected for a short
//! time, and the pause between two readings is at least nine times as long as a reading takes.
//! Directories with very many subdirectories are not watched: only git's own files are, and each
//! turn's end causes a reading. Invariant: a repository is watched only while it is followed.

mod git_state;
mod relevance;
mod repository;
mod watching;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ahp_types::state::ProjectInfo;
use innkeeper_core::agent::BoxFuture;
use innkeeper_core::projects::{GitReading, Observation, Projects, RepositoryFollower};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use self::repository::Repository;
use self::watching::Watches;
use crate::shared_watcher::SharedWatcher;
use crate::stop_flag::StopFlag;
use crate::uri_of;

/// Concurrent searches for a repository. A hanging disk must not use up all blocking threads.
const MAX_SEARCHES: usize = 4;

/// How many times longer than a reading the pause after it is.
const PAUSE_FACTOR: u32 = 9;

/// Limits of the observation of repositories.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProjectLimits {
    /// How long changes are collected before a reading.
    pub(crate) gather: Duration,
    /// The shortest pause between two readings of a repository.
    pub(crate) pause: Duration,
    /// Maximum number of directories that are watched in one working tree.
    pub(crate) tree_directories: usize,
    /// Maximum number of directories that are watched in all working trees.
    pub(crate) all_directories: usize,
}

impl Default for ProjectLimits {
    fn default() -> Self {
        Self {
            gather: Duration::from_millis(200),
            pause: Duration::from_secs(1),
            tree_directories: 4_000,
            all_directories: 16_000,
        }
    }
}

/// The repositories on this machine. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LocalProjects {
    shared: Arc<FollowedRepositories>,
    searches: Arc<Semaphore>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

/// What the thread, the followers and the receivers of events share.
#[derive(Debug)]
pub(crate) struct FollowedRepositories {
    limits: ProjectLimits,
    /// Files of the host, whose changes are of no interest.
    ignored: Vec<PathBuf>,
    watcher: Arc<SharedWatcher>,
    stop: StopFlag,
    /// By the directory that was asked for.
    followed: Mutex<HashMap<PathBuf, Followed>>,
    /// Notified when a reading may be due, and by `stop`.
    changed: Condvar,
}

/// A directory whose repository is followed.
#[derive(Debug)]
struct Followed {
    readings: watch::Sender<GitReading>,
    observers: usize,
    /// When the state is read next, if there was a change.
    due: Option<Instant>,
    /// The end of the pause after the last reading.
    not_before: Instant,
    /// Number of readings so far.
    count: u64,
}

impl LocalProjects {
    /// Starts the observation. `ignored` are files of the host inside of repositories.
    pub fn new(ignored: Vec<PathBuf>) -> Self {
        Self::with_limits(ignored, ProjectLimits::default())
    }

    pub(crate) fn with_limits(ignored: Vec<PathBuf>, limits: ProjectLimits) -> Self {
        let shared = Arc::new(FollowedRepositories {
            limits,
            ignored,
            watcher: Arc::default(),
            stop: StopFlag::default(),
            followed: Mutex::default(),
            changed: Condvar::new(),
        });
        let reader = Arc::clone(&shared);
        let spawned =
            std::thread::Builder::new().name("git-state".to_owned()).spawn(move || read_when_due(&reader));
        let thread =
            spawned.inspect_err(|error| tracing::warn!(%error, "cannot follow git repositories")).ok();
        Self {
            shared,
            searches: Arc::new(Semaphore::new(MAX_SEARCHES)),
            thread: Arc::new(Mutex::new(thread)),
        }
    }

    /// The watcher of the system, which others should share.
    pub(crate) fn watcher(&self) -> &Arc<SharedWatcher> {
        &self.shared.watcher
    }

    /// Ends a running git and the observation. Blocks until both have ended.
    pub fn stop(&self) {
        self.shared.request_stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the thread that reads git states panicked");
        }
    }
}

impl Projects for LocalProjects {
    fn find(&self, directory: PathBuf) -> BoxFuture<Option<ProjectInfo>> {
        let searches = Arc::clone(&self.searches);
        Box::pin(async move {
            let permit = searches.acquire_owned().await.ok()?;
            let search = move || {
                let _permit = permit;
                Repository::around(&directory)
            };
            let found = tokio::task::spawn_blocking(search).await.ok().flatten()?;
            Some(ProjectInfo { uri: uri_of(&found.main), display_name: found.name() })
        })
    }

    fn follow(&self, directory: PathBuf) -> RepositoryFollower {
        let mut followed = self.shared.lock();
        let entry = followed.entry(directory.clone()).or_insert_with(|| Followed {
            readings: watch::Sender::new(GitReading::Unknown),
            observers: 0,
            due: Some(Instant::now()),
            not_before: Instant::now(),
            count: 0,
        });
        entry.observers += 1;
        let readings = entry.readings.subscribe();
        drop(followed);
        self.shared.changed.notify_all();
        let observation = Box::new(FollowedDirectory { shared: Arc::clone(&self.shared), directory });
        RepositoryFollower { readings, observation }
    }
}

/// One observer of a directory.
#[derive(Debug)]
struct FollowedDirectory {
    shared: Arc<FollowedRepositories>,
    directory: PathBuf,
}

impl Observation for FollowedDirectory {
    fn refresh(&self) {
        self.shared.request_reading(&self.directory);
    }
}

impl Drop for FollowedDirectory {
    fn drop(&mut self) {
        let mut followed = self.shared.lock();
        if let Some(entry) = followed.get_mut(&self.directory) {
            entry.observers -= 1;
            if entry.observers == 0 {
                followed.remove(&self.directory);
            }
        }
        drop(followed);
        self.shared.changed.notify_all();
    }
}

impl FollowedRepositories {
    /// Something may have changed: the state is read soon, but not before the pause is over.
    pub(crate) fn request_reading(&self, directory: &Path) {
        let mut followed = self.lock();
        let Some(entry) = followed.get_mut(directory) else { return };
        let at = entry.not_before.max(Instant::now() + self.limits.gather);
        // Of many changes, only the first one wakes the thread.
        if entry.due.is_none_or(|due| at < due) {
            entry.due = Some(at);
            drop(followed);
            self.changed.notify_all();
        }
    }

    /// Waits for the next work of the thread; `None` when it has to end.
    fn next_work(&self, watches: &HashMap<PathBuf, Watches>) -> Option<Work> {
        let mut followed = self.lock();
        loop {
            if self.stop.is_requested() {
                return None;
            }
            let left = watches.keys().find(|directory| !followed.contains_key(*directory));
            if let Some(directory) = left {
                return Some(Work::Release(directory.clone()));
            }
            let next =
                followed.iter_mut().filter_map(|(directory, entry)| Some((entry.due?, directory, entry)));
            let Some((due, directory, entry)) = next.min_by_key(|(due, ..)| *due) else {
                followed = self.changed.wait(followed).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let wait = due.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                entry.due = None;
                return Some(Work::Read(directory.clone()));
            }
            followed = self.changed.wait_timeout(followed, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Publishes a reading that took some time.
    fn publish(&self, directory: &Path, reading: GitReading, took: Duration) {
        let mut followed = self.lock();
        let Some(entry) = followed.get_mut(directory) else { return };
        let pause = self.limits.pause.max(took.saturating_mul(PAUSE_FACTOR));
        entry.not_before = Instant::now() + pause;
        // A change during the reading.
        entry.due = entry.due.map(|due| due.max(entry.not_before));
        entry.count += 1;
        entry.readings.send_if_modified(|known| {
            let differs = *known != reading;
            *known = reading;
            differs
        });
    }

    fn request_stop(&self) {
        // Under the lock: the thread checks the flag before it waits.
        let followed = self.lock();
        self.stop.request();
        drop(followed);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Followed>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Work of the thread.
enum Work {
    /// Read the state around a directory.
    Read(PathBuf),
    /// Nobody follows the directory any longer.
    Release(PathBuf),
}

/// Reads the states of the followed repositories until the observation is stopped.
fn read_when_due(shared: &Arc<FollowedRepositories>) {
    let mut watches: HashMap<PathBuf, Watches> = HashMap::new();
    while let Some(work) = shared.next_work(&watches) {
        let directory = match work {
            Work::Release(directory) => {
                watches.remove(&directory);
                continue;
            }
            Work::Read(directory) => directory,
        };
        let began = Instant::now();
        let repository = Repository::around(&directory);
        // Before the reading, so that no later change is missed.
        let known = watches.remove(&directory);
        let others: usize = watches.values().map(Watches::directories).sum();
        let room = shared.limits.all_directories.saturating_sub(others).min(shared.limits.tree_directories);
        watches
            .insert(directory.clone(), Watches::renew(known, shared, &directory, repository.as_ref(), room));
        let reading = match &repository {
            None => GitReading::NoRepository,
            Some(repository) => {
                git_state::read(repository, &shared.stop).map_or(GitReading::Unknown, GitReading::Known)
            }
        };
        shared.publish(&directory, reading, began.elapsed());
    }
}

#[cfg(test)]
#[path = "projects_tests.rs"]
mod tests;
