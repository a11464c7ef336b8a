//! The state of every channel, the sequence of actions, and the subscribers.
//!
//! Assigning a sequence number, encoding, reducing and queueing to every subscriber is
//! one critical section. So is taking a snapshot, registering the subscriber and queueing
//! the response. All methods are synchronous and short; the lock is never held while
//! waiting.

mod audience;
mod list;
mod observers;
mod paging;
mod publishing;
mod subscriptions;

pub use list::RowsPage;
pub use observers::{Observed, ObserverScope, StateObserver};
pub use paging::FetchError;
pub use publishing::CommitError;
pub use subscriptions::{Missed, Subscription};

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahp_types::state::RootState;
use tokio::sync::Notify;

use super::clients::{KnownClients, Marks};
use super::frame::Frame;
use super::outbox::{CloseReason, Delivery, Outbox};
use super::outbox_budget::OutboxBudget;
use super::replay::ReplayLog;
use super::rows::Rows;
use super::snapshot::ChannelState;
use super::write_load::WriteLoad;
use crate::channel::ChannelUri;
use crate::ids::{ClientId, ConnectionId, ServerSeq};
use crate::storage::{Index, Json, StoredClient, StoredEnvelope, StoredRow, StoredTurn};
use observers::Observers;

/// Owns all published state. Shared; every method takes one short lock.
#[derive(Debug)]
pub struct StateStore {
    inner: Mutex<StoreInner>,
    /// Notified when a dispatch was delivered to its handler, or dropped before that.
    pub(super) dispatch_settled: Notify,
    /// The memory of all connections' outboxes.
    budget: Arc<OutboxBudget>,
}

#[derive(Debug)]
pub(super) struct StoreInner {
    /// Sequence number of the last published action.
    seq: ServerSeq,
    channels: HashMap<ChannelUri, Channel>,
    pub(super) connections: HashMap<ConnectionId, Attached>,
    next_connection: u64,
    /// Clients that may reconnect.
    pub(super) clients: KnownClients,
    /// Recent actions, for clients that missed them.
    log: ReplayLog,
    /// Rows of the session list. A provisional session does not have a row.
    rows: Rows,
    /// Consumers inside the process.
    observers: Observers,
    /// The rate of writes that publishing causes.
    load: WriteLoad,
}

#[derive(Debug)]
struct Channel {
    state: ChannelState,
    subscribers: Vec<Subscriber>,
}

#[derive(Clone, Debug)]
struct Subscriber {
    connection: ConnectionId,
    /// The connection's outbox, stored here to avoid a lookup for every commit.
    outbox: Arc<Outbox>,
    delivery: Delivery,
}

/// A client's connection.
#[derive(Debug)]
pub(super) struct Attached {
    outbox: Arc<Outbox>,
    /// The client, once it has identified itself.
    client: Option<ClientId>,
    /// The connection's subscriptions.
    marks: Marks,
    /// For each chat sent without its older turns, the oldest turn that was sent.
    windows: HashMap<ChannelUri, String>,
    /// The last sequence number that the client had seen when it reconnected on this
    /// connection. The client may repeat earlier dispatches without a response.
    pub(super) seen: Option<ServerSeq>,
}

impl Attached {
    /// The marks of channels that a replay can update. A chat that was sent in part needs
    /// a snapshot, because the range that the client has is not kept.
    fn whole_marks(&self) -> Marks {
        let mut marks = self.marks.clone();
        marks.retain(|uri, _| !self.windows.contains_key(uri));
        marks
    }
}

/// A session and its chats in stored form.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    pub(crate) session: Json,
    /// The chats in the requested order.
    pub(crate) chats: Vec<(Json, ChangedTurns)>,
    pub(crate) row: Option<StoredRow>,
}

/// The turns that are not stored yet, and the number of turns before them.
pub(crate) type ChangedTurns = Option<(usize, Vec<StoredTurn>)>;

/// Counters and gauges for `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Sequence number of the last published action.
    pub server_seq: ServerSeq,
    /// Number of open connections.
    pub connections: usize,
    /// Number of subscriptions of all connections.
    pub subscriptions: usize,
    /// Number of bytes in all outboxes.
    pub outbox_bytes: usize,
}

