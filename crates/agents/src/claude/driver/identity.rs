//! The runtime's id of a conversation, and whether a transcript exists.
//!
//! A conversation has no transcript before its first message. `/clear` gives it a new id,
//! again without a transcript. The resume token records this: a conversation without
//! messages is started under its id, while for any other a missing transcript is an error.

use innkeeper_core::agent::ResumeToken;
use uuid::Uuid;

/// Prefix of the token of a conversation without messages.
const NEW: &str = "new:";

/// Identifies a conversation to the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::claude) struct ConversationIdentity {
    /// The runtime's id.
    pub(in crate::claude) id: Uuid,
    /// Whether the runtime has accepted a message in the conversation.
    pub(in crate::claude) has_messages: bool,
}

impl ConversationIdentity {
    /// Returns the token that the host stores.
    pub(in crate::claude) fn token(self) -> ResumeToken {
        let prefix = if self.has_messages { "" } else { NEW };
        ResumeToken::new(format!("{prefix}{}", self.id))
    }

    /// Parses a token. Returns `None` if this driver did not write it.
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
    fn token_preserves_id_and_whether_messages_exist() {
        for has_messages in [true, false] {
            let identity = ConversationIdentity { id: Uuid::new_v4(), has_messages };
            assert_eq!(ConversationIdentity::parse(&identity.token()), Some(identity));
        }
        assert_eq!(ConversationIdentity::parse(&ResumeToken::new("new:")), None);
        assert_eq!(ConversationIdentity::parse(&ResumeToken::new("anything")), None);
    }
}
