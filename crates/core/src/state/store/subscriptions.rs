//! Subscribes clients to channels, with a snapshot or with the actions that they missed.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::clients::{Mark, Marks};
use super::super::frame::{EncodedEnvelope, Frame};
use super::super::outbox::Delivery;
use super::super::snapshot::EncodedSnapshot;
use super::{StateStore, StoreInner, Subscriber};
use crate::channel::ChannelUri;
use crate::ids::{ClientId, ConnectionId, ServerSeq};

/// The options of a subscription.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subscription {
    /// The number of newest turns of a chat to send; `None` sends all.
    pub newest_turns: Option<usize>,
    /// The allowed delay.
    pub delivery: Delivery,
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

impl StateStore {
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
}

impl StoreInner {
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
}
