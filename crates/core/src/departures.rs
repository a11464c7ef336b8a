//! Clients whose connection has ended and that may reconnect.
//!
//! A window that reloads reconnects within seconds and must keep its tools and its part
//! in a session until then. This module only waits; the host removes clients that do not
//! reconnect in time from their sessions.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ids::ClientId;

/// How long a client may be disconnected; the same as in VS Code's agent host.
const GRACE: Duration = Duration::from_secs(30);

/// Disconnected clients and when their last connection ended. Entries expire, so the map
/// is bounded by the number of clients that disconnect within the grace period.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    away: Mutex<HashMap<ClientId, Instant>>,
    closing: CancellationToken,
}

/// The result of waiting for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The grace period has passed.
    Elapsed,
    /// The host shut down first.
    HostClosing,
}

impl Departures {
    /// Records that a client's connection has ended. Returns whether the caller must start
    /// a wait: there is one wait per client, however often it reconnects.
    pub(crate) fn note(&self, client: &ClientId) -> bool {
        let now = Instant::now();
        match self.lock().entry(client.clone()) {
            Entry::Occupied(mut since) => {
                since.insert(now);
                false
            }
            Entry::Vacant(away) => {
                away.insert(now);
                true
            }
        }
    }

    /// Waits until the grace period since the client's last connection has passed.
    pub(crate) async fn wait(&self, client: &ClientId) -> Waited {
        loop {
            let due = {
                let mut away = self.lock();
                let Some(due) = away.get(client).map(|since| *since + GRACE) else { return Waited::Elapsed };
                if due <= Instant::now() {
                    away.remove(client);
                    return Waited::Elapsed;
                }
                due
            };
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                () = self.closing.cancelled() => return Waited::HostClosing,
            }
        }
    }

    /// Waits for one more grace period.
    pub(crate) async fn wait_again(&self) -> Waited {
        tokio::select! {
            () = tokio::time::sleep(GRACE) => Waited::Elapsed,
            () = self.closing.cancelled() => Waited::HostClosing,
        }
    }

    /// Ends all waits.
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientId, Instant>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn grace_period_restarts_when_client_disconnects_again() {
        let departures = Departures::default();
        let client = ClientId::new("c1");
        let began = Instant::now();
        assert!(departures.note(&client));
        let again = async {
            tokio::time::sleep(GRACE - Duration::from_secs(1)).await;
            assert!(!departures.note(&client), "a wait is already running");
        };
        let (waited, ()) = tokio::join!(departures.wait(&client), again);
        assert_eq!((waited, began.elapsed()), (Waited::Elapsed, 2 * GRACE - Duration::from_secs(1)));
        assert!(departures.note(&client), "the wait is over");
        departures.close();
        assert_eq!(departures.wait(&client).await, Waited::HostClosing);
    }
}
