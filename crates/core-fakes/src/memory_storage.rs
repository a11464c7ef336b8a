//! In-memory storage whose reads and writes a test can delay or fail.
//!
//! The data lives as long as one clone does, so a host started with a clone finds the
//! data of the previous host.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahp_types::common::JsonObject;
use bytes::Bytes;
use innkeeper_core::agent::{BoxFuture, History, TurnLink};
use innkeeper_core::audit::{
    AUDIT_DELETIONS, AUDIT_INTERVAL, AuditCursor, AuditPage, AuditQuery, AuditRecord, MAX_AUDIT_AGE,
    MAX_AUDIT_RECORDS,
};
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::ids::{ClientId, ServerSeq};
use innkeeper_core::output::{ATTACHMENTS, OutputId, StoredOutput};
use innkeeper_core::storage::{
    Change, Index, JournalEntry, Json, MAX_HANDLED_DISPATCHES, MAX_KNOWN_CLIENTS, Storage, StorageError,
    StoredChat, StoredClient, StoredConversation, StoredDispatch, StoredEnvelope, StoredRow, StoredRule,
    StoredSession, StoredTurn,
};
use serde_json::Value;
use tokio::sync::oneshot;

/// In-memory storage. Clones share their data.
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage(Arc<Mutex<MemoryState>>);

#[derive(Default)]
struct MemoryState {
    stored: Stored,
    /// The error that writes and loads currently return.
    writes_fail: Option<StorageError>,
    loads_fail: Option<StorageError>,
    /// Number of guards that hold writes.
    held: usize,
    /// The first write that this matches starts holding writes.
    trap: Option<Trap>,
    /// Held writes, oldest first.
    waiting: VecDeque<PendingWrite>,
    /// All stored changes, in order.
    log: Vec<Change>,
    /// The stored data after each write, if recording is on.
    moments: Option<Vec<Stored>>,
}

impl std::fmt::Debug for MemoryState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("MemoryState").field("stored", &self.stored).finish_non_exhaustive()
    }
}

/// Whether writes are held from this write on.
type Trap = Box<dyn Fn(&[Change]) -> bool + Send>;

/// A held write: its changes and the channel for its result.
type PendingWrite = (Vec<Change>, oneshot::Sender<Result<(), StorageError>>);

/// Holds writes until it is dropped.
#[derive(Debug)]
pub struct HeldWrites(MemoryStorage);

impl Drop for HeldWrites {
    fn drop(&mut self) {
        let mut state = self.0.state();
        // A trap that no write matched never started holding.
        if state.trap.take().is_none() {
            state.held = state.held.saturating_sub(1);
        }
        while state.held == 0
            && let Some((changes, reply)) = state.waiting.pop_front()
        {
            // The caller may have dropped its receiver.
            reply.send(state.write(changes)).unwrap_or_default();
        }
    }
}

impl MemoryStorage {
    /// Creates empty storage.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes all further writes fail with this error; `None` makes them succeed.
    pub fn fail_writes(&self, error: Option<StorageError>) {
        self.state().writes_fail = error;
    }

    /// Makes all further loads fail with this error; `None` makes them succeed.
    pub fn fail_loads(&self, error: Option<StorageError>) {
        self.state().loads_fail = error;
    }

    /// Holds all further writes, in order, until the guard is dropped.
    pub fn hold_writes(&self) -> HeldWrites {
        self.state().held += 1;
        HeldWrites(self.clone())
    }

    /// Holds the first write that `trap` matches and all later ones, until the guard is
    /// dropped. Only one such guard may exist at a time.
    pub fn hold_writes_from(&self, trap: impl Fn(&[Change]) -> bool + Send + 'static) -> HeldWrites {
        self.state().trap = Some(Box::new(trap));
        HeldWrites(self.clone())
    }

    /// Number of held writes.
    pub fn waiting(&self) -> usize {
        self.state().waiting.len()
    }

    /// All stored changes so far, in order.
    pub fn log(&self) -> Vec<Change> {
        self.state().log.clone()
    }

