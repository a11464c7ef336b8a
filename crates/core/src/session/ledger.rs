//! What of a session is on its way into the storage.
//!
//! Every published action goes into the session's journal: boundaries and
//! decisions before they are published, all else shortly after. From time to time
//! the documents are written instead, and the journal is trimmed. A write that
//! fails loses nothing here: the documents are written again until it works.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::agent::BoxFuture;
use crate::channel::ChannelUri;
use crate::ids::{ClientId, ServerSeq};
use crate::state::DispatchMark;
use crate::storage::{Change, JournalEntry, Json, Storage, StorageError};

/// How long streamed text may be in memory only.
const FLUSH_AFTER: Duration = Duration::from_millis(80);

/// How long a session has to be quiet before its documents are written.
const SETTLE_AFTER: Duration = Duration::from_secs(2);

/// How long to wait before a failed write is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How long a write may take before it counts as failed. It takes well below a
/// millisecond on a disk that works.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of actions that may wait. Above it they are dropped here: the documents,
/// which have them too, are written instead.
const MAX_PENDING: usize = 4 * 1024 * 1024;

/// Bytes in the journal above which the documents are written, so that a restart
/// does not have to fold for long.
const LONG_JOURNAL: usize = 1024 * 1024;

/// The way of a session's changes into the storage.
pub(super) struct Ledger {
    storage: Arc<dyn Storage>,
    session: ChannelUri,
    /// Published and not handed over yet.
    pending: Vec<JournalEntry>,
    pending_bytes: usize,
    /// The number of the next entry.
    next: u64,
    /// Bytes of the entries since the documents were written.
    journaled: usize,
    /// The journal has a hole, or more than the documents need.
    broken: bool,
    /// The documents are behind.
    stale: bool,
    /// Chats that may be in the storage and have to go, by the numbers of the debts.
    owed: Vec<(u64, ChannelUri)>,
    last_owed: u64,
    /// The number that the last dispatch which was written got, for the next write. One
    /// that fails loses it, and what has no number counts as not answered.
    answered: Option<Change>,
    /// Changes for the next write. One that fails loses them; they are in the documents, or
    /// can be found again.
    soon: Vec<Change>,
    in_flight: Option<InFlight>,
    /// When something is to be done.
    due: Option<Instant>,
}

/// Chats, and the first turn of each that is meant.
pub(super) type TurnsFrom = Vec<(ChannelUri, usize)>;

/// A write that nobody waits for.
struct InFlight {
    written: BoxFuture<Result<(), StorageError>>,
    /// What has to be undone if it fails.
    turns_from: TurnsFrom,
    documents: bool,
    /// The number of the last owed removal that is in it.
    owed: u64,
}

/// What the owner of a ledger has to do.
#[derive(Debug)]
pub(super) enum Chore {
    /// Nothing; the ledger did it.
    None,
    /// The turns from these on could not be stored.
    TurnsLost(TurnsFrom),
    /// Give it the documents, to be written.
    Checkpoint,
}

impl Ledger {
    /// A ledger for a session whose journal ends before `next`.
    pub(super) fn new(storage: Arc<dyn Storage>, session: ChannelUri, next: u64) -> Self {
        Self {
            storage,
            session,
            pending: Vec::new(),
            pending_bytes: 0,
            next,
            journaled: 0,
            broken: false,
            stale: false,
            owed: Vec::new(),
            last_owed: 0,
            answered: None,
            soon: Vec::new(),
            in_flight: None,
            due: None,
        }
    }

    /// A chat has to go that may be in the storage: with the documents, until they are
    /// written.
    pub(super) fn owe_removal(&mut self, chat: ChannelUri) {
        self.last_owed += 1;
        self.owed.push((self.last_owed, chat));
        self.wants_checkpoint();
    }

    /// There is another chat at the address, with all that it has.
    pub(super) fn owe_no_removal(&mut self, chat: &ChannelUri) {
        self.owed.retain(|(_, owed)| owed != chat);
    }

    /// The removals that are owed, before the documents; after them what waits for a write.
    fn with_owed(&mut self, documents: Vec<Change>) -> Vec<Change> {
        let removals = self.owed.iter().map(|(_, chat)| Change::RemoveChat { chat: chat.clone() });
        removals.chain(documents).chain(self.soon.drain(..)).chain(self.answered.take()).collect()
    }

