//! The thread that owns the write connection.
//!
//! Queued batches are written in one transaction, since a transaction costs more than its
//! content. Invariant: changes take effect in call order, and a batch is acknowledged
//! only after its commit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use innkeeper_core::audit::{AuditPage, AuditQuery};
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::storage::{Change, Index, StorageError, StoredSession};
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use crate::apply;
use crate::audit;
use crate::backup::Backups;
use crate::database::{self, ConnectionPurpose, StoreFiles, WalState, connect};
use crate::failure::StoreFailure;
use crate::index;
use crate::mend::Mender;
use crate::removal::RemovedScope;
use crate::salvage;
use crate::session;

/// Capacity of the request queue: one batch for every session of a busy host while the
/// disk stalls briefly. If it is full, a batch is rejected immediately as `Busy`.
pub(crate) const QUEUE: usize = 4096;

/// Maximum number of queued bytes, so that a stalled disk does not fill the memory. Above
/// it, a batch is rejected immediately as `Busy`, unless the queue is empty.
pub(crate) const QUEUED_BYTES: usize = 64 * 1024 * 1024;

/// Maximum number of batches in one transaction. More would not reduce the cost per batch
/// much, and the first batch waits for the last.
const GROUP: usize = 128;

/// Maximum number of bytes in one transaction, for the same reason.
const GROUP_BYTES: usize = 4 * 1024 * 1024;

/// How often a process repairs a damaged database. On a disk that keeps losing data, more
/// copies do not help.
const REPAIRS: u8 = 3;

/// The read connection, shared so that the writer can close it: a database file is never
/// replaced while it is open.
pub(crate) type ReadConnection = Arc<Mutex<Option<Connection>>>;

/// Sends the result to the caller.
pub(crate) type ReplySender<T> = oneshot::Sender<Result<T, StorageError>>;

/// A request to the writer.
#[derive(Debug)]
pub(crate) enum WriterRequest {
    /// Writes these changes.
    Write(WriteBatch),
    /// Loads the index.
    LoadIndex(ReplySender<Index>),
    /// Sets aside the unusable records of a session, then loads it.
    Mend(ChannelUri, ReplySender<Option<StoredSession>>),
    /// Sets aside unusable audit records, then loads the others.
    MendAudit(AuditQuery, ReplySender<AuditPage>),
}

/// Changes that are written together or not at all.
#[derive(Debug)]
pub(crate) struct WriteBatch {
    /// The changes.
    pub(crate) changes: Vec<Change>,
    /// Their share of the queued bytes.
    pub(crate) bytes: usize,
    /// Receives the result.
    pub(crate) reply: ReplySender<()>,
}

/// What the writer shares with the rest of the store.
#[derive(Debug)]
pub(crate) struct WriterParts {
    /// The database files.
    pub(crate) files: StoreFiles,
    /// The read connection, which the writer may close.
    pub(crate) read: ReadConnection,
    /// Number of queued bytes.
    pub(crate) queued: Arc<AtomicUsize>,
    /// Sets records aside.
    pub(crate) mender: Mender,
    /// The backups.
    pub(crate) backups: Arc<Backups>,
    /// Requests a backup.
    pub(crate) backup_requests: mpsc::Sender<()>,
}

/// The state of the writer thread.
#[derive(Debug)]
pub(crate) struct StoreWriter {
    parts: WriterParts,
    db: Option<Connection>,
    /// Whether the clean shutdown marker may be in the database. It is removed by the
    /// first write after it.
    ended: bool,
    /// Whether the log contains deleted content. The next write tries again to empty it.
    log_is_due: bool,
    repairs_left: u8,
}

impl StoreWriter {
    /// Creates a writer for an open connection.
    pub(crate) fn new(parts: WriterParts, db: Connection) -> Self {
        Self { parts, db: Some(db), ended: true, log_is_due: false, repairs_left: REPAIRS }
    }

