//! The state of every channel, the sequence of actions, and the subscribers.
//!
//! Assigning a sequence number, reducing, encoding and queueing to every subscriber is
//! one critical section. So is taking a snapshot, registering the subscriber and queueing
//! the response. All methods are synchronous and short; the lock is never held while
//! waiting.

mod audience;
mod list;
mod observers;
mod paging;

pub use list::RowsPage;
pub use observers::{Observed, ObserverScope, StateObserver};
pub use paging::FetchError;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahp::reducers::ReduceOutcome;
use ahp_types::actions::{RootActiveSessionsChangedAction, StateAction};
use ahp_types::state::RootState;
use tokio::time::Instant;

use super::chat::TurnError;
use super::clients::{KnownClients, Mark, Marks};
use super::frame::{Action, EncodedEnvelope, Frame, Origin, envelope};
use super::outbox::{CloseReason, Delivery, Outbox};
use super::outbox_budget::OutboxBudget;
use super::repeats::{DispatchClaim, DispatchMark};
use super::replay::ReplayLog;
use super::rows::Rows;
use super::snapshot::{ChannelState, EncodedSnapshot};
use super::write_load::WriteLoad;
use crate::channel::ChannelUri;
use crate::ids::{ClientId, ConnectionId, ServerSeq};
use crate::storage::{Index, Json, StoredClient, StoredEnvelope, StoredRow, StoredTurn};
use observers::Observers;

/// Owns all published state. Shared; every method takes one short lock.
#[derive(Debug)]
pub struct StateStore {
    inner: Mutex<StoreInner>,
    /// The memory of all connections' outboxes.
    budget: Arc<OutboxBudget>,
}

