//! The thread that loads sessions, beside the one that writes.
//!
//! It changes nothing: a session with flaws is passed on to the writer, which may
//! take them out of the way.

use std::sync::PoisonError;

use innkeeper_core::channel::ChannelUri;
use innkeeper_core::storage::{StorageError, StoredSession};
use rusqlite::Connection;
use tokio::sync::mpsc;

use crate::database::{Files, Purpose, connect};
use crate::failure::Failure;
use crate::problems::Problems;
use crate::session;
use crate::writer::{Order, ReadConnection, Reply};

/// Sessions that may wait to be loaded. After a start many clients ask for one each; when it is full, the next
/// one is refused at once as `Busy`.
pub(crate) const QUEUE: usize = 1024;

/// A session that somebody waits for.
#[derive(Debug)]
pub(crate) struct Load {
    /// The session.
    pub(crate) session: ChannelUri,
    /// Who waits.
    pub(crate) reply: Reply<Option<StoredSession>>,
}

/// What the thread owns.
#[derive(Debug)]
pub(crate) struct Reader {
    /// The database's files.
    pub(crate) files: Files,
    /// The connection, which the writer may take away between two sessions.
    pub(crate) read: ReadConnection,
    /// The way to the writer.
    pub(crate) writer: mpsc::Sender<Order>,
    /// Where problems are reported.
    pub(crate) problems: Problems,
}

/// What came of reading a session.
enum Outcome {
    /// The answer.
    Answer(Result<Option<StoredSession>, StorageError>),
    /// The writer has to look at it.
    Flawed,
}

impl Reader {
    /// Works until nobody can ask for anything any more.
    pub(crate) fn run(self, mut loads: mpsc::Receiver<Load>) {
        while let Some(Load { session, reply }) = loads.blocking_recv() {
            if reply.is_closed() {
                continue;
            }
            match self.load(&session) {
                // Whoever asked may have gone away meanwhile.
                Outcome::Answer(answer) => reply.send(answer).unwrap_or_default(),
                Outcome::Flawed => {
                    if let Err(mpsc::error::SendError(Order::Mend(_, reply))) =
                        self.writer.blocking_send(Order::Mend(session, reply))
                    {
                        reply.send(Err(stopped())).unwrap_or_default();
                    }
                }
            }
        }
    }

    fn load(&self, session: &ChannelUri) -> Outcome {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let mut flaws = Vec::new();
        let loaded = self.connection(&mut read).and_then(|db| {
            let transaction = db.transaction()?;
            let loaded = session::load(&transaction, session, &mut flaws)?;
            transaction.commit()?;
            Ok(loaded)
        });
        match loaded {
            Ok(loaded) if flaws.is_empty() => Outcome::Answer(Ok(loaded)),
            Ok(_) => Outcome::Flawed,
            Err(failure) if failure.is_damaged_file() => Outcome::Flawed,
            Err(failure) => {
                self.problems.report_damage(session, &failure);
                Outcome::Answer(Err(failure.told()))
            }
        }
    }

    fn connection<'a>(&self, read: &'a mut Option<Connection>) -> Result<&'a mut Connection, Failure> {
        let db = match read.take() {
            Some(db) => db,
            None => connect(&self.files.database(), Purpose::Read)?,
        };
        Ok(read.insert(db))
    }
}

/// What a caller is told when the threads are gone.
pub(crate) fn stopped() -> StorageError {
    StorageError::Failed("it was closed".to_owned())
}
