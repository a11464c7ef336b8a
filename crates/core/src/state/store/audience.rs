//! Who listens, and channels that live only as long as somebody does.

use super::StateStore;
use crate::channel::ChannelUri;
use crate::ids::ClientId;

impl StateStore {
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

    /// Removes channels that nobody subscribes to, all or none. Answers whether they are
    /// gone. In one step, so that nobody can begin to listen to a channel that is about
    /// to go.
    pub fn remove_unheard(&self, channels: &[ChannelUri]) -> bool {
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
