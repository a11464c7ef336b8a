//! The public handle of a store: opened once, shared, closed once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use innkeeper_core::agent::BoxFuture;
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::clock::{Clock, SystemClock};
use innkeeper_core::storage::{Change, Index, Storage, StorageError, StoredSession};
use rusqlite::{Connection, ErrorCode};
use tokio::sync::{mpsc, oneshot};

use crate::apply::size_of_change;
use crate::database::{ConnectionPurpose, StoreFiles, beside, connect, definitions, in_memory};
use crate::failure::{is_damage, is_full, is_rejection};
use crate::lock::{HostLock, NotLocked, private};
use crate::mend::Mender;
use crate::migrate::{self, MigrateError};
use crate::problems::Problems;
use crate::reader::{self, LoadRequest, StoreReader, stopped};
use crate::salvage::{self, SalvageError};
use crate::writer::{self, StoreWriter, WriteBatch, WriterRequest};

/// The configuration of a store.
#[derive(Clone)]
pub struct StoreConfig {
    /// The data directory, created if it does not exist.
    pub directory: PathBuf,
    /// The clock for names of damaged files and times of reports.
    pub clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for StoreConfig {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("StoreConfig").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl StoreConfig {
    /// A store in a directory, with the system clock.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), clock: Arc::new(SystemClock) }
    }
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    /// Another process has the data directory open.
    #[error("another innkeeper host{} uses this data directory; stop it or choose another --data-dir", pid_text(.pid))]
    InUse {
        /// The other process, if known.
        pid: Option<u32>,
    },
    /// A newer version of this program created the database.
    #[error(
        "the data in {} was written by a newer version (schema {found}, this version supports {known}); use that version or another --data-dir",
        path.display()
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// The schema version.
        found: i64,
        /// The newest schema version that this program supports.
        known: i64,
    },
    /// The schema version does not belong to any version of this program.
    #[error(
        "the database {} has an unrecognised schema version ({found}); move it away or choose another --data-dir",
        path.display()
    )]
    Foreign {
        /// The database.
        path: PathBuf,
        /// The schema version.
        found: i64,
    },
    /// The data directory or a file in it is read-only.
    #[error("{} is read-only; make it writable for this user or choose another --data-dir", path.display())]
    ReadOnly {
        /// The read-only path.
        path: PathBuf,
    },
    /// The disk is full.
    #[error("the disk with {} is full; free some space or choose another --data-dir", path.display())]
    Full {
        /// The database.
        path: PathBuf,
    },
    /// A file or the directory cannot be used.
    #[error("cannot use {}; fix it or choose another --data-dir", path.display())]
    Io {
        /// The unusable path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// SQLite cannot open the database.
    #[error("cannot open the database {}; fix it or choose another --data-dir", path.display())]
    Database {
        /// The database.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
}

fn pid_text(pid: &Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
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
    /// Held until both threads have ended.
    lock: HostLock,
}

impl Store {
    /// Opens the store in a data directory, creating it if needed. Blocks on disk I/O; a
    /// damaged database is repaired here, which takes longer.
    pub fn open(config: StoreConfig) -> Result<Self, OpenStoreError> {
        let files = StoreFiles::of(&config.directory);
        make_directory(&config.directory)?;
        let lock = HostLock::take(&files.lock()).map_err(|error| match error {
            NotLocked::Taken(pid) => OpenStoreError::InUse { pid },
            NotLocked::Io(source) => io_error(&files.lock(), source),
        })?;
        let problems = Problems::default();
        let mender = Mender::new(config.clock, problems.clone());
        let db = open_database(&files, &mender)?;

        let queued = Arc::new(AtomicUsize::new(0));
        let read = Arc::new(Mutex::new(None));
        let (requests, request_queue) = mpsc::channel(writer::QUEUE);
        let (loads, load_queue) = mpsc::channel(reader::QUEUE);
        let to_write = StoreWriter::new(files.clone(), db, Arc::clone(&read), Arc::clone(&queued), mender);
        let to_read = StoreReader { files, read, writer: requests.clone(), problems: problems.clone() };
        let writer = spawn("store-writer", &config.directory, move || to_write.run(request_queue))?;
        let reader = spawn("store-reader", &config.directory, move || to_read.run(load_queue))?;
        let running = Mutex::new(Some(StoreThreads { requests, loads, writer, reader, lock }));
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
        let Some(StoreThreads { requests, loads, writer, reader, lock }) = running else { return };
        // The reader sends requests to the writer, so it must end first.
        drop(loads);
        join(reader);
        drop(requests);
        join(writer);
        drop(lock);
    }

    /// Enqueues a request to the writer.
    fn send(&self, request: WriterRequest) -> Result<(), StorageError> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().ok_or_else(stopped)?.requests.try_send(request).map_err(|error| rejected(&error))
    }

    /// Enqueues a request to load a session.
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
        let enqueued = self.load(LoadRequest { session, reply });
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

fn make_directory(directory: &Path) -> Result<(), OpenStoreError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(directory).map_err(|source| io_error(directory, source))
}

