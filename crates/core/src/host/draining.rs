//! Waits for running turns before the host stops.
//!
//! While the host waits, it accepts no new sessions and no new turns, and waiting messages
//! keep waiting. Clients stay connected, so that they can answer questions of running turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::Host;
use crate::channel::ChannelUri;
use crate::state::ObserverScope;

/// Whether the host waits for running turns. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub(crate) struct DrainFlag(Arc<DrainState>);

#[derive(Debug, Default)]
struct DrainState {
    is_draining: AtomicBool,
    /// Turns that are starting and may not be counted as running yet.
    starting: AtomicUsize,
    /// Notified when a turn has started, or was rejected.
    started: Notify,
}

/// Permission to start a turn. The host does not stop before it is dropped.
#[derive(Debug)]
pub(crate) struct TurnStart(Arc<DrainState>);

impl Drop for TurnStart {
    fn drop(&mut self) {
        self.0.starting.fetch_sub(1, Ordering::SeqCst);
        self.0.started.notify_waiters();
    }
}

impl DrainFlag {
    pub(crate) fn is_draining(&self) -> bool {
        self.0.is_draining.load(Ordering::SeqCst)
    }

    /// `None` while the host waits for running turns.
    pub(crate) fn start_turn(&self) -> Option<TurnStart> {
        self.0.starting.fetch_add(1, Ordering::SeqCst);
        let start = TurnStart(Arc::clone(&self.0));
        (!self.is_draining()).then_some(start)
    }

    /// Lets no more turns start, and waits for those that are starting.
    async fn drain(&self) {
        self.0.is_draining.store(true, Ordering::SeqCst);
        loop {
            let started = self.0.started.notified();
            tokio::pin!(started);
            started.as_mut().enable();
            if self.0.starting.load(Ordering::SeqCst) == 0 {
                return;
            }
            started.await;
        }
    }
}

impl Host {
    /// Accepts no new sessions and turns from now on, and waits until no turn is running, at
    /// most for `limit`. A turn that waits for a user counts as running.
    pub async fn drain(&self, limit: Duration) {
        let mut observer = self.store.observe(ObserverScope::Channel(ChannelUri::root()));
        let ended = async {
            self.drain.drain().await;
            while self.active_sessions() > 0 {
                if observer.next().await.is_none() {
                    return;
                }
            }
        };
        if tokio::time::timeout(limit, ended).await.is_err() {
            tracing::warn!(sessions = self.active_sessions(), "turns are still running; stopping them");
        }
    }

    /// The number of sessions with a running turn.
    fn active_sessions(&self) -> i64 {
        let active = self.store.read(&ChannelUri::root(), |state| state.root()?.active_sessions);
        active.flatten().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn drain_waits_for_turn_that_is_starting_and_lets_no_other_start() {
        let flag = DrainFlag::default();
        let starting = flag.start_turn().unwrap();
        let mut drained = Box::pin(flag.drain());
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut drained).await.is_err());
        assert!(flag.start_turn().is_none());
        drop(starting);
        drained.await;
    }
}