    /// Runs until all senders are dropped, then checkpoints the log.
    pub(crate) fn run(mut self, mut requests: mpsc::Receiver<WriterRequest>) {
        let mut next = requests.blocking_recv();
        while let Some(request) = next.take() {
            match request {
                WriterRequest::Write(batch) => next = self.write(batch, &mut requests),
                // The caller may have been dropped, here and below.
                WriterRequest::LoadIndex(reply) => reply.send(self.load_index()).unwrap_or_default(),
                WriterRequest::Mend(session, reply) => {
                    reply.send(self.load_session(&session)).unwrap_or_default()
                }
                WriterRequest::MendAudit(query, reply) => {
                    reply.send(self.load_audit(&query)).unwrap_or_default()
                }
            }
            if next.is_none() {
                next = requests.blocking_recv();
            }
        }
        self.finish();
    }

    /// Writes a batch and the batches queued after it. Returns the first other request
    /// that it finds among them.
    fn write(
        &mut self,
        first: WriteBatch,
        requests: &mut mpsc::Receiver<WriterRequest>,
    ) -> Option<WriterRequest> {
        let mut bytes = first.bytes;
        let mut group = vec![first];
        let mut other = None;
        while group.len() < GROUP && bytes < GROUP_BYTES && other.is_none() {
            match requests.try_recv() {
                Ok(WriterRequest::Write(batch)) => {
                    bytes += batch.bytes;
                    group.push(batch);
                }
                Ok(request) => other = Some(request),
                Err(_) => break,
            }
        }
        self.write_group(group);
        self.parts.queued.fetch_sub(bytes, Ordering::Relaxed);
        if self.parts.backups.count(bytes) {
            // A queued request serves this write, too.
            self.parts.backup_requests.try_send(()).ok();
        }
        other
    }

    fn write_group(&mut self, group: Vec<WriteBatch>) {
        let together = self.guarded(|writer| writer.commit(&group));
        let alone = group.len() == 1;
        for batch in group {
            let outcome = match &together {
                Ok(()) => Ok(()),
                Err(failure) if alone => Err(failure.to_storage_error()),
                // One batch failed; commit each one separately, so that the others
                // succeed.
                Err(_) => {
                    let outcome = self.guarded(|writer| writer.commit(std::slice::from_ref(&batch)));
                    outcome.map_err(|failure| failure.to_storage_error())
                }
            };
            if let Err(error) = &outcome {
                tracing::error!(%error, "could not store changes");
            }
            batch.reply.send(outcome).unwrap_or_default();
        }
    }

    fn commit(&mut self, group: &[WriteBatch]) -> Result<(), StoreFailure> {
        let mut ended = self.ended;
        let changes = || group.iter().flat_map(|batch| &batch.changes);
        let removals: Vec<RemovedScope<'_>> = changes().filter_map(RemovedScope::of).collect();
        let backups = Arc::clone(&self.parts.backups);
        // Held until the content is deleted everywhere, so that no backup contains it. The
        // backups are changed first: after a crash in between, nothing is deleted yet.
        let paused = (!removals.is_empty()).then(|| backups.pause());
        if let Some(paused) = &paused {
            paused.remove(&removals);
        }
        let transaction = self.transaction()?;
        for change in changes() {
            if ended {
                apply::clear_clean_shutdown(&transaction)?;
            }
            apply::apply(&transaction, change)?;
            ended = matches!(change, Change::CleanShutdown { .. });
        }
        transaction.commit()?;
        self.ended = ended;
        if paused.is_some() || self.log_is_due {
            self.truncate_log();
        }
        Ok(())
    }

    /// Copies the log to the database and empties it, since it still contains deleted
    /// content.
    fn truncate_log(&mut self) {
        let Some(db) = &self.db else { return };
        // A read transaction would prevent it.
        let _read = self.parts.read.lock().unwrap_or_else(PoisonError::into_inner);
        let truncated = database::truncate_log(db);
        if !self.log_is_due && matches!(truncated, Ok(WalState::InUse)) {
            tracing::warn!(
                "another program reads the database; its log contains deleted content until it ends"
            );
        }
        if let Err(error) = &truncated {
            tracing::warn!(%error, "could not truncate the database log");
        }
        self.log_is_due = !matches!(truncated, Ok(WalState::Empty));
    }

