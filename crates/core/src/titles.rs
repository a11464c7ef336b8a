//! Titles of sessions, written by a model. Declares what `session` needs from outside.

use std::fmt;

use uuid::Uuid;

use crate::agent::BoxFuture;

/// Writes titles.
pub trait TitleWriter: Send + Sync + fmt::Debug + 'static {
    /// A title for a conversation; `None` if there is none, for whatever reason. Dropping the
    /// future cancels the request.
    fn write_title(&self, conversation: TitledConversation) -> BoxFuture<Option<String>>;
}

/// The start of a conversation, cut to a length that is enough for a title.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TitledConversation {
    /// The host's id of the conversation.
    pub conversation: Uuid,
    /// The user's first message.
    pub message: String,
    /// The agent's answer.
    pub reply: String,
}

/// Writes no titles.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTitles;

impl TitleWriter for NoTitles {
    fn write_title(&self, _: TitledConversation) -> BoxFuture<Option<String>> {
        Box::pin(std::future::ready(None))
    }
}
