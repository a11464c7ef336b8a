//! Identifier types that must not be confused with each other or with plain text.

use std::fmt;
use std::sync::Arc;

/// The id that a client sends in `initialize`. It stays the same across reconnects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(Arc<str>);

impl ClientId {
    /// Wraps an id received from a client.
    pub fn new(id: &str) -> Self {
        Self(id.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Identifies one transport connection of a client. Never reused while the host runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub(crate) u64);

impl ConnectionId {
    /// The bare number, for logs and records.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "connection {}", self.0)
    }
}

/// Position in the host-wide sequence of published actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerSeq(pub u64);

/// The id of a turn. The client or agent that starts the turn chooses it, so it can be
/// any text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TurnId(Arc<str>);

impl TurnId {
    /// Wraps an id received from a client or agent.
    pub fn new(id: &str) -> Self {
        Self(id.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TurnId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
