//! The one truth: every channel's state, the sequence of actions, who listens.
//!
//! Taking a number, reducing, encoding and queueing to every subscriber is one
//! critical section, and so is taking a snapshot, registering the subscriber and
//! queueing the answer. All methods are synchronous and short; nothing waits
//! while the lock is held.

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
use super::repeats::{Claim, DispatchMark};
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
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Number of the last published action.
    seq: ServerSeq,
    channels: HashMap<ChannelUri, Channel>,
    connections: HashMap<ConnectionId, Attached>,
    next_connection: u64,
    /// Clients that may come back.
    clients: KnownClients,
    /// What they may have missed.
    log: ReplayLog,
    /// Rows of the session list, by session. A provisional session has none.
    rows: Rows,
    /// Consumers inside the process.
    observers: Observers,
    /// How fast publishing makes connections write.
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
    /// The connection's own, so that a commit need not look for it.
    outbox: Arc<Outbox>,
    delivery: Delivery,
}

/// A connection of a client.
#[derive(Debug)]
struct Attached {
    outbox: Arc<Outbox>,
    /// Who is at the other end, once it said so.
    client: Option<ClientId>,
    /// What it subscribes to.
    marks: Marks,
    /// Of chats that it has only the newest turns of, the oldest turn that it has.
    windows: HashMap<ChannelUri, String>,
    /// What its client had seen when it came back over it, if it did: what it made
    /// before and has no answer to, it may make again.
    seen: Option<ServerSeq>,
}

impl Attached {
    /// What the client can be told by a replay. Of a chat that it has a part of it needs
    /// a snapshot: nobody would know any more which part.
    fn whole_marks(&self) -> Marks {
        let mut marks = self.marks.clone();
        marks.retain(|uri, _| !self.windows.contains_key(uri));
        marks
    }
}

/// How a client wants to be told of a channel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subscription {
    /// Of a chat only so many turns, the newest ones; all of them without a number.
    pub newest_turns: Option<usize>,
    /// How long it may be made to wait.
    pub delivery: Delivery,
}

/// A session and its chats as they are now, for the storage.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    pub(crate) session: Json,
    /// The chats in the order in which they were asked for.
    pub(crate) chats: Vec<(Json, ChangedTurns)>,
    pub(crate) row: Option<StoredRow>,
}

/// The turns that are not stored yet, and how many there are before them.
pub(crate) type ChangedTurns = Option<(usize, Vec<StoredTurn>)>;

/// How much there is of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Number of the last published action.
    pub server_seq: ServerSeq,
    /// Connections that are open.
    pub connections: usize,
    /// Subscriptions of all of them.
    pub subscriptions: usize,
    /// Bytes that wait to be written to any of them.
    pub outbox_bytes: usize,
}

/// What a client that comes back has to be told.
#[derive(Debug)]
pub enum Missed {
    /// These actions, and that these channels are gone.
    Replay {
        /// What was published meanwhile, in order.
        actions: Vec<EncodedEnvelope>,
        /// Channels that do not exist any more.
        missing: Vec<ChannelUri>,
    },
    /// Everything anew: it missed more than is kept.
    Snapshots(Vec<EncodedSnapshot>),
}

