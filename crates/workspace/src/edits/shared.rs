//! What the log and its recorders share.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use bytes::Bytes;
use innkeeper_core::agent::BoxFuture;
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::clock::{Clock as _, SystemClock};
use innkeeper_core::edits::{BlobDigest, EditError, EditStorage, EditStorageError, StoredBlob};
use tokio::sync::Notify;

use super::folding::Contents;
use super::registry::RootRegistry;
use super::restored::RestoredFiles;
use super::sessions::SessionCache;
use super::view::LineCountCache;
use crate::tracking::TrackingLimits;

/// Settings of the edit log.
#[derive(Clone, Copy, Debug)]
pub struct EditLogConfig {
    /// Limits of the recorded contents of a working directory.
    pub limits: TrackingLimits,
    /// How long commands wait until the contents are recorded, counted from the first one.
    pub baseline_wait: Duration,
    /// Files of a changeset that are listed.
    pub max_listed_files: usize,
}

impl Default for EditLogConfig {
    fn default() -> Self {
        Self {
            limits: TrackingLimits::default(),
            baseline_wait: Duration::from_secs(2),
            max_listed_files: 5_000,
        }
    }
}

/// The parts of the log.
#[derive(Debug)]
pub(crate) struct LogParts {
    pub(crate) storage: Arc<dyn EditStorage>,
    pub(crate) config: EditLogConfig,
    pub(crate) registry: RootRegistry,
    pub(crate) sessions: SessionCache,
    pub(crate) line_counts: LineCountCache,
    pub(crate) restored: RestoredFiles,
    pub(crate) changed: ChangedSessions,
    /// Read while contents are on their way from an observation into records, when neither
    /// holds them.
    in_transit: RwLock<()>,
}

impl LogParts {
    pub(crate) fn new(storage: Arc<dyn EditStorage>, config: EditLogConfig, excluded: Vec<PathBuf>) -> Self {
        Self {
            registry: RootRegistry::new(Arc::clone(&storage), config.limits, excluded),
            sessions: SessionCache::new(Arc::clone(&storage)),
            line_counts: LineCountCache::default(),
            restored: RestoredFiles::default(),
            changed: ChangedSessions::default(),
            in_transit: RwLock::new(()),
            storage,
            config,
        }
    }

    /// The contents that must survive a garbage collection although no record refers to
    /// them.
    pub(crate) fn held_blobs(&self) -> HashSet<BlobDigest> {
        let _settled = self.in_transit.write().unwrap_or_else(PoisonError::into_inner);
        let mut held = self.registry.held_blobs();
        held.extend(self.sessions.held_blobs());
        for recorder in self.registry.recorders() {
            held.extend(recorder.held_blobs());
        }
        held
    }

    /// Delays the next garbage collection until the guard is dropped.
    pub(crate) fn begin_transit(&self) -> RwLockReadGuard<'_, ()> {
        self.in_transit.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current time, in milliseconds since 1970.
    pub(crate) fn now(&self) -> i64 {
        SystemClock.now().as_millisecond()
    }
}

impl Contents for LogParts {
    fn content(&self, digest: BlobDigest) -> Result<Option<Bytes>, EditStorageError> {
        self.storage.read_blob(digest)
    }

    fn keep(&self, blob: StoredBlob) -> Result<(), EditStorageError> {
        self.storage.put_blobs(vec![blob])
    }
}

/// The sessions whose log changed since the consumer asked last.
#[derive(Debug, Default)]
pub(crate) struct ChangedSessions {
    /// At most one entry per session that exists.
    sessions: Mutex<BTreeSet<ChannelUri>>,
    added: Notify,
}

impl ChangedSessions {
    /// Adds sessions.
    pub(crate) fn add(&self, sessions: impl IntoIterator<Item = ChannelUri>) {
        let mut changed = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        changed.extend(sessions);
        if !changed.is_empty() {
            self.added.notify_one();
        }
    }

    /// Waits until there are sessions, and takes them.
    pub(crate) async fn take(&self) -> Vec<ChannelUri> {
        loop {
            let changed = std::mem::take(&mut *self.sessions.lock().unwrap_or_else(PoisonError::into_inner));
            if !changed.is_empty() {
                return changed.into_iter().collect();
            }
            self.added.notified().await;
        }
    }
}

/// Runs work that blocks on a thread for such work.
pub(crate) fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EditError> + Send + 'static,
) -> BoxFuture<Result<T, EditError>> {
    Box::pin(async move {
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) if error.is_cancelled() => Err(EditError::Closed),
            Err(error) => Err(EditStorageError::Failed(error.to_string()).into()),
        }
    })
}
