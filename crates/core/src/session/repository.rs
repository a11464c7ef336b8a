//! Follows the git repository of a session's first directory.

use std::path::PathBuf;
use std::sync::Arc;

use ahp_types::state::SessionState;

use super::actor::SessionActor;
use crate::directories::path_of;
use crate::projects::{GitReading, Projects, RepositoryFollower};

/// The repository of one session.
pub(super) struct SessionRepository {
    projects: Arc<dyn Projects>,
    /// The followed directory and its repository.
    followed: Option<(PathBuf, RepositoryFollower)>,
}

impl SessionRepository {
    pub(super) fn new(projects: Arc<dyn Projects>) -> Self {
        Self { projects, followed: None }
    }

    /// Follows the session's first directory, if it is another one.
    fn follow(&mut self, directory: Option<PathBuf>) {
        if self.followed.as_ref().map(|(followed, _)| followed) == directory.as_ref() {
            return;
        }
        self.followed = directory.map(|path| {
            let mut follower = self.projects.follow(path.clone());
            if *follower.readings.borrow() != GitReading::Unknown {
                // Another session follows the same repository.
                follower.readings.mark_changed();
            }
            (path, follower)
        });
    }

    /// Completes when there is a new reading.
    pub(super) async fn changed(&mut self) {
        if let Some((_, follower)) = &mut self.followed
            && follower.readings.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }

    /// The latest reading.
    pub(super) fn reading(&self) -> GitReading {
        match &self.followed {
            Some((_, follower)) => follower.readings.borrow().clone(),
            None => GitReading::NoRepository,
        }
    }

    /// Files may have changed.
    pub(super) fn refresh(&self) {
        if let Some((_, follower)) = &self.followed {
            follower.observation.refresh();
        }
    }
}

/// The first directory of a session, if it is on this machine.
pub(crate) fn first_directory(session: &SessionState) -> Option<PathBuf> {
    path_of(session.working_directories.as_deref()?.first()?)
}

impl SessionActor {
    /// Follows the repository of the session's first directory.
    pub(super) fn follow_repository(&mut self) {
        let first = |session: &SessionState| first_directory(session);
        let directory = self.publisher.with_session(first).flatten();
        self.repository.follow(directory);
    }
}
