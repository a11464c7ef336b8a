//! The projects of sessions: found when a session is created or loaded.

use std::time::Duration;

use ahp_types::state::{ProjectInfo, SessionState};

use super::Host;
use crate::channel::ChannelUri;
use crate::session::first_directory;

/// How long a session waits for its project. Finding it takes a few file operations, but a
/// network file system may hang.
const LOOKUP_TIME: Duration = Duration::from_secs(1);

/// The result of looking for a project.
pub(super) enum ProjectLookup {
    /// The project, if there is one.
    Done(Option<ProjectInfo>),
    /// The file system did not respond.
    TimedOut,
}

impl Host {
    /// The project of a session's first directory.
    pub(super) async fn project_of(&self, session: &SessionState) -> ProjectLookup {
        let Some(directory) = first_directory(session) else { return ProjectLookup::Done(None) };
        let looking = self.services.projects.find(directory);
        tokio::time::timeout(LOOKUP_TIME, looking).await.map_or(ProjectLookup::TimedOut, ProjectLookup::Done)
    }

    /// Sets the project in the document of a session that is being loaded.
    pub(super) async fn set_project(&self, uri: &ChannelUri, session: &mut SessionState) {
        if let ProjectLookup::Done(project) = self.project_of(session).await
            && project != session.project
        {
            session.project = project;
            // No action changes the project, so a replay would leave clients with the old one.
            self.store.require_snapshots(std::slice::from_ref(uri));
        }
    }
}
