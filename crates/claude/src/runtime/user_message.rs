//! A message of the user's, as it is handed to a runtime.
//!
//! Owns its shape on the wire.

use serde_json::{Value, json};
use uuid::Uuid;

/// A message of the user's.
#[derive(Debug, Clone, PartialEq)]
pub struct UserMessage {
    /// The message's id, fresh for every message: the runtime silently drops one that it has seen.
    pub uuid: Uuid,
    /// What it says.
    pub content: UserContent,
    /// When a runtime that is busy takes it up; without one, at the next tool boundary.
    pub priority: Option<Priority>,
    /// Whether the model is asked. Otherwise it is told with the next message that it is asked with.
    pub asks_model: bool,
}

/// When a busy runtime takes up a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// At once: an answer that is being written is cut short.
    Now,
    /// At the next boundary between tools, or when the turn is over.
    Next,
    /// When the turn is over.
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
    /// A message that the model is asked with.
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

/// What a message of the user's says.
#[derive(Debug, Clone, PartialEq)]
pub enum UserContent {
    /// Plain text.
    Text(String),
    /// Content blocks as in the model API.
    Blocks(Vec<Value>),
}

impl UserContent {
    /// The text that it begins with: all of it, or that of its first block.
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
