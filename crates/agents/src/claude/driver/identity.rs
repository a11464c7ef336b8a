//! The runtime's own name of its conversation, and whether a transcript of it exists.
//!
//! A conversation has no transcript before its first message, and none again after
//! `/clear`, which gives it another name. The token that the host keeps says so: without
//! a transcript such a conversation starts under its name, where any other is lost.

use innkeeper_core::agent::ResumeToken;
use uuid::Uuid;

/// How the token of a conversation without messages begins.
const NEW: &str = "new:";

/// Names a conversation for the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::claude) struct Identity {
    /// The name.
    pub(in crate::claude) id: Uuid,
    /// Whether the runtime has taken up a message in it.
    pub(in crate::claude) has_messages: bool,
}

impl Identity {
    /// The token for the host to keep.
    pub(in crate::claude) fn token(self) -> ResumeToken {
        let prefix = if self.has_messages { "" } else { NEW };
        ResumeToken::new(format!("{prefix}{}", self.id))
    }

    /// Reads a token; `None` if it is not one of this driver.
    pub(in crate::claude) fn parse(token: &ResumeToken) -> Option<Self> {
        let text = token.as_str();
        let (id, has_messages) = match text.strip_prefix(NEW) {
            Some(id) => (id, false),
            None => (text, true),
        };
        Some(Self { id: Uuid::parse_str(id).ok()?, has_messages })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_keeps_the_name_and_whether_there_are_messages() {
        for has_messages in [true, false] {
            let identity = Identity { id: Uuid::new_v4(), has_messages };
            assert_eq!(Identity::parse(&identity.token()), Some(identity));
        }
        assert_eq!(Identity::parse(&ResumeToken::new("new:")), None);
        assert_eq!(Identity::parse(&ResumeToken::new("anything")), None);
    }
}
