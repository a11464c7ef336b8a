//! What a runtime's messages mean to somebody who follows a conversation.
//!
//! Owns the kinds of events and the pure step from a message to them. Which turn a message belongs to is not
//! decided here. A message that means nothing in particular is an event, too: nothing is left out.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::value::RawValue;
use uuid::Uuid;

use crate::process::Exit;
use crate::wire::message::{AssistantMessage, CompactBoundaryMessage, ResultMessage, UserFrameMessage};
use crate::wire::{
    BlockDelta, ContentBlock, Message, MessageContent, StreamEvent, StreamEventMessage, SystemMessage, Usage,
};

/// Something that happened in a conversation.
#[derive(Debug, Clone)]
pub struct SessionEvent {
    /// When it was read.
    pub at: SystemTime,
    /// The send in whose turn it happened; nothing for what the runtime does unasked.
    pub turn: Option<Uuid>,
    /// The tool call of the subagent that it happened in; nothing for the main thread.
    pub subagent: Option<String>,
    /// What happened.
    pub kind: EventKind,
    /// The runtime's message, whole. Several events can come from one.
    pub message: Option<Arc<Message>>,
}

/// What happened.
#[derive(Debug, Clone)]
pub enum EventKind {
    /// A runtime is ready.
    SessionStart {
        /// The conversation that it works on.
        conversation: Uuid,
    },
    /// A runtime is gone, and so is everything that it started.
    SessionEnd {
        /// How it ended.
        exit: Exit,
    },
    /// More words of an answer, while it is being written.
    TextDelta {
        /// The words.
        text: String,
    },
    /// More reasoning, while it goes on.
    ThinkingDelta {
        /// The reasoning.
        text: String,
    },
    /// A finished block of an answer; its deltas came before it.
    Text {
        /// All its words.
        text: String,
    },
    /// A finished block of reasoning; its deltas came before it.
    Thinking {
        /// All of it.
        text: String,
    },
    /// The model calls a tool.
    ToolUse {
        /// The call's id, which its result names.
        id: String,
        /// The tool's name.
        name: String,
        /// The tool's input.
        input: Option<Box<RawValue>>,
    },
    /// A tool gave something back.
    ToolResult {
        /// The id of the call.
        tool_use_id: String,
        /// What it gave, as text; what is not text is JSON.
        output: String,
        /// Whether it failed.
        is_error: bool,
    },
    /// A turn is over.
    Result {
        /// The last words.
        text: String,
        /// Whether it failed; an interrupted turn has.
        is_error: bool,
        /// The tokens of its main thread.
        tokens: Tokens,
    },
    /// Something failed: the model's API, or the turn.
    Error {
        /// What, in words.
        message: String,
    },
    /// The conversation was summarized, and goes on with the summary.
    Compaction {
        /// `manual` or `auto`.
        trigger: Option<String>,
        /// How many tokens there were before.
        tokens_before: Option<u64>,
    },
    /// A message that is none of the above.
    Other,
}

impl EventKind {
    /// How much memory an event takes, roughly.
    pub(crate) fn weight(&self) -> usize {
        /// What an event takes beside its text.
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
    /// Tokens of prompts that were not read from the cache.
    pub input: u64,
    /// Tokens of answers.
    pub output: u64,
    /// Tokens of prompts that were read from the cache.
    pub cache_read: u64,
    /// Tokens of prompts that were written to the cache.
    pub cache_creation: u64,
}

impl Tokens {
    /// Both together.
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

/// What a message means; at least one event, in order.
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

/// The tool call of the subagent that a message comes from.
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
        // The runtime made the answer up to say that the API failed.
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

/// Only tool results: the rest on the user's side are echoes and notes of the runtime's.
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

/// Whether somebody cut the turn short, which is no failure.
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

/// Content as text: words as they are, everything else as JSON, a line each.
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
