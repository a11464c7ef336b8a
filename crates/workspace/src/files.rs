//! The files of this machine behind the port of `core`.
//!
//! Every operation blocks, so it runs on a thread for such work, and only so many
//! at once; whoever comes later waits for a turn and can go away meanwhile.

use std::path::PathBuf;
use std::sync::Arc;

use innkeeper_core::agent::BoxFuture;
use innkeeper_core::files::{
    Extent, FileContent, FileEntry, FileError, FileStatus, FileWatch, FileWrite, Files, FoundFile, Links,
    Transfer, WatchRequest,
};
use tokio::sync::Semaphore;

use crate::asked::{Asked, STOPPING};
use crate::locks::Locks;
use crate::roots::{Roots, SessionDirectories};
use crate::search::Lists;
use crate::stop::Stop;
use crate::{look, transfer, watch, write};

/// Operations that run at once: enough to keep a disk busy, few enough that a disk
/// which hangs does not take all threads. The others wait.
const MAX_RUNNING: u32 = 16;

/// Watches of all clients. More are refused: each costs the system a handle.
const MAX_WATCHES: usize = 256;

/// Which places are allowed.
pub struct FilesConfig {
    /// Answers the directories of sessions.
    pub sessions: SessionDirectories,
    /// Directories that are always allowed: the host's own content, and what the
    /// configuration grants.
    pub granted: Vec<PathBuf>,
    /// Directories that belong to the host and are not shown, even if a session works
    /// in one or above it. What is granted inside of them is.
    pub closed: Vec<PathBuf>,
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

/// What operations work with.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) roots: Roots,
    pub(crate) locks: Locks,
    lists: Lists,
    pub(crate) stop: Stop,
    running: Arc<Semaphore>,
}

impl LocalFiles {
    /// The files of the places that are allowed.
    pub fn new(config: FilesConfig) -> Self {
        let roots = Roots::new(config.sessions, config.granted, config.closed);
        Self {
            parts: Arc::new(Parts {
                roots,
                locks: Locks::default(),
                lists: Lists::default(),
                stop: Stop::default(),
                running: Arc::new(Semaphore::new(MAX_RUNNING as usize)),
            }),
            watches: Arc::new(Semaphore::new(MAX_WATCHES)),
        }
    }

    /// Watches that are in place.
    pub fn watches(&self) -> usize {
        MAX_WATCHES - self.watches.available_permits()
    }

    /// Lets nothing begin any more, cuts short what takes long, and waits until nothing
    /// runs: what a copy has so far is removed, a delete stops where it is.
    pub async fn stop(&self) {
        self.parts.stop.order();
        // Who waits already comes first, and is told; who comes later finds it closed.
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
    /// Runs blocking work when it is its turn. If the caller goes away while it
    /// runs, it runs to its end: a change is made or not made, but never halfway.
    pub(crate) fn run<T: Send + 'static>(
        self: Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, FileError> + Send + 'static,
    ) -> BoxFuture<Result<T, FileError>> {
        Box::pin(async move {
            let failed = |reason: String| FileError::Io { uri: "the file system".to_owned(), reason };
            let running = Arc::clone(&self.running);
            let turn = running.acquire_owned().await.map_err(|_| failed(STOPPING.to_owned()))?;
            if self.stop.is_ordered() {
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
        self.run(move |parts| parts.roots.find(Asked::to_read(&uri), Links::Follow).map(drop))
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
                tracing::warn!(%error, "a search for files failed");
                Vec::new()
            })
        })
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
