//! Events of a conversation, derived from a runtime's messages.
//!
//! Owns the event kinds and the pure mapping from a message to events. Does not decide which turn a
//! message belongs to. Every message maps to at least one event.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::value::RawValue;
use uuid::Uuid;

use crate::process::Exit;
use crate::wire::message::{AssistantMessage, CompactBoundaryMessage, ResultMessage, UserFrameMessage};
use crate::wire::{
    BlockDelta, ContentBlock, Message, MessageContent, StreamEvent, StreamEventMessage, SystemMessage, Usage,
};

/// An event in a conversation.
#[derive(Debug, Clone)]
pub struct SessionEvent {
    /// When the message was read.
    pub at: SystemTime,
    /// The send whose turn the event belongs to; `None` for unsolicited activity of the runtime.
    pub turn: Option<Uuid>,
    /// The tool call of the subagent that caused the event; `None` for the main thread.
    pub subagent: Option<String>,
    /// The kind of event, with its data.
    pub kind: EventKind,
    /// The complete message from the runtime. One message can cause several events.
    pub message: Option<Arc<Message>>,
}

/// The kind of an event, with its data.
#[derive(Debug, Clone)]
pub enum EventKind {
    /// A runtime is ready.
    SessionStart {
        /// The runtime's conversation.
        conversation: Uuid,
    },
    /// A runtime and all its child processes have exited.
    SessionEnd {
        /// How the runtime exited.
        exit: Exit,
    },
    /// Partial text of an answer.
    TextDelta {
        /// The added text.
        text: String,
    },
    /// Partial reasoning text.
    ThinkingDelta {
        /// The added text.
        text: String,
    },
    /// A complete text block, sent after its deltas.
    Text {
        /// The complete text.
        text: String,
    },
    /// A complete reasoning block, sent after its deltas.
    Thinking {
        /// The complete reasoning.
        text: String,
    },
    /// The model calls a tool.
    ToolUse {
        /// Id of the call; its result refers to it.
        id: String,
        /// The tool's name.
        name: String,
        /// The tool's input.
        input: Option<Box<RawValue>>,
    },
    /// A tool call returned.
    ToolResult {
        /// Id of the call.
        tool_use_id: String,
        /// Output as text; non-text content as JSON.
        output: String,
        /// Whether the call failed.
        is_error: bool,
    },
    /// A turn ended.
    Result {
        /// The final text.
        text: String,
        /// Whether the turn failed. An interrupted turn counts as failed.
        is_error: bool,
        /// Token counts of the main thread.
        tokens: Tokens,
    },
    /// The model API or the turn failed.
    Error {
        /// The error text.
        message: String,
    },
    /// The conversation was compacted and continues from the summary.
    Compaction {
        /// `manual` or `auto`.
        trigger: Option<String>,
        /// Token count before compaction.
        tokens_before: Option<u64>,
    },
    /// Any other message.
    Other,
}

impl EventKind {
    /// Approximate memory use of the event in bytes.
    pub(crate) fn weight(&self) -> usize {
        /// Memory use of an event without its text.
        const OVERHEAD: usize = 256;
        OVERHEAD
            + match self {
                Self::Text { text }
                | Self::Thinking { text }
                | Self::TextDelta { text }
                | Self::ThinkingDelta { text }
                | Self::Result { text, .. } => text.len(),
                Self::Error { message } => message.len(),
                Self::ToolUse { input, .. } => input.as_ref().map_or(0, |input| input.get().len()),
                Self::ToolResult { output, .. } => output.len(),
                Self::SessionStart { .. }
                | Self::SessionEnd { .. }
                | Self::Compaction { .. }
                | Self::Other => 0,
            }
    }
}

/// Token counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Output tokens.
    pub input: u64,
    /// Prompt tokens read from the cache.
    pub output: u64,
    /// Prompt tokens written to the cache.
    pub cache_read: u64,
    /// Prompt tokens written to the cache.
    pub cache_creation: u64,
}

impl Tokens {
    /// Adds two counts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_creation: self.cache_creation.saturating_add(other.cache_creation),
        }
    }
}

impl From<&Usage> for Tokens {
    fn from(usage: &Usage) -> Self {
        Self {
            input: usage.input_tokens.unwrap_or(0),
            output: usage.output_tokens.unwrap_or(0),
            cache_read: usage.cache_read_input_tokens.unwrap_or(0),
            cache_creation: usage.cache_creation_input_tokens.unwrap_or(0),
        }
    }
}

/// Maps a message to its events, in order; returns at least one.
pub fn classify(message: &Message) -> Vec<EventKind> {
    let kinds = match message {
        Message::Assistant(message) => assistant(message),
        Message::User(message) => user(message),
        Message::StreamEvent(message) => stream_event(message).into_iter().collect(),
        Message::Result(message) => result(message),
        Message::System(SystemMessage::CompactBoundary(message)) => vec![compaction(message)],
        Message::System(_)
        | Message::ControlRequest(_)
        | Message::ControlResponse(_)
        | Message::ControlCancelRequest(_)
        | Message::KeepAlive(_)
        | Message::CommandLifecycle(_)
        | Message::RateLimit(_)
        | Message::ConversationReset(_)
        | Message::Notice(_)
        | Message::Unknown(_) => Vec::new(),
    };
    if kinds.is_empty() { vec![EventKind::Other] } else { kinds }
}