    /// The storage that the next host would find if this one were killed now:
    /// acknowledged writes without held ones.
    pub fn after_a_crash(&self) -> Self {
        let state = self.state();
        Self(Arc::new(Mutex::new(MemoryState {
            stored: state.stored.clone(),
            log: state.log.clone(),
            ..MemoryState::default()
        })))
    }

    /// Starts recording the stored data after each write.
    pub fn keep_moments(&self) {
        let mut state = self.state();
        state.moments = Some(vec![state.stored.clone()]);
    }

    /// The storage that the next host would find if this one had been killed before the
    /// first write since [`Self::keep_moments`], or after any of them.
    pub fn moments(&self) -> Vec<Self> {
        let state = self.state();
        let moments = state.moments.iter().flatten();
        moments
            .map(|stored| {
                Self(Arc::new(Mutex::new(MemoryState { stored: stored.clone(), ..MemoryState::default() })))
            })
            .collect()
    }

    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for MemoryStorage {
    fn load_index(&self) -> BoxFuture<Result<Index, StorageError>> {
        let mut state = self.state();
        let loaded = match state.loads_fail.clone() {
            Some(error) => Err(error),
            None => Ok(state.stored.load_index()),
        };
        Box::pin(async move { loaded })
    }

    fn load_session(&self, session: ChannelUri) -> BoxFuture<Result<Option<StoredSession>, StorageError>> {
        let state = self.state();
        let loaded = match state.loads_fail.clone() {
            Some(error) => Err(error),
            None => Ok(state.stored.load_session(&session)),
        };
        Box::pin(async move { loaded })
    }

    fn load_output(&self, output: OutputId) -> BoxFuture<Result<Option<StoredOutput>, StorageError>> {
        let state = self.state();
        let loaded = match state.loads_fail.clone() {
            Some(error) => Err(error),
            None => Ok(state.stored.chats.iter().find_map(|chat| chat.output.get(&output)).cloned()),
        };
        Box::pin(async move { loaded.map(|found| found.map(|(_, output)| output)) })
    }

    fn load_audit(&self, query: AuditQuery) -> BoxFuture<Result<AuditPage, StorageError>> {
        let state = self.state();
        let loaded = match state.loads_fail.clone() {
            Some(error) => Err(error),
            None => Ok(state.stored.load_audit(&query)),
        };
        Box::pin(async move { loaded })
    }

    fn write(&self, changes: Vec<Change>) -> BoxFuture<Result<(), StorageError>> {
        let mut state = self.state();
        if state.trap.take_if(|trap| trap(&changes)).is_some() {
            state.held += 1;
        }
        if state.held == 0 {
            let written = state.write(changes);
            return Box::pin(async move { written });
        }
        let (reply, answer) = oneshot::channel();
        state.waiting.push_back((changes, reply));
        Box::pin(async move {
            answer.await.unwrap_or_else(|_| Err(StorageError::Failed("the storage was dropped".to_owned())))
        })
    }
}

impl MemoryState {
    fn write(&mut self, changes: Vec<Change>) -> Result<(), StorageError> {
        if let Some(error) = &self.writes_fail {
            return Err(error.clone());
        }
        let mut changed = self.stored.clone();
        for change in &changes {
            changed.apply(change)?;
        }
        self.stored = changed;
        self.log.extend(changes);
        if let Some(moments) = &mut self.moments {
            moments.push(self.stored.clone());
        }
        Ok(())
    }
}

/// The stored data.
#[derive(Clone, Debug, Default)]
struct Stored {
    seq: ServerSeq,
    clean: bool,
    root_config: Option<JsonObject>,
    sessions: Vec<MemorySession>,
    /// In creation order.
    chats: Vec<MemoryChat>,
    /// Least recently used first.
    clients: Vec<StoredClient>,
    replay: Vec<StoredEnvelope>,
    rules: Vec<StoredRule>,
    /// Oldest first.
    audit: Vec<(AuditCursor, AuditRecord)>,
}

#[derive(Clone, Debug)]
struct MemorySession {
    uri: ChannelUri,
    created_at: String,
    row: Option<StoredRow>,
    state: Json,
    journal: Vec<JournalEntry>,
}

#[derive(Clone, Debug)]
struct MemoryChat {
    uri: ChannelUri,
    session: ChannelUri,
    conversation: StoredConversation,
    links: BTreeMap<String, TurnLink>,
    state: Json,
    turns: Vec<StoredTurn>,
    /// The pieces of its output, with their turns.
    output: BTreeMap<OutputId, (String, StoredOutput)>,
}

impl MemoryChat {
    /// Deletes the output of turns that it no longer has.
    fn drop_output_of_removed_turns(&mut self) {
        let state: Value = serde_json::from_str(self.state.get()).unwrap_or_default();
        let running = state["activeTurn"]["id"].as_str();
        let turns = &self.turns;
        self.output.retain(|_, (turn, _)| {
            turn == ATTACHMENTS
                || running == Some(turn.as_str())
                || turns.iter().any(|known| known.id == *turn)
        });
    }

