//! The frames that the runtime writes to stdout, one JSON object per line.
//!
//! Owns `Message`, the stream events of the model API and `decode`. Does not determine turns. Every JSON
//! object decodes; unknown kinds are kept in `Unknown`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::value::RawValue;
use thiserror::Error;
use uuid::Uuid;

use super::content::{ApiMessage, ContentBlock, ModelUsage, Usage};
use super::control::{ControlCancelRequestMessage, ControlRequestMessage, ControlResponseMessage};
use super::cursor::Cursor;
use super::fields::{Tags, Wire, wire_enum, wire_struct};

pub use super::fields::Opaque;
pub use super::notice::*;
pub use super::system::*;

/// Why a line is not a message.
#[derive(Debug, Error)]
pub enum DecodeError {
    /// The line is not UTF-8.
    #[error("the line is not UTF-8")]
    NotUtf8(#[from] std::str::Utf8Error),
    /// The line is not a JSON object.
    #[error("the line is not a JSON object")]
    NotJson(#[source] serde_json::Error),
}

/// Decodes one line of the runtime's stdout.
pub fn decode(line: &[u8]) -> Result<Message, DecodeError> {
    let text = std::str::from_utf8(line)?.trim();
    if let Some(message) = Message::from_json(text) {
        return Ok(message);
    }
    // Only invalid or unusual lines get here, so valid ones are not parsed twice.
    let raw: Box<RawValue> = serde_json::from_str(text).map_err(DecodeError::NotJson)?;
    if !raw.get().starts_with('{') {
        return Err(DecodeError::NotJson(serde::de::Error::custom("another kind of value")));
    }
    let kind = Tags::of(&Cursor::new(text)).kind.unwrap_or_default();
    Ok(Message::Unknown(Opaque { kind: kind.into_owned(), raw }))
}

wire_enum! {
    /// A frame from the runtime.
    pub enum Message {
        /// An event around the conversation.
        System(SystemMessage) = "system",
        /// A partial answer.
        StreamEvent(Box<StreamEventMessage>) = "stream_event",
        /// A complete block of an answer (older calls: a complete answer).
        Assistant(Box<AssistantMessage>) = "assistant",
        /// A user-side message: tool results, echoes, markers.
        User(Box<UserFrameMessage>) = "user",
        /// The end of a turn.
        Result(Box<ResultMessage>) = "result",
        /// A request to the host.
        ControlRequest(ControlRequestMessage) = "control_request",
        /// A response to a host request.
        ControlResponse(Box<ControlResponseMessage>) = "control_response",
        /// Cancels a request to the host.
        ControlCancelRequest(ControlCancelRequestMessage) = "control_cancel_request",
        /// A keep-alive.
        KeepAlive(KeepAliveMessage) = "keep_alive",
        /// The state of a host message, in newer runtimes.
        CommandLifecycle(CommandLifecycleMessage) = "command_lifecycle",
        /// The account's rate limits.
        RateLimit(RateLimitMessage) = "rate_limit_event",
        /// The conversation continues under another id.
        ConversationReset(ConversationResetMessage) = "conversation_reset",
        /// Other information that needs no reaction.
        Notice(Box<Notice>) = "prompt_suggestion" | "transcript_mirror" | "tool_progress"
            | "tool_use_summary" | "auth_status",
    }
}

impl Wire for Message {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        let tags = Tags::of(cursor);
        let kind = tags.kind?;
        if kind == "system" {
            return SystemMessage::read_subtype(&tags.subtype.unwrap_or_default(), cursor).map(Self::System);
        }
        Self::read_tagged(&kind, cursor)
    }
}

impl Message {
    /// The wire name of the frame's kind, with the subtype for `system`; for logs.
    pub fn kind(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Self::System(message) => return message.kind(),
            Self::StreamEvent(_) => "stream_event",
            Self::Assistant(_) => "assistant",
            Self::User(_) => "user",
            Self::Result(_) => "result",
            Self::ControlRequest(_) => "control_request",
            Self::ControlResponse(_) => "control_response",
            Self::ControlCancelRequest(_) => "control_cancel_request",
            Self::KeepAlive(_) => "keep_alive",
            Self::CommandLifecycle(_) => "command_lifecycle",
            Self::RateLimit(_) => "rate_limit_event",
            Self::ConversationReset(_) => "conversation_reset",
            Self::Notice(notice) => notice.kind(),
            Self::Unknown(message) => &message.kind,
        })
    }
}

impl Message {
    /// The current conversation, in frames that report it: at the start of a turn, and when the
    /// conversation is replaced.
    pub fn conversation(&self) -> Option<Uuid> {
        let id = match self {
            Self::System(SystemMessage::Init(message)) => &message.session_id,
            Self::ConversationReset(message) => &message.new_conversation_id,
            Self::System(_)
            | Self::StreamEvent(_)
            | Self::Assistant(_)
            | Self::User(_)
            | Self::Result(_)
            | Self::ControlRequest(_)
            | Self::ControlResponse(_)
            | Self::ControlCancelRequest(_)
            | Self::KeepAlive(_)
            | Self::CommandLifecycle(_)
            | Self::RateLimit(_)
            | Self::Notice(_)
            | Self::Unknown(_) => return None,
        };
        id.as_deref()?.parse().ok()
    }

