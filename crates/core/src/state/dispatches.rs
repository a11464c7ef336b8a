//! What is remembered of the dispatches of one client: which were handled last, and how
//! far each of them got, so that one that is made again is known again.
//!
//! Does not know what a client has seen, nor answers anybody. Few dispatches are open at
//! a time, of which there is a count, so that who looks for them need not look at all.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::frame::Origin;
use super::repeats::{Claim, DispatchMark};
use crate::channel::ChannelUri;
use crate::ids::{ConnectionId, ServerSeq};
use crate::storage::StoredDispatch;

/// Dispatches of a client that are remembered: more than it can have made without
/// seeing an answer.
const MAX_HANDLED: usize = 256;

/// Stands for the connections that a client had to an earlier host.
pub(super) const BEFORE_THIS_HOST: ConnectionId = ConnectionId(0);

/// The dispatches of a client that were handled last.
#[derive(Debug, Default)]
pub(super) struct Dispatches {
    /// Oldest first.
    all: VecDeque<Handled>,
    /// How many of them are open.
    open: usize,
}

/// A dispatch that was handled, or is on its way to where it will be.
#[derive(Debug)]
struct Handled {
    /// By which it is known again.
    mark: DispatchMark,
    /// The client's number for it, by which its answer is known.
    client_seq: i64,
    /// The connection over which it was handled.
    made_over: ConnectionId,
    /// The newest connection over which it came again, which wants the answer too.
    repeated_over: Option<ConnectionId>,
    fate: Fate,
}

/// How far a dispatch got.
#[derive(Debug)]
enum Fate {
    /// It is on its way to where it is answered.
    UnderWay,
    /// Whoever has this channel will answer it.
    Arrived(ChannelUri),
    /// It was answered with this number.
    Answered(ServerSeq),
    /// It was handled before a crash, and nobody knows whether its client has the answer.
    /// Taken for a repetition it is refused, which the client sees; taken for a new one it
    /// might be done twice.
    Unknown,
}

impl Handled {
    /// The number of its answer, if it has one that is known.
    fn answer(&self) -> Option<ServerSeq> {
        match self.fate {
            Fate::Answered(answer) => Some(answer),
            Fate::UnderWay | Fate::Arrived(_) | Fate::Unknown => None,
        }
    }

    /// Whether its answer is still to come.
    fn is_open(&self) -> bool {
        matches!(self.fate, Fate::UnderWay | Fate::Arrived(_))
    }

    /// Whether a dispatch that looks the same is this one again. It came over `over`,
    /// whose client had seen everything up to `seen` when it came back.
    fn comes_again(&self, over: ConnectionId, seen: Option<ServerSeq>) -> bool {
        let last = self.repeated_over.unwrap_or(self.made_over);
        match last.cmp(&over) {
            Ordering::Less => seen.is_some_and(|seen| self.answer().is_none_or(|answer| answer > seen)),
            // Over one connection a client says nothing twice.
            Ordering::Equal => false,
            // It waited unread while its client moved on and made it again.
            Ordering::Greater => true,
        }
    }
}

impl Dispatches {
    /// Looks whether a dispatch is one that was made before, if its client had seen
    /// everything up to `seen` when it came back over this connection. One that is new is
    /// remembered.
    pub(super) fn claim(&mut self, origin: &Origin, mark: DispatchMark, seen: Option<ServerSeq>) -> Claim {
        let over = origin.connection;
        let again = |handled: &&mut Handled| handled.mark == mark && handled.comes_again(over, seen);
        if let Some(handled) = self.all.iter_mut().find(again) {
            let claim = match handled.fate {
                Fate::UnderWay => return Claim::UnderWay,
                Fate::Arrived(_) => Claim::AnswerComes,
                Fate::Answered(_) | Fate::Unknown => Claim::Answered,
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
            fate: Fate::UnderWay,
        });
        self.open += 1;
        if self.all.len() > MAX_HANDLED {
            self.remove(0);
        }
        Claim::New
    }