/// Why an action was not published.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// There is no such channel (any more).
    #[error("no channel {0}")]
    UnknownChannel(ChannelUri),
    /// The action is not one for this kind of channel, or its data is unusable.
    #[error("the action does not fit the channel: {0:?}")]
    DoesNotFit(ReduceOutcome),
    /// The action cannot be written as JSON.
    #[error("the action cannot be encoded")]
    Encode(#[from] serde_json::Error),
    /// The turn that it ends or opens again cannot.
    #[error(transparent)]
    Turn(#[from] TurnError),
}

impl StateStore {
    /// A store with only the root channel.
    pub fn new(root: RootState) -> Self {
        let root = Channel { state: ChannelState::Root(Box::new(root)), subscribers: Vec::new() };
        Self {
            inner: Mutex::new(Inner {
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

    /// A store that goes on where an earlier host ended.
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

    /// What a host that starts later has to know to go on from here.
    pub(crate) fn last_words(&self) -> (ServerSeq, Vec<StoredEnvelope>, Vec<StoredClient>) {
        let mut inner = self.lock();
        let Inner { connections, clients, .. } = &mut *inner;
        for (connection, attached) in connections {
            if let Some(client) = &attached.client {
                clients.keep(client, *connection, attached.whole_marks());
            }
        }
        (inner.seq, inner.log.stored(), inner.clients.stored())
    }

    /// Number of the last published action.
    pub fn seq(&self) -> ServerSeq {
        self.lock().seq
    }

    /// Registers a connection, which is subscribed to nothing yet.
    pub fn attach(&self, outbox: Arc<Outbox>) -> ConnectionId {
        let mut inner = self.lock();
        let id = ConnectionId(inner.next_connection);
        inner.next_connection += 1;
        let attached =
            Attached { outbox, client: None, marks: Marks::new(), windows: HashMap::new(), seen: None };
        inner.connections.insert(id, attached);
        id
    }

    /// Whether a client may come back.
    pub fn knows(&self, client: &ClientId) -> bool {
        self.lock().clients.knows(client)
    }

    /// Looks whether a dispatch is one that its client made before. One that is new is
    /// remembered; [`Self::arrived`] has to be told before somebody gets it who will answer
    /// it, and [`Self::did_not_arrive`] if nobody does.
    pub(crate) fn claim(&self, origin: &Origin, mark: DispatchMark) -> Claim {
        let mut inner = self.lock();
        let seen = inner.connections.get(&origin.connection).and_then(|attached| attached.seen);
        inner.clients.claim(origin, mark, seen)
    }

    /// A dispatch that was new gets to where it is answered.
    pub(crate) fn arrived(&self, channel: &ChannelUri, origin: &Origin, mark: DispatchMark) {
        if let Some(dispatches) = self.lock().clients.dispatches_of(&origin.client) {
            dispatches.arrived(origin, mark, channel);
        }
    }

    /// A dispatch that was new did not get to where it is answered: made again it is still
    /// new, unless it was answered by somebody else.
    pub(crate) fn did_not_arrive(&self, origin: &Origin, mark: DispatchMark) {
        if let Some(dispatches) = self.lock().clients.dispatches_of(&origin.client) {
            dispatches.is_over(origin, mark);
        }
    }

    /// Forgets a connection; what its client had is kept for when it comes back.
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

    /// How much there is of everything, for those who watch the host.
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

    /// How many channels a connection is subscribed to.
    pub fn subscription_count(&self, connection: ConnectionId) -> usize {
        self.lock().connections.get(&connection).map_or(0, |attached| attached.marks.len())
    }

    /// Closes every connection once what waits for it is written.
    pub fn close_all(&self, reason: CloseReason) {
        for attached in self.lock().connections.values() {
            attached.outbox.close(reason);
        }
    }

    /// Adds channels, all or none. Fails if one of them exists.
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

    /// Removes channels for good, with their subscriptions. Another channel at the same
    /// address is another one: who had this one gets a snapshot of it.
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

    /// Removes channels whose state is lost. Who listened is disconnected, and gets what
    /// there is when it comes back.
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

    /// Publishes an action: number, reduce, encode, queue to every subscriber, and
    /// to the connection it came over even if that one does not subscribe.
    pub fn commit(
        &self,
        channel: &ChannelUri,
        action: &Action,
        origin: Option<&Origin>,
    ) -> Result<ServerSeq, CommitError> {
        self.lock().commit(channel, action, origin)
    }

    /// Tells the connection that dispatched an action that it was refused. No state
    /// changes, and nobody else needs to know.
    pub fn reject(
        &self,
        channel: &ChannelUri,
        action: &Action,
        origin: &Origin,
        reason: &str,
    ) -> Result<ServerSeq, CommitError> {
        self.lock().answer_sender(channel, action, origin, Some(reason))
    }

    /// Echoes an accepted action that changes nothing. Only the connection that dispatched
    /// it is told: its client waits for the echo, other clients have nothing to apply.
    pub(crate) fn echo_unchanged(
        &self,
        channel: &ChannelUri,
        action: &Action,
        origin: &Origin,
    ) -> Result<ServerSeq, CommitError> {
        self.lock().answer_sender(channel, action, origin, None)
    }

    /// Answers a dispatch that was answered before. Its sender may not know, and waits; if
    /// it does, it does not mind: whatever came of the first one is in what it was told.
    pub(crate) fn reject_repeated(
        &self,
        channel: &ChannelUri,
        action: &Action,
        origin: &Origin,
        mark: DispatchMark,
    ) -> Result<ServerSeq, CommitError> {
        let reason = "this action was made before and is handled already";
        let mut inner = self.lock();
        let (seq, frame) = inner.private_answer(channel, action, origin, Some(reason))?;
        if let Some(dispatches) = inner.clients.dispatches_of(&origin.client) {
            dispatches.answered_again(mark, seq);
        }
        inner.push_to(origin.connection, frame);
        Ok(seq)
    }

    /// Subscribes a connection to a channel, if it exists. The reply is made from its
    /// snapshot, and queued before anything later, in one step.
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

    /// Learns who is at the other end of a connection, remembers it, and subscribes
    /// it to those of the channels that exist, in one step with the reply.
    pub fn introduce(
        &self,
        connection: ConnectionId,
        client: &ClientId,
        channels: &[ChannelUri],
        reply: impl FnOnce(ServerSeq, Vec<EncodedSnapshot>) -> Result<Frame, serde_json::Error>,
    ) -> Result<(), serde_json::Error> {
        let mut inner = self.lock();
        inner.clients.remember(client);
        inner.clients.begin_anew(client, connection);
        let snapshots = inner.subscribe(connection, channels, Subscription::default())?;
        inner.belongs_to(connection, client, &Marks::new());
        let frame = reply(inner.seq, snapshots)?;
        inner.push_to(connection, frame);
        Ok(())
    }

    /// Subscribes a client that comes back to the channels that it had. It is told
    /// what it missed since `seen`, or everything anew, in the same one step.
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
        // Subscribing takes snapshots, which a replay does not need; they are cheap
        // beside a reconnect, and there is one way to subscribe.
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

    /// Ends a subscription. What is already queued may still arrive.
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

    /// Looks at a channel's state.
    pub fn read<R>(&self, channel: &ChannelUri, look: impl FnOnce(&ChannelState) -> R) -> Option<R> {
        self.lock().channels.get(channel).map(|channel| look(&channel.state))
    }

    /// Looks at two channels' states in the same instant.
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

    /// A session as it is to be stored. The turns that are new are handed out once:
    /// if they cannot be stored, [`Self::turns_not_stored`] has to be told.
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
        // Only now, since nothing can fail any more.
        let turns = chats.iter().map(|chat| match inner.channels.get_mut(chat) {
            Some(Channel { state: ChannelState::Chat(doc), .. }) => doc.take_changed_turns(),
            _ => None,
        });
        let chats = headers.into_iter().zip(turns).collect();
        Ok(Some(Checkpoint { session: state, chats, row }))
    }

    /// The turns from this one on could not be stored.
    pub(crate) fn turns_not_stored(&self, chat: &ChannelUri, from: usize) {
        if let Some(Channel { state: ChannelState::Chat(doc), .. }) = self.lock().channels.get_mut(chat) {
            doc.mark_changed(from);
        }
    }

    /// Counts a turn that began or ended in the root state.
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

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
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
        // Encoding first: an action that cannot be sent must not change the state.
        let frame = envelope(uri, action, seq, origin, None)?;
        match channel.state.reduce(action.typed())? {
            // An accepted action that changes nothing is still echoed, or its
            // sender would wait for it forever.
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
                // Somebody waits for the echo, and the others for what a person did.
                Some(_) => subscriber.outbox.push(frame.clone()),
                None => subscriber.outbox.publish(frame.clone(), subscriber.delivery, &mut self.load, now),
            }
        }
        let mut unheard: Vec<ConnectionId> =
            origin.map(|origin| origin.connection).into_iter().chain(other).collect();
        unheard.retain(|maker| channel.subscribers.iter().all(|subscriber| subscriber.connection != *maker));
        for maker in unheard {
            self.push_to(maker, frame.clone());
        }
        Ok(seq)
    }

    /// Answers a dispatch to its client alone, over every connection that waits for the
    /// answer. The state does not change.
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

    /// Numbers and encodes an answer to a dispatch that only its client is told, now or when
    /// it comes back. With a reason it is a rejection.
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

    /// Registers a connection with the channels that exist; answers their snapshots.
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

    /// Notes whose a connection is. The channels that it subscribes to are marked as
    /// in `kept`; of the others the client may have had an older state.
    fn belongs_to(&mut self, connection: ConnectionId, client: &ClientId, kept: &Marks) {
        let seq = self.seq;
        self.clients.is_at(client, connection);
        if let Some(attached) = self.connections.get_mut(&connection) {
            attached.client = Some(client.clone());
            for (uri, mark) in &mut attached.marks {
                *mark = kept.get(uri).copied().unwrap_or(Mark::anew(seq));
            }
        }
    }

    /// What a client had when it was last here. A socket that is dying may not be
    /// detached yet.
    fn marks_of(&self, client: &ClientId) -> Marks {
        let newest = self.clients.newest(client).and_then(|newest| self.connections.get(&newest));
        match newest {
            Some(dying) => dying.whole_marks(),
            None => self.clients.marks(client).cloned().unwrap_or_default(),
        }
    }

    /// What a client missed, if the log still has all of it and the client has a
    /// state of every channel to apply it to.
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
