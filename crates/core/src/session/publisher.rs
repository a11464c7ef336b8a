//! Publishes and stores a session's changes.
//!
//! The table of actions says which ones are `Ahead`: turn boundaries and users' choices. The
//! others are stored shortly after they are published.
//!
//! | method | stored | if storage fails |
//! |---|---|---|
//! | `publish_client_action` | before, if `Ahead`; otherwise after | rejected, if `Ahead` |
//! | `write_if_ahead`, then `publish_host_action` | before, if one is `Ahead`; otherwise after | published, stored later |
//! | `publish_and_remove_chats` | before, with the removal | published and removed, stored later |
//! | `store_then_publish`, `add_chat`, `remove_chats` | before | not published; the caller gets the error |
//! | `publish_derived` | after | published; it can be derived again |
//! | `publish_row` | after | published; stored with the documents |
//! | `write_change`, `write_soon` | no action to publish | stored with the documents, or found again |
//!
//! What has happened, such as agent output, is published even if storage fails: the user has to see
//! it, and it is stored as soon as storage works again. `checkpoint` writes the documents.

mod checkpoint;

use std::sync::Arc;
use std::time::Duration;

use ahp_types::actions::{SessionChatAddedAction, StateAction};
use ahp_types::state::{ChangesSummary, ChatOrigin, ChatState, SessionState};
use tokio::time::Instant;

use super::chats::ChatSeed;
use super::decide::{AuditFacts, chat_removed};
use super::handle::{ChatError, ClientDispatch};
use super::journal_writer::JournalWriter;
use super::large_output::OutputPiece;
use super::projection;
use super::session_meta::WaitingTimes;
use crate::action::{Durability, meaning};
use crate::audit::AuditRecord;
use crate::channel::ChannelUri;
use crate::clock::{Clock, wire_time};
use crate::edits::ChangeCounts;
use crate::output::{ATTACHMENTS, OutputId, StoredOutput};
use crate::state::{Action, ChannelState, ChatDoc, StateStore};
use crate::storage::{Change, Json, Storage, StorageError, StoredTurn};

/// The published state, the journal and the clock of one session.
pub(super) struct Publisher {
    session: ChannelUri,
    created_at: String,
    store: Arc<StateStore>,
    journal: JournalWriter,
    clock: Arc<dyn Clock>,
    /// The start of this session's monotonic clock.
    began: Instant,
    /// Since when the session's requests wait for the user.
    waiting: WaitingTimes,
    /// The counts of changes in the session's row.
    changes: Option<ChangesSummary>,
}

