//! Projects: the git repositories that sessions work in.
//!
//! The project of a session is found when the session is created or loaded, because no action
//! changes it. The state of its repository changes often, and is published in the session's
//! `_meta`. This module declares what `session` needs; it reads no files.

use std::fmt;
use std::path::PathBuf;

use ahp_types::common::Uri;
use ahp_types::state::ProjectInfo;
use tokio::sync::watch;

use crate::agent::BoxFuture;

/// Finds repositories and follows their states.
pub trait Projects: Send + Sync + fmt::Debug + 'static {
    /// The project of a directory; `None` outside of a repository. Starts no process.
    fn find(&self, directory: PathBuf) -> BoxFuture<Option<ProjectInfo>>;

    /// Follows the state of the repository around a directory.
    fn follow(&self, directory: PathBuf) -> RepositoryFollower;
}

/// Follows the state of a repository until it is dropped.
#[derive(Debug)]
pub struct RepositoryFollower {
    /// The latest reading.
    pub readings: watch::Receiver<GitReading>,
    /// Ends the observation when dropped.
    pub observation: Box<dyn Observation>,
}

/// A running observation of a repository.
pub trait Observation: Send + Sync + fmt::Debug {
    /// The files may have changed: reads the state again, but not more often than permitted.
    fn refresh(&self);
}

/// What is known about the repository around a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GitReading {
    /// Not read yet, or git failed.
    #[default]
    Unknown,
    /// The directory is not in a repository.
    NoRepository,
    /// The state when it was read last.
    Known(GitState),
}

/// The state of a repository and its working tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitState {
    /// The branch; `None` if no branch is checked out.
    pub branch: Option<String>,
    /// The upstream branch, for example `origin/main`.
    pub upstream: Option<String>,
    /// Commits of the upstream branch that the branch does not have.
    pub incoming: Option<u64>,
    /// Commits of the branch that the upstream branch does not have.
    pub outgoing: Option<u64>,
    /// Number of changed and new files. A new directory counts once.
    pub uncommitted: u64,
    /// The root of the working tree, if it is a linked one and not the main one.
    pub worktree: Option<Uri>,
}

/// Finds no repositories.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProjects;

#[derive(Debug)]
struct NoObservation;

impl Observation for NoObservation {
    fn refresh(&self) {}
}

impl Projects for NoProjects {
    fn find(&self, _: PathBuf) -> BoxFuture<Option<ProjectInfo>> {
        Box::pin(std::future::ready(None))
    }

    fn follow(&self, _: PathBuf) -> RepositoryFollower {
        let (_, readings) = watch::channel(GitReading::Unknown);
        RepositoryFollower { readings, observation: Box::new(NoObservation) }
    }
}