impl StateStore {
    /// Creates a store with only the root channel.
    pub fn new(root: RootState) -> Self {
        let root = Channel { state: ChannelState::Root(Box::new(root)), subscribers: Vec::new() };
        Self {
            budget: Arc::default(),
            inner: Mutex::new(StoreInner {
                seq: ServerSeq(0),
                channels: HashMap::from([(ChannelUri::root(), root)]),
                connections: HashMap::new(),
                next_connection: 1,
                clients: KnownClients::default(),
                log: ReplayLog::default(),
                rows: Rows::default(),
                observers: Observers::default(),
                load: WriteLoad::default(),
            }),
            dispatch_settled: Notify::new(),
        }
    }

    /// Restores a store from the state of an earlier host.
    pub(crate) fn restored(root: RootState, index: Index) -> Self {
        let store = Self::new(root);
        let mut inner = store.lock();
        inner.seq = index.seq;
        inner.log = ReplayLog::restored(index.seq, index.replay);
        for client in index.clients {
            inner.clients.restore(client);
        }
        for row in index.rows {
            inner.rows.restore(row);
        }
        drop(inner);
        store
    }

    /// Returns the data that a later host needs to continue from here.
    pub(crate) fn shutdown_state(&self) -> (ServerSeq, Vec<StoredEnvelope>, Vec<StoredClient>) {
        let mut inner = self.lock();
        let StoreInner { connections, clients, .. } = &mut *inner;
        for (connection, attached) in connections {
            if let Some(client) = &attached.client {
                clients.keep(client, *connection, attached.whole_marks());
            }
        }
        (inner.seq, inner.log.stored(), inner.clients.stored())
    }

    /// Sequence number of the last published action.
    pub fn seq(&self) -> ServerSeq {
        self.lock().seq
    }

    /// Registers a connection without subscriptions.
    pub fn attach(&self, outbox: Arc<Outbox>) -> ConnectionId {
        self.budget.add(&outbox);
        let mut inner = self.lock();
        let id = ConnectionId(inner.next_connection);
        inner.next_connection += 1;
        let attached =
            Attached { outbox, client: None, marks: Marks::new(), windows: HashMap::new(), seen: None };
        inner.connections.insert(id, attached);
        id
    }

    /// Whether a client is known and may reconnect.
    pub fn knows(&self, client: &ClientId) -> bool {
        self.lock().clients.knows(client)
    }

    /// Removes a connection and keeps its client's marks for a reconnect.
    pub fn detach(&self, connection: ConnectionId) {
        let mut inner = self.lock();
        let Some(attached) = inner.connections.remove(&connection) else { return };
        for uri in attached.marks.keys() {
            if let Some(channel) = inner.channels.get_mut(uri) {
                channel.subscribers.retain(|subscriber| subscriber.connection != connection);
            }
        }
        if let Some(client) = &attached.client {
            inner.clients.keep(client, connection, attached.whole_marks());
        }
    }

    /// Counters and gauges for `/metrics`.
    pub fn counts(&self) -> Counts {
        let inner = self.lock();
        let attached = || inner.connections.values();
        Counts {
            server_seq: inner.seq,
            connections: inner.connections.len(),
            subscriptions: attached().map(|attached| attached.marks.len()).sum(),
            outbox_bytes: attached().map(|attached| attached.outbox.waiting_bytes()).sum(),
        }
    }

    /// Sets how many bytes all outboxes together may hold.
    pub fn limit_outboxes(&self, bytes: usize) {
        self.budget.set_limit(bytes);
    }

    /// Waits until the outboxes have released much memory, which the caller may return to
    /// the system.
    pub async fn outboxes_drained(&self) {
        self.budget.drained().await;
    }

    /// Number of a connection's subscriptions.
    pub fn subscription_count(&self, connection: ConnectionId) -> usize {
        self.lock().connections.get(&connection).map_or(0, |attached| attached.marks.len())
    }

    /// Closes every connection after its queued frames are sent.
    pub fn close_all(&self, reason: CloseReason) {
        for attached in self.lock().connections.values() {
            attached.outbox.close(reason);
        }
    }

    /// Adds channels, all or none. Fails with the address of an existing channel.
    pub fn create(&self, channels: Vec<(ChannelUri, ChannelState)>) -> Result<(), ChannelUri> {
        let mut inner = self.lock();
        if let Some((taken, _)) = channels.iter().find(|(uri, _)| inner.channels.contains_key(uri)) {
            return Err(taken.clone());
        }
        for (uri, state) in channels {
            inner.observers.created(&uri, state.kind());
            inner.channels.insert(uri, Channel { state, subscribers: Vec::new() });
        }
        Ok(())
    }

