//! Audit records: which decision was made about each tool call, and why.
//!
//! A record contains the digest of the tool's input, not the input. Storage keeps a bounded
//! number of records for a bounded time, and deletes those of a disposed session or chat.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::channel::ChannelUri;
use crate::ids::ClientId;

/// Most records in storage. It may delete up to [`AUDIT_INTERVAL`] records before that.
pub const MAX_AUDIT_RECORDS: u64 = 100_000;

/// Age above which storage deletes a record, in milliseconds: 90 days.
pub const MAX_AUDIT_AGE: i64 = 90 * 24 * 60 * 60 * 1_000;

/// Storage deletes old records when the position of a new one is a multiple of this number:
/// deleting records one by one would write several pages for each.
pub const AUDIT_INTERVAL: u64 = 16;

/// Most records that are deleted at once, because of their age and because of their number.
/// More than [`AUDIT_INTERVAL`], so that a backlog shrinks; few, so that no write takes long.
pub const AUDIT_DELETIONS: usize = 64;

/// Most records in one page.
pub const MAX_AUDIT_PAGE: usize = 500;

/// Longest rule in a record, in bytes: the longest that the policy accepts.
const MAX_RULE: usize = 4_096;

/// Longest text of any other field, in bytes. The agent chooses some of them.
const MAX_TEXT: usize = 512;

/// The decision about a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditDecision {
    /// The call may run.
    Allow,
    /// A client is asked.
    Ask,
    /// The call must not run.
    Deny,
}

impl AuditDecision {
    /// The name in storage and in responses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }

    /// Parses the name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Allow, Self::Ask, Self::Deny].into_iter().find(|decision| decision.as_str() == name)
    }
}

/// One decision about a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// Time of the decision, in milliseconds since 1970.
    pub at: i64,
    /// The session.
    pub session: ChannelUri,
    /// The chat.
    pub chat: ChannelUri,
    /// The turn, if the call belongs to one.
    pub turn: Option<String>,
    /// The tool call.
    pub tool_call: String,
    /// The tool's name.
    pub tool: String,
    /// The digest of the tool's input, from [`input_digest`].
    pub input_digest: String,
    /// The decision.
    pub decision: AuditDecision,
    /// The policy layer that decided.
    pub layer: String,
    /// The rule that decided, if one did.
    pub rule: Option<String>,
    /// The client that answered, if one did.
    pub client: Option<ClientId>,
}

impl AuditRecord {
    /// Bytes of its text.
    pub fn text_size(&self) -> usize {
        let required = [&self.tool_call, &self.tool, &self.input_digest, &self.layer];
        let optional = [&self.turn, &self.rule];
        let texts = required.into_iter().chain(optional.into_iter().flatten());
        texts.map(String::len).sum::<usize>() + self.session.as_str().len() + self.chat.as_str().len()
    }

    /// Shortens texts that are too long to store.
    #[must_use]
    pub fn shortened(mut self) -> Self {
        let texts = [&mut self.tool_call, &mut self.tool, &mut self.input_digest, &mut self.layer];
        for text in texts.into_iter().chain(&mut self.turn) {
            text.truncate(text.floor_char_boundary(MAX_TEXT));
        }
        if let Some(rule) = &mut self.rule {
            rule.truncate(rule.floor_char_boundary(MAX_RULE));
        }
        self
    }
}

/// The SHA-256 digest of a tool's input, in lower-case hexadecimal digits.
pub fn input_digest(input: &[u8]) -> String {
    format!("{:x}", Sha256::digest(input))
}

/// The position of a record among all records. Newer records have larger positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditCursor(pub u64);

impl AuditCursor {
    /// Parses the text that [`Self`] displays.
    pub fn parse(text: &str) -> Option<Self> {
        // Accept only the canonical spelling.
        text.parse().ok().map(Self).filter(|cursor| cursor.to_string() == text)
    }
}

impl fmt::Display for AuditCursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Selects audit records.
#[derive(Clone, Debug)]
pub struct AuditQuery {
    /// Only records of this session.
    pub session: Option<ChannelUri>,
    /// Only records before this one.
    pub before: Option<AuditCursor>,
    /// Most records to return.
    pub limit: usize,
}

/// Audit records, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPage {
    /// The records.
    pub records: Vec<AuditRecord>,
    /// The cursor for the next page; `None` if there are no older records.
    pub next: Option<AuditCursor>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_sha256_in_hexadecimal() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(input_digest(b"abc"), expected);
    }

    #[test]
    fn cursor_is_parsed_only_in_its_canonical_spelling() {
        assert_eq!(AuditCursor::parse("17"), Some(AuditCursor(17)));
        for wrong in ["", "+1", "01", "-1", " 1", "1.0", "18446744073709551616"] {
            assert_eq!(AuditCursor::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn long_texts_are_shortened_at_a_character() {
        let long = format!("a{}", "ä".repeat(MAX_RULE));
        let record = AuditRecord {
            at: 0,
            session: ChannelUri::new("claude:/s"),
            chat: ChannelUri::new("claude:/c"),
            turn: Some(long.clone()),
            tool_call: long.clone(),
            tool: "Bash".to_owned(),
            input_digest: input_digest(b""),
            decision: AuditDecision::Deny,
            layer: long.clone(),
            rule: Some(long.clone()),
            client: None,
        };
        let shortened = record.shortened();
        let expected = long.get(..MAX_TEXT - 1).unwrap();
        assert_eq!(shortened.tool_call, expected);
        assert_eq!(shortened.layer, expected);
        assert_eq!(shortened.turn.as_deref(), Some(expected));
        assert_eq!(shortened.rule.as_deref(), long.get(..MAX_RULE - 1));
        assert_eq!(shortened.tool, "Bash");
    }
}
