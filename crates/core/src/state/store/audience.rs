//! Queries for subscribers, and removal of channels without subscribers.

use super::StateStore;
use crate::channel::ChannelUri;
use crate::ids::ClientId;

impl StateStore {
    /// Whether any connection subscribes to one of the channels or belongs to `client`.
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

    /// Whether a client subscribes to one of the channels.
    pub(crate) fn listens(&self, client: &ClientId, channels: &[ChannelUri]) -> bool {
        let inner = self.lock();
        let subscribed = channels
            .iter()
            .filter_map(|uri| inner.channels.get(uri))
            .flat_map(|channel| &channel.subscribers)
            .filter_map(|subscriber| inner.connections.get(&subscriber.connection));
        subscribed.filter_map(|attached| attached.client.as_ref()).any(|known| known == client)
    }

    /// Removes channels if none of them has a subscriber. Returns whether they were
    /// removed. Check and removal are one step, so that no client can subscribe in
    /// between.
    pub fn remove_unsubscribed(&self, channels: &[ChannelUri]) -> bool {
        let mut inner = self.lock();
        let heard = channels
            .iter()
            .filter_map(|uri| inner.channels.get(uri))
            .any(|channel| !channel.subscribers.is_empty());
        if !heard {
            for uri in channels {
                inner.remove_channel(uri);
            }
        }
        !heard
    }
}