    fn load_index(&mut self) -> Result<Index, StorageError> {
        let index = self.guarded(|writer| {
            let mender = writer.parts.mender.clone();
            let transaction = writer.transaction()?;
            let index = index::load(&transaction, &mender)?;
            transaction.commit()?;
            writer.ended = false;
            Ok(index)
        });
        if let Some(db) = &self.db {
            // Release the memory of the list's pages, which are not needed again.
            db.execute_batch("PRAGMA shrink_memory").ok();
        }
        index.map_err(|failure| failure.to_storage_error())
    }

    fn load_session(&mut self, session: &ChannelUri) -> Result<Option<StoredSession>, StorageError> {
        let loaded = self.guarded(|writer| {
            let (mender, backups) = (writer.parts.mender.clone(), Arc::clone(&writer.parts.backups));
            let transaction = writer.transaction()?;
            let mut flaws = Vec::new();
            let mut loaded = session::load(&transaction, session, &mut flaws);
            let damaged = matches!(loaded, Err(StoreFailure::Damaged { .. })) || !flaws.is_empty();
            if damaged && backups.pause().restore_changed(&transaction, session) > 0 {
                flaws.clear();
                loaded = session::load(&transaction, session, &mut flaws);
            }
            let mut loaded = loaded?;
            if !flaws.is_empty() {
                mender.mend_session(&transaction, &flaws)?;
                loaded = session::load(&transaction, session, &mut Vec::new())?;
            }
            transaction.commit()?;
            Ok(loaded)
        });
        loaded.map_err(|failure| {
            self.parts.mender.problems().report_damage(session, &failure);
            failure.to_storage_error()
        })
    }

    fn load_audit(&mut self, query: &AuditQuery) -> Result<AuditPage, StorageError> {
        let loaded = self.guarded(|writer| {
            let mender = writer.parts.mender.clone();
            let transaction = writer.transaction()?;
            let mut flaws = Vec::new();
            let page = audit::load(&transaction, query, &mut flaws)?;
            audit::mend(&transaction, &mender, &flaws)?;
            transaction.commit()?;
            Ok(page)
        });
        loaded.map_err(|failure| failure.to_storage_error())
    }

    /// Runs an operation. If it fails because the file is damaged, repairs the file and
    /// retries once.
    fn guarded<T>(
        &mut self,
        mut action: impl FnMut(&mut Self) -> Result<T, StoreFailure>,
    ) -> Result<T, StoreFailure> {
        match action(self) {
            Err(failure) if failure.is_damaged_file() && self.repair(&failure) => action(self),
            outcome => outcome,
        }
    }

    /// Replaces the database by a new one with all readable records. Returns whether that
    /// succeeded.
    fn repair(&mut self, failure: &StoreFailure) -> bool {
        if self.repairs_left == 0 {
            return false;
        }
        self.repairs_left -= 1;
        let WriterParts { files, mender, backups, .. } = &self.parts;
        let _paused = backups.pause();
        let mut read = self.parts.read.lock().unwrap_or_else(PoisonError::into_inner);
        drop(read.take());
        drop(self.db.take());
        let repaired = salvage::replace(files, mender, &failure.to_string());
        if let Err(error) = &repaired {
            self.repairs_left = 0;
            mender.problems().report(format!(
                "The database is damaged ({failure}) and could not be repaired ({error}). \
                 Parts of it stay unavailable until the host is restarted with more free disk space."
            ));
        }
        repaired.is_ok()
    }

    /// Starts a transaction, reopening the connection after a repair.
    fn transaction(&mut self) -> Result<rusqlite::Transaction<'_>, StoreFailure> {
        let db = match self.db.take() {
            Some(db) => db,
            None => connect(&self.parts.files.database(), ConnectionPurpose::Write)?,
        };
        let db = self.db.insert(db);
        Ok(db.transaction_with_behavior(TransactionBehavior::Immediate)?)
    }

    fn finish(self) {
        drop(self.parts.read.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(db) = &self.db
            && let Err(error) = database::truncate_log(db)
        {
            // No data is lost: the next start reads the log.
            tracing::warn!(%error, "could not checkpoint the database log");
        }
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
