//! Messages of the model API as the runtime forwards them: content blocks and token usage.
//!
//! Owns the shapes inside `message`, `content_block` and `usage`; the frames around them are in
//! `message.rs`. Blocks of unknown kinds are kept whole.

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::cursor::Cursor;
use super::fields::{Opaque, Tags, Wire, wire_enum, wire_struct};

wire_struct! {
    /// A message of the model API, whole or as far as it has come.
    pub struct ApiMessage {
        /// The API's id of the message; all blocks of one answer share it.
        id: String = "id",
        /// `assistant` or `user`.
        role: String = "role",
        /// The model that wrote it; `<synthetic>` for messages the runtime made up.
        model: String = "model",
        /// What the message says.
        content: MessageContent = "content",
        /// Why the model stopped, once that is known.
        stop_reason: String = "stop_reason",
        /// The tokens it took.
        usage: Usage = "usage",
    }
}

/// The content of a message: plain text or a list of blocks.
#[derive(Debug, Clone)]
pub enum MessageContent {
    /// A bare string.
    Text(String),
    /// Content blocks in order.
    Blocks(Vec<ContentBlock>),
}

impl MessageContent {
    /// The blocks; empty for bare text.
    pub fn blocks(&self) -> &[ContentBlock] {
        match self {
            Self::Text(_) => &[],
            Self::Blocks(blocks) => blocks,
        }
    }
}

impl Wire for MessageContent {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        if cursor.is_at_string() {
            String::read(cursor).map(Self::Text)
        } else {
            Vec::read(cursor).map(Self::Blocks)
        }
    }
}

impl Serialize for MessageContent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => text.serialize(serializer),
            Self::Blocks(blocks) => blocks.serialize(serializer),
        }
    }
}

wire_enum! {
    /// One block of a message's content.
    pub enum ContentBlock {
        /// Words of the answer or of the prompt.
        Text(TextBlock) = "text",
        /// The model's reasoning.
        Thinking(ThinkingBlock) = "thinking",
        /// A call of a tool.
        ToolUse(ToolUseBlock) = "tool_use",
        /// What a tool call gave.
        ToolResult(ToolResultBlock) = "tool_result",
    }
}

impl Wire for ContentBlock {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        Self::read_tagged(&Tags::of(cursor).kind.unwrap_or_default(), cursor)
    }
}

wire_struct! {
    /// A text block.
    pub struct TextBlock {
        /// The words.
        text: String = "text",
    }
}

wire_struct! {
    /// A thinking block.
    pub struct ThinkingBlock {
        /// The reasoning as text.
        thinking: String = "thinking",
        /// The API's proof that the block is its own.
        signature: String = "signature",
    }
}

wire_struct! {
    /// A tool call.
    pub struct ToolUseBlock {
        /// The call's id, which its result names.
        id: String = "id",
        /// The tool's name.
        name: String = "name",
        /// The tool's input as raw JSON.
        input: Box<RawValue> = "input",
    }
}

wire_struct! {
    /// A tool's result.
    pub struct ToolResultBlock {
        /// The id of the call that it answers.
        tool_use_id: String = "tool_use_id",
        /// Text or blocks.
        content: MessageContent = "content",
        /// Whether the tool failed.
        is_error: bool = "is_error",
    }
}

wire_struct! {
    /// Token counts.
    pub struct Usage {
        /// Tokens of the prompt that were not read from the cache.
        input_tokens: u64 = "input_tokens",
        /// Tokens of the answer.
        output_tokens: u64 = "output_tokens",
        /// Tokens of the prompt that were read from the cache.
        cache_read_input_tokens: u64 = "cache_read_input_tokens",
        /// Tokens of the prompt that were written to the cache.
        cache_creation_input_tokens: u64 = "cache_creation_input_tokens",
    }
}

wire_struct! {
    /// Token counts of one model, cumulative over the process.
    pub struct ModelUsage {
        /// Tokens of prompts that were not read from the cache.
        input_tokens: u64 = "inputTokens",
        /// Tokens of answers.
        output_tokens: u64 = "outputTokens",
        /// Tokens of prompts that were read from the cache.
        cache_read_input_tokens: u64 = "cacheReadInputTokens",
        /// Tokens of prompts that were written to the cache.
        cache_creation_input_tokens: u64 = "cacheCreationInputTokens",
        /// How many tokens the model can see.
        context_window: u64 = "contextWindow",
        /// How many tokens the model can answer with.
        max_output_tokens: u64 = "maxOutputTokens",
    }
}

/// A block of a kind that this crate does not know.
pub type UnknownBlock = Opaque;
