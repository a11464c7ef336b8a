//! The addresses of changesets, which contain the address of their session.
//!
//! ```text
//! SESSION/changeset/session
//! SESSION/changeset/uncommitted
//! SESSION/changeset/turn/TURN
//! SESSION/changeset/compare/TURN/TURN
//! SESSION/changeset/chat/CHAT/all            CHAT in base64url
//! SESSION/changeset/chat/CHAT/turn/TURN
//! SESSION/changeset/chat/CHAT/compare/TURN/TURN
//! ```
//!
//! Turn ids are percent-encoded, as clients expand them in a URI template.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::channel::ChannelUri;

/// The part after the session's address.
const SEPARATOR: &str = "/changeset/";

/// The address of a changeset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChangesetUri {
    /// The session.
    pub(crate) session: ChannelUri,
    /// The chat, if the changeset is one of a chat.
    pub(crate) chat: Option<ChannelUri>,
    /// Which changes it contains.
    pub(crate) view: ChangesetView,
}

/// Which changes a changeset contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChangesetView {
    /// All changes of the session's or the chat's agents.
    All,
    /// The difference to git's last commit.
    Uncommitted,
    /// The changes of one turn.
    Turn(String),
    /// The changes of the turns after one turn, up to and including another.
    Compare {
        /// The turn before the first one.
        original: String,
        /// The last turn.
        modified: String,
    },
}

impl ChangesetUri {
    /// Parses an address; `None` if it is not the address of a changeset.
    pub(crate) fn parse(uri: &ChannelUri) -> Option<Self> {
        let (session, path) = uri.as_str().rsplit_once(SEPARATOR)?;
        if session.is_empty() {
            return None;
        }
        let segments: Vec<&str> = path.split('/').collect();
        let (chat, view) = match segments.as_slice() {
            ["session"] => (None, ChangesetView::All),
            ["uncommitted"] => (None, ChangesetView::Uncommitted),
            ["chat", chat, "all"] => (Some(decoded_chat(chat)?), ChangesetView::All),
            ["chat", chat, turns @ ..] => (Some(decoded_chat(chat)?), view_of_turns(turns)?),
            turns => (None, view_of_turns(turns)?),
        };
        Some(Self { session: ChannelUri::new(session), chat, view })
    }
}

impl fmt::Display for ChangesetUri {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = prefix(&self.session, self.chat.as_ref());
        match &self.view {
            ChangesetView::All if self.chat.is_none() => write!(formatter, "{prefix}session"),
            ChangesetView::All => write!(formatter, "{prefix}all"),
            ChangesetView::Uncommitted => write!(formatter, "{prefix}uncommitted"),
            ChangesetView::Turn(turn) => write!(formatter, "{prefix}turn/{}", encoded(turn)),
            ChangesetView::Compare { original, modified } => {
                write!(formatter, "{prefix}compare/{}/{}", encoded(original), encoded(modified))
            }
        }
    }
}

/// The start of all changeset addresses of a session or chat.
pub(super) fn prefix(session: &ChannelUri, chat: Option<&ChannelUri>) -> String {
    match chat {
        None => format!("{session}{SEPARATOR}"),
        Some(chat) => format!("{session}{SEPARATOR}chat/{}/", URL_SAFE_NO_PAD.encode(chat.as_str())),
    }
}

fn view_of_turns(segments: &[&str]) -> Option<ChangesetView> {
    match segments {
        ["turn", turn] => Some(ChangesetView::Turn(decoded(turn)?)),
        ["compare", original, modified] => {
            Some(ChangesetView::Compare { original: decoded(original)?, modified: decoded(modified)? })
        }
        _ => None,
    }
}

fn decoded_chat(segment: &str) -> Option<ChannelUri> {
    let chat = String::from_utf8(URL_SAFE_NO_PAD.decode(segment).ok()?).ok()?;
    (!chat.is_empty()).then(|| ChannelUri::new(&chat))
}

/// Percent-encodes a turn id.
fn encoded(id: &str) -> String {
    let mut text = String::with_capacity(id.len());
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// Decodes a turn id. Characters that need not be encoded may be.
fn decoded(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            bytes.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok().filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(uri: &str) -> Option<ChangesetUri> {
        ChangesetUri::parse(&ChannelUri::new(uri))
    }

    #[test]
    fn addresses_are_parsed_as_they_are_displayed() {
        let chat = "YWhwLWNoYXQ6Lzk";
        for uri in [
            "x:/1/changeset/session".to_owned(),
            "x:/1/changeset/uncommitted".to_owned(),
            "x:/1/changeset/turn/t%201".to_owned(),
            "x:/1/changeset/compare/a/b%2Fc".to_owned(),
            format!("x:/1/changeset/chat/{chat}/all"),
            format!("x:/1/changeset/chat/{chat}/turn/t"),
            format!("x:/1/changeset/chat/{chat}/compare/a/b"),
        ] {
            let address = parsed(&uri).unwrap();
            assert_eq!(address.to_string(), uri);
            assert_eq!(address.session.as_str(), "x:/1");
            let named = address.chat.as_ref().map(ChannelUri::as_str);
            assert_eq!(named, uri.contains(chat).then_some("ahp-chat:/9"));
        }
        let turn = parsed("x:/1/changeset/turn/%C3%A4:%41").unwrap();
        assert_eq!(turn.view, ChangesetView::Turn("ä:A".to_owned()));
    }

    #[test]
    fn other_and_malformed_addresses_are_not_changesets() {
        for uri in [
            "x:/1",
            "x:/1/changeset/",
            "x:/1/changeset/other",
            "x:/1/changeset/session/more",
            "x:/1/changeset/turn/",
            "x:/1/changeset/turn/%4",
            "x:/1/changeset/turn/%GG",
            "x:/1/changeset/turn/%FF",
            "x:/1/changeset/compare/a",
            "x:/1/changeset/chat/!/all",
            "x:/1/changeset/chat/YQ/session",
            "x:/1/changeset/chat/YQ/uncommitted",
            "/changeset/session",
        ] {
            assert_eq!(parsed(uri), None, "{uri}");
        }
    }
}
