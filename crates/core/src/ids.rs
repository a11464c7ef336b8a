//! Identifiers that must not be mixed up with each other or with plain text.

use std::fmt;
use std::sync::Arc;

/// The name a client gives itself in `initialize`; it survives reconnects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(Arc<str>);

impl ClientId {
    /// Wraps the name that came over the wire.
    pub fn new(id: &str) -> Self {
        Self(id.into())
    }

    /// The name as it goes over the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One transport connection of a client. Never reused within a host's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub(crate) u64);

impl ConnectionId {
    /// The number alone, for what is written down about the connection.
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

/// Identity of a turn; chosen by whoever started it, so any text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TurnId(Arc<str>);

impl TurnId {
    /// Wraps an identity that came over the wire.
    pub fn new(id: &str) -> Self {
        Self(id.into())
    }

    /// The identity as it goes over the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TurnId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
