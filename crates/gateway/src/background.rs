//! Background tasks that outlive the request that started them.
//!
//! Tasks are cancelled when their owner is dropped.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Tasks that are cancelled when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Background {
    tasks: TaskTracker,
    cancel: CancellationToken,
}

impl Background {
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
