//! The public handle of a store: opened once, shared, closed once.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use innkeeper_core::agent::BoxFuture;
use innkeeper_core::audit::{AuditPage, AuditQuery};
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::clock::{Clock, SystemClock};
use innkeeper_core::output::{OutputId, StoredOutput};
use innkeeper_core::storage::{Change, Index, Storage, StorageError, StoredSession};
use tokio::sync::{mpsc, oneshot};

use crate::apply::size_of_change;
use crate::backup::{self, BackupSchedule, Backups};
use crate::database::StoreFiles;
use crate::lock::HostLock;
use crate::mend::Mender;
use crate::opening::{self, OpenStoreError, io_error};
use crate::problems::Problems;
use crate::reader::{self, LoadRequest, StoreReader, stopped};
use crate::writer::{self, StoreWriter, WriteBatch, WriterParts, WriterRequest};

/// The configuration of a store.
#[derive(Clone)]
pub struct StoreConfig {
    /// The data directory, created if it does not exist.
    pub directory: PathBuf,
    /// The clock for names of damaged files, times of reports and the age of backups.
    pub clock: Arc<dyn Clock>,
    /// When backups are taken.
    pub backups: BackupSchedule,
}

impl std::fmt::Debug for StoreConfig {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("StoreConfig").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl StoreConfig {
    /// A store in a directory, with the system clock and automatic backups.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), clock: Arc::new(SystemClock), backups: BackupSchedule::Automatic }
    }
}

/// An open store. Shared as `Arc<Store>`; closed by [`Store::close`] or when the last
/// reference is dropped.
#[derive(Debug)]
pub struct Store {
    /// The threads and their queues, until the store is closed.
    running: Mutex<Option<StoreThreads>>,
    /// Number of bytes queued for the writer.
    queued: Arc<AtomicUsize>,
    problems: Problems,
}

#[derive(Debug)]
struct StoreThreads {
    requests: mpsc::Sender<WriterRequest>,
    loads: mpsc::Sender<LoadRequest>,
    writer: JoinHandle<()>,
    reader: JoinHandle<()>,
    backup: JoinHandle<()>,
    backups: Arc<Backups>,
    /// Held until all threads have ended.
    lock: HostLock,
}

impl Store {
    /// Opens the store in a data directory, creating it if needed. Blocks on disk I/O; a
    /// damaged database is repaired here, which takes longer.
    pub fn open(config: StoreConfig) -> Result<Self, OpenStoreError> {
        let files = StoreFiles::of(&config.directory);
        let lock = opening::lock_directory(&config.directory, &files)?;
        let problems = Problems::default();
        let mender = Mender::new(config.clock, problems.clone());
        let db = opening::open_database(&files, &mender)?;
        let backups = Backups::new(files.clone(), mender.clone(), config.backups);
        let backups = Arc::new(backups.map_err(|source| io_error(&files.new_backup(), source))?);

        let queued = Arc::new(AtomicUsize::new(0));
        let read = Arc::new(Mutex::new(None));
        let (requests, request_queue) = mpsc::channel(writer::QUEUE);
        let (loads, load_queue) = mpsc::channel(reader::QUEUE);
        let (backup_requests, backup_queue) = mpsc::channel(backup::QUEUE);
        let to_write = StoreWriter::new(
            WriterParts {
                files: files.clone(),
                read: Arc::clone(&read),
                queued: Arc::clone(&queued),
                mender,
                backups: Arc::clone(&backups),
                backup_requests,
            },
            db,
        );
        let to_back_up = Arc::clone(&backups);
        let to_read = StoreReader { files, read, writer: requests.clone() };
        let writer = spawn("store-writer", &config.directory, move || to_write.run(request_queue))?;
        let reader = spawn("store-reader", &config.directory, move || to_read.run(load_queue))?;
        let backup = spawn("store-backup", &config.directory, move || to_back_up.run(backup_queue))?;
        let threads = StoreThreads { requests, loads, writer, reader, backup, backups, lock };
        let running = Mutex::new(Some(threads));
        Ok(Self { running, queued, problems })
    }

