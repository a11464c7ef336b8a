//! The thread that loads sessions, output and audit records, concurrently with the writer.
//!
//! Does not write: a request that finds unusable records is passed to the writer, which may
//! set them aside.

use std::sync::PoisonError;

use innkeeper_core::audit::{AuditPage, AuditQuery};
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::output::{OutputId, StoredOutput};
use innkeeper_core::storage::{StorageError, StoredSession};
use rusqlite::Connection;
use tokio::sync::mpsc;

use crate::audit;
use crate::database::{ConnectionPurpose, StoreFiles, connect};
use crate::failure::StoreFailure;
use crate::output;
use crate::session;
use crate::writer::{ReadConnection, ReplySender, WriterRequest};

/// Capacity of the load queue. After a start, many clients load one session each. If the
/// queue is full, a load is rejected immediately as `Busy`.
pub(crate) const QUEUE: usize = 1024;

/// A request to load data, with the sender of the result.
#[derive(Debug)]
pub(crate) enum LoadRequest {
    /// Loads a session.
    Session(ChannelUri, ReplySender<Option<StoredSession>>),
    /// Loads a piece of stored output.
    Output(OutputId, ReplySender<Option<StoredOutput>>),
    /// Loads audit records.
    Audit(AuditQuery, ReplySender<AuditPage>),
}

/// The state of the reader thread.
#[derive(Debug)]
pub(crate) struct StoreReader {
    /// The database files.
    pub(crate) files: StoreFiles,
    /// The connection, which the writer may close between two loads.
    pub(crate) read: ReadConnection,
    /// Requests to the writer.
    pub(crate) writer: mpsc::Sender<WriterRequest>,
}

/// The result of reading.
enum LoadOutcome<T> {
    /// The result for the caller.
    Answer(Result<T, StorageError>),
    /// The writer must repair the records first.
    Flawed,
}

impl StoreReader {
    /// Runs until all senders are dropped.
    pub(crate) fn run(self, mut loads: mpsc::Receiver<LoadRequest>) {
        while let Some(request) = loads.blocking_recv() {
            match request {
                LoadRequest::Session(session, reply) if !reply.is_closed() => self.answer(session, reply),
                // The caller may have been dropped, here and below.
                LoadRequest::Output(output, reply) if !reply.is_closed() => {
                    reply.send(self.load_output(output)).unwrap_or_default();
                }
                LoadRequest::Audit(query, reply) if !reply.is_closed() => self.answer_audit(query, reply),
                LoadRequest::Session(..) | LoadRequest::Output(..) | LoadRequest::Audit(..) => {}
            }
        }
    }

    fn answer(&self, session: ChannelUri, reply: ReplySender<Option<StoredSession>>) {
        match self.load(&session) {
            LoadOutcome::Answer(answer) => reply.send(answer).unwrap_or_default(),
            LoadOutcome::Flawed => {
                if let Err(mpsc::error::SendError(WriterRequest::Mend(_, reply))) =
                    self.writer.blocking_send(WriterRequest::Mend(session, reply))
                {
                    reply.send(Err(stopped())).unwrap_or_default();
                }
            }
        }
    }

    fn answer_audit(&self, query: AuditQuery, reply: ReplySender<AuditPage>) {
        match self.load_audit(&query) {
            LoadOutcome::Answer(answer) => reply.send(answer).unwrap_or_default(),
            LoadOutcome::Flawed => {
                if let Err(mpsc::error::SendError(WriterRequest::MendAudit(_, reply))) =
                    self.writer.blocking_send(WriterRequest::MendAudit(query, reply))
                {
                    reply.send(Err(stopped())).unwrap_or_default();
                }
            }
        }
    }

    fn load_audit(&self, query: &AuditQuery) -> LoadOutcome<AuditPage> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let mut flaws = Vec::new();
        match self.connection(&mut read).and_then(|db| audit::load(db, query, &mut flaws)) {
            Ok(page) if flaws.is_empty() => LoadOutcome::Answer(Ok(page)),
            Ok(_) => LoadOutcome::Flawed,
            Err(failure) if failure.is_damaged_file() => LoadOutcome::Flawed,
            Err(failure) => LoadOutcome::Answer(Err(failure.to_storage_error())),
        }
    }

    fn load_output(&self, output: OutputId) -> Result<Option<StoredOutput>, StorageError> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = self.connection(&mut read).and_then(|db| output::load(db, output));
        loaded.map_err(|failure| failure.to_storage_error())
    }

    fn load(&self, session: &ChannelUri) -> LoadOutcome<Option<StoredSession>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let mut flaws = Vec::new();
        let loaded = self.connection(&mut read).and_then(|db| {
            let transaction = db.transaction()?;
            let loaded = session::load(&transaction, session, &mut flaws)?;
            transaction.commit()?;
            Ok(loaded)
        });
        match loaded {
            Ok(loaded) if flaws.is_empty() => LoadOutcome::Answer(Ok(loaded)),
            Ok(_) => LoadOutcome::Flawed,
            Err(failure) if failure.is_damaged_file() => LoadOutcome::Flawed,
            Err(StoreFailure::Damaged { .. }) => LoadOutcome::Flawed,
            Err(failure) => LoadOutcome::Answer(Err(failure.to_storage_error())),
        }
    }

    fn connection<'a>(&self, read: &'a mut Option<Connection>) -> Result<&'a mut Connection, StoreFailure> {
        let db = match read.take() {
            Some(db) => db,
            None => connect(&self.files.database(), ConnectionPurpose::Read)?,
        };
        Ok(read.insert(db))
    }
}

/// The error after the store was closed.
pub(crate) fn stopped() -> StorageError {
    StorageError::Failed("the store is closed".to_owned())
}
