//! The runtime's ids of a conversation, and whether a transcript exists.
//!
//! A conversation has no transcript before its first message. `/clear` gives it a new id,
//! again without a transcript. The resume token records this: a conversation without
//! messages is started under its id, while for any other a missing transcript is an error.
//! It also records the earlier ids, whose transcripts are deleted with the conversation.

use innkeeper_core::agent::ResumeToken;
use uuid::Uuid;

/// Prefix of the token of a conversation without messages.
const NEW: &str = "new:";

/// Separates the earlier ids in a token.
const SEPARATOR: char = '+';

/// Number of earlier ids to keep; the oldest are dropped. Bounds the token to 4 KiB.
const EARLIER_LIMIT: usize = 100;

/// Identifies a conversation to the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::claude) struct ConversationIdentity {
    /// The runtime's id.
    pub(in crate::claude) id: Uuid,
    /// Whether the runtime has accepted a message in the conversation.
    pub(in crate::claude) has_messages: bool,
    /// Ids that the conversation had before, oldest first.
    pub(in crate::claude) earlier: Vec<Uuid>,
}

impl ConversationIdentity {
    /// A conversation that always had this id.
    pub(in crate::claude) fn new(id: Uuid, has_messages: bool) -> Self {
        Self { id, has_messages, earlier: Vec::new() }
    }

    /// Returns the identity of the conversation under another id.
    pub(in crate::claude) fn renamed(mut self, id: Uuid) -> Self {
        if self.id != id {
            self.earlier.retain(|earlier| *earlier != id);
            self.earlier.push(std::mem::replace(&mut self.id, id));
            self.earlier.drain(..self.earlier.len().saturating_sub(EARLIER_LIMIT));
        }
        self
    }

    /// Returns the token that the host stores.
    pub(in crate::claude) fn token(&self) -> ResumeToken {
        let prefix = if self.has_messages { "" } else { NEW };
        let mut token = format!("{prefix}{}", self.id);
        for earlier in &self.earlier {
            token.push(SEPARATOR);
            token.push_str(&earlier.to_string());
        }
        ResumeToken::new(token)
    }

    /// Parses a token. Returns `None` if this driver did not write it.
    pub(in crate::claude) fn parse(token: &ResumeToken) -> Option<Self> {
        let text = token.as_str();
        let (ids, has_messages) = match text.strip_prefix(NEW) {
            Some(ids) => (ids, false),
            None => (text, true),
        };
        let mut ids = ids.split(SEPARATOR).map(|id| Uuid::parse_str(id).ok());
        Some(Self { id: ids.next()??, has_messages, earlier: ids.collect::<Option<_>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_preserves_id_and_whether_messages_exist() {
        for has_messages in [true, false] {
            let identity = ConversationIdentity::new(Uuid::new_v4(), has_messages);
            assert_eq!(ConversationIdentity::parse(&identity.token()), Some(identity.clone()));
            let renamed = identity.clone().renamed(Uuid::new_v4());
            assert_eq!(renamed.earlier, [identity.id]);
            assert_eq!(ConversationIdentity::parse(&renamed.token()), Some(renamed));
        }
        assert_eq!(ConversationIdentity::parse(&ResumeToken::new("new:")), None);
        assert_eq!(ConversationIdentity::parse(&ResumeToken::new("anything")), None);
    }
}
