//! A tracked temporary directory for tests.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::edits::{
    BlobDigest, EditRecord, EditStorage, EditStorageError, FileReview, FileVersion, GarbageReport,
    OperationRecord, StoredBlob,
};
use innkeeper_store::{EditDatabase, EditDatabaseConfig};
use uuid::Uuid;

use super::index::KnownFile;
use super::{RootTracker, TrackingLimits};

/// A path relative to the root, the versions before and after, and the new parents.
pub(super) type Change = (PathBuf, FileVersion, FileVersion, u32);

#[derive(Debug)]
pub(super) struct Fixture {
    pub(super) tracker: Arc<RootTracker>,
    pub(super) storage: Arc<dyn EditStorage>,
    limits: TrackingLimits,
    directory: Arc<tempfile::TempDir>,
    _database: Option<Arc<TestDatabase>>,
}

/// A database in a temporary directory.
#[derive(Debug)]
pub(super) struct TestDatabase {
    storage: Arc<dyn EditStorage>,
    _directory: tempfile::TempDir,
}

impl TestDatabase {
    pub(super) fn new() -> Arc<Self> {
        let directory = tempfile::tempdir().unwrap();
        let config = EditDatabaseConfig::new(1024 * 1024 * 1024);
        let database = EditDatabase::open(directory.path().join("blobs.db"), config).unwrap();
        Arc::new(Self { storage: Arc::new(database), _directory: directory })
    }
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self::with_limits(TrackingLimits::default())
    }

    pub(super) fn with_limits(limits: TrackingLimits) -> Self {
        Self::below("", limits)
    }

    /// Tracks a new directory inside of a temporary one.
    pub(super) fn below(name: &str, limits: TrackingLimits) -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let root = directory.path().join(name);
        std::fs::create_dir_all(&root).unwrap();
        Self::open(root, limits, directory, TestDatabase::new())
    }

    /// Tracks a directory with a storage that fails on request.
    pub(super) fn with_failing_storage() -> (Self, Arc<FailingStorage>) {
        let mut fixture = Self::new();
        let storage = Arc::new(FailingStorage::default());
        fixture.storage = Arc::<FailingStorage>::clone(&storage);
        fixture.tracker = RootTracker::new(fixture.path(""), fixture.limits, Arc::clone(&fixture.storage));
        (fixture, storage)
    }

    /// Tracks a new directory. Cheaper than a database for each of many directories.
    pub(super) fn with_database(database: &Arc<TestDatabase>) -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let root = directory.path().to_owned();
        Self::open(root, TrackingLimits::default(), directory, Arc::clone(database))
    }

    fn open(
        root: PathBuf,
        limits: TrackingLimits,
        directory: Arc<tempfile::TempDir>,
        database: Arc<TestDatabase>,
    ) -> Self {
        let storage = Arc::clone(&database.storage);
        let tracker = RootTracker::new(root, limits, Arc::clone(&storage));
        Self { tracker, storage, limits, directory, _database: Some(database) }
    }

    /// A new tracker of the same directory.
    pub(super) fn reopened(&self) -> Self {
        Self::open(self.path(""), self.limits, Arc::clone(&self.directory), TestDatabase::new())
    }

    /// A tracker of another directory beside this one.
    pub(super) fn sibling(&self, name: &str) -> Self {
        Self::open(
            self.directory.path().join(name),
            self.limits,
            Arc::clone(&self.directory),
            TestDatabase::new(),
        )
    }

    pub(super) fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.tracker.core.root.join(relative)
    }

    pub(super) fn write(&self, relative: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.path(relative);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let is_new = !path.exists();
        std::fs::write(&path, content).unwrap();
        if is_new {
            // Whatever the process creates files with.
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
        }
    }

    /// Records all contents.
    pub(super) fn record(&self) {
        self.tracker.start_baseline();
        assert!(self.tracker.wait_ready(Duration::from_secs(30)));
        self.wait_for_contents();
    }

    /// Waits until the baseline thread has read files that a scan adopted.
    pub(super) fn wait_for_contents(&self) {
        while self.tracker.core.index().all().any(KnownFile::is_pending) {
            std::thread::yield_now();
        }
    }

    /// What a scan finds.
    pub(super) fn changes(&self) -> Vec<Change> {
        let root = &self.tracker.core.root;
        let transitions = self.tracker.observe_all().unwrap();
        let change = |transition: super::Transition| {
            let path = transition.path.strip_prefix(root).unwrap().to_owned();
            (path, transition.before, transition.after, transition.new_parents)
        };
        transitions.into_iter().map(change).collect()
    }
}

