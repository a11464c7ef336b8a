//! Ends sessions that are not needed in memory.

use std::time::Duration;

use tokio::time::Instant;

use super::actor::SessionActor;
use super::decide::Phase;
use super::handle::SessionEnding;
use crate::channel::ChannelUri;

/// How often a session without agents checks whether it is still needed.
pub(super) const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// How long a session without activity and subscribers stays in memory.
const UNLOAD_AFTER: Duration = Duration::from_secs(10 * 60);

/// How long an unused session without subscribers is kept. VS Code creates sessions that it
/// never uses, and a window that reloads subscribes again.
const DISPOSE_UNUSED_AFTER: Duration = Duration::from_secs(5 * 60);

impl SessionActor {
    /// Whether no chat has an agent.
    pub(super) fn is_cold(&self) -> bool {
        self.chats.iter().all(|chat| matches!(chat.agent.phase, Phase::Cold(_)))
    }

    /// The session's channels.
    fn channels(&self) -> Vec<ChannelUri> {
        std::iter::once(self.uri.clone()).chain(self.chats.uris()).collect()
    }

    /// Disposes of a session that was never used and has no subscribers, and unloads a
    /// used one that is idle.
    pub(super) async fn check_idle(&mut self) {
        if self.expected.count() > 0 {
            return;
        }
        let channels = self.channels();
        let creator = self.creator.as_ref().filter(|_| !self.listed);
        if self.publisher.store().has_audience(&channels, creator) {
            self.idle_since = None;
            return;
        }
        let since = *self.idle_since.get_or_insert_with(Instant::now);
        if !self.listed && since.elapsed() >= DISPOSE_UNUSED_AFTER {
            tracing::info!(session = %self.uri, "disposing of unused session");
            self.end(SessionEnding::Dispose, None).await;
        } else if self.listed && since.elapsed() >= UNLOAD_AFTER {
            match self.publisher.store_all(&self.chats).await {
                Ok(()) => self.unload(&channels).await,
                Err(error) => {
                    tracing::error!(session = %self.uri, %error, "cannot store session; keeping it in memory")
                }
            }
        }
    }

    /// Removes the session from memory, unless a client subscribed in the meantime.
    async fn unload(&mut self, channels: &[ChannelUri]) {
        if !self.inputs.is_empty() || !self.publisher.store().remove_unsubscribed(channels) {
            return;
        }
        self.reject_remaining_inputs("the session was unloaded; try again").await;
        self.ending = Some(SessionEnding::Unload);
        self.finished = true;
    }
}
