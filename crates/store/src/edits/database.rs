//! The public handle of the edit log's database.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::clock::{Clock, SystemClock};
use innkeeper_core::edits::{
    BlobDigest, EditRecord, EditStorage, EditStorageError, FileReview, GarbageReport, OperationRecord,
    StoredBlob,
};
use rusqlite::Connection;
use uuid::Uuid;

use super::blobs::{self, BlobBatch, PackedBlob};
use super::failure::EditFailure;
use super::garbage::{self, GarbageKind};
use super::opening::{connect_edits, open_edits};
use super::writer::{self, EditJob, EditReply, EditRequest, EditWriter, open_failure};
use super::{operations, records};
use crate::database::{ConnectionPurpose, file_stamp};
use crate::opening::{OpenStoreError, io_error};
use crate::writer::ReadConnection;

/// How long a content that nothing refers to stays after it was put.
const GRACE: Duration = Duration::from_secs(600);

/// The configuration of the edit log's database.
#[derive(Clone)]
pub struct EditDatabaseConfig {
    /// Most bytes of all contents, compressed. The oldest ones beyond it are deleted.
    pub quota_bytes: u64,
    /// How long a content that nothing refers to stays after it was put.
    pub grace: Duration,
    /// The clock for the age of contents and the names of damaged files.
    pub clock: Arc<dyn Clock>,
}

impl EditDatabaseConfig {
    /// A configuration with the system clock and a grace period of ten minutes.
    pub fn new(quota_bytes: u64) -> Self {
        Self { quota_bytes, grace: GRACE, clock: Arc::new(SystemClock) }
    }

    fn now(&self) -> i64 {
        self.clock.now().as_millisecond()
    }

    fn grace_millis(&self) -> i64 {
        i64::try_from(self.grace.as_millis()).unwrap_or(i64::MAX)
    }

    /// A content that was put during this time is not written again.
    fn fresh_millis(&self) -> i64 {
        self.grace_millis() / 10
    }

    /// Contents that were put after this time are not deleted.
    fn cutoff(&self) -> i64 {
        self.now().saturating_sub(self.grace_millis()).saturating_sub(self.fresh_millis())
    }
}

impl fmt::Debug for EditDatabaseConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EditDatabaseConfig")
            .field("quota_bytes", &self.quota_bytes)
            .field("grace", &self.grace)
            .finish_non_exhaustive()
    }
}

/// The database of the edit log. Its file, thread and connections are created at the first
/// use. Closed by [`EditDatabase::close`] or when it is dropped.
#[derive(Debug)]
pub struct EditDatabase {
    path: PathBuf,
    config: EditDatabaseConfig,
    state: Mutex<EditState>,
    read: ReadConnection,
    /// Whether the tables were examined for damage. Once is enough, since it takes time.
    is_examined: AtomicBool,
}

#[derive(Debug)]
enum EditState {
    /// Not used yet.
    Idle,
    /// The writer runs.
    Running { jobs: SyncSender<EditJob>, thread: JoinHandle<()> },
    /// No further use.
    Closed,
}

impl EditDatabase {
    /// Checks an existing database and sets a damaged one aside. Does not create a new one:
    /// the first write does. Blocks on disk I/O.
    pub fn open(path: PathBuf, config: EditDatabaseConfig) -> Result<Self, OpenStoreError> {
        if path.try_exists().map_err(|source| io_error(&path, source))? {
            drop(open_edits(&path, &file_stamp(config.clock.now()))?);
        }
        let state = Mutex::new(EditState::Idle);
        Ok(Self { path, config, state, read: Arc::default(), is_examined: AtomicBool::new(false) })
    }

