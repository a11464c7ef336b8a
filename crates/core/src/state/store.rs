//! The one truth: every channel's state, the sequence of actions, who listens.
//!
//! Taking a number, reducing, encoding and queueing to every subscriber is one
//! critical section, and so is taking a snapshot, registering the subscriber and
//! queueing the answer. All methods are synchronous and short; nothing waits
//! while the lock is held.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahp::reducers::ReduceOutcome;
use ahp_types::actions::{RootActiveSessionsChangedAction, StateAction};
use ahp_types::notifications::{
    PartialSessionSummary, SessionAddedParams, SessionRemovedParams, SessionSummaryChangedParams,
};
use ahp_types::state::{RootState, SessionSummary};
use jiff::Timestamp;
use serde::Serialize;

use super::clients::{KnownClients, Mark, Marks};
use super::frame::{Action, EncodedEnvelope, Frame, Origin, envelope, notification};
use super::outbox::{CloseReason, Outbox};
use super::replay::ReplayLog;
use super::snapshot::{ChannelState, EncodedSnapshot};
use crate::channel::ChannelUri;
use crate::ids::{ClientId, ConnectionId, ServerSeq};

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
    rows: BTreeMap<ChannelUri, SessionSummary>,
}

#[derive(Debug)]
struct Channel {
    state: ChannelState,
    subscribers: Vec<ConnectionId>,
}

