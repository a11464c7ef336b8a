//! Stored output: pieces of agent output that are too large for a chat's document, and snapshots of
//! attachments.
//!
//! A document refers to a piece by its URI, which clients read with `resourceRead`. The URI
//! does not name the chat, so a fork of the chat can keep using it.

use std::fmt;

use bytes::Bytes;
use uuid::Uuid;

/// The turn of snapshots of attachments. They belong to the chat and are kept until it is deleted: a
/// waiting message has no turn, and a client may send it again under another id.
pub const ATTACHMENTS: &str = "innkeeper.attachments";

/// The scheme of the URIs.
const SCHEME: &str = "innkeeper-output:";

/// Identifies a piece of stored output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OutputId(Uuid);

impl OutputId {
    /// A new id.
    pub fn unique() -> Self {
        Self(Uuid::now_v7())
    }

    /// The id in a URI or record made with this number.
    pub fn from_number(number: u128) -> Self {
        Self(Uuid::from_u128(number))
    }

    /// Parses the text that [`Self`] displays.
    pub fn parse(text: &str) -> Option<Self> {
        // Accept only the canonical spelling.
        Uuid::parse_str(text).ok().map(Self).filter(|id| id.to_string() == text)
    }

    /// The URI that clients read.
    pub fn uri(self) -> String {
        format!("{SCHEME}/{self}")
    }
}

impl fmt::Display for OutputId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A URI with the scheme of stored output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputUri {
    /// The address of a piece, which may not exist.
    Piece(OutputId),
    /// Not the address of any piece.
    Malformed,
}

impl OutputUri {
    /// Parses a URI; `None` if it has another scheme.
    pub fn parse(uri: &str) -> Option<Self> {
        let rest = uri.strip_prefix(SCHEME)?;
        let id = rest.strip_prefix('/').and_then(OutputId::parse);
        Some(id.map_or(Self::Malformed, Self::Piece))
    }
}

/// A piece of stored output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOutput {
    /// The MIME type.
    pub content_type: String,
    /// The content.
    pub body: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uri_is_parsed_only_in_its_canonical_spelling() {
        let id = OutputId::from_number(0xab);
        assert_eq!(OutputUri::parse(&id.uri()), Some(OutputUri::Piece(id)));
        for wrong in
            ["innkeeper-output:", "innkeeper-output:/", "innkeeper-output:/../x", "innkeeper-output:x"]
        {
            assert_eq!(OutputUri::parse(wrong), Some(OutputUri::Malformed), "{wrong}");
        }
        assert_eq!(OutputUri::parse(&id.uri().to_uppercase()), None);
        assert_eq!(OutputUri::parse(&id.uri().replace("00ab", "00AB")), Some(OutputUri::Malformed));
        assert_eq!(OutputUri::parse("file:///innkeeper-output:/"), None);
    }
}
