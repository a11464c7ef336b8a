//! Which clients the host remembers, and what each of them had, so that they may
//! come back and be told only what they missed.

use std::collections::{HashMap, VecDeque};

use super::frame::Origin;
use super::repeats::{Claim, DispatchMark};
use crate::channel::ChannelUri;
use crate::ids::{ClientId, ConnectionId, ServerSeq};
use crate::storage::{StoredClient, StoredDispatch};

/// Clients that are remembered. The one seen first is forgotten first; it then has
/// to `initialize` again, which every client can.
const MAX_CLIENTS: usize = 4_096;

/// Dispatches of a client that are remembered: more than it can have made without
/// seeing an answer.
const MAX_HANDLED: usize = 256;

/// The channels that a client subscribed to.
pub(super) type Marks = HashMap<ChannelUri, Mark>;

/// The numbers of the first and the last snapshot that a client was sent of a
/// channel: everything up to it was in there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    first: ServerSeq,
    last: ServerSeq,
}

impl Mark {
    /// The mark of a first snapshot: without it the client has nothing.
    pub(super) fn at(seq: ServerSeq) -> Self {
        Self { first: seq, last: seq }
    }

    /// The mark of a snapshot for a client that may have an older state.
    pub(super) fn anew(seq: ServerSeq) -> Self {
        Self { first: ServerSeq(0), last: seq }
    }

    /// The client was sent another snapshot.
    pub(super) fn again(&mut self, seq: ServerSeq) {
        self.last = seq;
    }

    /// From where on a client has to be told, which has seen everything up to
    /// `seen`. Nobody knows whether a second snapshot arrived before the connection
    /// broke, so that a client which may have either gets a new one.
    pub(super) fn resume_after(self, seen: ServerSeq) -> Option<ServerSeq> {
        (self.first == self.last || seen >= self.last).then(|| seen.max(self.first))
    }
}

/// Stands for the connections that a client had to an earlier host.
const BEFORE_THIS_HOST: ConnectionId = ConnectionId(0);

/// What is remembered of a client.
#[derive(Debug)]
struct Known {
    marks: Marks,
    /// Its dispatches that were handled last, oldest first.
    handled: VecDeque<Handled>,
    /// The connection over which it last introduced itself. What came over older ones has
    /// nothing to do with its numbers.
    begun: ConnectionId,
    /// Its newest connection, the only one that says what the client has: an older one is
    /// a socket that nobody reads any more.
    newest: ConnectionId,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            marks: Marks::new(),
            handled: VecDeque::new(),
            begun: BEFORE_THIS_HOST,
            newest: BEFORE_THIS_HOST,
        }
    }
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
    /// The number of its answer, if it has one.
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
            std::cmp::Ordering::Less => {
                seen.is_some_and(|seen| self.answer().is_none_or(|answer| answer > seen))
            }
            // Over one connection a client says nothing twice.
            std::cmp::Ordering::Equal => false,
            // It waited unread while its client moved on and made it again.
            std::cmp::Ordering::Greater => true,
        }
    }
}

/// The clients that have connected to this host.
#[derive(Debug, Default)]
pub(super) struct KnownClients {
    known: HashMap<ClientId, Known>,
    by_age: VecDeque<ClientId>,
}