    fn is_default(&self) -> bool {
        self.uri == ChannelUri::default_chat_of(&self.session)
    }
}

impl Stored {
    fn load_index(&mut self) -> Index {
        let clean = std::mem::take(&mut self.clean);
        let excess = self.clients.len().saturating_sub(MAX_KNOWN_CLIENTS);
        self.clients.drain(..excess);
        let index = Index {
            seq: self.seq,
            rows: self.sessions.iter().filter_map(|session| session.row.clone()).collect(),
            unlisted: self
                .sessions
                .iter()
                .filter(|session| session.row.is_none())
                .map(|session| session.uri.clone())
                .collect(),
            with_journal: self
                .sessions
                .iter()
                .filter(|session| !session.journal.is_empty())
                .map(|session| session.uri.clone())
                .collect(),
            chats: self
                .chats
                .iter()
                .filter(|chat| !chat.is_default())
                .map(|chat| (chat.uri.clone(), chat.session.clone()))
                .collect(),
            root_config: self.root_config.clone(),
            rules: self.rules.clone(),
            clients: self.clients.clone(),
            replay: std::mem::take(&mut self.replay),
            clean,
        };
        self.clear_clean_shutdown();
        index
    }

    fn clear_clean_shutdown(&mut self) {
        self.clean = false;
        self.replay.clear();
        for client in &mut self.clients {
            client.marks.clear();
        }
    }

    fn load_session(&self, uri: &ChannelUri) -> Option<StoredSession> {
        let session = self.sessions.iter().find(|session| session.uri == *uri)?;
        let mut chats: Vec<&MemoryChat> = self.chats.iter().filter(|chat| chat.session == *uri).collect();
        chats.sort_by_key(|chat| !chat.is_default());
        Some(StoredSession {
            created_at: session.created_at.clone(),
            listed: session.row.is_some(),
            state: Arc::clone(&session.state),
            chats: chats
                .into_iter()
                .map(|chat| StoredChat {
                    uri: chat.uri.clone(),
                    conversation: chat.conversation.clone(),
                    links: chat.links.clone().into_iter().collect(),
                    state: Arc::clone(&chat.state),
                    turns: chat.turns.clone(),
                })
                .collect(),
            journal: session.journal.clone(),
        })
    }

