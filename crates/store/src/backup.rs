//! Verified copies of the database, from which a repair restores lost records.
//!
//! A thread takes them with `VACUUM INTO`, which reads a snapshot and does not block the
//! writer. Invariant: a file at a backup path was verified, and does not contain a session
//! that was deleted.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use innkeeper_core::channel::ChannelUri;
use rusqlite::{Connection, ErrorCode};
use tokio::sync::mpsc;

use crate::apply;
use crate::checksum;
use crate::database::{ConnectionPurpose, StoreFiles, connect, remove_database};
use crate::lock::private;
use crate::mend::Mender;
use crate::removal::RemovedScope;
use crate::restore;

/// Maximum age of the newest backup, and minimum age of the older one when it is replaced.
const DAY: i64 = 24 * 60 * 60 * 1000;

/// Time until the next attempt after a failed one.
const RETRY: i64 = 60 * 60 * 1000;

/// Minimum number of bytes written between two backups on one day. Above it, as many bytes
/// as the newest backup has, so that backups at most double the amount of data written.
const LEAST_WRITTEN: u64 = 1024 * 1024;

/// Number of SQLite instructions between two checks for a waiting thread; about 1 ms.
const INSTRUCTIONS: i32 = 10_000;

/// Capacity of the request queue. A request while one is queued is dropped, since one
/// backup serves both.
pub(crate) const QUEUE: usize = 1;

/// When backups are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupSchedule {
    /// At the first write if the newest backup is a day old, and after many writes.
    Automatic,
    /// Never. Existing backups are still used.
    Never,
}

/// The backups of a database, shared by the writer and the backup thread.
#[derive(Debug)]
pub(crate) struct Backups {
    files: StoreFiles,
    mender: Mender,
    schedule: BackupSchedule,
    /// Held while files of backups are used.
    using: Mutex<()>,
    /// Number of threads that wait for the lock. A running backup then ends early.
    waiting: Arc<AtomicUsize>,
    /// When the next backup is due, in milliseconds since 1970.
    due_at: AtomicI64,
    /// Number of bytes that may be written before the next backup is due.
    allowance: AtomicU64,
    /// Number of bytes written since the last backup.
    written: AtomicU64,
}

/// Why a backup was not taken.
#[derive(Debug, thiserror::Error)]
enum BackupError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    #[error("the copy is damaged: {0}")]
    Damaged(String),
    #[error("a record of the session {0} is damaged; open the session to set the record aside")]
    Changed(String),
}

impl BackupError {
    /// Whether another thread needed the files.
    fn is_interruption(&self) -> bool {
        matches!(self, Self::Sql(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted))
    }
}

impl Backups {
    /// The backups in a data directory. Removes an unfinished one.
    pub(crate) fn new(files: StoreFiles, mender: Mender, schedule: BackupSchedule) -> io::Result<Self> {
        remove_database(&files.new_backup())?;
        let [newest, _] = files.backups();
        // A time in the future is wrong: the clock was set back.
        let taken_at = taken_at(&newest).filter(|at| *at <= mender.now());
        let backups = Self {
            files,
            mender,
            schedule,
            using: Mutex::default(),
            waiting: Arc::default(),
            due_at: AtomicI64::new(taken_at.map_or(0, |at| at.saturating_add(DAY))),
            allowance: AtomicU64::new(0),
            written: AtomicU64::new(0),
        };
        backups.set_allowance(&newest);
        Ok(backups)
    }

    /// Counts written bytes. Returns whether a backup is due.
    pub(crate) fn count(&self, bytes: usize) -> bool {
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
        self.is_due()
    }

