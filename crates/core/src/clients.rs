//! Which clients the host remembers, so that they may reconnect.

use std::collections::{HashSet, VecDeque};

use crate::ids::ClientId;

/// Clients that are remembered. The one seen first is forgotten first; it then has
/// to `initialize` again, which every client can.
const MAX_CLIENTS: usize = 4_096;

/// The clients that have connected to this host.
#[derive(Debug, Default)]
pub(crate) struct KnownClients {
    known: HashSet<ClientId>,
    by_age: VecDeque<ClientId>,
}

impl KnownClients {
    /// Remembers a client.
    pub(crate) fn remember(&mut self, client: &ClientId) {
        if !self.known.insert(client.clone()) {
            return;
        }
        self.by_age.push_back(client.clone());
        if self.by_age.len() > MAX_CLIENTS
            && let Some(oldest) = self.by_age.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Whether a client is remembered.
    pub(crate) fn knows(&self, client: &ClientId) -> bool {
        self.known.contains(client)
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
