//! Which clients the host remembers, and what each of them had, so that they may
//! come back and be told only what they missed.

use std::collections::{HashMap, VecDeque};

use super::dispatches::{BEFORE_THIS_HOST, Dispatches};
use super::frame::Origin;
use super::repeats::{Claim, DispatchMark};
use crate::channel::ChannelUri;
use crate::ids::{ClientId, ConnectionId, ServerSeq};
use crate::storage::StoredClient;

/// Clients that are remembered. The one seen first is forgotten first; it then has
/// to `initialize` again, which every client can.
const MAX_CLIENTS: usize = 4_096;

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
#[derive(Debug)]
struct Known {
    marks: Marks,
    /// Its dispatches that were handled last.
    dispatches: Dispatches,
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
            dispatches: Dispatches::default(),
            begun: BEFORE_THIS_HOST,
            newest: BEFORE_THIS_HOST,
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

    /// Channels are gone for good: nobody has anything of what may come in their place, and
    /// what waits there for an answer gets none any more.
    pub(super) fn forget_channels(&mut self, channels: &[ChannelUri]) {
        for known in self.known.values_mut() {
            for channel in channels {
                known.marks.remove(channel);
            }
            known.dispatches.forget_channels(channels);
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
        match self.known.get_mut(&origin.client) {
            Some(known) if origin.connection >= known.begun => known.dispatches.claim(origin, mark, seen),
            Some(_) | None => Claim::New,
        }
    }

    /// The dispatches of a client, if it is remembered.
    pub(super) fn dispatches_of(&mut self, client: &ClientId) -> Option<&mut Dispatches> {
        self.known.get_mut(client).map(|known| &mut known.dispatches)
    }

    /// A client starts to count its dispatches anew.
    pub(super) fn begin_anew(&mut self, client: &ClientId, connection: ConnectionId) {
        if let Some(known) = self.known.get_mut(client) {
            known.dispatches = Dispatches::default();
            known.begun = known.begun.max(connection);
        }
    }

    /// Remembers a client as an earlier host did.
    pub(super) fn restore(&mut self, stored: StoredClient) {
        self.remember(&stored.id);
        if let Some(known) = self.known.get_mut(&stored.id) {
            known.dispatches = Dispatches::restored(stored.handled);
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
                handled: known.dispatches.stored(),
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
