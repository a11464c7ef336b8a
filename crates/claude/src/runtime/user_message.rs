//! A user message to a runtime.
//!
//! Owns its wire format.

use serde_json::{Value, json};
use uuid::Uuid;

/// A user message.
#[derive(Debug, Clone, PartialEq)]
pub struct UserMessage {
    /// Unique id of the message. The runtime silently drops a message with a known id.
    pub uuid: Uuid,
    /// Content of the message.
    pub content: UserContent,
    /// When a busy runtime handles it; `None` for the next tool boundary.
    pub priority: Option<Priority>,
    /// Whether the message triggers a model call. Otherwise it is included in the next call.
    pub asks_model: bool,
}

/// When a busy runtime handles a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Immediately: aborts an answer in progress.
    Now,
    /// At the next boundary between tools, or after the turn.
    Next,
    /// After the turn.
    Later,
}

impl Priority {
    /// The priority's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::Next => "next",
            Self::Later => "later",
        }
    }
}

impl UserMessage {
    /// A message that triggers a model call.
    pub fn new(uuid: Uuid, content: impl Into<UserContent>) -> Self {
        Self { uuid, content: content.into(), priority: None, asks_model: true }
    }

    pub(crate) fn to_frame(&self) -> Value {
        let content = match &self.content {
            UserContent::Text(text) => json!(text),
            UserContent::Blocks(blocks) => json!(blocks),
        };
        let mut frame = json!({
            "type": "user",
            "session_id": "",
            "parent_tool_use_id": null,
            "uuid": self.uuid.to_string(),
            "message": { "role": "user", "content": content },
        });
        if let Some(fields) = frame.as_object_mut() {
            if let Some(priority) = self.priority {
                fields.insert("priority".to_owned(), json!(priority.as_str()));
            }
            if !self.asks_model {
                fields.insert("shouldQuery".to_owned(), json!(false));
            }
        }
        frame
    }
}

/// Content of a user message.
#[derive(Debug, Clone, PartialEq)]
pub enum UserContent {
    /// Plain text.
    Text(String),
    /// Content blocks as in the model API.
    Blocks(Vec<Value>),
}

impl UserContent {
    /// The complete text, or the text of the first block.
    pub(crate) fn first_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Blocks(blocks) => blocks.first()?.get("text")?.as_str(),
        }
    }
}

impl From<&str> for UserContent {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for UserContent {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<Value>> for UserContent {
    fn from(blocks: Vec<Value>) -> Self {
        Self::Blocks(blocks)
    }
}