#[derive(Debug)]
struct StoreInner {
    /// Sequence number of the last published action.
    seq: ServerSeq,
    channels: HashMap<ChannelUri, Channel>,
    connections: HashMap<ConnectionId, Attached>,
    next_connection: u64,
    /// Clients that may reconnect.
    clients: KnownClients,
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
struct Attached {
    outbox: Arc<Outbox>,
    /// The client, once it has identified itself.
    client: Option<ClientId>,
    /// The connection's subscriptions.
    marks: Marks,
    /// For each chat sent without its older turns, the oldest turn that was sent.
    windows: HashMap<ChannelUri, String>,
    /// The last sequence number that the client had seen when it reconnected on this
    /// connection. The client may repeat earlier dispatches without a response.
    seen: Option<ServerSeq>,
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

/// The options of a subscription.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subscription {
    /// The number of newest turns of a chat to send; `None` sends all.
    pub newest_turns: Option<usize>,
    /// The allowed delay.
    pub delivery: Delivery,
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

/// The response to a reconnecting client.
#[derive(Debug)]
pub enum Missed {
    /// The missed actions.
    Replay {
        /// Published actions that the client missed, in order.
        actions: Vec<EncodedEnvelope>,
        /// Channels that no longer exist.
        missing: Vec<ChannelUri>,
    },
    /// Full snapshots, because the client missed more than the log keeps.
    Snapshots(Vec<EncodedSnapshot>),
}

/// Why an action was not published.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The channel does not exist.
    #[error("unknown channel {0}")]
    UnknownChannel(ChannelUri),
    /// The action does not apply to this kind of channel, or its data is invalid.
    #[error("cannot apply the action to this channel: {0:?}")]
    DoesNotFit(ReduceOutcome),
    /// The action cannot be encoded as JSON.
    #[error("cannot encode the action")]
    Encode(#[from] serde_json::Error),
    /// The turn that the action ends or reopens cannot be encoded or decoded.
    #[error(transparent)]
    Turn(#[from] TurnError),
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

    /// Checks whether a dispatch repeats an earlier one. A new dispatch is recorded: the
    /// caller must call [`Self::arrived`] before passing it to a handler that will
    /// respond, or [`Self::did_not_arrive`] if that fails.
    pub(crate) fn claim(&self, origin: &Origin, mark: DispatchMark) -> DispatchClaim {
        let mut inner = self.lock();
        let seen = inner.connections.get(&origin.connection).and_then(|attached| attached.seen);
        inner.clients.claim(origin, mark, seen)
    }

    /// Records that a new dispatch reached its handler.
    pub(crate) fn arrived(&self, channel: &ChannelUri, origin: &Origin, mark: DispatchMark) {
        if let Some(dispatches) = self.lock().clients.dispatches_of(&origin.client) {
            dispatches.arrived(origin, mark, channel);
        }
    }

    /// Records that a new dispatch did not reach its handler: a repetition of it is still
    /// new, unless it already has a response.
    pub(crate) fn did_not_arrive(&self, origin: &Origin, mark: DispatchMark) {
        if let Some(dispatches) = self.lock().clients.dispatches_of(&origin.client) {
            dispatches.abandon(origin, mark);
        }
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
        inner.clients.forget_channels(channels);
        for uri in channels {
            inner.remove_channel(uri);
            for attached in inner.connections.values_mut() {
                attached.marks.remove(uri);
                attached.windows.remove(uri);
            }
        }
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

    /// Publishes an action: assigns a number, reduces, encodes, and queues it to every
    /// subscriber and to the connection that dispatched it, even if that one is not
    /// subscribed.
    pub fn commit(
        &self,
        channel: &ChannelUri,
        action: &Action,
        origin: Option<&Origin>,
    ) -> Result<ServerSeq, CommitError> {
        self.lock().commit(channel, action, origin)
    }

    /// Rejects an action. Only the connection that dispatched it is notified, and the
    /// state does not change.
    pub fn reject(
        &self,
        channel: &ChannelUri,
        action: &Action,
        origin: &Origin,
        reason: &str,
    ) -> Result<ServerSeq, CommitError> {
        self.lock().answer_sender(channel, action, origin, Some(reason))
    }

    /// Echoes an accepted action that does not change the state. Sent only to the
    /// connection that dispatched it: its client waits for the echo, and other clients
    /// have nothing to apply.
    pub(crate) fn echo_unchanged(
        &self,
        channel: &ChannelUri,
        action: &Action,
        origin: &Origin,
    ) -> Result<ServerSeq, CommitError> {
        self.lock().answer_sender(channel, action, origin, None)
    }

    /// Rejects a dispatch that already has a response. The sender may have missed that
    /// response and wait for it. If it did not, the rejection is harmless: the result of
    /// the first dispatch is in the state that it received.
    pub(crate) fn reject_repeated(
        &self,
        channel: &ChannelUri,
        action: &Action,
        origin: &Origin,
        mark: DispatchMark,
    ) -> Result<ServerSeq, CommitError> {
        let reason = "this action was already handled";
        let mut inner = self.lock();
        let (seq, frame) = inner.private_answer(channel, action, origin, Some(reason))?;
        if let Some(dispatches) = inner.clients.dispatches_of(&origin.client) {
            dispatches.answered_again(mark, seq);
        }
        inner.push_to(origin.connection, frame);
        Ok(seq)
    }

    /// Subscribes a connection to a channel, if the channel exists. The reply is created
    /// from the snapshot and queued before any later action, in one step.
    pub fn subscribe(
        &self,
        connection: ConnectionId,
        channel: &ChannelUri,
        how: Subscription,
        reply: impl FnOnce(Option<EncodedSnapshot>) -> Result<Frame, serde_json::Error>,
    ) -> Result<(), serde_json::Error> {
        let mut inner = self.lock();
        let snapshots = inner.subscribe(connection, std::slice::from_ref(channel), how)?;
        let frame = reply(snapshots.into_iter().next())?;
        inner.push_to(connection, frame);
        Ok(())
    }

    /// Registers the client of a connection and subscribes it to the channels that exist.
    /// The reply is queued in the same step.
    pub fn introduce(
        &self,
        connection: ConnectionId,
        client: &ClientId,
        channels: &[ChannelUri],
        reply: impl FnOnce(ServerSeq, Vec<EncodedSnapshot>) -> Result<Frame, serde_json::Error>,
    ) -> Result<(), serde_json::Error> {
        let mut inner = self.lock();
        inner.clients.remember(client);
        inner.clients.restart_dispatches(client, connection);
        let snapshots = inner.subscribe(connection, channels, Subscription::default())?;
        inner.belongs_to(connection, client, &Marks::new());
        let frame = reply(inner.seq, snapshots)?;
        inner.push_to(connection, frame);
        Ok(())
    }

    /// Resubscribes a reconnecting client to its channels. The reply, queued in the same
    /// step, contains the actions after `seen` or full snapshots.
    pub fn resume(
        &self,
        connection: ConnectionId,
        client: &ClientId,
        seen: ServerSeq,
        channels: &[ChannelUri],
        reply: impl FnOnce(Missed) -> Result<Frame, serde_json::Error>,
    ) -> Result<(), serde_json::Error> {
        let mut inner = self.lock();
        let marks = inner.marks_of(client);
        let missed = inner.missed(client, &marks, seen, channels);
        // Subscribing takes snapshots that a replay does not need. They are cheap
        // compared to a reconnect, and it keeps one code path for subscriptions.
        let (snapshots, none) =
            (inner.subscribe(connection, channels, Subscription::default())?, Marks::new());
        inner.belongs_to(connection, client, if missed.is_some() { &marks } else { &none });
        if let Some(attached) = inner.connections.get_mut(&connection) {
            attached.seen = Some(seen);
        }
        let frame = reply(missed.unwrap_or(Missed::Snapshots(snapshots)))?;
        inner.push_to(connection, frame);
        Ok(())
    }

    /// Removes a subscription. Frames that are already queued may still arrive.
    pub fn unsubscribe(&self, connection: ConnectionId, channel: &ChannelUri) {
        let mut inner = self.lock();
        if let Some(attached) = inner.connections.get_mut(&connection) {
            attached.marks.remove(channel);
            attached.windows.remove(channel);
        }
        if let Some(channel) = inner.channels.get_mut(channel) {
            channel.subscribers.retain(|subscriber| subscriber.connection != connection);
        }
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

    /// Adds to the number of active sessions in the root state.
    pub fn adjust_active_sessions(&self, change: i64) -> Result<ServerSeq, CommitError> {
        let mut inner = self.lock();
        let root = ChannelUri::root();
        let active = inner
            .channels
            .get(&root)
            .and_then(|channel| channel.state.root())
            .and_then(|state| state.active_sessions)
            .unwrap_or(0);
        let active_sessions = active.saturating_add(change).max(0);
        let action =
            StateAction::RootActiveSessionsChanged(RootActiveSessionsChangedAction { active_sessions });
        inner.commit(&root, &Action::own(action), None)
    }

    fn lock(&self) -> MutexGuard<'_, StoreInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreInner {
    fn commit(
        &mut self,
        uri: &ChannelUri,
        action: &Action,
        origin: Option<&Origin>,
    ) -> Result<ServerSeq, CommitError> {
        if let StateAction::ChatTruncated(truncated) = action.typed()
            && let Some(turn) = &truncated.turn_id
        {
            self.show_before_truncating(uri, turn)?;
        }
        let seq = ServerSeq(self.seq.0 + 1);
        let channel = self.channels.get_mut(uri).ok_or_else(|| CommitError::UnknownChannel(uri.clone()))?;
        // Encode first: an action that cannot be sent must not change the state.
        let frame = envelope(uri, action, seq, origin, None)?;
        match channel.state.reduce(action.typed())? {
            // Echo an accepted action even if it changes nothing; its sender waits for
            // it.
            ReduceOutcome::Applied | ReduceOutcome::NoOp => {}
            outcome @ (ReduceOutcome::OutOfScope | ReduceOutcome::Invalid(_)) => {
                return Err(CommitError::DoesNotFit(outcome));
            }
        }
        self.seq = seq;
        let other =
            origin.and_then(|origin| self.clients.dispatches_of(&origin.client)?.answered(origin, seq));
        self.log.push(seq, uri, None, EncodedEnvelope::of(&frame));
        self.observers.committed(uri, channel.state.kind(), seq, action);
        let now = Instant::now();
        for subscriber in &channel.subscribers {
            match origin {
                // Do not delay an action that a user made: its sender waits for the echo.
                Some(_) => subscriber.outbox.push(frame.clone()),
                None => subscriber.outbox.publish(frame.clone(), subscriber.delivery, &mut self.load, now),
            }
        }
        let mut unsubscribed: Vec<ConnectionId> =
            origin.map(|origin| origin.connection).into_iter().chain(other).collect();
        unsubscribed
            .retain(|sender| channel.subscribers.iter().all(|subscriber| subscriber.connection != *sender));
        for sender in unsubscribed {
            self.push_to(sender, frame.clone());
        }
        Ok(seq)
    }

    /// Sends the response to a dispatch only to its client, on every connection that
    /// waits for it. The state does not change.
    fn answer_sender(
        &mut self,
        channel: &ChannelUri,
        action: &Action,
        origin: &Origin,
        rejection: Option<&str>,
    ) -> Result<ServerSeq, CommitError> {
        let (seq, frame) = self.private_answer(channel, action, origin, rejection)?;
        let dispatches = self.clients.dispatches_of(&origin.client);
        if let Some(other) = dispatches.and_then(|dispatches| dispatches.answered(origin, seq)) {
            self.push_to(other, frame.clone());
        }
        self.push_to(origin.connection, frame);
        Ok(seq)
    }

    /// Numbers and encodes a response that only the dispatching client receives, now or
    /// when it reconnects. It is a rejection if there is a reason.
    fn private_answer(
        &mut self,
        channel: &ChannelUri,
        action: &Action,
        origin: &Origin,
        rejection: Option<&str>,
    ) -> Result<(ServerSeq, Frame), CommitError> {
        let seq = ServerSeq(self.seq.0 + 1);
        let frame = envelope(channel, action, seq, Some(origin), rejection)?;
        self.seq = seq;
        self.log.push(seq, channel, Some(&origin.client), EncodedEnvelope::of(&frame));
        Ok((seq, frame))
    }

    /// Subscribes a connection to the channels that exist and returns their snapshots.
    fn subscribe(
        &mut self,
        connection: ConnectionId,
        channels: &[ChannelUri],
        how: Subscription,
    ) -> Result<Vec<EncodedSnapshot>, serde_json::Error> {
        let mut snapshots = Vec::with_capacity(channels.len());
        for uri in channels {
            let Some(channel) = self.channels.get_mut(uri) else { continue };
            snapshots.push(EncodedSnapshot::encode(uri, &channel.state, self.seq, how.newest_turns)?);
            if let Some(attached) = self.connections.get_mut(&connection) {
                let known =
                    channel.subscribers.iter_mut().find(|subscriber| subscriber.connection == connection);
                match known {
                    Some(subscriber) => subscriber.delivery = how.delivery,
                    None => channel.subscribers.push(Subscriber {
                        connection,
                        outbox: Arc::clone(&attached.outbox),
                        delivery: how.delivery,
                    }),
                }
                let seq = self.seq;
                attached.marks.entry(uri.clone()).and_modify(|mark| mark.again(seq)).or_insert(Mark::at(seq));
                let cut = channel
                    .state
                    .chat_doc()
                    .and_then(|chat| chat.window(how.newest_turns).cut_at().map(str::to_owned));
                match cut {
                    Some(oldest) => attached.windows.insert(uri.clone(), oldest),
                    None => attached.windows.remove(uri),
                };
            }
        }
        Ok(snapshots)
    }

    /// Records the client of a connection. Its subscriptions get the marks in `kept`; of
    /// all other channels, the client may have an older state.
    fn belongs_to(&mut self, connection: ConnectionId, client: &ClientId, kept: &Marks) {
        let seq = self.seq;
        self.clients.connected(client, connection);
        if let Some(attached) = self.connections.get_mut(&connection) {
            attached.client = Some(client.clone());
            for (uri, mark) in &mut attached.marks {
                *mark = kept.get(uri).copied().unwrap_or(Mark::outdated(seq));
            }
        }
    }

    /// The last marks of a client. Its previous connection may not be detached yet.
    fn marks_of(&self, client: &ClientId) -> Marks {
        let newest = self.clients.newest(client).and_then(|newest| self.connections.get(&newest));
        match newest {
            Some(dying) => dying.whole_marks(),
            None => self.clients.marks(client).cloned().unwrap_or_default(),
        }
    }

    /// The actions that a client missed; `None` if the log does not cover them or the
    /// client does not have a state of every channel to apply them to.
    fn missed(
        &self,
        client: &ClientId,
        marks: &Marks,
        seen: ServerSeq,
        channels: &[ChannelUri],
    ) -> Option<Missed> {
        if seen > self.seq || !self.log.covers(seen) {
            return None;
        }
        let (present, missing): (Vec<&ChannelUri>, Vec<&ChannelUri>) =
            channels.iter().partition(|uri| self.channels.contains_key(uri));
        let resume_after: HashMap<&ChannelUri, ServerSeq> = present
            .into_iter()
            .map(|uri| Some((uri, marks.get(uri)?.resume_after(seen)?)))
            .collect::<Option<_>>()?;
        let mark = |uri: &ChannelUri| resume_after.get(uri).copied();
        Some(Missed::Replay {
            actions: self.log.missed(client, mark),
            missing: missing.into_iter().cloned().collect(),
        })
    }

    fn remove_channel(&mut self, uri: &ChannelUri) {
        if let Some(channel) = self.channels.remove(uri) {
            self.observers.removed(uri, channel.state.kind());
        }
    }

    fn push_to(&self, connection: ConnectionId, frame: Frame) {
        if let Some(attached) = self.connections.get(&connection) {
            attached.outbox.push(frame);
        }
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
