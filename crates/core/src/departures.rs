//! Clients whose connection has ended and who may come back.
//!
//! A window that reloads is back within seconds and must not lose what it runs for a
//! session. Whoever does not come back in time is taken out of the sessions it took
//! part in; that is the host's work, here is only the waiting.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ids::ClientId;

/// How long a client may stay away: as long as with VS Code's own host.
const GRACE: Duration = Duration::from_secs(30);

/// Who is away, and since when: as many as may connect and go within that time.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    away: Mutex<HashMap<ClientId, Instant>>,
    closing: CancellationToken,
}

/// What came of waiting for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// It had all its time.
    Enough,
    /// The host goes away first.
    HostCloses,
}

impl Departures {
    /// Notes that a connection of a client's has ended. Answers whether somebody has
    /// to start waiting: one wait for each client is enough, however often it comes
    /// and goes.
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

    /// Waits until it is long enough since the last connection of a client's ended.
    pub(crate) async fn wait(&self, client: &ClientId) -> Waited {
        loop {
            let due = {
                let mut away = self.lock();
                let Some(due) = away.get(client).map(|since| *since + GRACE) else { return Waited::Enough };
                if due <= Instant::now() {
                    away.remove(client);
                    return Waited::Enough;
                }
                due
            };
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                () = self.closing.cancelled() => return Waited::HostCloses,
            }
        }
    }

    /// Waits as long as for a client that is away.
    pub(crate) async fn wait_again(&self) -> Waited {
        tokio::select! {
            () = tokio::time::sleep(GRACE) => Waited::Enough,
            () = self.closing.cancelled() => Waited::HostCloses,
        }
    }

    /// Nobody is waited for any more.
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
    async fn a_client_that_comes_and_goes_has_its_time_from_the_last_end() {
        let departures = Departures::default();
        let client = ClientId::new("c1");
        let began = Instant::now();
        assert!(departures.note(&client));
        let again = async {
            tokio::time::sleep(GRACE - Duration::from_secs(1)).await;
            assert!(!departures.note(&client), "somebody waits already");
        };
        let (waited, ()) = tokio::join!(departures.wait(&client), again);
        assert_eq!((waited, began.elapsed()), (Waited::Enough, 2 * GRACE - Duration::from_secs(1)));
        assert!(departures.note(&client), "the wait is over");
        departures.close();
        assert_eq!(departures.wait(&client).await, Waited::HostCloses);
    }
}
