//! The thread that owns the write connection of the edit log.
//!
//! Queued requests are written in one transaction, since a transaction costs more than its
//! content. Invariant: a request takes effect completely or not at all, and is answered only
//! after its commit.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, PoisonError};

use innkeeper_core::channel::ChannelUri;
use innkeeper_core::clock::Clock;
use innkeeper_core::edits::{EditRecord, FileReview, OperationRecord};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use uuid::Uuid;

use super::blobs::{self, BlobBatch};
use super::failure::EditFailure;
use super::garbage::{self, GarbageStep};
use super::opening;
use super::operations;
use super::records::{self, DeletedEdits};
use crate::database::{WalState, file_stamp, truncate_log};
use crate::opening::OpenStoreError;
use crate::writer::ReadConnection;

/// Capacity of the request queue. Each waiting caller has one request; more callers wait until
/// there is room.
pub(crate) const QUEUE: usize = 64;

/// How often a process replaces a damaged database.
const REPLACEMENTS: u8 = 3;

/// A change of the database.
#[derive(Debug)]
pub(crate) enum EditRequest {
    /// Stores contents.
    Put(BlobBatch),
    /// Appends records.
    Append(Vec<EditRecord>, BlobBatch),
    /// Stores an operation, durably.
    Begin(OperationRecord, BlobBatch),
    /// Marks an operation as done and appends its records.
    Finish {
        /// The operation.
        operation: Uuid,
        /// Its records.
        records: Vec<EditRecord>,
        /// The operation that it took back.
        consumed: Option<Uuid>,
    },
    /// Deletes an operation.
    Cancel(Uuid),
    /// Sets or clears reviews.
    SetReviews(ChannelUri, Vec<FileReview>, bool),
    /// Copies records of a chat to a session's chat.
    Copy {
        /// The chat.
        from: ChannelUri,
        /// The session and the chat that receive the records.
        to: (ChannelUri, ChannelUri),
        /// The turns.
        turns: Vec<String>,
    },
    /// Assigns a chat to a session.
    Move(ChannelUri, ChannelUri),
    /// Deletes a chat.
    RemoveChat(ChannelUri),
    /// Deletes a session.
    RemoveSession(ChannelUri),
    /// Deletes contents.
    Delete(GarbageStep),
    /// Removes free pages from the file.
    Shrink,
    /// Fails if a table is damaged, except for that of the contents, which are damaged one by
    /// one. The writer then replaces the file.
    Examine,
}

/// The result of a request.
#[derive(Debug, Default)]
pub(crate) struct EditReply {
    /// The numbers of appended records.
    pub(crate) numbers: Vec<u64>,
    /// The number of deleted contents, or of pages that are still free.
    pub(crate) count: u64,
}

/// A request with the sender of its result.
#[derive(Debug)]
pub(crate) struct EditJob {
    /// The request.
    pub(crate) request: EditRequest,
    /// Receives the result.
    pub(crate) reply: SyncSender<Result<EditReply, EditFailure>>,
}

/// The state of the writer thread.
pub(crate) struct EditWriter {
    path: PathBuf,
    read: ReadConnection,
    clock: Arc<dyn Clock>,
    db: Option<Connection>,
    /// Whether the log contains deleted content. The next write tries again to empty it.
    log_is_due: bool,
    replacements_left: u8,
}

impl EditWriter {
    /// Creates a writer for an open connection.
    pub(crate) fn new(path: PathBuf, read: ReadConnection, clock: Arc<dyn Clock>, db: Connection) -> Self {
        Self { path, read, clock, db: Some(db), log_is_due: false, replacements_left: REPLACEMENTS }
    }

    /// Runs until all senders are dropped.
    pub(crate) fn run(mut self, jobs: &Receiver<EditJob>) {
        while let Ok(first) = jobs.recv() {
            let mut group = vec![first];
            group.extend(jobs.try_iter().take(QUEUE));
            self.write(group);
        }
        drop(self.read.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(db) = &self.db
            && let Err(error) = truncate_log(db)
        {
            // No data is lost: the next start reads the log.
            tracing::warn!(%error, "could not checkpoint the log of the edit database");
        }
    }

    fn write(&mut self, group: Vec<EditJob>) {
        let together = if group.len() > 1 { self.commit(group.iter()).ok() } else { None };
        let mut replies = together.map(Vec::into_iter);
        for job in group {
            let outcome = match replies.as_mut().and_then(Iterator::next) {
                Some(reply) => Ok(reply),
                // Alone, or one of the group failed: the others succeed separately.
                None => self.write_one(&job),
            };
            // The caller waits, unless its thread panicked.
            job.reply.send(outcome).unwrap_or_default();
        }
    }

    fn write_one(&mut self, job: &EditJob) -> Result<EditReply, EditFailure> {
        let outcome = match self.commit(std::iter::once(job)) {
            Err(failure) if failure.is_damaged_file() && self.replace(&failure) => {
                self.commit(std::iter::once(job))
            }
            outcome => outcome,
        };
        outcome.map(|mut replies| replies.pop().unwrap_or_default())
    }

    fn commit<'a>(
        &mut self,
        group: impl Iterator<Item = &'a EditJob> + Clone,
    ) -> Result<Vec<EditReply>, EditFailure> {
        let requests = || group.clone().map(|job| &job.request);
        let durable = requests().any(|request| matches!(request, EditRequest::Begin(..)));
        let removes = requests().any(EditRequest::removes);
        let shrinks = requests().any(|request| matches!(request, EditRequest::Shrink));
        let db = self.connection()?;
        if durable {
            db.pragma_update(None, "synchronous", "FULL")?;
        }
        let written = transact(db, requests());
        if durable && let Err(error) = db.pragma_update(None, "synchronous", "NORMAL") {
            tracing::warn!(%error, "the edit database stays in its slower, durable mode");
        }
        let mut replies = written?;
        // From here on nothing may fail: the requests are committed, and must not be repeated.
        if shrinks {
            let left = garbage::shrink(db).unwrap_or_else(|failure| {
                tracing::warn!(%failure, "could not shrink the edit database");
                0
            });
            for (reply, request) in replies.iter_mut().zip(requests()) {
                if matches!(request, EditRequest::Shrink) {
                    reply.count = left;
                }
            }
        }
        if removes || self.log_is_due {
            self.truncate_log();
        }
        Ok(replies)
    }

