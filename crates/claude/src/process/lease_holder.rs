//! Holds the lease on the conversation of a running runtime.
//!
//! Keeps the lease while the runtime runs, and takes a new one when the runtime switches to another
//! conversation, as newer runtimes do after `/clear`. Invariant: the runtime's current conversation is
//! always leased.

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::intake::Intake;
use crate::process_registry::Lease;

/// The process recorded with the lease.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeasedProcess {
    pub(super) warden: u32,
    pub(super) mark: Uuid,
}

/// A lease held for a runtime.
#[derive(Debug)]
pub(super) struct LeaseHolder {
    over: CancellationToken,
    holder: Option<JoinHandle<()>>,
}

impl LeaseHolder {
    /// Starts holding the lease, if any. A remote runtime has no process to record.
    pub(super) fn start(
        tasks: &TaskTracker,
        lease: Option<Lease>,
        process: Option<LeasedProcess>,
        intake: &Intake,
    ) -> Self {
        let over = CancellationToken::new();
        let holder = lease.map(|lease| {
            note(&lease, process);
            let (conversation, over) = (intake.conversation(), over.clone());
            tasks.spawn(async move {
                over.run_until_cancelled(hold(lease, process, conversation)).await;
            })
        });
        Self { over, holder }
    }

    /// Releases the lease.
    pub(super) async fn end(self) {
        self.over.cancel();
        if let Some(holder) = self.holder {
            // Fails only if the task panicked, which also releases the lease.
            holder.await.ok();
        }
    }
}

fn note(lease: &Lease, process: Option<LeasedProcess>) {
    if let Some(process) = process {
        lease.note(process.warden, process.mark);
    }
}

/// Follows the runtime from one conversation to the next.
async fn hold(
    mut lease: Lease,
    process: Option<LeasedProcess>,
    mut conversation: watch::Receiver<Option<Uuid>>,
) {
    while conversation.changed().await.is_ok() {
        let Some(next) = *conversation.borrow_and_update() else { continue };
        if next == lease.conversation() {
            continue;
        }
        let registry = lease.registry();
        match tokio::task::spawn_blocking(move || registry.lease(next)).await {
            // The old lease is released only after the new one is taken, so that one is always held.
            Ok(Ok(taken)) => {
                note(&taken, process);
                lease = taken;
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "runtime switched to a conversation that is in use");
            }
            Err(error) => tracing::warn!(%error, "cannot lease conversation"),
        }
    }
    // The intake outlives the process; the lease is held until then.
    std::future::pending::<()>().await;
}
