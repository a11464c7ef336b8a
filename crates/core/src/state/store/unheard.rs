//! Channels that live only as long as somebody listens.

use super::StateStore;
use crate::channel::ChannelUri;

impl StateStore {
    /// Removes a channel that nobody subscribes to. Answers whether it is gone. In one
    /// step, so that nobody can begin to listen to a channel that is about to go.
    pub fn remove_unheard(&self, channel: &ChannelUri) -> bool {
        let mut inner = self.lock();
        let heard = inner.channels.get(channel).is_some_and(|channel| !channel.subscribers.is_empty());
        if !heard {
            inner.channels.remove(channel);
        }
        !heard
    }
}
