//! Channels of file watches: each lives as long as somebody listens.
//!
//! Owns the one task per watch that publishes what the file system reports, and
//! that releases the watch when its last subscriber is gone, or the right to see what
//! it watches. Then its channel is gone, too; the protocol has no word for it.

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

/// How often it is looked whether anybody still listens. A client whose connection
/// breaks and comes back at once keeps its watch.
const LOOK: Duration = Duration::from_secs(1);

/// How often that is before anybody has: a client that subscribes and leaves at once
/// must not be overlooked.
const FIRST_LOOK: Duration = Duration::from_millis(50);

/// Publishes a watch on a channel of its own until nobody listens any more.
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
                    tracing::debug!(%channel, "released a watch that nobody listens to");
                    return;
                }
            }
            // What happens before anybody listens waits for who comes.
            changes = watch.changes(), if was_heard => {
                let Some(changes) = changes else {
                    tracing::debug!(%channel, "a watch ended, since what it watches is not allowed any more");
                    break;
                };
                if let Err(error) = store.commit(&channel, &changed(&changes), None) {
                    tracing::error!(%error, %channel, "changes of files could not be published");
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