    fn apply(&mut self, change: &Change) -> Result<(), StorageError> {
        self.clear_clean_shutdown();
        match change {
            Change::PutSession { session, created_at, row, state } => self.put_session(MemorySession {
                uri: session.clone(),
                created_at: created_at.clone(),
                row: row.clone(),
                state: Arc::clone(state),
                journal: Vec::new(),
            }),
            Change::PutRow(row) => {
                if let Ok(known) = self.session(&row.session) {
                    known.row = Some(row.clone());
                }
            }
            Change::PutChat { chat, session, conversation, state } => {
                self.session(session)?;
                self.put_chat(MemoryChat {
                    uri: chat.clone(),
                    session: session.clone(),
                    conversation: conversation.clone(),
                    links: BTreeMap::new(),
                    state: Arc::clone(state),
                    turns: Vec::new(),
                    output: BTreeMap::new(),
                });
            }
            Change::PutTurns { chat, keep, turns } => {
                let known = self.chats.iter_mut().find(|known| known.uri == *chat);
                let known = known.ok_or_else(|| missing("chat", chat))?;
                known.turns.truncate(*keep);
                known.turns.extend_from_slice(turns);
                known.drop_output_of_removed_turns();
            }
            Change::PutOutput { chat, turn, id, output } => {
                if let Some(known) = self.chats.iter_mut().find(|known| known.uri == *chat) {
                    known.output.entry(*id).or_insert_with(|| (turn.clone(), output.clone()));
                }
            }
            Change::CopyOutput { from, to, turns } => self.copy_output(from, to, turns),
            Change::PutResumeToken { chat, token } => {
                if let Some(known) = self.chats.iter_mut().find(|known| known.uri == *chat) {
                    known.conversation.resume_token = Some(token.clone());
                }
            }
            Change::PutTurnLink { chat, turn, link } => {
                if let Some(known) = self.chats.iter_mut().find(|known| known.uri == *chat) {
                    known.links.insert(turn.clone(), link.clone());
                }
            }
            Change::RemoveTurnLinks { chat, turns } => {
                if let Some(known) = self.chats.iter_mut().find(|known| known.uri == *chat) {
                    known.links.retain(|turn, _| !turns.contains(turn));
                }
            }
            Change::Journal { session, entries } => self.append_journal(session, entries)?,
            Change::TrimJournal { session, through } => {
                if let Ok(session) = self.session(session) {
                    session.journal.retain(|entry| entry.number > *through);
                }
            }
            Change::RemoveSession { session } => {
                self.sessions.retain(|known| known.uri != *session);
                let removed: Vec<MemoryChat> =
                    self.chats.extract_if(.., |chat| chat.session == *session).collect();
                self.audit.retain(|(_, record)| {
                    record.session != *session && !removed.iter().any(|chat| chat.uri == record.chat)
                });
            }
            Change::RemoveChat { chat } => self.remove_chat(chat),
            Change::PutRule(rule) => self.put_rule(rule)?,
            Change::PutClient { .. }
            | Change::Handled { .. }
            | Change::Answered { .. }
            | Change::PutRootConfig { .. }
            | Change::RemoveRule { .. }
            | Change::Audit(_)
            | Change::ReserveSeq { .. }
            | Change::CleanShutdown { .. } => self.apply_to_host(change),
        }
        Ok(())
    }

    /// Stores a session; an existing one keeps its journal.
    fn put_session(&mut self, mut put: MemorySession) {
        match self.sessions.iter_mut().find(|known| known.uri == put.uri) {
            Some(known) => {
                put.journal = std::mem::take(&mut known.journal);
                *known = put;
            }
            None => self.sessions.push(put),
        }
    }

    /// Stores a chat; an existing one keeps its turns and links.
    fn put_chat(&mut self, mut put: MemoryChat) {
        // The real store does not keep a rebuilt history either.
        if matches!(put.conversation.history, History::Rebuild(_)) {
            put.conversation.history = History::Resume;
        }
        match self.chats.iter_mut().find(|known| known.uri == put.uri) {
            Some(known) => {
                put.turns = std::mem::take(&mut known.turns);
                put.links = std::mem::take(&mut known.links);
                put.output = std::mem::take(&mut known.output);
                *known = put;
            }
            None => self.chats.push(put),
        }
    }

    fn append_journal(&mut self, session: &ChannelUri, entries: &[JournalEntry]) -> Result<(), StorageError> {
        let journal = &mut self.session(session)?.journal;
        for entry in entries {
            if journal.iter().any(|known| known.number == entry.number) {
                return Err(StorageError::Failed(format!("journal entry {} already exists", entry.number)));
            }
            journal.push(entry.clone());
        }
        journal.sort_by_key(|entry| entry.number);
        Ok(())
    }

