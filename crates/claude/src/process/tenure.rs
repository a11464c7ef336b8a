//! The right to work on a conversation, for as long as a runtime does.
//!
//! Owns the lease while the runtime lives, and takes another one when the runtime goes on with another
//! conversation: newer ones do after `/clear`. The invariant: the one that is worked on is always taken.

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::intake::Intake;
use crate::registry::Lease;

/// The process that is written down beside the conversation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tenant {
    pub(super) warden: u32,
    pub(super) mark: Uuid,
}

/// A lease in use.
#[derive(Debug)]
pub(super) struct Tenure {
    over: CancellationToken,
    holder: Option<JoinHandle<()>>,
}

impl Tenure {
    /// Begins to hold a lease, if there is one. A runtime elsewhere has no process to be written down.
    pub(super) fn begin(
        tasks: &TaskTracker,
        lease: Option<Lease>,
        tenant: Option<Tenant>,
        intake: &Intake,
    ) -> Self {
        let over = CancellationToken::new();
        let holder = lease.map(|lease| {
            note(&lease, tenant);
            let (conversation, over) = (intake.conversation(), over.clone());
            tasks.spawn(async move {
                over.run_until_cancelled(hold(lease, tenant, conversation)).await;
            })
        });
        Self { over, holder }
    }

    /// Gives the lease back.
    pub(super) async fn end(self) {
        self.over.cancel();
        if let Some(holder) = self.holder {
            // It only fails if the task panicked, and then the lease is gone as well.
            holder.await.ok();
        }
    }
}

fn note(lease: &Lease, tenant: Option<Tenant>) {
    if let Some(tenant) = tenant {
        lease.note(tenant.warden, tenant.mark);
    }
}

/// Follows the runtime from conversation to conversation.
async fn hold(mut lease: Lease, tenant: Option<Tenant>, mut conversation: watch::Receiver<Option<Uuid>>) {
    while conversation.changed().await.is_ok() {
        let Some(next) = *conversation.borrow_and_update() else { continue };
        if next == lease.conversation() {
            continue;
        }
        let registry = lease.registry();
        match tokio::task::spawn_blocking(move || registry.lease(next)).await {
            // The other one is given back only now, so that there is no moment without any.
            Ok(Ok(taken)) => {
                note(&taken, tenant);
                lease = taken;
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "a runtime went on with a conversation that is not free");
            }
            Err(error) => tracing::warn!(%error, "a conversation could not be taken"),
        }
    }
    // The intake goes after the process; until then the lease is held.
    std::future::pending::<()>().await;
}
