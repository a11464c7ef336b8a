//! The clients that the host knows and the state each of them has, so that a reconnecting
//! client receives only the actions that it missed.

use std::collections::{HashMap, VecDeque};

use super::dispatch::{BEFORE_THIS_HOST, ClaimId, DispatchClaim, DispatchMark, Dispatches};
use super::frame::Origin;
use crate::channel::ChannelUri;
use crate::ids::{ClientId, ConnectionId, ServerSeq};
use crate::storage::{MAX_KNOWN_CLIENTS, StoredClient};

/// The snapshots that a client received, by channel.
pub(super) type Marks = HashMap<ChannelUri, Mark>;

/// The sequence numbers of the first and last snapshot of a channel that a client
/// received. A snapshot includes all earlier actions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    first: ServerSeq,
    last: ServerSeq,
}

impl Mark {
    /// The mark of a first snapshot: before it, the client has no state of the channel.
    pub(super) fn at(seq: ServerSeq) -> Self {
        Self { first: seq, last: seq }
    }

    /// The mark of a snapshot for a client that may have an older state.
    pub(super) fn outdated(seq: ServerSeq) -> Self {
        Self { first: ServerSeq(0), last: seq }
    }

    /// Records that the client received another snapshot.
    pub(super) fn again(&mut self, seq: ServerSeq) {
        self.last = seq;
    }

    /// Returns the sequence number after which actions must be replayed to a client that
    /// has seen everything up to `seen`. If a second snapshot may not have arrived before
    /// the connection broke, the client's state is ambiguous, and the result is `None`:
    /// the client receives a new snapshot.
    pub(super) fn resume_after(self, seen: ServerSeq) -> Option<ServerSeq> {
        (self.first == self.last || seen >= self.last).then(|| seen.max(self.first))
    }
}

/// The data kept for one client.
#[derive(Debug)]
struct KnownClient {
    marks: Marks,
    /// The most recently handled dispatches.
    dispatches: Dispatches,
    /// The connection of the last `initialize`. Dispatches from older connections belong
    /// to an earlier sequence of client numbers.
    begun: ConnectionId,
    /// The client's newest connection. Only this one determines what the client has
    /// received; an older one is a socket that the client no longer reads.
    newest: ConnectionId,
}

impl Default for KnownClient {
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
    known: HashMap<ClientId, KnownClient>,
    /// In the order of their first connection. The first one is evicted first; storage keeps
    /// the ones that connected last.
    by_age: VecDeque<ClientId>,
    last_claim: ClaimId,
}

impl KnownClients {
    /// Adds a client, unless it is already known.
    pub(super) fn remember(&mut self, client: &ClientId) {
        if self.known.contains_key(client) {
            return;
        }
        self.known.insert(client.clone(), KnownClient::default());
        self.by_age.push_back(client.clone());
        if self.by_age.len() > MAX_KNOWN_CLIENTS
            && let Some(oldest) = self.by_age.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Records that a connection belongs to a client.
    pub(super) fn connected(&mut self, client: &ClientId, connection: ConnectionId) {
        if let Some(known) = self.known.get_mut(client) {
            known.newest = known.newest.max(connection);
        }
    }

    /// A client's newest connection.
    pub(super) fn newest(&self, client: &ClientId) -> Option<ConnectionId> {
        self.known.get(client).map(|known| known.newest)
    }

    /// Stores a client's marks when a connection closes, unless the client has a newer
    /// connection.
    pub(super) fn keep(&mut self, client: &ClientId, connection: ConnectionId, marks: Marks) {
        if let Some(kept) = self.known.get_mut(client)
            && connection >= kept.newest
        {
            kept.marks = marks;
        }
    }

    /// Removes all marks of deleted channels, since a new channel may get the same
    /// address.
    pub(super) fn forget_channels(&mut self, channels: &[ChannelUri]) {
        for known in self.known.values_mut() {
            for channel in channels {
                known.marks.remove(channel);
            }
        }
    }

    /// Whether a client is known.
    pub(super) fn knows(&self, client: &ClientId) -> bool {
        self.known.contains_key(client)
    }

    /// The marks of a client when its last connection closed.
    pub(super) fn marks(&self, client: &ClientId) -> Option<&Marks> {
        self.known.get(client).map(|known| &known.marks)
    }

    /// Checks whether a dispatch repeats an earlier one, given that its client had seen
    /// everything up to `seen` when it reconnected. A new dispatch is recorded.
    pub(super) fn claim(
        &mut self,
        origin: &Origin,
        mark: DispatchMark,
        seen: Option<ServerSeq>,
    ) -> (ClaimId, DispatchClaim) {
        self.last_claim = ClaimId(self.last_claim.0 + 1);
        let id = self.last_claim;
        let claim = match self.known.get_mut(&origin.client) {
            Some(known) if origin.connection >= known.begun => known.dispatches.claim(id, origin, mark, seen),
            Some(_) | None => DispatchClaim::New,
        };
        (id, claim)
    }

    /// A client's dispatches, if the client is known.
    pub(super) fn dispatches_of(&mut self, client: &ClientId) -> Option<&mut Dispatches> {
        self.known.get_mut(client).map(|known| &mut known.dispatches)
    }

    /// Resets a client's dispatches, because its sequence numbers restart.
    pub(super) fn restart_dispatches(&mut self, client: &ClientId, connection: ConnectionId) {
        if let Some(known) = self.known.get_mut(client) {
            known.dispatches = Dispatches::default();
            known.begun = known.begun.max(connection);
        }
    }

    /// Restores a client from storage.
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

    /// All clients in stored form, oldest first.
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
    fn oldest_client_is_evicted_first() {
        let mut clients = KnownClients::default();
        for number in 0..=MAX_KNOWN_CLIENTS {
            clients.remember(&ClientId::new(&number.to_string()));
        }
        assert!(!clients.knows(&ClientId::new("0")));
        assert!(clients.knows(&ClientId::new("1")));
    }
}
