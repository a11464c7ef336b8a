//! The thread that owns the connection that writes.
//!
//! What waits is written in one transaction, since a transaction costs more than
//! what is in it. Invariant: effects have the order of the calls, and a batch is
//! answered after it was committed and not before.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use innkeeper_core::channel::ChannelUri;
use innkeeper_core::storage::{Change, Index, StorageError, StoredSession};
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use crate::apply;
use crate::database::{Files, Purpose, connect};
use crate::failure::Failure;
use crate::index;
use crate::mend::Mender;
use crate::salvage;
use crate::session;

/// Orders that may wait. Enough for every session of a busy host to have one batch waiting while the disk
/// stalls for a moment; when it is full, the next batch is refused at once as `Busy`.
pub(crate) const QUEUE: usize = 4096;

/// Bytes that may wait. A stalled disk must not fill the memory; above it a batch is refused at once as `Busy`,
/// unless nothing else waits.
pub(crate) const QUEUED_BYTES: usize = 64 * 1024 * 1024;

/// The most batches in one transaction: its cost is well spread by then, and the first one waits for the last.
const GROUP: usize = 128;

/// The most bytes in one transaction, for the same reason.
const GROUP_BYTES: usize = 4 * 1024 * 1024;

/// How often a process replaces a damaged database. A disk that goes on destroying data is not helped by copies.
const REPAIRS: u8 = 3;

/// The connection that reads, where it can be taken away: a file is never replaced while it is open.
pub(crate) type ReadConnection = Arc<Mutex<Option<Connection>>>;

/// Where an answer goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, StorageError>>;

/// Something that the writer is asked to do.
#[derive(Debug)]
pub(crate) enum Order {
    /// Write these changes.
    Write(Batch),
    /// Read what a host starts from.
    LoadIndex(Reply<Index>),
    /// Read a session of which something cannot be used, after taking that out of the way.
    Mend(ChannelUri, Reply<Option<StoredSession>>),
}

/// Changes that are written together or not at all.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The changes.
    pub(crate) changes: Vec<Change>,
    /// How much of the queue's bytes they take.
    pub(crate) bytes: usize,
    /// Who waits for them.
    pub(crate) reply: Reply<()>,
}

/// What the thread owns.
#[derive(Debug)]
pub(crate) struct Writer {
    files: Files,
    db: Option<Connection>,
    read: ReadConnection,
    queued: Arc<AtomicUsize>,
    mender: Mender,
    /// Whether the mark of an end in order may be in the database. It is gone as soon as a host goes on from it.
    ended: bool,
    repairs_left: u8,
}

impl Writer {
    /// Takes the connection over.
    pub(crate) fn new(
        files: Files,
        db: Connection,
        read: ReadConnection,
        queued: Arc<AtomicUsize>,
        mender: Mender,
    ) -> Self {
        Self { files, db: Some(db), read, queued, mender, ended: true, repairs_left: REPAIRS }
    }