impl KnownClients {
    /// Remembers a client; what was known of it stays.
    pub(super) fn remember(&mut self, client: &ClientId) {
        if self.known.contains_key(client) {
            return;
        }
        self.known.insert(client.clone(), Known::default());
        self.by_age.push_back(client.clone());
        if self.by_age.len() > MAX_CLIENTS
            && let Some(oldest) = self.by_age.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// A client is at the other end of a connection.
    pub(super) fn is_at(&mut self, client: &ClientId, connection: ConnectionId) {
        if let Some(known) = self.known.get_mut(client) {
            known.newest = known.newest.max(connection);
        }
    }

    /// The newest of a client's connections.
    pub(super) fn newest(&self, client: &ClientId) -> Option<ConnectionId> {
        self.known.get(client).map(|known| known.newest)
    }

    /// Keeps what a client had when its connection ended, if it has no newer one.
    pub(super) fn keep(&mut self, client: &ClientId, connection: ConnectionId, marks: Marks) {
        if let Some(kept) = self.known.get_mut(client)
            && connection >= kept.newest
        {
            kept.marks = marks;
        }
    }

    /// A channel is gone for good: nobody has anything of what may come in its place.
    pub(super) fn forget_channel(&mut self, channel: &ChannelUri) {
        for known in self.known.values_mut() {
            known.marks.remove(channel);
            // What waits there for an answer gets none any more.
            known.handled.retain(|handled| !matches!(&handled.fate, Fate::Arrived(at) if at == channel));
        }
    }

    /// Whether a client is remembered.
    pub(super) fn knows(&self, client: &ClientId) -> bool {
        self.known.contains_key(client)
    }

    /// What a client had when its last connection ended.
    pub(super) fn marks(&self, client: &ClientId) -> Option<&Marks> {
        self.known.get(client).map(|known| &known.marks)
    }

    /// Looks whether a dispatch is one that was made before, if its client had seen
    /// everything up to `seen` when it came back over this connection. One that is new is
    /// remembered.
    pub(super) fn claim(&mut self, origin: &Origin, mark: DispatchMark, seen: Option<ServerSeq>) -> Claim {
        let over = origin.connection;
        let Some(known) = self.known.get_mut(&origin.client).filter(|known| over >= known.begun) else {
            return Claim::New;
        };
        let again = |handled: &&mut Handled| handled.mark == mark && handled.comes_again(over, seen);
        if let Some(handled) = known.handled.iter_mut().find(again) {
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
        known.handled.push_back(Handled {
            mark,
            client_seq: origin.client_seq,
            made_over: over,
            repeated_over: None,
            fate: Fate::UnderWay,
        });
        if known.handled.len() > MAX_HANDLED {
            known.handled.pop_front();
        }
        Claim::New
    }

    /// A dispatch that was new got to where it is answered; without a place it did not.
    pub(super) fn arrived(&mut self, origin: &Origin, mark: DispatchMark, at: Option<ChannelUri>) {
        let Some(known) = self.known.get_mut(&origin.client) else { return };
        let this = |handled: &Handled| {
            handled.mark == mark
                && handled.made_over == origin.connection
                && matches!(handled.fate, Fate::UnderWay)
        };
        let Some(place) = known.handled.iter().rposition(this) else { return };
        match (at, known.handled.get_mut(place)) {
            (Some(channel), Some(handled)) => handled.fate = Fate::Arrived(channel),
            (None, _) | (_, None) => drop(known.handled.remove(place)),
        }
    }

    /// A dispatch of a client's is answered. Says over which other connection the client
    /// made it meanwhile.
    pub(super) fn answered(&mut self, origin: &Origin, answer: ServerSeq) -> Option<ConnectionId> {
        let known = self.known.get_mut(&origin.client)?;
        // A number may come twice; answers come in order.
        let open = |handled: &&mut Handled| {
            handled.client_seq == origin.client_seq
                && handled.made_over == origin.connection
                && handled.is_open()
        };
        let handled = known.handled.iter_mut().find(open)?;
        handled.fate = Fate::Answered(answer);
        handled.repeated_over
    }

    /// A dispatch of a client's that came again is answered once more.
    pub(super) fn answered_again(&mut self, client: &ClientId, mark: DispatchMark, answer: ServerSeq) {
        let handled = self.known.get_mut(client).map(|known| &mut known.handled);
        let same = |handled: &&mut Handled| handled.mark == mark && !handled.is_open();
        for handled in handled.into_iter().flatten().filter(same) {
            handled.fate = Fate::Answered(answer);
        }
    }

    /// A client starts to count its dispatches anew.
    pub(super) fn begin_anew(&mut self, client: &ClientId, connection: ConnectionId) {
        if let Some(known) = self.known.get_mut(client) {
            known.handled.clear();
            known.begun = known.begun.max(connection);
        }
    }

    /// Remembers a client as an earlier host did.
    pub(super) fn restore(&mut self, stored: StoredClient) {
        self.remember(&stored.id);
        if let Some(known) = self.known.get_mut(&stored.id) {
            let handled = stored.handled.into_iter().map(|dispatch| Handled {
                mark: DispatchMark(dispatch.mark),
                client_seq: 0,
                made_over: BEFORE_THIS_HOST,
                repeated_over: None,
                fate: dispatch.answer.map_or(Fate::Unknown, Fate::Answered),
            });
            known.handled = handled.collect();
            known.marks = stored
                .marks
                .into_iter()
                .map(|(channel, first, last)| (channel, Mark { first, last }))
                .collect();
        }
    }

    /// All clients as they are stored, the one seen first first.
    pub(super) fn stored(&self) -> Vec<StoredClient> {
        let stored = |id: &ClientId| {
            let known = self.known.get(id)?;
            let mark = |(channel, mark): (&ChannelUri, &Mark)| (channel.clone(), mark.first, mark.last);
            Some(StoredClient {
                id: id.clone(),
                // What has no answer was lost on its way to its session.
                handled: known
                    .handled
                    .iter()
                    .filter(|handled| !handled.is_open())
                    .map(|handled| StoredDispatch { mark: handled.mark.0, answer: handled.answer() })
                    .collect(),
                marks: known.marks.iter().map(mark).collect(),
            })
        };
        self.by_age.iter().filter_map(stored).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_oldest_client_is_forgotten() {
        let mut clients = KnownClients::default();
        for number in 0..=MAX_CLIENTS {
            clients.remember(&ClientId::new(&number.to_string()));
        }
        assert!(!clients.knows(&ClientId::new("0")));
        assert!(clients.knows(&ClientId::new("1")));
    }
}