/// A connection of a client.
#[derive(Debug)]
struct Attached {
    outbox: Arc<Outbox>,
    /// Who is at the other end, once it said so.
    client: Option<ClientId>,
    /// What it subscribes to.
    marks: Marks,
}

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
                rows: BTreeMap::new(),
            }),
        }
    }

    /// Registers a connection, which is subscribed to nothing yet.
    pub fn attach(&self, outbox: Arc<Outbox>) -> ConnectionId {
        let mut inner = self.lock();
        let id = ConnectionId(inner.next_connection);
        inner.next_connection += 1;
        inner.connections.insert(id, Attached { outbox, client: None, marks: Marks::new() });
        id
    }

    /// Whether a client may come back.
    pub fn knows(&self, client: &ClientId) -> bool {
        self.lock().clients.knows(client)
    }

    /// Forgets a connection; what its client had is kept for when it comes back.
    pub fn detach(&self, connection: ConnectionId) {
        let mut inner = self.lock();
        let Some(attached) = inner.connections.remove(&connection) else { return };
        for uri in attached.marks.keys() {
            if let Some(channel) = inner.channels.get_mut(uri) {
                channel.subscribers.retain(|subscriber| *subscriber != connection);
            }
        }
        if let Some(client) = &attached.client {
            inner.clients.keep(client, attached.marks);
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
            inner.channels.insert(uri, Channel { state, subscribers: Vec::new() });
        }
        Ok(())
    }

    /// Removes channels and their subscriptions.
    pub fn remove(&self, channels: &[ChannelUri]) {
        let mut inner = self.lock();
        for uri in channels {
            inner.channels.remove(uri);
        }
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
        let mut inner = self.lock();
        let seq = ServerSeq(inner.seq.0 + 1);
        let frame = envelope(channel, action, seq, Some(origin), Some(reason))?;
        inner.seq = seq;
        inner.log.push(seq, channel, Some(&origin.client), EncodedEnvelope::of(&frame));
        inner.push_to(origin.connection, frame);
        Ok(seq)
    }

    /// Subscribes a connection to those of the channels that exist. The reply is
    /// made from their snapshots, and queued before anything later, in one step.
    pub fn subscribe(
        &self,
        connection: ConnectionId,
        channels: &[ChannelUri],
        reply: impl FnOnce(ServerSeq, Vec<EncodedSnapshot>) -> Result<Frame, serde_json::Error>,
    ) -> Result<(), serde_json::Error> {
        let mut inner = self.lock();
        let snapshots = inner.subscribe(connection, channels)?;
        let frame = reply(inner.seq, snapshots)?;
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
        let snapshots = inner.subscribe(connection, channels)?;
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
        let (snapshots, none) = (inner.subscribe(connection, channels)?, Marks::new());
        inner.belongs_to(connection, client, if missed.is_some() { &marks } else { &none });
        let frame = reply(missed.unwrap_or(Missed::Snapshots(snapshots)))?;
        inner.push_to(connection, frame);
        Ok(())
    }

    /// Ends a subscription. What is already queued may still arrive.
    pub fn unsubscribe(&self, connection: ConnectionId, channel: &ChannelUri) {
        let mut inner = self.lock();
        if let Some(attached) = inner.connections.get_mut(&connection) {
            attached.marks.remove(channel);
        }
        if let Some(channel) = inner.channels.get_mut(channel) {
            channel.subscribers.retain(|subscriber| *subscriber != connection);
        }
    }

    /// Whether anybody subscribes to one of the channels, or is the client itself.
    pub fn has_audience(&self, channels: &[ChannelUri], client: Option<&ClientId>) -> bool {
        let inner = self.lock();
        let subscribed = channels
            .iter()
            .filter_map(|uri| inner.channels.get(uri))
            .any(|channel| !channel.subscribers.is_empty());
        subscribed
            || client.is_some_and(|client| {
                inner.connections.values().any(|attached| attached.client.as_ref() == Some(client))
            })
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

    /// The rows of the session list, newest change first.
    pub fn rows(&self) -> Vec<SessionSummary> {
        let mut rows: Vec<SessionSummary> = self.lock().rows.values().cloned().collect();
        // By the time and not by its text, which may be in any zone.
        rows.sort_by_cached_key(|row| Reverse(row.modified_at.parse::<Timestamp>().unwrap_or_default()));
        rows
    }

    /// Shows a session in the list and tells everyone who watches it.
    pub fn add_row(&self, session: &ChannelUri, summary: SessionSummary) {
        let mut inner = self.lock();
        let channel = ChannelUri::root().as_str().to_owned();
        inner.notify_root("root/sessionAdded", &SessionAddedParams { channel, summary: summary.clone() });
        inner.rows.insert(session.clone(), summary);
    }

    /// Replaces a session's row, and tells what changed, if anything did.
    pub fn update_row(&self, session: &ChannelUri, summary: SessionSummary) {
        let mut inner = self.lock();
        let Some(row) = inner.rows.get_mut(session) else { return };
        let changes = changed_fields(row, &summary);
        *row = summary;
        let Some(changes) = changes else { return };
        let params = SessionSummaryChangedParams {
            channel: ChannelUri::root().as_str().to_owned(),
            session: session.as_str().to_owned(),
            changes,
        };
        inner.notify_root("root/sessionSummaryChanged", &params);
    }

    /// Takes a session out of the list and tells everyone who watches it.
    pub fn remove_row(&self, session: &ChannelUri) {
        let mut inner = self.lock();
        if inner.rows.remove(session).is_some() {
            let params = SessionRemovedParams {
                channel: ChannelUri::root().as_str().to_owned(),
                session: session.as_str().to_owned(),
            };
            inner.notify_root("root/sessionRemoved", &params);
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
        let seq = ServerSeq(self.seq.0 + 1);
        let channel = self.channels.get_mut(uri).ok_or_else(|| CommitError::UnknownChannel(uri.clone()))?;
        // Encoding first: an action that cannot be sent must not change the state.
        let frame = envelope(uri, action, seq, origin, None)?;
        match channel.state.reduce(action.typed()) {
            // An accepted action that changes nothing is still echoed, or its
            // sender would wait for it forever.
            ReduceOutcome::Applied | ReduceOutcome::NoOp => {}
            outcome @ (ReduceOutcome::OutOfScope | ReduceOutcome::Invalid(_)) => {
                return Err(CommitError::DoesNotFit(outcome));
            }
        }
        self.seq = seq;
        self.log.push(seq, uri, None, EncodedEnvelope::of(&frame));
        for subscriber in &channel.subscribers {
            if let Some(attached) = self.connections.get(subscriber) {
                attached.outbox.push(frame.clone());
            }
        }
        if let Some(origin) = origin
            && !channel.subscribers.contains(&origin.connection)
        {
            self.push_to(origin.connection, frame);
        }
        Ok(seq)
    }

    /// Registers a connection with the channels that exist; answers their snapshots.
    fn subscribe(
        &mut self,
        connection: ConnectionId,
        channels: &[ChannelUri],
    ) -> Result<Vec<EncodedSnapshot>, serde_json::Error> {
        let mut snapshots = Vec::with_capacity(channels.len());
        for uri in channels {
            let Some(channel) = self.channels.get_mut(uri) else { continue };
            snapshots.push(EncodedSnapshot::encode(uri, &channel.state, self.seq)?);
            if !channel.subscribers.contains(&connection) {
                channel.subscribers.push(connection);
            }
            if let Some(attached) = self.connections.get_mut(&connection) {
                let seq = self.seq;
                attached.marks.entry(uri.clone()).and_modify(|mark| mark.again(seq)).or_insert(Mark::at(seq));
            }
        }
        Ok(snapshots)
    }

    /// Notes whose a connection is. The channels that it subscribes to are marked as
    /// in `kept`; of the others the client may have had an older state.
    fn belongs_to(&mut self, connection: ConnectionId, client: &ClientId, kept: &Marks) {
        let seq = self.seq;
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
        let dying = self.connections.values().find(|attached| attached.client.as_ref() == Some(client));
        dying
            .map(|attached| &attached.marks)
            .or_else(|| self.clients.marks(client))
            .cloned()
            .unwrap_or_default()
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

    fn push_to(&self, connection: ConnectionId, frame: Frame) {
        if let Some(attached) = self.connections.get(&connection) {
            attached.outbox.push(frame);
        }
    }

    fn notify_root(&self, method: &str, params: &impl Serialize) {
        let Some(root) = self.channels.get(&ChannelUri::root()) else { return };
        match notification(method, params) {
            Ok(frame) => {
                for subscriber in &root.subscribers {
                    self.push_to(*subscriber, frame.clone());
                }
            }
            Err(error) => tracing::error!(%error, method, "a notification could not be encoded"),
        }
    }
}

/// The fields of a row that differ, or `None` if none does.
fn changed_fields(old: &SessionSummary, new: &SessionSummary) -> Option<PartialSessionSummary> {
    let changes = PartialSessionSummary {
        title: (old.title != new.title).then(|| new.title.clone()),
        status: (old.status != new.status).then_some(new.status),
        activity: if old.activity == new.activity { None } else { new.activity.clone() },
        modified_at: (old.modified_at != new.modified_at).then(|| new.modified_at.clone()),
        chats: if old.chats == new.chats { None } else { new.chats.clone() },
        ..PartialSessionSummary::default()
    };
    (changes != PartialSessionSummary::default()).then_some(changes)
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