    /// The uuids of the host messages that the frame refers to, if reported.
    pub fn user_messages(&self) -> impl Iterator<Item = &str> {
        let (one, several) = match self {
            Self::StreamEvent(message) => (&message.user_message_uuid, &message.user_message_uuids),
            Self::Assistant(message) => (&message.user_message_uuid, &message.user_message_uuids),
            Self::Result(message) => (&message.user_message_uuid, &message.user_message_uuids),
            Self::System(SystemMessage::Init(message)) => (&None, &message.user_message_uuids),
            Self::System(SystemMessage::Status(message)) => (&None, &message.user_message_uuids),
            Self::System(_)
            | Self::User(_)
            | Self::ControlRequest(_)
            | Self::ControlResponse(_)
            | Self::ControlCancelRequest(_)
            | Self::KeepAlive(_)
            | Self::CommandLifecycle(_)
            | Self::RateLimit(_)
            | Self::ConversationReset(_)
            | Self::Notice(_)
            | Self::Unknown(_) => (&None, &None),
        };
        several.iter().flatten().map(String::as_str).chain(one.as_deref())
    }
}

wire_struct! {
    /// A partial answer. Only the main thread streams.
    pub struct StreamEventMessage {
        /// The event of the model API.
        event: StreamEvent = "event",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
        /// The tool call of the sending subagent; absent for the main thread.
        parent_tool_use_id: String = "parent_tool_use_id",
        /// Time to the first token, on the first event of an answer.
        ttft_ms: u64 = "ttft_ms",
        /// Id of the API message, in newer runtimes.
        api_message_id: String = "api_message_id",
        /// Blocks left incomplete by a broken connection, in newer runtimes.
        abandoned_blocks: Box<RawValue> = "abandoned_blocks",
        /// The host message that the turn answers, in newer runtimes.
        user_message_uuid: String = "user_message_uuid",
        /// All host messages that the turn answers, in newer runtimes.
        user_message_uuids: Vec<String> = "user_message_uuids",
    }
}

wire_enum! {
    /// A stream event of the model API.
    pub enum StreamEvent {
        /// An answer starts.
        MessageStart(MessageStartEvent) = "message_start",
        /// A block starts.
        ContentBlockStart(ContentBlockStartEvent) = "content_block_start",
        /// Partial content of a block.
        ContentBlockDelta(ContentBlockDeltaEvent) = "content_block_delta",
        /// A block is complete.
        ContentBlockStop(ContentBlockStopEvent) = "content_block_stop",
        /// Stop reason and final usage.
        MessageDelta(MessageDeltaEvent) = "message_delta",
        /// The answer is complete.
        MessageStop(NoticeMessage) = "message_stop",
        /// The API failed in the middle of the answer.
        Error(ErrorEvent) = "error",
    }
}

impl Wire for StreamEvent {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        Self::read_tagged(&Tags::of(cursor).kind.unwrap_or_default(), cursor)
    }
}

wire_struct! {
    /// An answer starts.
    pub struct MessageStartEvent {
        /// The answer, still without content.
        message: Box<ApiMessage> = "message",
    }
}

wire_struct! {
    /// A block starts.
    pub struct ContentBlockStartEvent {
        /// Index of the block in the answer.
        index: u32 = "index",
        /// The block, still empty.
        content_block: ContentBlock = "content_block",
    }
}

wire_struct! {
    /// Partial content of a block.
    pub struct ContentBlockDeltaEvent {
        /// Index of the block in the answer.
        index: u32 = "index",
        /// The added content.
        delta: BlockDelta = "delta",
    }
}

wire_struct! {
    /// A block is complete.
    pub struct ContentBlockStopEvent {
        /// Index of the block in the answer.
        index: u32 = "index",
    }
}

wire_struct! {
    /// Stop reason and final usage of an answer.
    pub struct MessageDeltaEvent {
        /// The changed fields of the message.
        delta: MessageDelta = "delta",
        /// Token usage so far.
        usage: Usage = "usage",
    }
}

wire_struct! {
    /// The changed fields of a message.
    pub struct MessageDelta {
        /// Why the model stopped.
        stop_reason: String = "stop_reason",
    }
}

wire_struct! {
    /// The API failed in the middle of an answer.
    pub struct ErrorEvent {
        /// The API's error object.
        error: Box<RawValue> = "error",
    }
}

wire_enum! {
    /// Added content of a block.
    pub enum BlockDelta {
        /// Text.
        Text(TextBlockDelta) = "text_delta",
        /// Reasoning.
        Thinking(ThinkingDelta) = "thinking_delta",
        /// Tool input.
        InputJson(InputJsonDelta) = "input_json_delta",
        /// Signature of a thinking block.
        Signature(SignatureDelta) = "signature_delta",
    }
}

impl Wire for BlockDelta {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        Self::read_tagged(&Tags::of(cursor).kind.unwrap_or_default(), cursor)
    }
}

wire_struct! {
    /// Added text.
    pub struct TextBlockDelta {
        /// The text.
        text: String = "text",
    }
}

