//! Writes the documents of a session, which replace its journal.

use super::Publisher;
use crate::channel::ChannelUri;
use crate::session::chats::Chats;
use crate::session::journal_writer::{JournalTask, JournalWake, TurnsFrom};
use crate::storage::{Change, StorageError};

impl Publisher {
    /// Waits until the journal has something to do. Cancel-safe.
    pub(in crate::session) async fn next_wake(&mut self) -> JournalWake {
        self.journal.wait().await
    }

    /// Handles a wake-up of the journal.
    pub(in crate::session) fn handle_wake(&mut self, wake: JournalWake, chats: &Chats) {
        let quiet = !chats.iter().any(|chat| self.has_running_turn(&chat.uri));
        match self.journal.handle(wake, quiet) {
            JournalTask::None => {}
            JournalTask::TurnsLost(turns) => self.mark_turns_not_stored(turns),
            JournalTask::Checkpoint => self.checkpoint(chats),
        }
    }

    /// Starts writing the documents, without waiting.
    pub(in crate::session) fn checkpoint(&mut self, chats: &Chats) {
        if self.journal.can_checkpoint()
            && let Some((documents, turns_from)) = self.documents(chats)
        {
            self.journal.checkpoint(documents, turns_from);
        }
    }

    /// Stores the complete session and waits for the result.
    pub(in crate::session) async fn store_all(&mut self, chats: &Chats) -> Result<(), StorageError> {
        let lost = self.journal.wait_for_write().await;
        self.mark_turns_not_stored(lost);
        let Some((documents, turns_from)) = self.documents(chats) else { return Ok(()) };
        let stored = self.journal.finish(documents).await;
        if stored.is_err() {
            self.journal.request_checkpoint();
            self.mark_turns_not_stored(turns_from);
        }
        stored
    }

    fn mark_turns_not_stored(&self, turns: TurnsFrom) {
        for (chat, from) in turns {
            self.store.turns_not_stored(&chat, from);
        }
    }

    /// The complete session as storage changes, and the turns that they contain.
    fn documents(&self, chats: &Chats) -> Option<(Vec<Change>, TurnsFrom)> {
        // Only the new session may store a chat that is in transit.
        let here = || chats.iter().filter(|chat| !chat.is_in_transit());
        let uris: Vec<&ChannelUri> = here().map(|chat| &chat.uri).collect();
        let checkpoint = match self.store.checkpoint(&self.session, &uris) {
            Ok(checkpoint) => checkpoint?,
            Err(error) => {
                tracing::error!(session = %self.session, %error, "cannot encode session");
                return None;
            }
        };
        let mut changes = vec![Change::PutSession {
            session: self.session.clone(),
            created_at: self.created_at.clone(),
            row: checkpoint.row,
            state: checkpoint.session,
        }];
        let mut turns_from = TurnsFrom::new();
        for (chat, (state, turns)) in here().zip(checkpoint.chats) {
            changes.push(Change::PutChat {
                chat: chat.uri.clone(),
                session: self.session.clone(),
                conversation: chat.stored_conversation(),
                state,
            });
            if let Some((keep, turns)) = turns {
                turns_from.push((chat.uri.clone(), keep));
                // Repeated, because the earlier write of the link may have failed.
                changes.extend(turns.iter().filter_map(|turn| {
                    let link = chat.links.get(&turn.id)?.clone();
                    Some(Change::PutTurnLink { chat: chat.uri.clone(), turn: turn.id.clone(), link })
                }));
                changes.push(Change::PutTurns { chat: chat.uri.clone(), keep, turns });
            }
        }
        Some((changes, turns_from))
    }
}