    /// The removals up to this one are written.
    fn paid(&mut self, through: u64) {
        self.owed.retain(|(number, _)| *number > through);
    }

    /// Something was published.
    pub(super) fn note(&mut self, channel: &ChannelUri, action: Json, at: i64) {
        let entry = self.entry(channel, action, at);
        self.pending.push(entry);
        self.stale = true;
        if self.pending_bytes > MAX_PENDING {
            self.break_off();
        }
        self.due_in(FLUSH_AFTER);
    }

    /// Writes actions down before they are published, with all that was before them and
    /// with other changes that belong to them.
    pub(super) async fn ahead(
        &mut self,
        changes: Vec<Change>,
        actions: Vec<(ChannelUri, Json)>,
        handled: Option<(&ClientId, DispatchMark)>,
        at: i64,
    ) -> Result<(), StorageError> {
        let published = self.pending.len();
        for (channel, action) in actions {
            let entry = self.entry(&channel, action, at);
            self.pending.push(entry);
        }
        self.pending_bytes = 0;
        let entries = std::mem::take(&mut self.pending);
        // The journal first: a chat that goes takes its part of it along.
        let journal = Change::Journal { session: self.session.clone(), entries: entries.clone() };
        let handled =
            handled.map(|(client, DispatchMark(mark))| Change::Handled { client: client.clone(), mark });
        let soon = std::mem::take(&mut self.soon);
        let changes = std::iter::once(journal)
            .chain(soon)
            .chain(changes)
            .chain(self.answered.take())
            .chain(handled)
            .collect();
        let written = self.write_and_wait(changes).await;
        self.stale = true;
        match &written {
            Ok(()) => {}
            // It may be written yet, and nothing may be written twice.
            Err(StorageError::TimedOut) => self.break_off(),
            // What was published has to be written again; what was not, must not.
            Err(_) => {
                self.pending = entries;
                self.pending.truncate(published);
                self.pending_bytes = self.pending.iter().map(|entry| entry.action.get().len()).sum();
            }
        }
        self.due_in(if self.broken { RETRY_AFTER } else { SETTLE_AFTER });
        written
    }

    /// The dispatch that was written last is answered. Its number comes after it: until it
    /// is published nobody knows what others take meanwhile.
    pub(super) fn answered(&mut self, client: &ClientId, mark: DispatchMark, answer: ServerSeq) {
        self.answered = Some(Change::Answered { client: client.clone(), mark: mark.0, answer });
    }

    /// Waits for the next thing to do. Cancel-safe.
    pub(super) async fn next(&mut self) -> Due {
        match (&mut self.in_flight, self.due) {
            (Some(in_flight), _) => Due::Written(in_flight.written.as_mut().await),
            (None, Some(due)) => {
                tokio::time::sleep_until(due).await;
                Due::Now
            }
            (None, None) => std::future::pending().await,
        }
    }

    /// Does what is due, as far as it can alone. `quiet` says that no turn runs.
    pub(super) fn handle(&mut self, due: Due, quiet: bool) -> Chore {
        match due {
            Due::Written(result) => self.written(result),
            Due::Now => {
                self.due = None;
                let nothing_waits = self.pending.is_empty() && self.soon.is_empty();
                if self.broken || self.journaled > LONG_JOURNAL || (quiet && nothing_waits) {
                    return if self.stale { Chore::Checkpoint } else { Chore::None };
                }
                self.flush();
                if quiet {
                    self.due_in(SETTLE_AFTER);
                }
                Chore::None
            }
        }
    }

    /// Whether the documents can be written now. While they are being written they
    /// cannot, and are asked for again afterwards.
    pub(super) fn takes_documents(&mut self) -> bool {
        let busy = self.in_flight.as_ref().is_some_and(|in_flight| in_flight.documents);
        if busy {
            self.wants_checkpoint();
        }
        !busy
    }

    /// Writes the documents, which contain everything that was published.
    pub(super) fn checkpoint(&mut self, mut documents: Vec<Change>, turns_from: TurnsFrom) {
        documents.push(self.trim());
        let documents = self.with_owed(documents);
        let written = self.storage.write(documents);
        self.hand_over(InFlight { written, turns_from, documents: true, owed: self.last_owed });
    }