/// Opens the database, repairing it first if it is damaged.
fn open_database(files: &StoreFiles, mender: &Mender) -> Result<Connection, OpenStoreError> {
    let path = files.database();
    salvage::finish(files, mender).map_err(|source| io_error(&path, source))?;
    let file = private().open(&path).map_err(|source| io_error(&path, source))?;
    let length = file.metadata().map_err(|source| io_error(&path, source))?.len();
    drop(file);
    // SQLite treats an empty file as a new database and deletes the log of the old one.
    let has_log = fs::metadata(beside(&path, "-wal")).is_ok_and(|log| log.len() > 0);
    let reason = if length == 0 && has_log {
        "the file is empty, but its log is not".to_owned()
    } else {
        match try_open(&path)? {
            Opened::Ready(db) => return Ok(db),
            Opened::Damaged(reason) => reason,
        }
    };
    salvage::replace(files, mender, &reason).map_err(|error| salvage_error(&path, error))?;
    match try_open(&path)? {
        Opened::Ready(db) => Ok(db),
        Opened::Damaged(reason) => Err(io_error(&path, io::Error::new(io::ErrorKind::InvalidData, reason))),
    }
}

/// The result of opening a database.
enum Opened {
    Ready(Connection),
    Damaged(String),
}

fn try_open(path: &Path) -> Result<Opened, OpenStoreError> {
    let inspected = connect(path, ConnectionPurpose::Write).map_err(MigrateError::from).and_then(|db| {
        migrate::found(&db)?;
        definitions(&db)?;
        Ok(db)
    });
    let mut db = match inspected {
        Ok(db) => db,
        // Only a damaged or foreign file makes SQLite reject these statements.
        Err(MigrateError::Sql(error)) if is_damage(&error) || is_rejection(&error) => {
            return Ok(Opened::Damaged(error.to_string()));
        }
        Err(error) => return Err(migrate_error(path, error)),
    };
    match migrate_and_verify(&mut db) {
        Ok(true) => Ok(Opened::Ready(db)),
        Ok(false) => Ok(Opened::Damaged("unexpected table definitions".to_owned())),
        Err(MigrateError::Sql(error)) if is_damage(&error) => Ok(Opened::Damaged(error.to_string())),
        Err(error) => Err(migrate_error(path, error)),
    }
}

/// Runs the missing migrations. Returns whether the tables equal those of a new database.
fn migrate_and_verify(db: &mut Connection) -> Result<bool, MigrateError> {
    migrate::run(db)?;
    let mut expected = in_memory()?;
    migrate::run(&mut expected)?;
    Ok(definitions(db)? == definitions(&expected)?)
}

fn migrate_error(path: &Path, error: MigrateError) -> OpenStoreError {
    let path = path.to_owned();
    match error {
        MigrateError::Newer { found, known } => OpenStoreError::Newer { path, found, known },
        MigrateError::Foreign { found } => OpenStoreError::Foreign { path, found },
        MigrateError::Sql(error) if is_full(&error) => OpenStoreError::Full { path },
        MigrateError::Sql(error) if error.sqlite_error_code() == Some(ErrorCode::ReadOnly) => {
            OpenStoreError::ReadOnly { path }
        }
        MigrateError::Sql(source) => OpenStoreError::Database { path, source },
    }
}

fn salvage_error(path: &Path, error: SalvageError) -> OpenStoreError {
    let path = path.to_owned();
    match error {
        error if error.is_full() => OpenStoreError::Full { path },
        SalvageError::Io(source) => io_error(&path, source),
        SalvageError::Sql(source) => OpenStoreError::Database { path, source },
        SalvageError::Schema(error) => migrate_error(&path, error),
    }
}

fn io_error(path: &Path, source: io::Error) -> OpenStoreError {
    let path = path.to_owned();
    let read_only = [io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::PermissionDenied];
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    if read_only.contains(&source.kind()) {
        OpenStoreError::ReadOnly { path }
    } else if full.contains(&source.kind()) {
        OpenStoreError::Full { path }
    } else {
        OpenStoreError::Io { path, source }
    }
}
