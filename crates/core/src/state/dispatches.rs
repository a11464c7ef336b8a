//! The most recent dispatches of one client and the progress of each, used to detect a
//! repeated dispatch.
//!
//! Does not track what a client has seen, and does not send responses. Few dispatches are
//! open at a time; a count of them avoids scanning the list when none is open.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::frame::Origin;
use super::repeats::{DispatchClaim, DispatchMark};
use crate::channel::ChannelUri;
use crate::ids::{ConnectionId, ServerSeq};
use crate::storage::StoredDispatch;

/// Number of recorded dispatches per client: more than a client can make without
/// receiving a response.
const MAX_HANDLED: usize = 256;

/// Stands for the client's connections to an earlier host process.
pub(super) const BEFORE_THIS_HOST: ConnectionId = ConnectionId(0);

/// A client's most recently handled dispatches.
#[derive(Debug, Default)]
pub(super) struct Dispatches {
    /// Oldest first.
    all: VecDeque<Handled>,
    /// Number of open dispatches in `all`.
    open: usize,
}

/// A dispatch that was handled or is on its way to its handler.
#[derive(Debug)]
struct Handled {
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
    /// The owner of this channel will respond.
    Arrived(ChannelUri),
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
            DispatchProgress::UnderWay | DispatchProgress::Arrived(_) | DispatchProgress::Unknown => None,
        }
    }

    /// Whether the response is still pending.
    fn is_open(&self) -> bool {
        matches!(self.progress, DispatchProgress::UnderWay | DispatchProgress::Arrived(_))
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
    /// everything up to `seen` when it reconnected. A new dispatch is recorded.
    pub(super) fn claim(
        &mut self,
        origin: &Origin,
        mark: DispatchMark,
        seen: Option<ServerSeq>,
    ) -> DispatchClaim {
        let over = origin.connection;
        let again = |handled: &&mut Handled| handled.mark == mark && handled.is_repeated_by(over, seen);
        if let Some(handled) = self.all.iter_mut().find(again) {
            let claim = match handled.progress {
                DispatchProgress::UnderWay => return DispatchClaim::UnderWay,
                DispatchProgress::Arrived(_) => DispatchClaim::ResponsePending,
                DispatchProgress::Answered(_) | DispatchProgress::Unknown => DispatchClaim::Answered,
            };
            if over > handled.made_over {
                handled.repeated_over = handled.repeated_over.max(Some(over));
            }
            return claim;
        }
        self.all.push_back(Handled {
            mark,
            client_seq: origin.client_seq,
            made_over: over,
            repeated_over: None,
            progress: DispatchProgress::UnderWay,
        });
        self.open += 1;
        if self.all.len() > MAX_HANDLED {
            self.remove(0);
        }
        DispatchClaim::New
    }

    /// Records that a new dispatch reached its handler.
    pub(super) fn arrived(&mut self, origin: &Origin, mark: DispatchMark, at: &ChannelUri) {
        let place = self.open_one(origin, mark);
        if let Some(handled) = place.and_then(|place| self.all.get_mut(place)) {
            handled.progress = DispatchProgress::Arrived(at.clone());
        }
    }

    /// Removes a new dispatch that will not receive a response, unless it already has
    /// one.
    pub(super) fn abandon(&mut self, origin: &Origin, mark: DispatchMark) {
        if let Some(place) = self.open_one(origin, mark) {
            self.remove(place);
        }
    }

    /// Records the response to a dispatch. Returns another connection on which the client
    /// has repeated the dispatch, if any.
    pub(super) fn answered(&mut self, origin: &Origin, answer: ServerSeq) -> Option<ConnectionId> {
        // The client may use a number twice; responses are in order.
        let this = |handled: &&mut Handled| {
            handled.client_seq == origin.client_seq
                && handled.made_over == origin.connection
                && handled.is_open()
        };
        let handled = self.all.iter_mut().find(this)?;
        handled.progress = DispatchProgress::Answered(answer);
        self.open = self.open.saturating_sub(1);
        handled.repeated_over
    }

    /// Records the response to a repeated dispatch.
    pub(super) fn answered_again(&mut self, mark: DispatchMark, answer: ServerSeq) {
        let same = |handled: &&mut Handled| handled.mark == mark && !handled.is_open();
        for handled in self.all.iter_mut().filter(same) {
            handled.progress = DispatchProgress::Answered(answer);
        }
    }

    /// Removes dispatches pending on these channels: they will not receive a response.
    pub(super) fn forget_channels(&mut self, channels: &[ChannelUri]) {
        if self.open == 0 {
            return;
        }
        let before = self.all.len();
        self.all.retain(
            |handled| !matches!(&handled.progress, DispatchProgress::Arrived(at) if channels.contains(at)),
        );
        self.open = self.open.saturating_sub(before - self.all.len());
    }

    /// Restores the dispatches from storage.
    pub(super) fn restored(stored: Vec<StoredDispatch>) -> Self {
        let handled = stored.into_iter().map(|dispatch| Handled {
            mark: DispatchMark(dispatch.mark),
            client_seq: 0,
            made_over: BEFORE_THIS_HOST,
            repeated_over: None,
            progress: dispatch.answer.map_or(DispatchProgress::Unknown, DispatchProgress::Answered),
        });
        Self { all: handled.collect(), open: 0 }
    }

    /// The dispatches in stored form, without the open ones, which are lost.
    pub(super) fn stored(&self) -> Vec<StoredDispatch> {
        let settled = self.all.iter().filter(|handled| !handled.is_open());
        settled.map(|handled| StoredDispatch { mark: handled.mark.0, answer: handled.answer() }).collect()
    }

    /// The index of the newest open dispatch with this mark and connection.
    fn open_one(&self, origin: &Origin, mark: DispatchMark) -> Option<usize> {
        self.all.iter().rposition(|handled| {
            handled.mark == mark && handled.made_over == origin.connection && handled.is_open()
        })
    }

    fn remove(&mut self, place: usize) {
        if self.all.remove(place).is_some_and(|handled| handled.is_open()) {
            self.open = self.open.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::ClientId;

    fn origin(connection: u64, client_seq: i64) -> Origin {
        Origin { connection: ConnectionId(connection), client: ClientId::new("c"), client_seq }
    }

    fn channel(number: u64) -> ChannelUri {
        ChannelUri::new(&format!("a:/{number}"))
    }

    #[test]
    fn dispatch_pending_on_removed_channel_is_new_when_repeated() {
        let mut dispatches = Dispatches::default();
        let mark = DispatchMark(1);
        assert_eq!(dispatches.claim(&origin(1, 1), mark, None), DispatchClaim::New);
        dispatches.arrived(&origin(1, 1), mark, &channel(1));
        let seen = Some(ServerSeq(0));
        assert_eq!(dispatches.claim(&origin(2, 1), mark, seen), DispatchClaim::ResponsePending);
        dispatches.forget_channels(&[channel(2)]);
        assert_eq!(dispatches.claim(&origin(3, 1), mark, seen), DispatchClaim::ResponsePending);
        dispatches.forget_channels(&[channel(2), channel(1)]);
        assert_eq!(dispatches.claim(&origin(4, 1), mark, seen), DispatchClaim::New);
    }

    proptest! {
        #[test]
        fn open_count_matches_open_dispatches(
            steps in proptest::collection::vec((0..6_u8, 1..4_u64, 1..4_i64), 0..600),
        ) {
            let mut dispatches = Dispatches::default();
            for (step, number, seq) in steps {
                let (from, mark) = (origin(number, seq), DispatchMark(seq));
                match step {
                    // More frequent than the other steps, so that old dispatches are
                    // evicted.
                    0..=1 => drop(dispatches.claim(&from, mark, Some(ServerSeq(0)))),
                    2 => dispatches.arrived(&from, mark, &channel(number)),
                    3 => dispatches.abandon(&from, mark),
                    4 => drop(dispatches.answered(&from, ServerSeq(7))),
                    _ => dispatches.forget_channels(&[channel(number)]),
                }
                let open = dispatches.all.iter().filter(|handled| handled.is_open()).count();
                prop_assert_eq!(dispatches.open, open);
                prop_assert!(dispatches.all.len() <= MAX_HANDLED);
            }
        }
    }
}
