//! Channels for file watches, which exist while they have subscribers.
//!
//! Each watch has one task that publishes the changes reported by the file system. The task
//! releases the watch when its last subscriber leaves or when access to the watched path is
//! revoked. It also removes the channel; the protocol has no message for that.

use std::sync::Arc;
use std::time::Duration;

use ahp_types::actions::{ResourceWatchChangedAction, StateAction};
use ahp_types::state::{ResourceChange, ResourceChangeType, ResourceWatchState};
use innkeeper_core::files::{ChangeKind, FileChange, FileWatch};
use innkeeper_core::state::{Action, ChannelState};
use innkeeper_core::{ChannelUri, Host};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

/// How long a watch waits for its first subscriber.
const FIRST_SUBSCRIBER: Duration = Duration::from_secs(30);

/// How often the subscribers are checked. A client that reconnects within this time keeps
/// its watch.
const LOOK: Duration = Duration::from_secs(1);

/// The same before the first subscriber: shorter, so that a client that subscribes and
/// leaves immediately is noticed.
const FIRST_LOOK: Duration = Duration::from_millis(50);

/// Publishes a watch on a new channel while it has subscribers.
pub(crate) fn publish(
    host: &Arc<Host>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
    state: ResourceWatchState,
    watch: Box<dyn FileWatch>,
) -> Result<ChannelUri, ChannelUri> {
    let channel = ChannelUri::new(&format!("ahp-resource-watch:/{}", Uuid::new_v4()));
    let state = ChannelState::ResourceWatch(Box::new(state));
    host.store().create(vec![(channel.clone(), state)])?;
    tasks.spawn(run(Arc::clone(host), stop.clone(), channel.clone(), watch));
    Ok(channel)
}

async fn run(host: Arc<Host>, stop: CancellationToken, channel: ChannelUri, mut watch: Box<dyn FileWatch>) {
    let store = host.store();
    let expires = Instant::now() + FIRST_SUBSCRIBER;
    let (mut next_look, mut was_heard) = (Instant::now(), false);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep_until(next_look) => {
                let heard = store.has_audience(std::slice::from_ref(&channel), None);
                was_heard |= heard;
                next_look = Instant::now() + if was_heard { LOOK } else { FIRST_LOOK };
                let wanted = heard || (!was_heard && Instant::now() < expires);
                if !wanted && store.remove_unsubscribed(std::slice::from_ref(&channel)) {
                    tracing::debug!(%channel, "released watch without subscribers");
                    return;
                }
            }
            // Changes before the first subscriber stay queued for it.
            changes = watch.changes(), if was_heard => {
                let Some(changes) = changes else {
                    tracing::debug!(%channel, "watch ended: access was revoked");
                    break;
                };
                if let Err(error) = store.commit(&channel, &changed(&changes), None) {
                    tracing::error!(%error, %channel, "could not publish file changes");
                }
            }
        }
    }
    store.remove(&[channel]);
}

fn changed(changes: &[FileChange]) -> Action {
    let items: Vec<ResourceChange> = changes
        .iter()
        .map(|change| ResourceChange {
            uri: change.uri.clone(),
            r#type: match change.kind {
                ChangeKind::Added => ResourceChangeType::Added,
                ChangeKind::Updated => ResourceChangeType::Updated,
                ChangeKind::Deleted => ResourceChangeType::Deleted,
            },
        })
        .collect();
    Action::own(StateAction::ResourceWatchChanged(ResourceWatchChangedAction {
        changes: json!({ "items": items }),
    }))
}

#[cfg(test)]
#[path = "watches_tests.rs"]
mod tests;