    /// Writes all queued requests. Blocks until done. Later calls fail. A second call does
    /// nothing.
    pub fn close(&self) {
        let state = std::mem::replace(&mut *self.state(), EditState::Closed);
        if let EditState::Running { jobs, thread } = state {
            drop(jobs);
            if thread.join().is_err() {
                tracing::error!("the thread of the edit database panicked");
            }
            // A reader may have opened it again after the writer ended.
            drop(self.read.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }

    fn state(&self) -> MutexGuard<'_, EditState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue of the writer, which is started if necessary.
    fn jobs(&self, state: &mut EditState) -> Result<SyncSender<EditJob>, EditStorageError> {
        match state {
            EditState::Running { jobs, .. } => return Ok(jobs.clone()),
            EditState::Closed => return Err(EditStorageError::Closed),
            EditState::Idle => {}
        }
        let db = self.open_now()?;
        let (jobs, queue) = mpsc::sync_channel(writer::QUEUE);
        let writer =
            EditWriter::new(self.path.clone(), Arc::clone(&self.read), Arc::clone(&self.config.clock), db);
        let spawned = thread::Builder::new().name("edit-writer".to_owned()).spawn(move || writer.run(&queue));
        let thread = spawned
            .map_err(|error| EditStorageError::Failed(format!("cannot start the writer thread: {error}")))?;
        *state = EditState::Running { jobs: jobs.clone(), thread };
        Ok(jobs)
    }

    fn open_now(&self) -> Result<Connection, EditStorageError> {
        let opened = open_edits(&self.path, &file_stamp(self.config.clock.now()));
        opened.map_err(|error| open_failure(error).to_storage_error())
    }

    /// Sends a request to the writer and waits for its result.
    fn request(&self, request: EditRequest) -> Result<EditReply, EditStorageError> {
        self.try_request(request)?.map_err(|failure| failure.to_storage_error())
    }

    fn try_request(&self, request: EditRequest) -> Result<Result<EditReply, EditFailure>, EditStorageError> {
        let jobs = self.jobs(&mut self.state())?;
        let (reply, answer) = mpsc::sync_channel(1);
        jobs.send(EditJob { request, reply }).map_err(|_| EditStorageError::Closed)?;
        drop(jobs);
        answer.recv().map_err(|_| EditStorageError::Closed)
    }

    /// Sends a request that does nothing without a database.
    fn request_if_used(&self, request: EditRequest) -> Result<(), EditStorageError> {
        if self.ready_to_read()? { self.request(request).map(drop) } else { Ok(()) }
    }

    /// Sends a request with contents. Contents that are stored already are sent only if they
    /// were deleted meanwhile.
    fn request_with(
        &self,
        contents: &[StoredBlob],
        stored: &HashMap<BlobDigest, i64>,
        request: impl Fn(BlobBatch) -> EditRequest,
    ) -> Result<EditReply, EditStorageError> {
        match self.try_request(request(self.missing(contents, stored)))? {
            Err(EditFailure::Missing) => self.request(request(self.batch(contents.iter().map(blobs::pack)))),
            outcome => outcome.map_err(|failure| failure.to_storage_error()),
        }
    }

    fn batch(&self, blobs: impl Iterator<Item = PackedBlob>) -> BlobBatch {
        let at = self.config.now();
        let fresh_since = at.saturating_sub(self.config.fresh_millis());
        BlobBatch { blobs: blobs.collect(), at, fresh_since }
    }

    /// When contents were last put; without those that are not stored.
    fn put_times(&self, contents: &[StoredBlob]) -> Result<HashMap<BlobDigest, i64>, EditStorageError> {
        if contents.is_empty() {
            return Ok(HashMap::new());
        }
        self.reading(|db| blobs::put_times(db, contents.iter().map(|blob| blob.digest)))
    }

    /// The contents for a request; only the digest of those that are stored.
    fn missing(&self, contents: &[StoredBlob], stored: &HashMap<BlobDigest, i64>) -> BlobBatch {
        self.batch(contents.iter().map(|blob| {
            if stored.contains_key(&blob.digest) {
                PackedBlob { digest: blob.digest, body: None }
            } else {
                blobs::pack(blob)
            }
        }))
    }

    /// Reads. If there is no database, nothing is found. The first damage that a reader finds
    /// makes the writer examine the file and replace it if necessary: a write that begins with
    /// reading would never find it.
    fn reading<T: Default>(
        &self,
        read: impl Fn(&Connection) -> Result<T, EditFailure>,
    ) -> Result<T, EditStorageError> {
        if !self.ready_to_read()? {
            return Ok(T::default());
        }
        let mut result = self.read_once(&read);
        if result.as_ref().is_err_and(EditFailure::is_damaged_file)
            && !self.is_examined.swap(true, Ordering::SeqCst)
        {
            self.request(EditRequest::Examine)?;
            result = self.read_once(&read);
        }
        result.map_err(|failure| failure.to_storage_error())
    }

    fn read_once<T>(&self, read: impl Fn(&Connection) -> Result<T, EditFailure>) -> Result<T, EditFailure> {
        let mut connection = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let db = match connection.take() {
            Some(db) => Ok(db),
            None => connect_edits(&self.path, ConnectionPurpose::Read),
        };
        read(connection.insert(db?))
    }

    /// Whether there is a database. Opens it if necessary.
    fn ready_to_read(&self) -> Result<bool, EditStorageError> {
        let mut state = self.state();
        if matches!(*state, EditState::Idle) && !self.path.exists() {
            return Ok(false);
        }
        self.jobs(&mut state).map(|_| true)
    }

    fn delete_garbage(
        &self,
        kind: GarbageKind,
        cutoff: i64,
        found: &[garbage::GarbageCandidate],
    ) -> Result<u64, EditStorageError> {
        let mut deleted = 0;
        for step in garbage::steps(kind, found, cutoff) {
            deleted += self.request(EditRequest::Delete(step))?.count;
        }
        Ok(deleted)
    }
}

impl Drop for EditDatabase {
    fn drop(&mut self) {
        self.close();
    }
}

impl EditStorage for EditDatabase {
    fn put_blobs(&self, blobs: Vec<StoredBlob>) -> Result<(), EditStorageError> {
        let fresh_since = self.config.now().saturating_sub(self.config.fresh_millis());
        let stored = self.put_times(&blobs)?;
        let is_fresh = |blob: &StoredBlob| stored.get(&blob.digest).is_some_and(|at| *at > fresh_since);
        if blobs.iter().all(is_fresh) {
            return Ok(());
        }
        self.request_with(&blobs, &stored, EditRequest::Put).map(drop)
    }

    fn read_blob(&self, digest: BlobDigest) -> Result<Option<Bytes>, EditStorageError> {
        let Some(body) = self.reading(|db| blobs::read(db, digest))? else { return Ok(None) };
        blobs::unpack(body, digest).map(Some).map_err(|failure| failure.to_storage_error())
    }

    fn stored_blobs(&self, digests: &[BlobDigest]) -> Result<HashSet<BlobDigest>, EditStorageError> {
        self.reading(|db| blobs::stored(db, digests.iter().copied()))
    }

    fn append(&self, records: Vec<EditRecord>, blobs: Vec<StoredBlob>) -> Result<Vec<u64>, EditStorageError> {
        let stored = self.put_times(&blobs)?;
        let request = |batch| EditRequest::Append(records.clone(), batch);
        Ok(self.request_with(&blobs, &stored, request)?.numbers)
    }

    fn records(&self, session: &ChannelUri) -> Result<Vec<EditRecord>, EditStorageError> {
        self.reading(|db| records::of_session(db, session))
    }

    fn records_of_paths(&self, paths: &[PathBuf], after: u64) -> Result<Vec<EditRecord>, EditStorageError> {
        self.reading(|db| records::of_paths(db, paths, after))
    }

    fn begin_operation(
        &self,
        operation: OperationRecord,
        blobs: Vec<StoredBlob>,
    ) -> Result<(), EditStorageError> {
        let stored = self.put_times(&blobs)?;
        let request = |batch| EditRequest::Begin(operation.clone(), batch);
        self.request_with(&blobs, &stored, request).map(drop)
    }

    fn finish_operation(
        &self,
        operation: Uuid,
        records: Vec<EditRecord>,
        consumed: Option<Uuid>,
    ) -> Result<(), EditStorageError> {
        self.request(EditRequest::Finish { operation, records, consumed }).map(drop)
    }

    fn cancel_operation(&self, operation: Uuid) -> Result<(), EditStorageError> {
        self.request(EditRequest::Cancel(operation)).map(drop)
    }

    fn unfinished_operations(&self) -> Result<Vec<OperationRecord>, EditStorageError> {
        let state = self.state();
        if matches!(*state, EditState::Idle) && self.path.exists() {
            // The host calls this at its start: the thread is not needed yet.
            let db = self.open_now()?;
            return operations::unfinished(&db).map_err(|failure| failure.to_storage_error());
        }
        drop(state);
        self.reading(operations::unfinished)
    }

    fn last_operation(&self, session: &ChannelUri) -> Result<Option<OperationRecord>, EditStorageError> {
        self.reading(|db| operations::last(db, session))
    }

    fn set_reviews(
        &self,
        session: &ChannelUri,
        reviews: Vec<FileReview>,
        reviewed: bool,
    ) -> Result<(), EditStorageError> {
        self.request(EditRequest::SetReviews(session.clone(), reviews, reviewed)).map(drop)
    }

    fn reviews(&self, session: &ChannelUri) -> Result<Vec<FileReview>, EditStorageError> {
        self.reading(|db| records::reviews(db, session))
    }

    fn copy_records(
        &self,
        from: &ChannelUri,
        to: (&ChannelUri, &ChannelUri),
        turns: &[String],
    ) -> Result<(), EditStorageError> {
        let to = (to.0.clone(), to.1.clone());
        self.request_if_used(EditRequest::Copy { from: from.clone(), to, turns: turns.to_vec() })
    }

    fn move_records(&self, chat: &ChannelUri, to: &ChannelUri) -> Result<(), EditStorageError> {
        self.request_if_used(EditRequest::Move(chat.clone(), to.clone()))
    }

    fn remove_chat(&self, chat: &ChannelUri) -> Result<(), EditStorageError> {
        self.request_if_used(EditRequest::RemoveChat(chat.clone()))
    }

    fn remove_session(&self, session: &ChannelUri) -> Result<(), EditStorageError> {
        self.request_if_used(EditRequest::RemoveSession(session.clone()))
    }

    fn collect_garbage(&self, held: &HashSet<BlobDigest>) -> Result<GarbageReport, EditStorageError> {
        if !self.ready_to_read()? {
            return Ok(GarbageReport::default());
        }
        let cutoff = self.config.cutoff();
        let found = self.reading(|db| garbage::unreferenced(db, cutoff, held))?;
        let unreferenced = self.delete_garbage(GarbageKind::Unreferenced, cutoff, &found)?;
        let quota = self.config.quota_bytes;
        let found = self.reading(|db| garbage::beyond_quota(db, cutoff, held, quota))?;
        let evicted = self.delete_garbage(GarbageKind::Evicted, cutoff, &found)?;
        let mut free = u64::MAX;
        loop {
            let left = self.request(EditRequest::Shrink)?.count;
            if left == 0 || left >= free {
                break;
            }
            free = left;
        }
        let bytes = self.reading(garbage::total)?;
        Ok(GarbageReport { unreferenced, evicted, bytes })
    }
}