wire_struct! {
    /// Added reasoning.
    pub struct ThinkingDelta {
        /// The reasoning text.
        thinking: String = "thinking",
    }
}

wire_struct! {
    /// Added tool input.
    pub struct InputJsonDelta {
        /// A part of the input's JSON text.
        partial_json: String = "partial_json",
    }
}

wire_struct! {
    /// The signature of a thinking block.
    pub struct SignatureDelta {
        /// The signature.
        signature: String = "signature",
    }
}

wire_struct! {
    /// A complete block of an answer; all blocks of an answer share `message.id`.
    pub struct AssistantMessage {
        /// The answer with only this block.
        message: ApiMessage = "message",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
        /// The tool call of the sending subagent; absent for the main thread.
        parent_tool_use_id: String = "parent_tool_use_id",
        /// Set if the runtime generated the message because the API failed.
        error: String = "error",
        /// API status of the failure, in newer runtimes.
        api_error_status: u64 = "api_error_status",
        /// Whether an interrupt truncated the block, in newer runtimes.
        aborted: bool = "aborted",
        /// Timestamp.
        timestamp: String = "timestamp",
        /// The host message that the turn answers, in newer runtimes.
        user_message_uuid: String = "user_message_uuid",
        /// All host messages that the turn answers, in newer runtimes.
        user_message_uuids: Vec<String> = "user_message_uuids",
    }
}

wire_struct! {
    /// A user-side message.
    pub struct UserFrameMessage {
        /// Role and content.
        message: ApiMessage = "message",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Message id; for an echo the one assigned by the host.
        uuid: String = "uuid",
        /// The tool call of the subagent it belongs to; absent for the main thread.
        parent_tool_use_id: String = "parent_tool_use_id",
        /// Structured tool output.
        tool_use_result: Box<RawValue> = "tool_use_result",
        /// Whether it is an echo.
        is_replay: bool = "isReplay",
        /// Whether the runtime generated it.
        is_synthetic: bool = "isSynthetic",
        /// Timestamp.
        timestamp: String = "timestamp",
    }
}

wire_struct! {
    /// The end of a turn, also after an interrupt or an API failure.
    pub struct ResultMessage {
        /// `success` or `error_…`; a `success` may still have `is_error`.
        subtype: String = "subtype",
        /// Whether the turn failed.
        is_error: bool = "is_error",
        /// The final text of the turn, or the API's error text.
        result: String = "result",
        /// Error messages, for the `error_…` subtypes.
        errors: Vec<String> = "errors",
        /// API status of the failure.
        api_error_status: u64 = "api_error_status",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
        /// Token usage of the turn's main thread.
        usage: Usage = "usage",
        /// Token usage by model, cumulative over the process.
        model_usage: BTreeMap<String, ModelUsage> = "modelUsage",
        /// Token usage by model since the previous result, in newer runtimes.
        model_usage_since_last_result: BTreeMap<String, ModelUsage> = "model_usage_since_last_result",
        /// Why the model stopped.
        stop_reason: String = "stop_reason",
        /// Why the turn ended, e.g. `completed`, `aborted_streaming`, `max_turns`.
        terminal_reason: String = "terminal_reason",
        /// Duration of the turn.
        duration_ms: u64 = "duration_ms",
        /// Number of model calls in the turn.
        num_turns: u64 = "num_turns",
        /// Total cost of the process in US dollars; in newer runtimes also that of a resumed conversation.
        total_cost_usd: Box<RawValue> = "total_cost_usd",
        /// Denied tool calls.
        permission_denials: Box<RawValue> = "permission_denials",
        /// The host message that the turn answered, in newer runtimes.
        user_message_uuid: String = "user_message_uuid",
        /// All host messages that the turn answered, in newer runtimes.
        user_message_uuids: Vec<String> = "user_message_uuids",
        /// Number of queued turns, in newer runtimes.
        queued_turn_count: u64 = "queued_turn_count",
        /// The origin of the turn, in newer runtimes; absent for host messages.
        origin: ResultOrigin = "origin",
    }
}

wire_struct! {
    /// The origin of a turn.
    pub struct ResultOrigin {
        /// `task-notification`, `human`, ….
        kind: String = "kind",
    }
}

wire_struct! {
    /// The state of a host message.
    pub struct CommandLifecycleMessage {
        /// Uuid of the message.
        command_uuid: String = "command_uuid",
        /// `queued`, `started`, `completed` or `cancelled`.
        state: String = "state",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// The account's rate limits.
    pub struct RateLimitMessage {
        /// The limits.
        rate_limit_info: Box<RawValue> = "rate_limit_info",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// The conversation continues under another id.
    pub struct ConversationResetMessage {
        /// The new id.
        new_conversation_id: String = "new_conversation_id",
        /// The old id.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
    }
}

impl ApiRetryMessage {
    /// The delay before the next attempt.
    pub fn retry_delay(&self) -> Option<Duration> {
        let milliseconds: f64 = serde_json::from_str(self.retry_delay_ms.as_ref()?.get()).ok()?;
        Duration::try_from_secs_f64(milliseconds / 1000.0).ok()
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