    /// Works until nobody can ask for anything any more, then leaves one tidy file.
    pub(crate) fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut next = orders.blocking_recv();
        while let Some(order) = next.take() {
            match order {
                Order::Write(batch) => next = self.write(batch, &mut orders),
                // Whoever asked may have gone away meanwhile, here and below.
                Order::LoadIndex(reply) => reply.send(self.load_index()).unwrap_or_default(),
                Order::Mend(session, reply) => reply.send(self.load_session(&session)).unwrap_or_default(),
            }
            if next.is_none() {
                next = orders.blocking_recv();
            }
        }
        self.finish();
    }

    /// Writes a batch and those that wait behind it. Returns an order that was found among them and is not a batch.
    fn write(&mut self, first: Batch, orders: &mut mpsc::Receiver<Order>) -> Option<Order> {
        let mut bytes = first.bytes;
        let mut group = vec![first];
        let mut other = None;
        while group.len() < GROUP && bytes < GROUP_BYTES && other.is_none() {
            match orders.try_recv() {
                Ok(Order::Write(batch)) => {
                    bytes += batch.bytes;
                    group.push(batch);
                }
                Ok(order) => other = Some(order),
                Err(_) => break,
            }
        }
        self.write_group(group);
        self.queued.fetch_sub(bytes, Ordering::Relaxed);
        other
    }

    fn write_group(&mut self, group: Vec<Batch>) {
        let together = self.guarded(|writer| writer.commit(&group));
        let alone = group.len() == 1;
        for batch in group {
            let outcome = match &together {
                Ok(()) => Ok(()),
                Err(failure) if alone => Err(failure.told()),
                // One of them is to blame; the others must not suffer from it.
                Err(_) => {
                    let outcome = self.guarded(|writer| writer.commit(std::slice::from_ref(&batch)));
                    outcome.map_err(|failure| failure.told())
                }
            };
            if let Err(error) = &outcome {
                tracing::error!(%error, "changes were not stored");
            }
            batch.reply.send(outcome).unwrap_or_default();
        }
    }

    fn commit(&mut self, group: &[Batch]) -> Result<(), Failure> {
        let mut ended = self.ended;
        let transaction = self.transaction()?;
        for change in group.iter().flat_map(|batch| &batch.changes) {
            if ended {
                apply::unmark_end(&transaction)?;
            }
            apply::apply(&transaction, change)?;
            ended = matches!(change, Change::EndInOrder { .. });
        }
        transaction.commit()?;
        self.ended = ended;
        Ok(())
    }

    fn load_index(&mut self) -> Result<Index, StorageError> {
        let index = self.guarded(|writer| {
            let mender = writer.mender.clone();
            let transaction = writer.transaction()?;
            let index = index::load(&transaction, &mender)?;
            transaction.commit()?;
            writer.ended = false;
            Ok(index)
        });
        if let Some(db) = &self.db {
            // The pages of the list are not needed again; memory is.
            db.execute_batch("PRAGMA shrink_memory").ok();
        }
        index.map_err(|failure| failure.told())
    }

    fn load_session(&mut self, session: &ChannelUri) -> Result<Option<StoredSession>, StorageError> {
        let loaded = self.guarded(|writer| {
            let mender = writer.mender.clone();
            let transaction = writer.transaction()?;
            let mut flaws = Vec::new();
            let mut loaded = session::load(&transaction, session, &mut flaws)?;
            if !flaws.is_empty() {
                mender.mend_session(&transaction, &flaws)?;
                loaded = session::load(&transaction, session, &mut Vec::new())?;
            }
            transaction.commit()?;
            Ok(loaded)
        });
        loaded.map_err(|failure| {
            self.mender.problems().report_damage(session, &failure);
            failure.told()
        })
    }

    /// Does something, and once more if that showed a damaged file that could be replaced.
    fn guarded<T>(&mut self, mut action: impl FnMut(&mut Self) -> Result<T, Failure>) -> Result<T, Failure> {
        match action(self) {
            Err(failure) if failure.is_damaged_file() && self.repair(&failure) => action(self),
            outcome => outcome,
        }
    }

    /// Replaces the database by what can be read of it. Says whether that was possible.
    fn repair(&mut self, failure: &Failure) -> bool {
        if self.repairs_left == 0 {
            return false;
        }
        self.repairs_left -= 1;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        drop(read.take());
        drop(self.db.take());
        let repaired = salvage::replace(&self.files, &self.mender, &failure.to_string());
        if let Err(error) = &repaired {
            self.repairs_left = 0;
            self.mender.problems().report(format!(
                "The database is damaged ({failure}) and could not be replaced by what can be read of it ({error}). \
                 Parts of it cannot be read or written until the host is started again with more free disk space."
            ));
        }
        repaired.is_ok()
    }

    /// A transaction on the connection, which is opened anew after a repair.
    fn transaction(&mut self) -> Result<rusqlite::Transaction<'_>, Failure> {
        let db = match self.db.take() {
            Some(db) => db,
            None => connect(&self.files.database(), Purpose::Write)?,
        };
        let db = self.db.insert(db);
        Ok(db.transaction_with_behavior(TransactionBehavior::Immediate)?)
    }

    fn finish(self) {
        drop(self.read.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(db) = &self.db
            && let Err(error) = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        {
            // Nothing is lost: the next start reads the log.
            tracing::warn!(%error, "the database's log stays behind");
        }
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