    fn copy_output(&mut self, from: &ChannelUri, to: &ChannelUri, turns: &[String]) {
        let Some(source) = self.chats.iter().find(|chat| chat.uri == *from) else { return };
        let copied = source.output.clone().into_iter().filter(|(_, (turn, _))| turns.contains(turn));
        let copied: Vec<_> = copied.collect();
        if let Some(target) = self.chats.iter_mut().find(|chat| chat.uri == *to) {
            for (id, output) in copied {
                target.output.entry(id).or_insert(output);
            }
        }
    }

    fn put_rule(&mut self, put: &StoredRule) -> Result<(), StorageError> {
        let same = |known: &StoredRule| {
            known.scope == put.scope && known.behavior == put.behavior && known.rule == put.rule
        };
        if !self.rules.iter().any(same) {
            put.check_limits(self.rules.len())?;
            self.rules.push(put.clone());
        }
        Ok(())
    }

    fn add_audit(&mut self, record: &AuditRecord) {
        if !self.sessions.iter().any(|session| session.uri == record.session) {
            return;
        }
        let number = self.audit.last().map_or(1, |(AuditCursor(newest), _)| newest + 1);
        self.audit.push((AuditCursor(number), record.clone().shortened()));
        if !number.is_multiple_of(AUDIT_INTERVAL) {
            return;
        }
        let mut by_age: Vec<(i64, u64)> =
            self.audit.iter().map(|(AuditCursor(number), record)| (record.at, *number)).collect();
        by_age.sort_unstable();
        let expired = by_age.into_iter().filter(|(at, _)| *at < record.at.saturating_sub(MAX_AUDIT_AGE));
        let expired: Vec<u64> = expired.map(|(_, number)| number).take(AUDIT_DELETIONS).collect();
        self.audit.retain(|(AuditCursor(number), _)| !expired.contains(number));
        let last_excess = number.saturating_sub(MAX_AUDIT_RECORDS - AUDIT_INTERVAL);
        let excess = self.audit.iter().filter(|(AuditCursor(number), _)| *number <= last_excess).count();
        self.audit.drain(..excess.min(AUDIT_DELETIONS));
    }

    fn load_audit(&self, query: &AuditQuery) -> AuditPage {
        let selected = |(cursor, record): &&(AuditCursor, AuditRecord)| {
            query.before.is_none_or(|before| *cursor < before)
                && query.session.as_ref().is_none_or(|session| record.session == *session)
        };
        let mut found = self.audit.iter().rev().filter(selected);
        let page: Vec<_> = found.by_ref().take(query.limit).collect();
        let next = found.next().and(page.last()).map(|(cursor, _)| *cursor);
        AuditPage { records: page.into_iter().map(|(_, record)| record.clone()).collect(), next }
    }

    fn remove_chat(&mut self, chat: &ChannelUri) {
        self.chats.retain(|known| known.uri != *chat);
        self.audit.retain(|(_, record)| record.chat != *chat);
        for session in &mut self.sessions {
            session.journal.retain(|entry| entry.channel != *chat);
        }
    }

    fn apply_to_host(&mut self, change: &Change) {
        match change {
            Change::PutClient { client, restarted } => {
                let mut known = self.take_client(client);
                if *restarted {
                    known.handled.clear();
                }
                self.clients.push(known);
            }
            Change::Handled { client, mark } => {
                let known = self.client(client);
                known.handled.push(StoredDispatch { mark: *mark, answer: None });
                let excess = known.handled.len().saturating_sub(MAX_HANDLED_DISPATCHES);
                known.handled.drain(..excess);
            }
            Change::Answered { client, mark, answer } => {
                let open = StoredDispatch { mark: *mark, answer: None };
                let mut handled = self
                    .clients
                    .iter_mut()
                    .filter(|known| known.id == *client)
                    .flat_map(|known| &mut known.handled);
                if let Some(dispatch) = handled.rfind(|dispatch| **dispatch == open) {
                    dispatch.answer = Some(*answer);
                }
            }
            Change::PutRootConfig { values } => self.root_config = Some(values.clone()),
            Change::RemoveRule { scope, behavior, rule } => self
                .rules
                .retain(|known| known.scope != *scope || known.behavior != *behavior || known.rule != *rule),
            Change::Audit(record) => self.add_audit(record),
            Change::ReserveSeq { through } => self.seq = self.seq.max(*through),
            Change::CleanShutdown { seq, replay, clients } => {
                self.seq = *seq;
                self.clean = true;
                self.replay = replay.clone();
                self.redact_replay();
                for client in clients {
                    let excess = client.handled.len().saturating_sub(MAX_HANDLED_DISPATCHES);
                    let known = self.client(&client.id);
                    known.handled = client.handled[excess..].to_vec();
                    known.marks = client.marks.clone();
                }
            }
            _ => {}
        }
    }

