//! Implementation of the file interface of `core` for this machine.
//!
//! Every operation blocks, so it runs on a blocking thread, with a limit on concurrent
//! operations. Further operations wait and can be cancelled while they do.

use std::path::PathBuf;
use std::sync::Arc;

use innkeeper_core::Host;
use innkeeper_core::agent::BoxFuture;
use innkeeper_core::files::{
    Extent, FileContent, FileEntry, FileError, FileStatus, FileWatch, FileWrite, Files, FoundFile, Links,
    Transfer, WatchRequest,
};
use tokio::sync::Semaphore;

use crate::access_request::{AccessRequest, STOPPING};
use crate::locks::Locks;
use crate::projects::LocalProjects;
use crate::roots::{Roots, SessionDirectories};
use crate::search::Lists;
use crate::shared_watcher::SharedWatcher;
use crate::stop_flag::StopFlag;
use crate::{look, transfer, watch, write};

/// Maximum number of concurrent operations: enough to keep a disk busy, few enough that a
/// hanging disk does not use up all blocking threads. Further operations wait.
const MAX_RUNNING: u32 = 16;

/// Maximum number of watches of all clients, since every change is matched with each.
/// Further ones are rejected.
const MAX_WATCHES: usize = 256;

/// The allowed directories.
pub struct FilesConfig {
    /// Returns the working directories of the sessions.
    pub sessions: SessionDirectories,
    /// Directories that are always allowed: the host's own content, and directories
    /// granted by the configuration.
    pub granted: Vec<PathBuf>,
    /// Directories of the host that are hidden from clients, even if a session works in
    /// or above one. Granted directories inside of them are not hidden.
    pub closed: Vec<PathBuf>,
}

impl FilesConfig {
    /// Allows the working directories of a host's sessions, and no other directory.
    pub fn sessions_of(host: &Arc<Host>) -> Self {
        let host = Arc::clone(host);
        Self {
            sessions: Arc::new(move || host.working_directories()),
            granted: Vec::new(),
            closed: Vec::new(),
        }
    }
}

impl std::fmt::Debug for FilesConfig {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("FilesConfig").field("granted", &self.granted).finish_non_exhaustive()
    }
}

/// The files of this machine. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LocalFiles {
    parts: Arc<Parts>,
    watches: Arc<Semaphore>,
}

/// The shared state of all operations.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) roots: Roots,
    pub(crate) locks: Locks,
    lists: Lists,
    pub(crate) watcher: Arc<SharedWatcher>,
    pub(crate) stop: StopFlag,
    running: Arc<Semaphore>,
}

impl LocalFiles {
    /// Creates the file access for these directories.
    pub fn new(config: FilesConfig) -> Self {
        Self::watching(config, Arc::default())
    }

    /// Creates the file access for these directories, with the same watcher of the system as the
    /// projects: the system allows few.
    pub fn beside(config: FilesConfig, projects: &LocalProjects) -> Self {
        Self::watching(config, Arc::clone(projects.watcher()))
    }

    fn watching(config: FilesConfig, watcher: Arc<SharedWatcher>) -> Self {
        let roots = Roots::new(config.sessions, config.granted, config.closed);
        Self {
            parts: Arc::new(Parts {
                roots,
                locks: Locks::default(),
                lists: Lists::default(),
                watcher,
                stop: StopFlag::default(),
                running: Arc::new(Semaphore::new(MAX_RUNNING as usize)),
            }),
            watches: Arc::new(Semaphore::new(MAX_WATCHES)),
        }
    }

    /// Number of active watches.
    pub fn watches(&self) -> usize {
        MAX_WATCHES - self.watches.available_permits()
    }

    /// Rejects new operations, cancels long ones, and waits until all have ended. A
    /// cancelled copy is removed; a cancelled deletion stops where it is.
    pub async fn stop(&self) {
        self.parts.stop.request();
        // Waiting operations run first and fail with the stop error; later ones find the
        // semaphore closed.
        let running = &self.parts.running;
        if let Ok(_all) = running.acquire_many(MAX_RUNNING).await {
            running.close();
        }
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Parts) -> Result<T, FileError> + Send + 'static,
    ) -> BoxFuture<Result<T, FileError>> {
        Arc::clone(&self.parts).run(work)
    }
}

impl Parts {
    /// Runs blocking work once a slot is free. If the caller is dropped, the work still
    /// runs to its end, so that a change is never left half done.
    pub(crate) fn run<T: Send + 'static>(
        self: Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, FileError> + Send + 'static,
    ) -> BoxFuture<Result<T, FileError>> {
        Box::pin(async move {
            let failed = |reason: String| FileError::Io { uri: "the file system".to_owned(), reason };
            let running = Arc::clone(&self.running);
            let turn = running.acquire_owned().await.map_err(|_| failed(STOPPING.to_owned()))?;
            if self.stop.is_requested() {
                return Err(failed(STOPPING.to_owned()));
            }
            let work = move || {
                let _turn = turn;
                work(&self)
            };
            tokio::task::spawn_blocking(work).await.map_err(|error| failed(error.to_string()))?
        })
    }
}

impl Files for LocalFiles {
    fn read(&self, uri: String) -> BoxFuture<Result<FileContent, FileError>> {
        self.run(move |parts| look::read(&parts.roots, &uri))
    }

    fn write(&self, write: FileWrite) -> BoxFuture<Result<(), FileError>> {
        self.run(move |parts| write::write(&parts.roots, &parts.locks, &write))
    }

    fn list(&self, uri: String) -> BoxFuture<Result<Vec<FileEntry>, FileError>> {
        self.run(move |parts| look::list(&parts.roots, &uri))
    }

    fn resolve(&self, uri: String, links: Links) -> BoxFuture<Result<FileStatus, FileError>> {
        self.run(move |parts| look::resolve(&parts.roots, &uri, links))
    }

    fn copy(&self, transfer: Transfer) -> BoxFuture<Result<(), FileError>> {
        self.run(move |parts| transfer::copy(parts, &transfer))
    }

    fn relocate(&self, transfer: Transfer) -> BoxFuture<Result<(), FileError>> {
        self.run(move |parts| transfer::relocate(parts, &transfer))
    }

    fn delete(&self, uri: String, extent: Extent) -> BoxFuture<Result<(), FileError>> {
        self.run(move |parts| transfer::delete(parts, &uri, extent))
    }

    fn make_directory(&self, uri: String) -> BoxFuture<Result<(), FileError>> {
        self.run(move |parts| transfer::make_directory(&parts.roots, &uri))
    }

    fn check(&self, uri: String) -> BoxFuture<Result<(), FileError>> {
        self.run(move |parts| parts.roots.find(AccessRequest::to_read(&uri), Links::Follow).map(drop))
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<Result<Box<dyn FileWatch>, FileError>> {
        let Ok(permit) = Arc::clone(&self.watches).try_acquire_owned() else {
            let what = "the number of watches".to_owned();
            return Box::pin(async move { Err(FileError::TooLarge { what, limit: "256 watches" }) });
        };
        let shared = Arc::clone(&self.parts);
        self.run(move |_| {
            let watching = watch::start(shared, &request, permit)?;
            Ok(Box::new(watching) as Box<dyn FileWatch>)
        })
    }

    fn search(&self, directory: PathBuf, partial: String) -> BoxFuture<Vec<FoundFile>> {
        let found = self.run(move |parts| Ok(parts.lists.search(&parts.roots, &directory, &partial)));
        Box::pin(async move {
            found.await.unwrap_or_else(|error| {
                tracing::warn!(%error, "file search failed");
                Vec::new()
            })
        })
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
