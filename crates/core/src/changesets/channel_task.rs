//! The task of one changeset: computes it and publishes what changed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::document::{self, ChangesetContent};
use super::{Changesets, OpenChangeset, lock};

/// How long further changes are awaited before a computation. An edit is often followed by
/// others.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// How often the subscribers are checked.
const LOOK: Duration = Duration::from_secs(1);

/// How often a changeset is computed while there are subscribers: the log does not report the
/// user's own changes.
const POLL: Duration = Duration::from_secs(2);

/// A computation takes at most this fraction of the time between two polls.
const POLL_SHARE: u32 = 10;

/// Runs until the channel is removed or the host shuts down.
pub(super) async fn run(changesets: Arc<Changesets>, changeset: Arc<OpenChangeset>) {
    loop {
        let began = Instant::now();
        let updated = tokio::select! {
            () = changesets.ending.cancelled() => return,
            () = changeset.closed.cancelled() => return,
            updated = compute(&changesets, &changeset) => updated,
        };
        if updated {
            // The log does not report the user's own changes, which any computation can find.
            changesets.request_counts(&changeset.address.session);
        }
        let poll = Instant::now() + POLL.max(began.elapsed() * POLL_SHARE);
        if until_wanted(&changesets, &changeset, poll).await == ChannelFate::End {
            return;
        }
    }
}

/// What the task does next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChannelFate {
    Compute,
    End,
}

/// Waits until the changeset has to be computed again or is not needed.
async fn until_wanted(changesets: &Changesets, changeset: &OpenChangeset, poll_at: Instant) -> ChannelFate {
    loop {
        let is_watched = changesets.has_audience(changeset);
        tokio::select! {
            () = changesets.ending.cancelled() => return ChannelFate::End,
            () = changeset.closed.cancelled() => return ChannelFate::End,
            () = changeset.request.notified() => {
                tokio::time::sleep(DEBOUNCE).await;
                return ChannelFate::Compute;
            }
            () = tokio::time::sleep_until(poll_at), if is_watched => {
                changeset.requested.fetch_add(1, Ordering::SeqCst);
                return ChannelFate::Compute;
            }
            () = tokio::time::sleep(LOOK) => {
                if changesets.release(changeset) {
                    return ChannelFate::End;
                }
            }
        }
    }
}

/// Computes the changeset until no client has changed it meanwhile, and publishes it. Returns
/// whether it differs.
async fn compute(changesets: &Changesets, changeset: &OpenChangeset) -> bool {
    loop {
        let number = changeset.requested.load(Ordering::SeqCst);
        let edition = changeset.edition.load(Ordering::SeqCst);
        // The semaphore is never closed.
        let _permit = changesets.computing.acquire().await;
        let result = changesets.log.changes(changesets.current_scope(changeset)).await;
        let _alone = lock(&changeset.publishing);
        if changeset.edition.load(Ordering::SeqCst) != edition {
            continue;
        }
        let updates = changesets.read(changeset, |state| match &result {
            Ok(list) => {
                let runs = lock(&changeset.runs);
                let content = ChangesetContent::new(&changeset.address.view, list, &runs);
                document::updates(state, content)
            }
            Err(error) => document::failure(state, &error.to_string()).into_iter().collect(),
        });
        let updates = updates.unwrap_or_default();
        let differs = !updates.is_empty();
        for update in updates {
            changesets.commit(changeset, update);
        }
        changeset.computed.send_replace(number);
        return differs;
    }
}