/// The stored content of a version.
pub(super) fn content(storage: &dyn EditStorage, version: &FileVersion) -> Option<Bytes> {
    storage.read_blob(version.stored_blob()?).unwrap()
}

/// Runs git without the developer's configuration. The error is its output.
#[expect(clippy::disallowed_methods, reason = "a short command that the test waits for")]
pub(crate) fn git(directory: &Path, arguments: &[&str]) -> Result<(), String> {
    let mut command = std::process::Command::new("git");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GIT_") {
            command.env_remove(name);
        }
    }
    let output = command
        .current_dir(directory)
        .args(["-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "gc.auto=0"])
        .args(arguments)
        .env("HOME", directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Stores contents in memory, and nothing else. Fails on request.
#[derive(Debug, Default)]
pub(super) struct FailingStorage {
    blobs: Mutex<HashMap<BlobDigest, Bytes>>,
    fails: AtomicBool,
}

impl FailingStorage {
    pub(super) fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }
}

const NOT_USED: EditStorageError = EditStorageError::Closed;

impl EditStorage for FailingStorage {
    fn put_blobs(&self, blobs: Vec<StoredBlob>) -> Result<(), EditStorageError> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(EditStorageError::Full);
        }
        self.blobs.lock().unwrap().extend(blobs.into_iter().map(|blob| (blob.digest, blob.content)));
        Ok(())
    }

    fn read_blob(&self, digest: BlobDigest) -> Result<Option<Bytes>, EditStorageError> {
        Ok(self.blobs.lock().unwrap().get(&digest).cloned())
    }

    fn stored_blobs(&self, digests: &[BlobDigest]) -> Result<HashSet<BlobDigest>, EditStorageError> {
        let blobs = self.blobs.lock().unwrap();
        Ok(digests.iter().filter(|digest| blobs.contains_key(digest)).copied().collect())
    }

    fn append(&self, _: Vec<EditRecord>, _: Vec<StoredBlob>) -> Result<Vec<u64>, EditStorageError> {
        Err(NOT_USED)
    }

    fn records(&self, _: &ChannelUri) -> Result<Vec<EditRecord>, EditStorageError> {
        Err(NOT_USED)
    }

    fn records_of_paths(&self, _: &[PathBuf], _: u64) -> Result<Vec<EditRecord>, EditStorageError> {
        Err(NOT_USED)
    }

    fn begin_operation(&self, _: OperationRecord, _: Vec<StoredBlob>) -> Result<(), EditStorageError> {
        Err(NOT_USED)
    }

    fn finish_operation(&self, _: Uuid, _: Vec<EditRecord>, _: Option<Uuid>) -> Result<(), EditStorageError> {
        Err(NOT_USED)
    }

    fn cancel_operation(&self, _: Uuid) -> Result<(), EditStorageError> {
        Err(NOT_USED)
    }

    fn unfinished_operations(&self) -> Result<Vec<OperationRecord>, EditStorageError> {
        Err(NOT_USED)
    }

    fn last_operation(&self, _: &ChannelUri) -> Result<Option<OperationRecord>, EditStorageError> {
        Err(NOT_USED)
    }

    fn set_reviews(&self, _: &ChannelUri, _: Vec<FileReview>, _: bool) -> Result<(), EditStorageError> {
        Err(NOT_USED)
    }

    fn reviews(&self, _: &ChannelUri) -> Result<Vec<FileReview>, EditStorageError> {
        Err(NOT_USED)
    }

    fn copy_records(
        &self,
        _: &ChannelUri,
        _: (&ChannelUri, &ChannelUri),
        _: &[String],
    ) -> Result<(), EditStorageError> {
        Err(NOT_USED)
    }

    fn move_records(&self, _: &ChannelUri, _: &ChannelUri) -> Result<(), EditStorageError> {
        Err(NOT_USED)
    }

    fn remove_chat(&self, _: &ChannelUri) -> Result<(), EditStorageError> {
        Err(NOT_USED)
    }

    fn remove_session(&self, _: &ChannelUri) -> Result<(), EditStorageError> {
        Err(NOT_USED)
    }

    fn collect_garbage(&self, _: &HashSet<BlobDigest>) -> Result<GarbageReport, EditStorageError> {
        Err(NOT_USED)
    }
}