    /// Leaves out the actions of deleted channels, except for the first one's number.
    fn redact_replay(&mut self) {
        let mut replay = std::mem::take(&mut self.replay);
        if let Some(first) = replay.first_mut()
            && !self.has(&first.channel)
        {
            (first.channel, first.only_for, first.envelope) = (ChannelUri::new(""), None, Bytes::new());
        }
        replay.retain(|entry| entry.channel.as_str().is_empty() || self.has(&entry.channel));
        self.replay = replay;
    }

    /// Whether a channel exists after a restart. Other channels are not replayed.
    fn has(&self, channel: &ChannelUri) -> bool {
        channel.is_root()
            || self.sessions.iter().any(|session| session.uri == *channel)
            || self.chats.iter().any(|chat| chat.uri == *channel)
    }

    fn session(&mut self, uri: &ChannelUri) -> Result<&mut MemorySession, StorageError> {
        self.sessions.iter_mut().find(|session| session.uri == *uri).ok_or_else(|| missing("session", uri))
    }

    fn client(&mut self, id: &ClientId) -> &mut StoredClient {
        let at = self.clients.iter().position(|client| client.id == *id);
        let at = at.unwrap_or_else(|| {
            self.clients.push(new_client(id));
            self.clients.len() - 1
        });
        &mut self.clients[at]
    }

    fn take_client(&mut self, id: &ClientId) -> StoredClient {
        match self.clients.iter().position(|client| client.id == *id) {
            Some(at) => self.clients.remove(at),
            None => new_client(id),
        }
    }
}

fn new_client(id: &ClientId) -> StoredClient {
    StoredClient { id: id.clone(), handled: Vec::new(), marks: Vec::new() }
}

fn missing(kind: &str, uri: &ChannelUri) -> StorageError {
    StorageError::Failed(format!("unknown {kind} {uri}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserve(through: u64) -> Vec<Change> {
        vec![Change::ReserveSeq { through: ServerSeq(through) }]
    }

    #[tokio::test]
    async fn held_writes_are_stored_in_order_on_release_and_lost_on_crash() {
        let storage = MemoryStorage::new();
        storage.write(reserve(1)).await.unwrap();
        let held = storage.hold_writes();
        let config = |name: &str| {
            let values = [(name.to_owned(), true.into())].into_iter().collect();
            storage.write(vec![Change::PutRootConfig { values }])
        };
        let (first, second) = (config("first"), config("second"));
        assert_eq!(storage.waiting(), 2);
        let crashed = storage.after_a_crash();
        drop(held);
        first.await.unwrap();
        second.await.unwrap();
        let config = storage.load_index().await.unwrap().root_config.unwrap();
        assert!(config.contains_key("second"));
        let index = crashed.load_index().await.unwrap();
        assert_eq!((index.seq, index.root_config), (ServerSeq(1), None));
    }

    #[tokio::test]
    async fn failing_writes_and_loads_change_nothing() {
        let storage = MemoryStorage::new();
        storage.fail_writes(Some(StorageError::Full));
        assert!(matches!(storage.write(reserve(9)).await, Err(StorageError::Full)));
        storage.fail_writes(None);
        storage.fail_loads(Some(StorageError::TimedOut));
        assert!(matches!(storage.load_index().await, Err(StorageError::TimedOut)));
        storage.fail_loads(None);
        assert_eq!(storage.load_index().await.unwrap().seq, ServerSeq(0));
        assert!(storage.log().is_empty());
    }
}
