//! The ticket of a client's dispatch.

use std::pin::pin;
use std::sync::Arc;

use super::super::frame::{Action, Origin};
use super::super::store::StateStore;
use super::handled::{ClaimId, DispatchClaim};
use super::mark::DispatchMark;
use crate::channel::ChannelUri;

/// The right to handle a dispatch. A repetition of the dispatch waits until the ticket is
/// delivered or dropped. Dropping it before the dispatch was answered means that the dispatch
/// was not handled: a repetition is then handled as new.
#[derive(Debug)]
pub(crate) struct DispatchTicket {
    store: Arc<StateStore>,
    origin: Origin,
    /// Identifies the dispatch, if the client tracks it.
    tracked: Option<(DispatchMark, ClaimId)>,
}

impl DispatchTicket {
    /// Claims a dispatch. Returns `None` if it repeats an earlier one that has been or will be
    /// answered. Waits while it is unknown whether an earlier copy reaches its handler.
    pub(crate) async fn claim(
        store: &Arc<StateStore>,
        channel: &ChannelUri,
        action: &Action,
        origin: Origin,
    ) -> Option<Self> {
        let Some(mark) = DispatchMark::of(channel, action, &origin) else {
            return Some(Self { store: Arc::clone(store), origin, tracked: None });
        };
        loop {
            let mut settled = pin!(store.dispatch_settled.notified());
            // Registered before the check, so that no notification is missed.
            settled.as_mut().enable();
            let (id, claim) = store.claim(&origin, mark);
            match claim {
                DispatchClaim::New => {
                    return Some(Self { store: Arc::clone(store), origin, tracked: Some((mark, id)) });
                }
                DispatchClaim::UnderWay => settled.await,
                DispatchClaim::ResponsePending => return None,
                DispatchClaim::Answered => {
                    store.reject_repeated(channel, action, &origin, mark);
                    return None;
                }
            }
        }
    }

    /// The connection and client that made the dispatch.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Identifies the dispatch when it is repeated, if the client tracks it.
    pub(crate) fn mark(&self) -> Option<DispatchMark> {
        self.tracked.map(|(mark, _)| mark)
    }

    /// Records that the ticket is passed to a handler that will answer the dispatch. Called
    /// before the handler can read it: the answer may come at once.
    pub(crate) fn delivered(&self) {
        if let Some((_, claim)) = self.tracked {
            if let Some(dispatches) = self.store.lock().clients.dispatches_of(&self.origin.client) {
                dispatches.delivered(claim);
            }
            self.store.dispatch_settled.notify_waiters();
        }
    }
}

impl Drop for DispatchTicket {
    fn drop(&mut self) {
        if let Some((_, claim)) = self.tracked {
            if let Some(dispatches) = self.store.lock().clients.dispatches_of(&self.origin.client) {
                dispatches.abandon(claim);
            }
            self.store.dispatch_settled.notify_waiters();
        }
    }
}

impl StateStore {
    /// Checks whether a dispatch repeats an earlier one, and records it if it is new.
    fn claim(&self, origin: &Origin, mark: DispatchMark) -> (ClaimId, DispatchClaim) {
        let mut inner = self.lock();
        let seen = inner.connections.get(&origin.connection).and_then(|attached| attached.seen);
        inner.clients.claim(origin, mark, seen)
    }

    /// Rejects a dispatch that already has a response. The sender may have missed that
    /// response and wait for it. If it did not, the rejection is harmless: the result of
    /// the first dispatch is in the state that it received.
    fn reject_repeated(&self, channel: &ChannelUri, action: &Action, origin: &Origin, mark: DispatchMark) {
        tracing::debug!(%channel, client_seq = origin.client_seq, "rejecting repeated action");
        let reason = "this action was already handled";
        let mut inner = self.lock();
        match inner.private_answer(channel, action, origin, Some(reason)) {
            Ok((seq, frame)) => {
                if let Some(dispatches) = inner.clients.dispatches_of(&origin.client) {
                    dispatches.answered_again(mark, seq);
                }
                inner.push_to(origin.connection, frame);
            }
            Err(error) => tracing::error!(%channel, %error, "cannot send rejection"),
        }
    }
}

#[cfg(test)]
#[path = "ticket_tests.rs"]
mod tests;