    /// Waits until no backup is being taken; a running one is interrupted. No backup
    /// starts while the result is held.
    pub(crate) fn pause(&self) -> PausedBackups<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let guard = self.using.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        PausedBackups { backups: self, _guard: guard }
    }

    /// Interrupts a running backup and prevents further ones.
    pub(crate) fn stop(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes backups on request, until all senders are dropped.
    pub(crate) fn run(&self, mut requests: mpsc::Receiver<()>) {
        while requests.blocking_recv().is_some() {
            if self.is_due() {
                self.take();
            }
        }
    }

    fn is_due(&self) -> bool {
        let written = self.written.load(Ordering::Relaxed);
        let due_at = self.due_at.load(Ordering::Relaxed);
        self.schedule == BackupSchedule::Automatic
            && (self.mender.now() >= due_at || written >= self.allowance.load(Ordering::Relaxed))
    }

    fn take(&self) {
        let _guard = self.using.lock().unwrap_or_else(PoisonError::into_inner);
        let (started, written) = (self.mender.now(), self.written.load(Ordering::Relaxed));
        let taken = self.copy(started).and_then(|()| Ok(self.rotate()?));
        remove_database(&self.files.new_backup()).unwrap_or_else(|error| {
            tracing::warn!(%error, "could not remove an unfinished backup");
        });
        match taken {
            Ok(()) => {
                tracing::debug!("backup taken");
                self.due_at.store(started.saturating_add(DAY), Ordering::Relaxed);
                let [newest, _] = self.files.backups();
                self.set_allowance(&newest);
                self.written.fetch_sub(written, Ordering::Relaxed);
            }
            // The next write requests it again.
            Err(error) if error.is_interruption() => {}
            Err(error) => {
                self.mender.problems().report(format!("No backup of the database was taken: {error}."));
                self.due_at.store(started.saturating_add(RETRY), Ordering::Relaxed);
                self.written.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Creates and verifies a copy of the database, with this time.
    fn copy(&self, now: i64) -> Result<(), BackupError> {
        let path = self.files.new_backup();
        remove_database(&path)?;
        let file = private().open(&path)?;
        {
            let mut db = connect(&self.files.database(), ConnectionPurpose::Copy)?;
            self.interrupt_if_needed(&mut db)?;
            // The cast accepts paths that are not UTF-8.
            db.execute("VACUUM INTO CAST(?1 AS TEXT)", [path.as_os_str().as_bytes()])?;
        }
        let mut copy = connect(&path, ConnectionPurpose::Fill)?;
        self.interrupt_if_needed(&mut copy)?;
        // A restored host must not repeat sequence numbers.
        apply::clear_clean_shutdown(&copy)?;
        let checked: String = copy.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
        if checked != "ok" {
            return Err(BackupError::Damaged(checked));
        }
        checksum::leave_out_changed(&copy)?;
        if let Some(session) = checksum::first_mismatch(&copy)? {
            return Err(BackupError::Changed(session));
        }
        drop(copy);
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_millis(now.unsigned_abs()))?;
        Ok(file.sync_all()?)
    }

    fn interrupt_if_needed(&self, db: &mut Connection) -> rusqlite::Result<()> {
        let waiting = Arc::clone(&self.waiting);
        db.progress_handler(INSTRUCTIONS, Some(move || waiting.load(Ordering::SeqCst) > 0))
    }

    /// Renames a verified copy to the newest backup. The older backup is replaced at most
    /// once a day, so that both are not from the same hour.
    fn rotate(&self) -> io::Result<()> {
        let [newest, older] = self.files.backups();
        if taken_at(&older).is_none_or(|at| self.mender.now() >= at.saturating_add(DAY))
            && newest.try_exists()?
        {
            fs::rename(&newest, &older)?;
        }
        fs::rename(self.files.new_backup(), &newest)?;
        match newest.parent() {
            Some(directory) => File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    }

    /// Sets how much may be written before the next backup.
    fn set_allowance(&self, newest: &Path) {
        let size = fs::metadata(newest).map_or(0, |metadata| metadata.len());
        self.allowance.store(size.max(LEAST_WRITTEN), Ordering::Relaxed);
    }
}

/// Exclusive use of the backup files.
#[derive(Debug)]
pub(crate) struct PausedBackups<'a> {
    backups: &'a Backups,
    _guard: MutexGuard<'a, ()>,
}

impl PausedBackups<'_> {
    /// Deletes from the backups what is deleted from the database. A backup from
    /// which it cannot be deleted is removed.
    pub(crate) fn remove(&self, removals: &[RemovedScope<'_>]) {
        for path in self.backups.files.backups().iter().filter(|path| path.exists()) {
            let Err(error) = remove_from(path, removals) else { continue };
            tracing::warn!(%error, path = %path.display(), "removing a backup that cannot be changed");
            if let Err(error) = remove_database(path) {
                self.backups.mender.problems().report(format!(
                    "The backup {} still contains deleted sessions and cannot be removed ({error}). Remove it.",
                    path.display()
                ));
            }
        }
    }

    /// Replaces a session's changed records by identical copies from a backup. Returns
    /// their number.
    pub(crate) fn restore_changed(&self, db: &Connection, session: &ChannelUri) -> usize {
        let mut restored = 0;
        for path in self.backups.files.backups().iter().filter(|path| path.exists()) {
            match restore::replace_changed(db, path, session) {
                Ok(count) => restored += count,
                Err(error) => tracing::warn!(%error, path = %path.display(), "cannot read a backup"),
            }
        }
        if restored > 0 {
            self.backups.mender.problems().report(format!(
                "Stored records of the session {session} were changed on the disk ({restored}). \
                 They were restored from a backup; no data is lost."
            ));
        }
        restored
    }
}

fn remove_from(backup: &Path, removals: &[RemovedScope<'_>]) -> rusqlite::Result<()> {
    let modified = fs::metadata(backup).and_then(|metadata| metadata.modified()).ok();
    let mut db = connect(backup, ConnectionPurpose::Remove)?;
    let transaction = db.transaction()?;
    for removal in removals {
        removal.apply(&transaction)?;
    }
    transaction.commit()?;
    drop(db);
    // Its age is the age of its content.
    if let (Some(modified), Ok(file)) = (modified, File::options().write(true).open(backup)) {
        file.set_modified(modified).ok();
    }
    Ok(())
}

/// When a backup was taken, in milliseconds since 1970; `None` if it does not exist.
pub(crate) fn taken_at(backup: &Path) -> Option<i64> {
    let modified = fs::metadata(backup).and_then(|metadata| metadata.modified()).ok()?;
    let since = modified.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok()
}
