//! Channel addresses and how the host constructs them.
//!
//! Clients compare channel URIs as exact strings, so each channel has exactly one
//! spelling. This module is the only place that constructs them.

use std::fmt;
use std::sync::Arc;

use ahp_types::common::ROOT_RESOURCE_URI;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Prefix of the address of a default chat.
const DEFAULT_CHAT: &str = "ahp-chat://default/";

/// Prefix of the address of a subagent's chat.
const CHILD_CHAT: &str = "ahp-chat://subagent/";

/// The address of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelUri(Arc<str>);

impl ChannelUri {
    /// Wraps an address received from a client.
    pub fn new(uri: &str) -> Self {
        Self(uri.into())
    }

    /// The root channel.
    pub fn root() -> Self {
        Self::new(ROOT_RESOURCE_URI)
    }

    /// The address of a session's default chat, in the form that VS Code also derives.
    pub fn default_chat_of(session: &ChannelUri) -> Self {
        Self::new(&format!("{DEFAULT_CHAT}{}", URL_SAFE_NO_PAD.encode(session.as_str())))
    }

    /// The session, if this is the address of its default chat.
    pub fn session_of_default_chat(&self) -> Option<Self> {
        let encoded = self.as_str().strip_prefix(DEFAULT_CHAT)?;
        let session = String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()?;
        // Accept only the canonical spelling.
        Some(Self::new(&session)).filter(|session| Self::default_chat_of(session) == *self)
    }

    /// The address of a subagent's chat, from the tool call that started it. VS Code
    /// derives the same form.
    pub fn child_chat_of(session: &ChannelUri, tool_call: &str) -> Self {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
        let name = if tool_call.bytes().all(plain) {
            tool_call.to_owned()
        } else {
            URL_SAFE_NO_PAD.encode(tool_call)
        };
        Self::new(&format!("{CHILD_CHAT}{}/{name}", URL_SAFE_NO_PAD.encode(session.as_str())))
    }

    /// Whether this is the root channel.
    pub fn is_root(&self) -> bool {
        self.as_str() == ROOT_RESOURCE_URI
    }

    /// The address as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ChannelUri {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The channel kinds that the protocol defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelKind {
    /// The root channel.
    Root,
    /// A session.
    Session,
    /// A chat of a session.
    Chat,
    /// A canvas of a chat.
    Canvas,
    /// A set of changed files.
    Changeset,
    /// Annotations on files.
    Annotations,
    /// A terminal.
    Terminal,
    /// A file watch.
    ResourceWatch,
    /// The catalogue of automations.
    Automations,
    /// One run of an automation.
    AutomationRun,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_chat_encodes_session_in_unpadded_base64url() {
        let chat = ChannelUri::default_chat_of(&ChannelUri::new("acme:/s1"));
        assert_eq!(chat.as_str(), "ahp-chat://default/YWNtZTovczE");
        assert_eq!(chat.session_of_default_chat(), Some(ChannelUri::new("acme:/s1")));
        assert_eq!(ChannelUri::new("ahp-chat://default/!").session_of_default_chat(), None);
    }
}
