//! Projects and git states that a test scripts.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahp_types::state::ProjectInfo;
use innkeeper_core::agent::BoxFuture;
use innkeeper_core::projects::{GitReading, Observation, Projects, RepositoryFollower};
use tokio::sync::watch;

/// Scripted repositories. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct ScriptedProjects {
    state: Arc<Mutex<ProjectsState>>,
}

#[derive(Debug, Default)]
struct ProjectsState {
    projects: HashMap<PathBuf, ProjectInfo>,
    /// Whether the file system does not respond.
    hangs: bool,
    readings: HashMap<PathBuf, watch::Sender<GitReading>>,
    /// Numbers of requests to read a state again.
    refreshes: HashMap<PathBuf, usize>,
}

impl ScriptedProjects {
    /// Sets the project of a directory.
    pub fn set_project(&self, directory: &str, uri: &str, name: &str) {
        let project = ProjectInfo { uri: uri.to_owned(), display_name: name.to_owned() };
        self.state().projects.insert(directory.into(), project);
    }

    /// Sets whether the file system does not respond.
    pub fn set_hanging(&self, hangs: bool) {
        self.state().hangs = hangs;
    }

    /// Reports a reading of a directory's repository.
    pub fn read(&self, directory: &str, reading: GitReading) {
        self.state().readings.entry(directory.into()).or_default().send_replace(reading);
    }

    /// The number of sessions that follow a directory.
    pub fn followers(&self, directory: &str) -> usize {
        self.state().readings.get(&PathBuf::from(directory)).map_or(0, watch::Sender::receiver_count)
    }

    /// How often sessions have asked to read the state of a directory again.
    pub fn refreshes(&self, directory: &str) -> usize {
        self.state().refreshes.get(&PathBuf::from(directory)).copied().unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, ProjectsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Projects for ScriptedProjects {
    fn find(&self, directory: PathBuf) -> BoxFuture<Option<ProjectInfo>> {
        let state = self.state();
        if state.hangs {
            return Box::pin(std::future::pending());
        }
        Box::pin(std::future::ready(state.projects.get(&directory).cloned()))
    }

    fn follow(&self, directory: PathBuf) -> RepositoryFollower {
        let readings = self.state().readings.entry(directory.clone()).or_default().subscribe();
        let observation = Box::new(ScriptedObservation { projects: self.clone(), directory });
        RepositoryFollower { readings, observation }
    }
}

#[derive(Debug)]
struct ScriptedObservation {
    projects: ScriptedProjects,
    directory: PathBuf,
}

impl Observation for ScriptedObservation {
    fn refresh(&self) {
        *self.projects.state().refreshes.entry(self.directory.clone()).or_default() += 1;
    }
}
