//! Writes a session's changes to storage.
//!
//! Every published action goes into the session's journal: turn boundaries and users'
//! choices before they are published, all other actions within [`FLUSH_AFTER`]. At checkpoints the
//! documents are written and the journal is trimmed. A failed write loses nothing: the
//! documents are written again until a write succeeds.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::repeated_changes::RepeatedChanges;
use crate::agent::BoxFuture;
use crate::channel::ChannelUri;
use crate::ids::{ClientId, ServerSeq};
use crate::state::DispatchMark;
use crate::storage::{Change, JournalEntry, Json, Storage, StorageError};

/// How long streamed text may exist in memory only.
const FLUSH_AFTER: Duration = Duration::from_millis(80);

/// How long a session must be idle before its documents are written.
const CHECKPOINT_AFTER: Duration = Duration::from_secs(2);

/// Delay before a failed write is retried.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How long a write may take before it counts as failed. A healthy disk needs well below a
/// millisecond.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Most bytes of pending actions. When exceeded, the pending actions are dropped and the
/// documents, which contain them, are written instead.
const MAX_PENDING: usize = 4 * 1024 * 1024;

/// Journal size in bytes above which the documents are written, which keeps the replay
/// after a restart short.
const LONG_JOURNAL: usize = 1024 * 1024;

/// Writes the journal and the documents of one session.
pub(super) struct JournalWriter {
    storage: Arc<dyn Storage>,
    session: ChannelUri,
    /// Published actions that are not written yet.
    pending: Vec<JournalEntry>,
    pending_bytes: usize,
    /// The number of the next entry.
    next_entry: u64,
    /// Bytes of journal entries since the last checkpoint.
    journaled: usize,
    /// The documents must be written before anything else: the journal is incomplete, contains
    /// entries that were not published, or a checkpoint was requested.
    checkpoint_due: bool,
    /// The stored documents are out of date.
    stale: bool,
    /// Changes that every checkpoint contains until one succeeds.
    repeated: RepeatedChanges,
    /// The sequence number of the last dispatch that was written, for the next write. If
    /// that write fails the number is lost, and the dispatch counts as unanswered.
    answered: Option<Change>,
    /// Changes for the next write. If it fails they are lost; the documents contain them, or
    /// they can be found again.
    next_write: Vec<Change>,
    in_flight: Option<InFlight>,
    /// When the writer has something to do next.
    wake_at: Option<Instant>,
}

/// Chats, each with the index of its first affected turn.
pub(super) type TurnsFrom = Vec<(ChannelUri, usize)>;

/// A write that runs without a caller waiting for it.
struct InFlight {
    written: BoxFuture<Result<(), StorageError>>,
    /// Turns that are not stored if the write fails.
    turns_from: TurnsFrom,
    documents: bool,
    /// The number of the last repeated change that it contains.
    last_repeated: u64,
}

/// Follow-up work for the session after a wake-up of the journal writer.
#[derive(Debug)]
pub(super) enum JournalTask {
    /// Nothing.
    None,
    /// The turns from these on could not be stored.
    TurnsLost(TurnsFrom),
    /// Pass it the documents to write.
    Checkpoint,
}

impl JournalWriter {
    /// Creates a writer for a session whose next journal entry is `next_entry`.
    pub(super) fn new(storage: Arc<dyn Storage>, session: ChannelUri, next_entry: u64) -> Self {
        Self {
            storage,
            session,
            pending: Vec::new(),
            pending_bytes: 0,
            next_entry,
            journaled: 0,
            checkpoint_due: false,
            stale: false,
            repeated: RepeatedChanges::default(),
            answered: None,
            next_write: Vec::new(),
            in_flight: None,
            wake_at: None,
        }
    }

    /// Schedules the removal of a chat that may be in storage. It is repeated with every
    /// checkpoint until one succeeds.
    pub(super) fn schedule_removal(&mut self, chat: ChannelUri) {
        self.repeat(Change::RemoveChat { chat });
    }

    fn repeat(&mut self, change: Change) {
        self.repeated.add(change);
        self.request_checkpoint();
    }

    /// Cancels a scheduled removal, because the URI is used by a new chat.
    pub(super) fn cancel_removal(&mut self, chat: &ChannelUri) {
        self.repeated.cancel_removal(chat);
    }

