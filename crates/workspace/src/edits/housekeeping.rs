//! The background work of the log: repairs and garbage collection.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use innkeeper_core::edits::EditStorageError;

use super::operations;
use super::shared::LogParts;

/// Time between garbage collections.
const INTERVAL: Duration = Duration::from_hours(1);

/// Does the background work on a thread of its own.
#[derive(Debug, Default)]
pub(crate) struct Housekeeper {
    state: Mutex<HousekeeperState>,
    changed: Condvar,
    /// Whether interrupted operations were repaired. Locked during the repair.
    repaired: Mutex<bool>,
}

#[derive(Debug, Default)]
struct HousekeeperState {
    started: bool,
    stopped: bool,
    requested: bool,
}

impl Housekeeper {
    /// Starts the thread. Does nothing when called again.
    pub(crate) fn start(housekeeper: &Arc<Self>, log: &Arc<LogParts>) {
        let mut state = housekeeper.state();
        if state.started || state.stopped {
            return;
        }
        state.started = true;
        drop(state);
        let (keeper, log) = (Arc::clone(housekeeper), Arc::downgrade(log));
        let spawned =
            std::thread::Builder::new().name("edit-log".to_owned()).spawn(move || keeper.work(&log));
        if let Err(error) = spawned {
            tracing::warn!(%error, "could not start the background work of the edit log");
        }
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.state().stopped = true;
        self.changed.notify_all();
    }

    /// Requests a garbage collection.
    pub(crate) fn request(&self) {
        self.state().requested = true;
        self.changed.notify_all();
    }

    /// Repairs interrupted operations, once.
    pub(crate) fn repair(&self, log: &LogParts) -> Result<(), EditStorageError> {
        let mut repaired = self.repaired.lock().unwrap_or_else(PoisonError::into_inner);
        if *repaired {
            return Ok(());
        }
        let interrupted = log.storage.unfinished_operations()?;
        if !interrupted.is_empty() {
            let report = operations::repair(log.storage.as_ref())?;
            tracing::info!(?report, "repaired interrupted operations");
            for operation in interrupted {
                log.sessions.entry(&operation.session).forget();
                log.changed.add([operation.session]);
            }
        }
        *repaired = true;
        Ok(())
    }

    fn work(&self, log: &Weak<LogParts>) {
        loop {
            let Some(parts) = log.upgrade() else { return };
            if let Err(error) = self.repair(&parts) {
                tracing::warn!(%error, "could not repair interrupted operations; trying again later");
            }
            match parts.storage.collect_garbage(&parts.held_blobs()) {
                Ok(report) => tracing::debug!(?report, "collected garbage of the edit log"),
                Err(EditStorageError::Closed) => return,
                Err(error) => tracing::warn!(%error, "could not collect garbage of the edit log"),
            }
            drop(parts);
            let waited = self
                .changed
                .wait_timeout_while(self.state(), INTERVAL, |state| !state.stopped && !state.requested);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.stopped {
                return;
            }
            state.requested = false;
        }
    }

    fn state(&self) -> MutexGuard<'_, HousekeeperState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