    /// A dispatch that was new gets to where it is answered.
    pub(super) fn arrived(&mut self, origin: &Origin, mark: DispatchMark, at: &ChannelUri) {
        let place = self.open_one(origin, mark);
        if let Some(handled) = place.and_then(|place| self.all.get_mut(place)) {
            handled.fate = Fate::Arrived(at.clone());
        }
    }

    /// A dispatch that was new is answered by nobody, unless it is already.
    pub(super) fn is_over(&mut self, origin: &Origin, mark: DispatchMark) {
        if let Some(place) = self.open_one(origin, mark) {
            self.remove(place);
        }
    }

    /// A dispatch is answered. Says over which other connection the client made it
    /// meanwhile.
    pub(super) fn answered(&mut self, origin: &Origin, answer: ServerSeq) -> Option<ConnectionId> {
        // A number may come twice; answers come in order.
        let this = |handled: &&mut Handled| {
            handled.client_seq == origin.client_seq
                && handled.made_over == origin.connection
                && handled.is_open()
        };
        let handled = self.all.iter_mut().find(this)?;
        handled.fate = Fate::Answered(answer);
        self.open = self.open.saturating_sub(1);
        handled.repeated_over
    }

    /// A dispatch that came again is answered once more.
    pub(super) fn answered_again(&mut self, mark: DispatchMark, answer: ServerSeq) {
        let same = |handled: &&mut Handled| handled.mark == mark && !handled.is_open();
        for handled in self.all.iter_mut().filter(same) {
            handled.fate = Fate::Answered(answer);
        }
    }

    /// What waits on these channels for an answer gets none any more.
    pub(super) fn forget_channels(&mut self, channels: &[ChannelUri]) {
        if self.open == 0 {
            return;
        }
        let before = self.all.len();
        self.all.retain(|handled| !matches!(&handled.fate, Fate::Arrived(at) if channels.contains(at)));
        self.open = self.open.saturating_sub(before - self.all.len());
    }

    /// Remembers them as an earlier host did.
    pub(super) fn restored(stored: Vec<StoredDispatch>) -> Self {
        let handled = stored.into_iter().map(|dispatch| Handled {
            mark: DispatchMark(dispatch.mark),
            client_seq: 0,
            made_over: BEFORE_THIS_HOST,
            repeated_over: None,
            fate: dispatch.answer.map_or(Fate::Unknown, Fate::Answered),
        });
        Self { all: handled.collect(), open: 0 }
    }

    /// All of them as they are stored. What is open was lost on its way to its session.
    pub(super) fn stored(&self) -> Vec<StoredDispatch> {
        let settled = self.all.iter().filter(|handled| !handled.is_open());
        settled.map(|handled| StoredDispatch { mark: handled.mark.0, answer: handled.answer() }).collect()
    }

    /// The place of the newest dispatch with this mark that came from there and is open.
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
    fn what_arrived_where_nobody_is_any_more_is_new_when_it_is_made_again() {
        let mut dispatches = Dispatches::default();
        let mark = DispatchMark(1);
        assert_eq!(dispatches.claim(&origin(1, 1), mark, None), Claim::New);
        dispatches.arrived(&origin(1, 1), mark, &channel(1));
        let seen = Some(ServerSeq(0));
        assert_eq!(dispatches.claim(&origin(2, 1), mark, seen), Claim::AnswerComes);
        dispatches.forget_channels(&[channel(2)]);
        assert_eq!(dispatches.claim(&origin(3, 1), mark, seen), Claim::AnswerComes);
        dispatches.forget_channels(&[channel(2), channel(1)]);
        assert_eq!(dispatches.claim(&origin(4, 1), mark, seen), Claim::New);
    }

    proptest! {
        #[test]
        fn what_is_open_is_counted(
            steps in proptest::collection::vec((0..6_u8, 1..4_u64, 1..4_i64), 0..600),
        ) {
            let mut dispatches = Dispatches::default();
            for (step, number, seq) in steps {
                let (from, mark) = (origin(number, seq), DispatchMark(seq));
                match step {
                    // More often than all else, so that the oldest ones have to go.
                    0..=1 => drop(dispatches.claim(&from, mark, Some(ServerSeq(0)))),
                    2 => dispatches.arrived(&from, mark, &channel(number)),
                    3 => dispatches.is_over(&from, mark),
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
