//! The most recent dispatches of one client and the progress of each, used to detect a
//! repeated dispatch. Does not track what a client has seen, and does not send responses.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::super::frame::Origin;
use super::mark::DispatchMark;
use crate::ids::{ConnectionId, ServerSeq};
use crate::storage::{MAX_HANDLED_DISPATCHES, StoredDispatch};

/// Stands for the client's connections to an earlier host process.
pub(in crate::state) const BEFORE_THIS_HOST: ConnectionId = ConnectionId(0);

/// How a dispatch relates to the client's earlier dispatches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) enum DispatchClaim {
    /// Not seen before; it must be handled, and is recorded.
    New,
    /// Repeats a dispatch that is on its way to its handler and may not reach it.
    UnderWay,
    /// Repeats a dispatch whose response is pending; it will be sent on this connection
    /// too.
    ResponsePending,
    /// Repeats a dispatch that has a response, which the client may have missed.
    Answered,
}

/// Identifies a claim: a client may use the same number and text twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::state) struct ClaimId(pub(in crate::state) u64);

/// A client's most recently handled dispatches, oldest first.
#[derive(Debug, Default)]
pub(in crate::state) struct Dispatches(VecDeque<Handled>);

/// A dispatch that was handled or is on its way to its handler.
#[derive(Debug)]
struct Handled {
    /// The claim with which it was recorded; `None` if it is from storage.
    claim: Option<ClaimId>,
    /// Identifies the dispatch.
    mark: DispatchMark,
    /// The client's number of the dispatch, which matches it to its response.
    client_seq: i64,
    /// The connection that the dispatch was first received on.
    made_over: ConnectionId,
    /// The newest connection that repeated the dispatch and also expects the response.
    repeated_over: Option<ConnectionId>,
    progress: DispatchProgress,
}

/// The progress of a dispatch.
#[derive(Debug)]
enum DispatchProgress {
    /// On its way to its handler.
    UnderWay,
    /// Its handler has it and will respond.
    Delivered,
    /// The response has this sequence number.
    Answered(ServerSeq),
    /// Handled before a crash; it is unknown whether the client received the response. A
    /// repetition is rejected, which the client sees. Handling it as new might apply it
    /// twice.
    Unknown,
}

impl Handled {
    /// The sequence number of the response, if known.
    fn answer(&self) -> Option<ServerSeq> {
        match self.progress {
            DispatchProgress::Answered(answer) => Some(answer),
            DispatchProgress::UnderWay | DispatchProgress::Delivered | DispatchProgress::Unknown => None,
        }
    }

    /// Whether the response is still pending.
    fn is_open(&self) -> bool {
        matches!(self.progress, DispatchProgress::UnderWay | DispatchProgress::Delivered)
    }

    fn is_open_claim(&self, claim: ClaimId) -> bool {
        self.claim == Some(claim) && self.is_open()
    }

    /// Whether an equal dispatch repeats this one. It was received on `over`, whose
    /// client had seen everything up to `seen` when it reconnected.
    fn is_repeated_by(&self, over: ConnectionId, seen: Option<ServerSeq>) -> bool {
        let last = self.repeated_over.unwrap_or(self.made_over);
        match last.cmp(&over) {
            Ordering::Less => seen.is_some_and(|seen| self.answer().is_none_or(|answer| answer > seen)),
            // A client does not repeat a dispatch on the same connection.
            Ordering::Equal => false,
            // This one was still unread when the client reconnected and repeated it.
            Ordering::Greater => true,
        }
    }
}

impl Dispatches {
    /// Checks whether a dispatch repeats an earlier one, given that its client had seen
    /// everything up to `seen` when it reconnected. A new dispatch is recorded with this id.
    pub(in crate::state) fn claim(
        &mut self,
        id: ClaimId,
        origin: &Origin,
        mark: DispatchMark,
        seen: Option<ServerSeq>,
    ) -> DispatchClaim {
        let over = origin.connection;
        let again = |handled: &&mut Handled| handled.mark == mark && handled.is_repeated_by(over, seen);
        if let Some(handled) = self.0.iter_mut().find(again) {
            let claim = match handled.progress {
                DispatchProgress::UnderWay => return DispatchClaim::UnderWay,
                DispatchProgress::Delivered => DispatchClaim::ResponsePending,
                DispatchProgress::Answered(_) | DispatchProgress::Unknown => DispatchClaim::Answered,
            };
            if over > handled.made_over {
                handled.repeated_over = handled.repeated_over.max(Some(over));
            }
            return claim;
        }
        self.0.push_back(Handled {
            claim: Some(id),
            mark,
            client_seq: origin.client_seq,
            made_over: over,
            repeated_over: None,
            progress: DispatchProgress::UnderWay,
        });
        if self.0.len() > MAX_HANDLED_DISPATCHES {
            self.0.pop_front();
        }
        DispatchClaim::New
    }

    /// Records that a new dispatch is delivered to its handler.
    pub(super) fn delivered(&mut self, claim: ClaimId) {
        if let Some(handled) = self.0.iter_mut().find(|handled| handled.is_open_claim(claim)) {
            handled.progress = DispatchProgress::Delivered;
        }
    }

    /// Removes a new dispatch that will not receive a response, unless it already has
    /// one.
    pub(super) fn abandon(&mut self, claim: ClaimId) {
        if let Some(at) = self.0.iter().rposition(|handled| handled.is_open_claim(claim)) {
            self.0.remove(at);
        }
    }

    /// Records the response to a dispatch. Returns another connection on which the client
    /// has repeated the dispatch, if any.
    pub(in crate::state) fn answered(&mut self, origin: &Origin, answer: ServerSeq) -> Option<ConnectionId> {
        // The client may use a number twice; responses are in order.
        let this = |handled: &&mut Handled| {
            handled.client_seq == origin.client_seq
                && handled.made_over == origin.connection
                && handled.is_open()
        };
        let handled = self.0.iter_mut().find(this)?;
        handled.progress = DispatchProgress::Answered(answer);
        handled.repeated_over
    }

    /// Records the response to a repeated dispatch.
    pub(super) fn answered_again(&mut self, mark: DispatchMark, answer: ServerSeq) {
        let same = |handled: &&mut Handled| handled.mark == mark && !handled.is_open();
        for handled in self.0.iter_mut().filter(same) {
            handled.progress = DispatchProgress::Answered(answer);
        }
    }

    /// Restores the dispatches from storage.
    pub(in crate::state) fn restored(stored: Vec<StoredDispatch>) -> Self {
        let handled = stored.into_iter().map(|dispatch| Handled {
            claim: None,
            mark: DispatchMark(dispatch.mark),
            client_seq: 0,
            made_over: BEFORE_THIS_HOST,
            repeated_over: None,
            progress: dispatch.answer.map_or(DispatchProgress::Unknown, DispatchProgress::Answered),
        });
        Self(handled.collect())
    }

    /// The dispatches in stored form, without the open ones, which are lost.
    pub(in crate::state) fn stored(&self) -> Vec<StoredDispatch> {
        let settled = self.0.iter().filter(|handled| !handled.is_open());
        settled.map(|handled| StoredDispatch { mark: handled.mark.0, answer: handled.answer() }).collect()
    }
}
