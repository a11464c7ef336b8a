//! Work that outlives the request that started it.
//!
//! Owns the tasks of one part of the gateway; they end with their owner.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Tasks that are cancelled when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Background {
    tasks: TaskTracker,
    cancel: CancellationToken,
}

impl Background {
    /// Starts a task.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let cancel = self.cancel.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                () = work => {}
            }
        });
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