    /// Stores a piece of output and waits for it. If that fails, it is stored with the
    /// documents.
    pub(super) async fn write_output(&mut self, output: Change) {
        // After a failure only checkpoints try again, so that a session with much output does
        // not wait for each piece.
        if self.repeated.output() == 0 {
            match self.write_and_wait(vec![output.clone()]).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::error!(session = %self.session, %error, "cannot store output; retrying");
                }
            }
        }
        self.repeat(output);
    }

    /// Repeated changes, then the documents, then changes that wait for the next write.
    fn with_repeated(&mut self, documents: Vec<Change>) -> Vec<Change> {
        let repeated = self.repeated.iter();
        repeated.chain(documents).chain(self.next_write.drain(..)).chain(self.answered.take()).collect()
    }

    /// Appends a published action.
    pub(super) fn append(&mut self, channel: &ChannelUri, action: Json, at: i64) {
        let entry = self.entry(channel, action, at);
        self.pending.push(entry);
        self.stale = true;
        if self.pending_bytes > MAX_PENDING {
            self.abandon_journal();
        }
        self.wake_in(FLUSH_AFTER);
    }

    /// Writes actions before they are published, together with all pending entries and with
    /// other changes that belong to them.
    pub(super) async fn write_ahead(
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
        // The journal comes first, because removing a chat also removes its entries.
        let journal = Change::Journal { session: self.session.clone(), entries: entries.clone() };
        let handled =
            handled.map(|(client, DispatchMark(mark))| Change::Handled { client: client.clone(), mark });
        let next_write = std::mem::take(&mut self.next_write);
        let changes = std::iter::once(journal)
            .chain(next_write)
            .chain(changes)
            .chain(self.answered.take())
            .chain(handled)
            .collect();
        let written = self.write_and_wait(changes).await;
        self.stale = true;
        match &written {
            Ok(()) => {}
            // The write may still succeed later, and nothing may be written twice.
            Err(StorageError::TimedOut) => self.abandon_journal(),
            // Published entries must be written again; unpublished ones must not.
            Err(_) => {
                self.pending = entries;
                self.pending.truncate(published);
                self.pending_bytes = self.pending.iter().map(|entry| entry.action.get().len()).sum();
            }
        }
        self.wake_in(if self.checkpoint_due { RETRY_AFTER } else { CHECKPOINT_AFTER });
        written
    }

    /// Records the sequence number of the dispatch that was written last. It is stored with
    /// the next write, because it is assigned only when the action is published.
    pub(super) fn record_answer(&mut self, client: &ClientId, mark: DispatchMark, answer: ServerSeq) {
        self.answered = Some(Change::Answered { client: client.clone(), mark: mark.0, answer });
    }

    /// Waits until there is something to do. Cancel-safe.
    pub(super) async fn wait(&mut self) -> JournalWake {
        match (&mut self.in_flight, self.wake_at) {
            (Some(in_flight), _) => JournalWake::Written(in_flight.written.as_mut().await),
            (None, Some(wake_at)) => {
                tokio::time::sleep_until(wake_at).await;
                JournalWake::Now
            }
            (None, None) => std::future::pending().await,
        }
    }

    /// Handles a wake-up. `quiet` means that no turn is running.
    pub(super) fn handle(&mut self, wake: JournalWake, quiet: bool) -> JournalTask {
        match wake {
            JournalWake::Written(result) => self.written(result),
            JournalWake::Now => {
                self.wake_at = None;
                let nothing_pending = self.pending.is_empty() && self.next_write.is_empty();
                if self.checkpoint_due || self.journaled > LONG_JOURNAL || (quiet && nothing_pending) {
                    return if self.stale { JournalTask::Checkpoint } else { JournalTask::None };
                }
                self.flush();
                if quiet {
                    self.wake_in(CHECKPOINT_AFTER);
                }
                JournalTask::None
            }
        }
    }

    /// Whether the documents can be written now. While a checkpoint is being written they
    /// cannot; another checkpoint is then requested.
    pub(super) fn can_checkpoint(&mut self) -> bool {
        let busy = self.in_flight.as_ref().is_some_and(|in_flight| in_flight.documents);
        if busy {
            self.request_checkpoint();
        }
        !busy
    }

    /// Writes the documents, which contain everything that was published, without waiting.
    pub(super) fn checkpoint(&mut self, mut documents: Vec<Change>, turns_from: TurnsFrom) {
        documents.push(self.trim());
        let documents = self.with_repeated(documents);
        let written = self.storage.write(documents);
        self.set_in_flight(InFlight {
            written,
            turns_from,
            documents: true,
            last_repeated: self.repeated.last(),
        });
    }

    /// Waits for a write in flight: newer documents must not trim the journal while an older
    /// write can still fail. Returns the turns that were not stored.
    pub(super) async fn wait_for_write(&mut self) -> TurnsFrom {
        let Some(InFlight { written, turns_from, last_repeated, .. }) = self.in_flight.take() else {
            return TurnsFrom::new();
        };
        match tokio::time::timeout(WRITE_TIMEOUT, written).await {
            Ok(Ok(())) => {
                self.repeated.written(last_repeated);
                TurnsFrom::new()
            }
            Ok(Err(_)) | Err(_) => turns_from,
        }
    }

    /// Writes the documents and waits for the result.
    pub(super) async fn finish(&mut self, mut documents: Vec<Change>) -> Result<(), StorageError> {
        documents.push(self.trim());
        self.wake_at = None;
        let documents = self.with_repeated(documents);
        self.write_and_wait(documents).await?;
        self.repeated.written(self.repeated.last());
        Ok(())
    }

    /// Requests a checkpoint as soon as possible.
    pub(super) fn request_checkpoint(&mut self) {
        self.stale = true;
        self.checkpoint_due = true;
        self.wake_in(Duration::ZERO);
    }

    /// Writes a change that is not a journal entry, after all earlier writes.
    pub(super) fn write_change(&self, change: Change) {
        // If this write fails, the change is stored with the documents.
        drop(self.storage.write(vec![change]));
    }

    /// Writes a change with the next journal write, at most [`FLUSH_AFTER`] later.
    pub(super) fn write_soon(&mut self, change: Change) {
        self.next_write.push(change);
        self.stale = true;
        self.wake_in(FLUSH_AFTER);
    }

    fn trim(&mut self) -> Change {
        self.pending.clear();
        self.pending_bytes = 0;
        self.journaled = 0;
        self.checkpoint_due = false;
        self.stale = false;
        Change::TrimJournal { session: self.session.clone(), through: self.next_entry.saturating_sub(1) }
    }

    fn flush(&mut self) {
        if self.pending.is_empty() && self.next_write.is_empty() && self.answered.is_none() {
            return;
        }
        self.pending_bytes = 0;
        let entries = std::mem::take(&mut self.pending);
        let journal = Change::Journal { session: self.session.clone(), entries };
        let next_write = std::mem::take(&mut self.next_write);
        let changes = std::iter::once(journal).chain(next_write).chain(self.answered.take()).collect();
        let written = self.storage.write(changes);
        self.set_in_flight(InFlight {
            written,
            turns_from: TurnsFrom::new(),
            documents: false,
            last_repeated: 0,
        });
    }

    fn written(&mut self, result: Result<(), StorageError>) -> JournalTask {
        let Some(in_flight) = self.in_flight.take() else { return JournalTask::None };
        let Err(error) = result else {
            self.repeated.written(in_flight.last_repeated);
            if self.stale {
                self.wake_in(if self.checkpoint_due { Duration::ZERO } else { CHECKPOINT_AFTER });
            }
            return JournalTask::None;
        };
        let documents = in_flight.documents;
        tracing::error!(session = %self.session, %error, documents, "cannot store session; retrying");
        self.abandon_journal();
        self.wake_at = Some(Instant::now() + RETRY_AFTER);
        JournalTask::TurnsLost(in_flight.turns_from)
    }

    fn set_in_flight(&mut self, in_flight: InFlight) {
        // A journal write in flight continues. If it fails, nothing is lost, since the
        // documents that follow contain its entries.
        self.in_flight = Some(in_flight);
    }

    /// Gives up the current journal: a checkpoint is needed.
    fn abandon_journal(&mut self) {
        self.checkpoint_due = true;
        self.stale = true;
        self.pending.clear();
        self.pending_bytes = 0;
    }

    fn entry(&mut self, channel: &ChannelUri, action: Json, at: i64) -> JournalEntry {
        let number = self.next_entry;
        self.next_entry += 1;
        self.pending_bytes += action.get().len();
        self.journaled += action.get().len();
        JournalEntry { number, channel: channel.clone(), at, action }
    }

    fn wake_in(&mut self, delay: Duration) {
        let at = Instant::now() + delay;
        self.wake_at = Some(self.wake_at.map_or(at, |wake_at| wake_at.min(at)));
    }

    fn write_and_wait(
        &self,
        changes: Vec<Change>,
    ) -> impl Future<Output = Result<(), StorageError>> + Send + use<> {
        let written = tokio::time::timeout(WRITE_TIMEOUT, self.storage.write(changes));
        async { written.await.unwrap_or(Err(StorageError::TimedOut)) }
    }
}

/// Why the journal writer woke up.
#[derive(Debug)]
pub(super) enum JournalWake {
    /// The write in flight has finished.
    Written(Result<(), StorageError>),
    /// It is time to write.
    Now,
}

#[cfg(test)]
#[path = "journal_writer_tests.rs"]
mod tests;
