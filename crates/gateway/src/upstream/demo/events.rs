//! Serialisable events and messages.
//!
//! Implements Anthropic's response format, streamed and complete.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use super::plan::{Part, StopReason};
use crate::error::ErrorObject;
use crate::sse;

/// One event of a streamed response.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum DemoEvent<'a> {
    MessageStart { message: DemoMessage<'a> },
    Ping,
    ContentBlockStart { index: usize, content_block: DemoBlock<'a> },
    ContentBlockDelta { index: usize, delta: Delta<'a> },
    ContentBlockStop { index: usize },
    MessageDelta { delta: MessageEnd, usage: OutputUsage },
    MessageStop,
}

impl DemoEvent<'_> {
    pub(super) fn encode(&self) -> Result<Bytes, serde_json::Error> {
        let name = match self {
            Self::MessageStart { .. } => "message_start",
            Self::Ping => "ping",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
        };
        sse::encode(name, self)
    }
}

/// Encodes an error event.
pub(super) fn encode_error(error: &ErrorObject<'_>) -> Result<Bytes, serde_json::Error> {
    sse::encode("error", error)
}

/// A message: a response that is not streamed, or the start of a stream.
#[derive(Debug, Serialize)]
pub(super) struct DemoMessage<'a> {
    pub(super) id: &'a str,
    #[serde(rename = "type")]
    pub(super) tag: &'static str,
    pub(super) role: &'static str,
    pub(super) model: &'a str,
    pub(super) content: Vec<DemoBlock<'a>>,
    pub(super) stop_reason: Option<StopReason>,
    pub(super) stop_sequence: Option<&'a str>,
    pub(super) usage: TokenUsage,
}

/// A content block; empty at the start of a streamed block.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum DemoBlock<'a> {
    Text { text: &'a str },
    Thinking { thinking: &'a str, signature: &'a str },
    ToolUse { id: String, name: &'a str, input: DemoToolInput<'a> },
}

/// The input of a tool use.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum DemoToolInput<'a> {
    /// An empty object, before the first chunk of the input.
    Empty {},
    Whole(&'a RawValue),
}

/// A chunk of a content block.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(clippy::enum_variant_names, reason = "the names are given by the format")]
pub(super) enum Delta<'a> {
    TextDelta { text: &'a str },
    ThinkingDelta { thinking: &'a str },
    SignatureDelta { signature: &'a str },
    InputJsonDelta { partial_json: &'a str },
}

impl<'a> Delta<'a> {
    /// The delta type for this part.
    pub(super) fn of(part: &Part, piece: &'a str) -> Self {
        match part {
            Part::Text(_) => Self::TextDelta { text: piece },
            Part::Thinking(_) => Self::ThinkingDelta { thinking: piece },
            Part::ToolUse { .. } => Self::InputJsonDelta { partial_json: piece },
        }
    }
}

/// The end of a streamed message.
#[derive(Debug, Serialize)]
pub(super) struct MessageEnd {
    pub(super) stop_reason: StopReason,
    pub(super) stop_sequence: Option<&'static str>,
}

/// Token counts of a message.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct TokenUsage {
    pub(super) input_tokens: usize,
    pub(super) cache_creation_input_tokens: usize,
    pub(super) cache_read_input_tokens: usize,
    pub(super) output_tokens: usize,
}

impl TokenUsage {
    pub(super) fn new(input_tokens: usize, output_tokens: usize) -> Self {
        Self { input_tokens, cache_creation_input_tokens: 0, cache_read_input_tokens: 0, output_tokens }
    }
}

/// The output tokens of a streamed message.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct OutputUsage {
    pub(super) output_tokens: usize,
}