/// The tool call of the subagent that sent a message.
pub(crate) fn subagent(message: &Message) -> Option<&str> {
    match message {
        Message::Assistant(message) => message.parent_tool_use_id.as_deref(),
        Message::User(message) => message.parent_tool_use_id.as_deref(),
        Message::StreamEvent(message) => message.parent_tool_use_id.as_deref(),
        Message::System(_)
        | Message::Result(_)
        | Message::ControlRequest(_)
        | Message::ControlResponse(_)
        | Message::ControlCancelRequest(_)
        | Message::KeepAlive(_)
        | Message::CommandLifecycle(_)
        | Message::RateLimit(_)
        | Message::ConversationReset(_)
        | Message::Notice(_)
        | Message::Unknown(_) => None,
    }
}

fn assistant(message: &AssistantMessage) -> Vec<EventKind> {
    let content = message.message.as_ref().and_then(|message| message.content.as_ref());
    if message.error.is_some() {
        // The runtime generates such a message to report an API failure.
        return vec![EventKind::Error { message: content.map(text_of).unwrap_or_default() }];
    }
    let blocks = content.map(MessageContent::blocks).unwrap_or_default();
    blocks.iter().filter_map(block).collect()
}

fn block(block: &ContentBlock) -> Option<EventKind> {
    match block {
        ContentBlock::Text(block) => Some(EventKind::Text { text: block.text.clone()? }),
        ContentBlock::Thinking(block) => Some(EventKind::Thinking { text: block.thinking.clone()? }),
        ContentBlock::ToolUse(block) => Some(EventKind::ToolUse {
            id: block.id.clone().unwrap_or_default(),
            name: block.name.clone().unwrap_or_default(),
            input: block.input.clone(),
        }),
        ContentBlock::ToolResult(block) => Some(EventKind::ToolResult {
            tool_use_id: block.tool_use_id.clone().unwrap_or_default(),
            output: block.content.as_ref().map(text_of).unwrap_or_default(),
            is_error: block.is_error.unwrap_or(false),
        }),
        ContentBlock::Unknown(_) => None,
    }
}

/// Returns only tool results: all other user messages are echoes and notes from the runtime.
fn user(message: &UserFrameMessage) -> Vec<EventKind> {
    let content = message.message.as_ref().and_then(|message| message.content.as_ref());
    let blocks = content.map(MessageContent::blocks).unwrap_or_default();
    blocks.iter().filter(|block| matches!(block, ContentBlock::ToolResult(_))).filter_map(block).collect()
}

fn stream_event(message: &StreamEventMessage) -> Option<EventKind> {
    match message.event.as_ref()? {
        StreamEvent::ContentBlockDelta(event) => match event.delta.as_ref()? {
            BlockDelta::Text(delta) => Some(EventKind::TextDelta { text: delta.text.clone()? }),
            BlockDelta::Thinking(delta) => Some(EventKind::ThinkingDelta { text: delta.thinking.clone()? }),
            BlockDelta::InputJson(_) | BlockDelta::Signature(_) | BlockDelta::Unknown(_) => None,
        },
        StreamEvent::Error(event) => {
            Some(EventKind::Error { message: event.error.as_ref()?.get().to_owned() })
        }
        StreamEvent::MessageStart(_)
        | StreamEvent::ContentBlockStart(_)
        | StreamEvent::ContentBlockStop(_)
        | StreamEvent::MessageDelta(_)
        | StreamEvent::MessageStop(_)
        | StreamEvent::Unknown(_) => None,
    }
}

fn result(message: &ResultMessage) -> Vec<EventKind> {
    let result = EventKind::Result {
        text: message.result.clone().unwrap_or_default(),
        is_error: message.is_error.unwrap_or(false),
        tokens: message.usage.as_ref().map(Tokens::from).unwrap_or_default(),
    };
    let errors = message.errors.as_deref().unwrap_or_default();
    if errors.is_empty() || is_aborted(message) {
        return vec![result];
    }
    vec![EventKind::Error { message: errors.join("; ") }, result]
}

/// Whether the turn was interrupted, which is not a failure.
pub(crate) fn is_aborted(result: &ResultMessage) -> bool {
    result.terminal_reason.as_deref().is_some_and(|reason| reason.starts_with("aborted_"))
}

fn compaction(message: &CompactBoundaryMessage) -> EventKind {
    let metadata: Option<serde_json::Value> =
        message.compact_metadata.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok());
    let field = |name: &str| metadata.as_ref().and_then(|metadata| metadata.get(name));
    EventKind::Compaction {
        trigger: field("trigger").and_then(|trigger| trigger.as_str()).map(str::to_owned),
        tokens_before: field("pre_tokens").and_then(serde_json::Value::as_u64),
    }
}

/// Converts content to text: text blocks as they are, all others as JSON, one per line.
fn text_of(content: &MessageContent) -> String {
    let blocks = match content {
        MessageContent::Text(text) => return text.clone(),
        MessageContent::Blocks(blocks) => blocks,
    };
    let lines: Vec<String> = blocks
        .iter()
        .map(|block| match block {
            ContentBlock::Text(block) => block.text.clone().unwrap_or_default(),
            ContentBlock::Thinking(_)
            | ContentBlock::ToolUse(_)
            | ContentBlock::ToolResult(_)
            | ContentBlock::Unknown(_) => serde_json::to_string(block).unwrap_or_default(),
        })
        .collect();
    lines.join("\n")
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