    /// Waits for documents that are being written: newer ones must not trim the journal of
    /// what may still fail. Answers the turns that are not stored.
    pub(super) async fn settled(&mut self) -> TurnsFrom {
        let Some(InFlight { written, turns_from, owed, .. }) = self.in_flight.take() else {
            return TurnsFrom::new();
        };
        match tokio::time::timeout(WRITE_PATIENCE, written).await {
            Ok(Ok(())) => {
                self.paid(owed);
                TurnsFrom::new()
            }
            Ok(Err(_)) | Err(_) => turns_from,
        }
    }

    /// Writes the documents and waits until they are written.
    pub(super) async fn finish(&mut self, mut documents: Vec<Change>) -> Result<(), StorageError> {
        documents.push(self.trim());
        self.due = None;
        let documents = self.with_owed(documents);
        self.write_and_wait(documents).await?;
        self.paid(self.last_owed);
        Ok(())
    }

    /// The documents have to be written soon.
    pub(super) fn wants_checkpoint(&mut self) {
        self.stale = true;
        self.broken = true;
        self.due_in(Duration::ZERO);
    }

    /// Writes what cannot be in the journal, in its order.
    pub(super) fn beside(&self, change: Change) {
        // A row that cannot be written now is written with the documents.
        drop(self.storage.write(vec![change]));
    }

    /// Writes a change with the next write of the journal, at most a tenth of a second later.
    pub(super) fn soon(&mut self, change: Change) {
        self.soon.push(change);
        self.stale = true;
        self.due_in(FLUSH_AFTER);
    }

    fn trim(&mut self) -> Change {
        self.pending.clear();
        self.pending_bytes = 0;
        self.journaled = 0;
        self.broken = false;
        self.stale = false;
        Change::TrimJournal { session: self.session.clone(), through: self.next.saturating_sub(1) }
    }

    fn flush(&mut self) {
        if self.pending.is_empty() && self.soon.is_empty() && self.answered.is_none() {
            return;
        }
        self.pending_bytes = 0;
        let entries = std::mem::take(&mut self.pending);
        let journal = Change::Journal { session: self.session.clone(), entries };
        let soon = std::mem::take(&mut self.soon);
        let changes = std::iter::once(journal).chain(soon).chain(self.answered.take()).collect();
        let written = self.storage.write(changes);
        self.hand_over(InFlight { written, turns_from: TurnsFrom::new(), documents: false, owed: 0 });
    }

    fn written(&mut self, result: Result<(), StorageError>) -> Chore {
        let Some(in_flight) = self.in_flight.take() else { return Chore::None };
        let Err(error) = result else {
            self.paid(in_flight.owed);
            if self.stale {
                self.due_in(if self.broken { Duration::ZERO } else { SETTLE_AFTER });
            }
            return Chore::None;
        };
        let documents = in_flight.documents;
        tracing::error!(session = %self.session, %error, documents, "a session could not be stored; it is tried again");
        self.break_off();
        self.due = Some(Instant::now() + RETRY_AFTER);
        Chore::TurnsLost(in_flight.turns_from)
    }

    fn hand_over(&mut self, in_flight: InFlight) {
        // A piece of journal that is in flight goes on by itself; if it fails it does
        // not matter, since the documents that come after it have everything.
        self.in_flight = Some(in_flight);
    }

    /// The journal cannot be continued: only the documents help.
    fn break_off(&mut self) {
        self.broken = true;
        self.stale = true;
        self.pending.clear();
        self.pending_bytes = 0;
    }

    fn entry(&mut self, channel: &ChannelUri, action: Json, at: i64) -> JournalEntry {
        let number = self.next;
        self.next += 1;
        self.pending_bytes += action.get().len();
        self.journaled += action.get().len();
        JournalEntry { number, channel: channel.clone(), at, action }
    }

    fn due_in(&mut self, delay: Duration) {
        let at = Instant::now() + delay;
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    fn write_and_wait(
        &self,
        changes: Vec<Change>,
    ) -> impl Future<Output = Result<(), StorageError>> + Send + use<> {
        let written = tokio::time::timeout(WRITE_PATIENCE, self.storage.write(changes));
        async { written.await.unwrap_or(Err(StorageError::TimedOut)) }
    }
}

/// Why a ledger woke up.
#[derive(Debug)]
pub(super) enum Due {
    /// What was handed over is written, or not.
    Written(Result<(), StorageError>),
    /// The time has come to hand over more.
    Now,
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
