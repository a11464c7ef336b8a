//! Which clients the host remembers, and what each of them had, so that they may
//! come back and be told only what they missed.

use std::collections::{HashMap, HashSet, VecDeque};

use super::repeats::DispatchMark;
use crate::channel::ChannelUri;
use crate::ids::{ClientId, ServerSeq};
use crate::storage::StoredClient;

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

/// What is remembered of a client.
#[derive(Debug, Default)]
struct Known {
    marks: Marks,
    /// Its dispatches that were handled last, oldest first.
    handled: VecDeque<Handled>,
}

/// A dispatch that was handled.
#[derive(Clone, Copy, Debug)]
struct Handled {
    /// By which it is known again.
    mark: DispatchMark,
    /// The client's number for it, by which its answer is known.
    client_seq: i64,
    /// The number of its answer; nothing if that is not known (any more).
    answer: Option<ServerSeq>,
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

    /// Keeps what a client had when its connection ended.
    pub(super) fn keep(&mut self, client: &ClientId, marks: Marks) {
        if let Some(kept) = self.known.get_mut(client) {
            kept.marks = marks;
        }
    }

    /// A channel is gone for good: nobody has anything of what may come in its place.
    pub(super) fn forget_channel(&mut self, channel: &ChannelUri) {
        for known in self.known.values_mut() {
            known.marks.remove(channel);
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

    /// A dispatch of a client's is handled.
    pub(super) fn handled(&mut self, client: &ClientId, client_seq: i64, mark: DispatchMark) {
        if let Some(known) = self.known.get_mut(client) {
            known.handled.push_back(Handled { mark, client_seq, answer: None });
            if known.handled.len() > MAX_HANDLED {
                known.handled.pop_front();
            }
        }
    }

    /// A dispatch of a client's was not handled after all.
    pub(super) fn not_handled(&mut self, client: &ClientId, mark: DispatchMark) {
        if let Some(known) = self.known.get_mut(client)
            && let Some(at) = known.handled.iter().rposition(|handled| handled.mark == mark)
        {
            known.handled.remove(at);
        }
    }

    /// A dispatch of a client's is answered.
    pub(super) fn answered(&mut self, client: &ClientId, client_seq: i64, answer: ServerSeq) {
        let Some(known) = self.known.get_mut(client) else { return };
        // A number may come twice; answers come in order.
        let open = |handled: &&mut Handled| handled.client_seq == client_seq && handled.answer.is_none();
        if let Some(handled) = known.handled.iter_mut().find(open) {
            handled.answer = Some(answer);
        }
    }

    /// The dispatches of a client that were handled without its knowing, if it has
    /// seen everything up to `seen`: those it may make again.
    pub(super) fn unconfirmed(&self, client: &ClientId, seen: ServerSeq) -> HashSet<DispatchMark> {
        let handled = self.known.get(client).map(|known| &known.handled);
        handled
            .into_iter()
            .flatten()
            .filter(|handled| handled.answer.is_none_or(|answer| answer > seen))
            .map(|handled| handled.mark)
            .collect()
    }

    /// A client starts to count its dispatches anew.
    pub(super) fn begin_anew(&mut self, client: &ClientId) {
        if let Some(known) = self.known.get_mut(client) {
            known.handled.clear();
        }
    }

    /// Remembers a client as an earlier host did, whose last number this was: no answer
    /// had a higher one.
    pub(super) fn restore(&mut self, stored: StoredClient, last: ServerSeq) {
        self.remember(&stored.id);
        if let Some(known) = self.known.get_mut(&stored.id) {
            let handled = stored.handled.into_iter().map(DispatchMark);
            known.handled = handled.map(|mark| Handled { mark, client_seq: 0, answer: Some(last) }).collect();
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
                    .filter(|handled| handled.answer.is_some())
                    .map(|handled| handled.mark.0)
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