/// The session and storage data from which a publisher is created.
pub(super) struct PublisherSeed {
    pub(super) session: ChannelUri,
    pub(super) created_at: String,
    /// The number of the next journal entry.
    pub(super) next_entry: u64,
    /// The counts of changes in the session's row.
    pub(super) changes: Option<ChangesSummary>,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) store: Arc<StateStore>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Publisher {
    pub(super) fn new(seed: PublisherSeed) -> Self {
        let PublisherSeed { session, created_at, next_entry, changes, storage, store, clock } = seed;
        let journal = JournalWriter::new(storage, session.clone(), next_entry);
        Self {
            session,
            created_at,
            store,
            journal,
            clock,
            began: Instant::now(),
            waiting: WaitingTimes::default(),
            changes,
        }
    }

    /// The published state, for reading and for the lifetime of channels.
    pub(super) fn store(&self) -> &StateStore {
        &self.store
    }

    /// Reads the session's document and that of a chat.
    pub(super) fn with_state<R>(
        &self,
        chat: &ChannelUri,
        look: impl FnOnce(&SessionState, &ChatState) -> R,
    ) -> Option<R> {
        self.store
            .read_both((&self.session, chat), |session, chat| Some(look(session.session()?, chat.chat()?)))
            .flatten()
    }

    /// Reads the session's document.
    pub(super) fn with_session<R>(&self, look: impl FnOnce(&SessionState) -> R) -> Option<R> {
        self.store.read(&self.session, |state| state.session().map(look)).flatten()
    }

    /// Whether a turn runs in a chat.
    pub(super) fn has_running_turn(&self, chat: &ChannelUri) -> bool {
        self.store
            .read(chat, |state| state.chat().is_some_and(|chat| chat.active_turn.is_some()))
            .unwrap_or(false)
    }

    /// The encoded size of the response of the turn that runs in a chat.
    pub(super) fn running_turn_size(&self, chat: &ChannelUri) -> usize {
        let parts = |state: &ChannelState| Some(state.chat()?.active_turn.as_ref()?.response_parts.clone());
        let parts = self.store.read(chat, parts).flatten().unwrap_or_default();
        serde_json::to_string(&parts).map_or(0, |encoded| encoded.len())
    }

    /// The time since the session was loaded.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The wall-clock time, formatted for the protocol.
    pub(super) fn wire_time(&self) -> String {
        wire_time(self.clock.now())
    }

    /// Rejects a client's action.
    pub(super) fn reject(&self, dispatch: &ClientDispatch, reason: &str) {
        tracing::debug!(session = %self.session, reason, "client action rejected");
        if let Err(error) =
            self.store.reject(&dispatch.channel, &dispatch.action, dispatch.ticket.origin(), reason)
        {
            tracing::error!(session = %self.session, %error, "cannot send rejection");
        }
    }

    /// Publishes a client's action, unchanged or amended. The error is the rejection reason.
    pub(super) async fn publish_client_action(
        &mut self,
        dispatch: &ClientDispatch,
        action: &Action,
    ) -> Result<(), String> {
        let (channel, origin) = (&dispatch.channel, dispatch.ticket.origin());
        let encoded = action.encoded().map_err(|error| error.to_string())?;
        let at = self.now();
        let rule = meaning(action.typed()).client;
        // `decide` has rejected actions without a rule.
        let ahead = rule.is_none_or(|rule| rule.durability == Durability::Ahead);
        let handled = dispatch.ticket.mark().map(|mark| (&origin.client, mark));
        if ahead {
            let entry = vec![(channel.clone(), encoded.clone())];
            let written = self.journal.write_ahead(Vec::new(), entry, handled, at).await;
            written.map_err(|error| error.to_string())?;
        }
        let answer = match self.store.commit(channel, action, Some(origin)) {
            Ok(answer) => answer,
            Err(error) => {
                // The action may be in the journal; the documents will not contain it.
                self.journal.request_checkpoint();
                return Err(error.to_string());
            }
        };
        if !ahead {
            self.journal.append(channel, encoded, at);
        } else if let Some((client, mark)) = handled {
            self.journal.record_answer(client, mark, answer);
        }
        Ok(())
    }

    /// Writes the host's own actions to the journal if one of them must be written before it
    /// is published. [`Self::publish_host_action`] takes the result.
    pub(super) async fn write_if_ahead(&mut self, actions: &[(ChannelUri, Action)]) -> Durability {
        if actions.iter().all(|(_, action)| meaning(action.typed()).host != Durability::Ahead) {
            return Durability::After;
        }
        // Published even if the write fails, because it has already happened.
        self.write_or_request_checkpoint(Vec::new(), actions).await.ok();
        Durability::Ahead
    }

    /// Publishes one of the host's own actions. Returns whether it was published.
    pub(super) fn publish_host_action(
        &mut self,
        channel: &ChannelUri,
        action: &Action,
        written: Durability,
    ) -> bool {
        let published = self.commit(channel, action);
        if published
            && written == Durability::After
            && let Ok(encoded) = action.encoded()
        {
            let at = self.now();
            self.journal.append(channel, encoded, at);
        }
        published
    }

    /// Publishes the host's own actions that must survive a restart and deletes chats, in one
    /// write. The actions are published even if the write fails, because they describe what
    /// has happened.
    pub(super) async fn publish_and_remove_chats(
        &mut self,
        actions: &[(ChannelUri, Action)],
        replaced_chats: &[ChannelUri],
    ) {
        let changes = replaced_chats.iter().map(|chat| Change::RemoveChat { chat: chat.clone() });
        let stored = self.write_or_request_checkpoint(changes.collect(), actions).await;
        for (channel, action) in actions {
            self.commit(channel, action);
        }
        if stored.is_err() {
            for chat in replaced_chats {
                self.journal.schedule_removal(chat.clone());
            }
        }
        self.store.remove(replaced_chats);
    }

    /// Publishes an action on the session's channel if it can be stored.
    pub(super) async fn store_then_publish(&mut self, action: &Action) -> Result<(), StorageError> {
        self.write_ahead(Vec::new(), std::slice::from_ref(action)).await?;
        self.commit(&self.session.clone(), action);
        Ok(())
    }

    /// Publishes a derived action on the session's channel. It can be derived again, so it is
    /// not written ahead.
    pub(super) fn publish_derived(&mut self, update: StateAction) {
        let (at, action) = (self.now(), Action::own(update));
        match (self.store.commit(&self.session, &action, None), action.encoded()) {
            (Ok(_), Ok(encoded)) => self.journal.append(&self.session, encoded, at),
            (Err(error), _) => {
                tracing::error!(session = %self.session, %error, "cannot publish chat summary");
            }
            (Ok(_), Err(_)) => self.journal.request_checkpoint(),
        }
    }

    /// Sets the counts of changes for the session's row.
    pub(super) fn set_counts(&mut self, counts: ChangeCounts) {
        self.changes = projection::changes_summary(Some(counts), self.changes.as_ref());
    }

    /// Publishes the session's row in the session list, if it has changed.
    pub(super) fn publish_row(&mut self) {
        let now = self.wire_time();
        let Self { session: uri, created_at, store, waiting, journal, changes, .. } = self;
        let row = store.read(uri, |state| {
            let session = state.session()?;
            let since = waiting.update(session, &now);
            Some(projection::row(uri, created_at, session, since, changes.clone()))
        });
        if let Some(row) = row.flatten().and_then(|row| store.put_row(uri, row)) {
            journal.write_change(Change::PutRow(row));
        }
    }

    /// Stores and publishes a new chat and its entry in the session's list.
    pub(super) async fn add_chat(
        &mut self,
        seed: &ChatSeed,
        doc: ChatDoc,
        turns: Vec<StoredTurn>,
    ) -> Result<(), ChatError> {
        let copied = copied_output(doc.open(), &turns);
        let summary = projection::summary_of(doc.open());
        let added = Action::own(StateAction::SessionChatAdded(SessionChatAddedAction { summary }));
        let state: Json = serde_json::value::to_raw_value(&doc.header()).map_err(unencodable)?.into();
        let chat = seed.uri.clone();
        let mut changes = vec![
            Change::PutChat {
                chat: chat.clone(),
                session: self.session.clone(),
                conversation: seed.conversation.clone(),
                state,
            },
            Change::PutTurns { chat: chat.clone(), keep: 0, turns },
        ];
        changes.extend(copied);
        changes.extend(seed.links.iter().map(|(turn, link)| Change::PutTurnLink {
            chat: chat.clone(),
            turn: turn.clone(),
            link: link.clone(),
        }));
        if let Err(error) = self.write_ahead(changes, std::slice::from_ref(&added)).await {
            // After a timeout the chat may still be written.
            self.journal.schedule_removal(chat);
            return Err(error.into());
        }
        if self.store.create(vec![(chat.clone(), ChannelState::Chat(Box::new(doc)))]).is_err() {
            self.journal.schedule_removal(chat.clone());
            return Err(ChatError::Exists(chat));
        }
        self.commit(&self.session.clone(), &added);
        self.journal.cancel_removal(&chat);
        Ok(())
    }

    /// Deletes chats and their channels, with one write.
    pub(super) async fn remove_chats(&mut self, chats: &[ChannelUri]) -> Result<(), StorageError> {
        let actions: Vec<Action> = chats.iter().map(|chat| Action::own(chat_removed(chat))).collect();
        let changes = chats.iter().map(|chat| Change::RemoveChat { chat: chat.clone() }).collect();
        if let Err(error) = self.write_ahead(changes, &actions).await {
            for chat in chats {
                // After a timeout the turns may have been deleted from storage.
                self.store.turns_not_stored(chat, 0);
            }
            self.journal.request_checkpoint();
            return Err(error);
        }
        for (chat, action) in chats.iter().zip(&actions) {
            self.commit(&self.session.clone(), action);
            self.store.remove(std::slice::from_ref(chat));
        }
        Ok(())
    }

    /// Stores pieces of a chat's output, before the actions that refer to them are published.
    pub(super) async fn store_output(&mut self, chat: &ChannelUri, pieces: Vec<OutputPiece>) {
        for OutputPiece { id, turn, content_type, body } in pieces {
            let output = StoredOutput { content_type, body };
            self.journal.write_output(Change::PutOutput { chat: chat.clone(), turn, id, output }).await;
        }
    }

    /// Stores snapshots of attachments, before the message that refers to them is published.
    pub(super) async fn store_snapshots(
        &mut self,
        chat: &ChannelUri,
        snapshots: Vec<(OutputId, StoredOutput)>,
    ) {
        let turn = ATTACHMENTS.to_owned();
        let piece = |(id, StoredOutput { content_type, body })| OutputPiece {
            id,
            turn: turn.clone(),
            content_type,
            body,
        };
        self.store_output(chat, snapshots.into_iter().map(piece).collect()).await;
    }

    /// Writes a change that is not a journal entry, after all earlier writes.
    pub(super) fn write_change(&self, change: Change) {
        self.journal.write_change(change);
    }

    /// Writes a change with the next journal write.
    pub(super) fn write_soon(&mut self, change: Change) {
        self.journal.write_soon(change);
    }

    /// Requests that the documents are written as soon as possible.
    pub(super) fn request_checkpoint(&mut self) {
        self.journal.request_checkpoint();
    }

    /// Publishes an action that is in the journal or will be. Returns whether it was published.
    fn commit(&mut self, channel: &ChannelUri, action: &Action) -> bool {
        let committed = self.store.commit(channel, action, None);
        if let Err(error) = &committed {
            tracing::error!(%channel, %error, "cannot publish action");
            self.journal.request_checkpoint();
        }
        committed.is_ok()
    }

    /// Writes actions that have happened, and requests a checkpoint if that fails.
    async fn write_or_request_checkpoint(
        &mut self,
        changes: Vec<Change>,
        actions: &[(ChannelUri, Action)],
    ) -> Result<(), StorageError> {
        let entries = actions
            .iter()
            .filter_map(|(channel, action)| Some((channel.clone(), action.encoded().ok()?)))
            .collect();
        let at = self.now();
        let stored = self.journal.write_ahead(changes, entries, None, at).await;
        if let Err(error) = &stored {
            tracing::error!(session = %self.session, %error, "cannot store actions before publishing them");
            self.journal.request_checkpoint();
        }
        stored
    }

    /// Writes actions on the session's channel that are published only if this succeeds.
    async fn write_ahead(&mut self, changes: Vec<Change>, actions: &[Action]) -> Result<(), StorageError> {
        let mut entries = Vec::with_capacity(actions.len());
        for action in actions {
            entries.push((self.session.clone(), action.encoded().map_err(unencodable)?));
        }
        let at = self.now();
        self.journal.write_ahead(changes, entries, None, at).await
    }

    /// Records a decision about a tool call.
    pub(super) fn write_audit(&mut self, chat: &ChannelUri, facts: AuditFacts) {
        let AuditFacts { turn, tool_call, tool, input_digest, decision, layer, rule, client } = facts;
        let record = AuditRecord {
            at: self.now(),
            session: self.session.clone(),
            chat: chat.clone(),
            turn,
            tool_call,
            tool,
            input_digest,
            decision,
            layer,
            rule,
            client,
        };
        self.journal.write_soon(Change::Audit(record.shortened()));
    }

    pub(super) fn now(&self) -> i64 {
        self.clock.now().as_millisecond()
    }
}

/// The output that a fork has in common with its source.
fn copied_output(fork: &ChatState, turns: &[StoredTurn]) -> Option<Change> {
    let Some(ChatOrigin::Fork { chat, .. }) = &fork.origin else { return None };
    let turns = turns.iter().map(|turn| turn.id.clone()).chain([ATTACHMENTS.to_owned()]).collect();
    Some(Change::CopyOutput { from: ChannelUri::new(chat), to: ChannelUri::new(&fork.resource), turns })
}

fn unencodable(error: serde_json::Error) -> StorageError {
    StorageError::Failed(error.to_string())
}