    /// Removes channels and their subscriptions permanently. A later channel with the
    /// same address is a new one: clients that knew the old one receive a snapshot.
    pub fn remove(&self, channels: &[ChannelUri]) {
        let mut inner = self.lock();
        inner.forget_marks(channels);
        for uri in channels {
            inner.remove_channel(uri);
            for attached in inner.connections.values_mut() {
                attached.windows.remove(uri);
            }
        }
    }

    /// Makes clients that resume receive snapshots, because the state of these channels
    /// changed without an action while they were not in memory.
    pub(crate) fn require_snapshots(&self, channels: &[ChannelUri]) {
        self.lock().forget_marks(channels);
    }

    /// Removes channels whose state is lost and closes the connections of their
    /// subscribers, which receive the remaining state when they reconnect.
    pub(crate) fn lose(&self, channels: &[ChannelUri]) {
        let inner = self.lock();
        for subscriber in
            channels.iter().filter_map(|uri| inner.channels.get(uri)).flat_map(|channel| &channel.subscribers)
        {
            subscriber.outbox.close(CloseReason::StateLost);
        }
        drop(inner);
        self.remove(channels);
    }

    /// Reads a channel's state.
    pub fn read<R>(&self, channel: &ChannelUri, look: impl FnOnce(&ChannelState) -> R) -> Option<R> {
        self.lock().channels.get(channel).map(|channel| look(&channel.state))
    }

    /// Reads the states of two channels atomically.
    pub fn read_both<R>(
        &self,
        channels: (&ChannelUri, &ChannelUri),
        look: impl FnOnce(&ChannelState, &ChannelState) -> R,
    ) -> Option<R> {
        let inner = self.lock();
        let first = inner.channels.get(channels.0)?;
        let second = inner.channels.get(channels.1)?;
        Some(look(&first.state, &second.state))
    }

    /// Whether a channel exists.
    pub fn has(&self, channel: &ChannelUri) -> bool {
        self.lock().channels.contains_key(channel)
    }

    /// Returns a session in stored form. New turns are returned only once: if storing
    /// them fails, the caller must call [`Self::turns_not_stored`].
    pub(crate) fn checkpoint(
        &self,
        session: &ChannelUri,
        chats: &[&ChannelUri],
    ) -> Result<Option<Checkpoint>, serde_json::Error> {
        let mut inner = self.lock();
        let row = inner.rows.stored(session);
        let state = inner.channels.get(session).and_then(|channel| channel.state.session());
        let Some(state) = state.map(serde_json::value::to_raw_value) else { return Ok(None) };
        let state = state?.into();
        let mut headers = Vec::with_capacity(chats.len());
        for chat in chats {
            let doc = inner.channels.get(chat).and_then(|channel| channel.state.chat_doc());
            let Some(doc) = doc else { return Ok(None) };
            headers.push(serde_json::value::to_raw_value(&doc.header())?.into());
        }
        // Take the turns last: from here on, nothing can fail.
        let turns = chats.iter().map(|chat| match inner.channels.get_mut(chat) {
            Some(Channel { state: ChannelState::Chat(doc), .. }) => doc.take_changed_turns(),
            _ => None,
        });
        let chats = headers.into_iter().zip(turns).collect();
        Ok(Some(Checkpoint { session: state, chats, row }))
    }

    /// Records that the turns from this index on could not be stored.
    pub(crate) fn turns_not_stored(&self, chat: &ChannelUri, from: usize) {
        if let Some(Channel { state: ChannelState::Chat(doc), .. }) = self.lock().channels.get_mut(chat) {
            doc.mark_changed(from);
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, StoreInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreInner {
    /// Forgets which snapshots of these channels the clients have.
    fn forget_marks(&mut self, channels: &[ChannelUri]) {
        self.clients.forget_channels(channels);
        for attached in self.connections.values_mut() {
            for channel in channels {
                attached.marks.remove(channel);
            }
        }
    }

    fn remove_channel(&mut self, uri: &ChannelUri) {
        if let Some(channel) = self.channels.remove(uri) {
            self.observers.removed(uri, channel.state.kind());
        }
    }

    pub(super) fn push_to(&self, connection: ConnectionId, frame: Frame) {
        if let Some(attached) = self.connections.get(&connection) {
            attached.outbox.push(frame);
        }
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