    /// Copies the log to the database and empties it, since it still contains deleted
    /// content.
    fn truncate_log(&mut self) {
        let Some(db) = &self.db else { return };
        // A read transaction would prevent it.
        let _read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let truncated = truncate_log(db);
        if let Err(error) = &truncated {
            tracing::warn!(%error, "could not truncate the log of the edit database");
        }
        self.log_is_due = !matches!(truncated, Ok(WalState::Empty));
    }

    /// Replaces a damaged database by an empty one. Returns whether that succeeded.
    fn replace(&mut self, failure: &EditFailure) -> bool {
        if self.replacements_left == 0 {
            return false;
        }
        self.replacements_left -= 1;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        drop(read.take());
        drop(self.db.take());
        let stamp = file_stamp(self.clock.now());
        let replaced = opening::set_aside(&self.path, &stamp, &failure.to_string())
            .map_err(|error| crate::opening::io_error(&self.path, error))
            .and_then(|_| opening::open_edits(&self.path, &stamp));
        match replaced {
            Ok(db) => self.db = Some(db),
            Err(error) => tracing::error!(%error, "could not replace the damaged edit database"),
        }
        self.db.is_some()
    }

    /// The connection, reopened if a replacement failed.
    fn connection(&mut self) -> Result<&mut Connection, EditFailure> {
        let db = match self.db.take() {
            Some(db) => db,
            None => opening::open_edits(&self.path, &file_stamp(self.clock.now())).map_err(open_failure)?,
        };
        Ok(self.db.insert(db))
    }
}

/// Converts an error of a reopened database.
pub(crate) fn open_failure(error: OpenStoreError) -> EditFailure {
    if let OpenStoreError::Full { .. } = error {
        return EditFailure::Full;
    }
    let cause = std::error::Error::source(&error).map(|cause| format!(" ({cause})")).unwrap_or_default();
    EditFailure::Rejected(format!("{error}{cause}"))
}

fn transact<'a>(
    db: &mut Connection,
    requests: impl Iterator<Item = &'a EditRequest>,
) -> Result<Vec<EditReply>, EditFailure> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let replies = requests.map(|request| request.apply(&transaction)).collect::<Result<_, _>>()?;
    transaction.commit()?;
    Ok(replies)
}

impl EditRequest {
    /// Whether the log contains deleted content after it that a user asked to delete, or the
    /// end of a garbage collection.
    fn removes(&self) -> bool {
        matches!(self, Self::RemoveChat(_) | Self::RemoveSession(_) | Self::Shrink)
    }

    fn apply(&self, db: &Transaction<'_>) -> Result<EditReply, EditFailure> {
        let mut reply = EditReply::default();
        match self {
            Self::Put(batch) => blobs::put(db, batch)?,
            Self::Append(records, batch) => {
                blobs::put(db, batch)?;
                reply.numbers = append(db, records)?;
            }
            Self::Begin(operation, batch) => {
                blobs::put(db, batch)?;
                operations::begin(db, operation)?;
            }
            Self::Finish { operation, records, consumed } => {
                operations::finish(db, *operation, *consumed)?;
                reply.numbers = append(db, records)?;
            }
            Self::Cancel(operation) => operations::cancel(db, *operation)?,
            Self::SetReviews(session, reviews, reviewed) => {
                records::set_reviews(db, session, reviews, *reviewed)?;
            }
            Self::Copy { from, to: (session, chat), turns } => {
                records::copy(db, from, (session, chat), turns)?;
            }
            Self::Move(chat, to) => {
                records::move_chat(db, chat, to)?;
                operations::move_chat(db, chat, to)?;
            }
            Self::RemoveChat(chat) => DeletedEdits::Chat(chat).apply(db)?,
            Self::RemoveSession(session) => DeletedEdits::Session(session).apply(db)?,
            Self::Delete(step) => reply.count = garbage::delete(db, step)?,
            Self::Shrink => {}
            Self::Examine => examine(db)?,
        }
        Ok(reply)
    }
}

fn examine(db: &Connection) -> Result<(), EditFailure> {
    for table in ["blob", "record", "operation", "operation_blob", "review"] {
        let sound: String = db.query_row(&format!("PRAGMA quick_check({table})"), [], |row| row.get(0))?;
        if sound != "ok" {
            let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
            return Err(rusqlite::Error::SqliteFailure(corrupt, Some(sound)).into());
        }
    }
    Ok(())
}

fn append(db: &Connection, records: &[EditRecord]) -> Result<Vec<u64>, EditFailure> {
    records.iter().map(|record| records::insert(db, record)).collect()
}