    /// Damage found so far, as sentences for the user, oldest first.
    pub fn problems(&self) -> Vec<String> {
        self.problems.all()
    }

    /// Writes all queued changes and releases the data directory. Blocks until done.
    /// Later calls of the storage fail. A second call does nothing.
    pub fn close(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(StoreThreads { requests, loads, writer, reader, backup, backups, lock }) = running else {
            return;
        };
        // The next start takes the backup.
        backups.stop();
        // The reader sends requests to the writer, so it must end first.
        drop(loads);
        join(reader);
        drop(requests);
        join(writer);
        // The writer has dropped the queue of the backup thread.
        join(backup);
        drop(lock);
    }

    /// Enqueues a request to the writer.
    fn send(&self, request: WriterRequest) -> Result<(), StorageError> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().ok_or_else(stopped)?.requests.try_send(request).map_err(|error| rejected(&error))
    }

    /// Enqueues a request to load data.
    fn load(&self, load: LoadRequest) -> Result<(), StorageError> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().ok_or_else(stopped)?.loads.try_send(load).map_err(|error| rejected(&error))
    }

    fn enqueue(
        &self,
        changes: Vec<Change>,
    ) -> Result<oneshot::Receiver<Result<(), StorageError>>, StorageError> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let requests = &running.as_ref().ok_or_else(stopped)?.requests;
        let bytes = changes.iter().map(size_of_change).sum();
        // Only this function adds to the counter, and it holds the lock.
        let before = self.queued.load(Ordering::Relaxed);
        if before > 0 && before.saturating_add(bytes) > writer::QUEUED_BYTES {
            return Err(StorageError::Busy);
        }
        let (reply, answer) = oneshot::channel();
        self.queued.fetch_add(bytes, Ordering::Relaxed);
        requests.try_send(WriterRequest::Write(WriteBatch { changes, bytes, reply })).map_err(|error| {
            self.queued.fetch_sub(bytes, Ordering::Relaxed);
            rejected(&error)
        })?;
        Ok(answer)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

impl Storage for Store {
    fn load_index(&self) -> BoxFuture<Result<Index, StorageError>> {
        let (reply, answer) = oneshot::channel();
        let enqueued = self.send(WriterRequest::LoadIndex(reply));
        Box::pin(async move {
            enqueued?;
            answer.await.unwrap_or_else(|_| Err(stopped()))
        })
    }

    fn load_session(&self, session: ChannelUri) -> BoxFuture<Result<Option<StoredSession>, StorageError>> {
        let (reply, answer) = oneshot::channel();
        let enqueued = self.load(LoadRequest::Session(session, reply));
        Box::pin(async move {
            enqueued?;
            answer.await.unwrap_or_else(|_| Err(stopped()))
        })
    }

    fn load_output(&self, output: OutputId) -> BoxFuture<Result<Option<StoredOutput>, StorageError>> {
        let (reply, answer) = oneshot::channel();
        let enqueued = self.load(LoadRequest::Output(output, reply));
        Box::pin(async move {
            enqueued?;
            answer.await.unwrap_or_else(|_| Err(stopped()))
        })
    }

    fn load_audit(&self, query: AuditQuery) -> BoxFuture<Result<AuditPage, StorageError>> {
        let (reply, answer) = oneshot::channel();
        let enqueued = self.load(LoadRequest::Audit(query, reply));
        Box::pin(async move {
            enqueued?;
            answer.await.unwrap_or_else(|_| Err(stopped()))
        })
    }

    fn write(&self, changes: Vec<Change>) -> BoxFuture<Result<(), StorageError>> {
        let enqueued = self.enqueue(changes);
        Box::pin(async move { enqueued?.await.unwrap_or_else(|_| Err(stopped())) })
    }
}

fn rejected<T>(error: &mpsc::error::TrySendError<T>) -> StorageError {
    match error {
        mpsc::error::TrySendError::Full(_) => StorageError::Busy,
        mpsc::error::TrySendError::Closed(_) => stopped(),
    }
}

fn spawn(
    name: &str,
    directory: &Path,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, OpenStoreError> {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(work);
    spawned.map_err(|source| io_error(directory, source))
}

fn join(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!("a store thread panicked");
    }
}
