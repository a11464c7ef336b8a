//! The frames that the runtime writes to its stdout, one JSON object a line.
//!
//! Owns `Message`, the streamed events of the model API and `decode`. What a turn is and when it ends is not
//! decided here. A line that is JSON always decodes; what is not known stays whole in `Unknown`.

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
    // Only now is it worth finding out what is wrong; good lines are not parsed twice.
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
        /// What happens around the conversation.
        System(SystemMessage) = "system",
        /// A piece of an answer while it is being written.
        StreamEvent(Box<StreamEventMessage>) = "stream_event",
        /// A finished block of an answer (older calls: a whole answer).
        Assistant(Box<AssistantMessage>) = "assistant",
        /// A message on the user's side: tool results, echoes, markers.
        User(Box<UserFrameMessage>) = "user",
        /// A turn is over.
        Result(Box<ResultMessage>) = "result",
        /// The runtime asks the host.
        ControlRequest(ControlRequestMessage) = "control_request",
        /// The runtime answers the host.
        ControlResponse(Box<ControlResponseMessage>) = "control_response",
        /// The runtime withdraws a question.
        ControlCancelRequest(ControlCancelRequestMessage) = "control_cancel_request",
        /// A sign of life.
        KeepAlive(KeepAliveMessage) = "keep_alive",
        /// What became of a message of the host's, in newer runtimes.
        CommandLifecycle(CommandLifecycleMessage) = "command_lifecycle",
        /// The account's rate limits.
        RateLimit(RateLimitMessage) = "rate_limit_event",
        /// The conversation goes on under another id.
        ConversationReset(ConversationResetMessage) = "conversation_reset",
        /// Side information that needs no reaction.
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
    /// The frame's kind as the wire names it, `system` ones with their subtype; for logs.
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
    /// The conversation that goes on from here, in the frames that tell it: at the start of a turn, and when the
    /// conversation is replaced by another one.
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

    /// The uuids of the host messages that the frame is about, where the runtime names them.
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
    /// A piece of an answer while it is being written. Only the main thread streams.
    pub struct StreamEventMessage {
        /// The event of the model API.
        event: StreamEvent = "event",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
        /// The tool call of the subagent that wrote it; absent for the main thread.
        parent_tool_use_id: String = "parent_tool_use_id",
        /// Time to the first token, on the first event of an answer.
        ttft_ms: u64 = "ttft_ms",
        /// The message that the event belongs to, in newer runtimes.
        api_message_id: String = "api_message_id",
        /// Blocks that a broken connection left unfinished, in newer runtimes.
        abandoned_blocks: Box<RawValue> = "abandoned_blocks",
        /// The host message that the turn answers, in newer runtimes.
        user_message_uuid: String = "user_message_uuid",
        /// All host messages that the turn answers, in newer runtimes.
        user_message_uuids: Vec<String> = "user_message_uuids",
    }
}

wire_enum! {
    /// An event of the model API's stream.
    pub enum StreamEvent {
        /// A new answer begins.
        MessageStart(MessageStartEvent) = "message_start",
        /// A new block begins.
        ContentBlockStart(ContentBlockStartEvent) = "content_block_start",
        /// More of a block.
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
    /// A new answer begins.
    pub struct MessageStartEvent {
        /// The answer, still without content.
        message: Box<ApiMessage> = "message",
    }
}

wire_struct! {
    /// A new block begins.
    pub struct ContentBlockStartEvent {
        /// The block's place in the answer.
        index: u32 = "index",
        /// The block, still empty.
        content_block: ContentBlock = "content_block",
    }
}

wire_struct! {
    /// More of a block.
    pub struct ContentBlockDeltaEvent {
        /// The block's place in the answer.
        index: u32 = "index",
        /// What is new.
        delta: BlockDelta = "delta",
    }
}

wire_struct! {
    /// A block is complete.
    pub struct ContentBlockStopEvent {
        /// The block's place in the answer.
        index: u32 = "index",
    }
}

wire_struct! {
    /// Stop reason and final usage of an answer.
    pub struct MessageDeltaEvent {
        /// The changed fields of the message.
        delta: MessageDelta = "delta",
        /// The tokens so far.
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
    /// What a block gained.
    pub enum BlockDelta {
        /// More words.
        Text(TextDelta) = "text_delta",
        /// More reasoning.
        Thinking(ThinkingDelta) = "thinking_delta",
        /// More of a tool's input.
        InputJson(InputJsonDelta) = "input_json_delta",
        /// The proof of a thinking block.
        Signature(SignatureDelta) = "signature_delta",
    }
}

impl Wire for BlockDelta {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        Self::read_tagged(&Tags::of(cursor).kind.unwrap_or_default(), cursor)
    }
}

wire_struct! {
    /// More words.
    pub struct TextDelta {
        /// The words.
        text: String = "text",
    }
}

wire_struct! {
    /// More reasoning.
    pub struct ThinkingDelta {
        /// The reasoning.
        thinking: String = "thinking",
    }
}

wire_struct! {
    /// More of a tool's input.
    pub struct InputJsonDelta {
        /// A piece of the input's JSON text.
        partial_json: String = "partial_json",
    }
}

wire_struct! {
    /// The proof of a thinking block.
    pub struct SignatureDelta {
        /// The proof.
        signature: String = "signature",
    }
}

wire_struct! {
    /// A finished block of an answer; all blocks of an answer share `message.id`.
    pub struct AssistantMessage {
        /// The answer with this one block.
        message: ApiMessage = "message",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
        /// The tool call of the subagent that wrote it; absent for the main thread.
        parent_tool_use_id: String = "parent_tool_use_id",
        /// Set where the runtime made the message up because the API failed.
        error: String = "error",
        /// The API's status for such a failure, in newer runtimes.
        api_error_status: u64 = "api_error_status",
        /// Whether an interrupt cut the block short, in newer runtimes.
        aborted: bool = "aborted",
        /// When it was written.
        timestamp: String = "timestamp",
        /// The message of the host's that the turn answers, in newer runtimes.
        user_message_uuid: String = "user_message_uuid",
        /// All messages of the host's that the turn answers, in newer runtimes.
        user_message_uuids: Vec<String> = "user_message_uuids",
    }
}

wire_struct! {
    /// A message on the user's side.
    pub struct UserFrameMessage {
        /// Role and content.
        message: ApiMessage = "message",
        /// The conversation.
        session_id: String = "session_id",
        /// The message's id; for an echo the one that the host gave it.
        uuid: String = "uuid",
        /// The tool call of the subagent that it belongs to; absent for the main thread.
        parent_tool_use_id: String = "parent_tool_use_id",
        /// A tool's structured output.
        tool_use_result: Box<RawValue> = "tool_use_result",
        /// Whether it is an echo.
        is_replay: bool = "isReplay",
        /// Whether the runtime made it up.
        is_synthetic: bool = "isSynthetic",
        /// When it was written.
        timestamp: String = "timestamp",
    }
}

wire_struct! {
    /// The end of a turn. An interrupt and a failure of the API end in one, too.
    pub struct ResultMessage {
        /// `success` or `error_…`; a `success` may still have `is_error`.
        subtype: String = "subtype",
        /// Whether the turn failed.
        is_error: bool = "is_error",
        /// The last text of the turn, or the API's error in words.
        result: String = "result",
        /// What went wrong, for the `error_…` subtypes.
        errors: Vec<String> = "errors",
        /// The status with which the API failed.
        api_error_status: u64 = "api_error_status",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
        /// The tokens of this turn's main thread.
        usage: Usage = "usage",
        /// The tokens by model, cumulative over the process.
        model_usage: BTreeMap<String, ModelUsage> = "modelUsage",
        /// Why the model stopped.
        stop_reason: String = "stop_reason",
        /// Why the turn ended, e.g. `completed`, `aborted_streaming`, `max_turns`.
        terminal_reason: String = "terminal_reason",
        /// How long the turn took.
        duration_ms: u64 = "duration_ms",
        /// Calls of the model in this turn.
        num_turns: u64 = "num_turns",
        /// What the process has cost so far, in dollars.
        total_cost_usd: Box<RawValue> = "total_cost_usd",
        /// The tool calls that were denied.
        permission_denials: Box<RawValue> = "permission_denials",
        /// The message of the host's that the turn answered, in newer runtimes.
        user_message_uuid: String = "user_message_uuid",
        /// All messages of the host's that the turn answered, in newer runtimes.
        user_message_uuids: Vec<String> = "user_message_uuids",
        /// How many turns wait behind this one, in newer runtimes.
        queued_turn_count: u64 = "queued_turn_count",
        /// What started the turn, in newer runtimes; absent for messages from the host.
        origin: ResultOrigin = "origin",
    }
}

wire_struct! {
    /// What started a turn.
    pub struct ResultOrigin {
        /// `task-notification`, `human`, ….
        kind: String = "kind",
    }
}

wire_struct! {
    /// What became of a message of the host's.
    pub struct CommandLifecycleMessage {
        /// The message's uuid.
        command_uuid: String = "command_uuid",
        /// `queued`, `started`, `completed` or `cancelled`.
        state: String = "state",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// The account's rate limits.
    pub struct RateLimitMessage {
        /// The limits.
        rate_limit_info: Box<RawValue> = "rate_limit_info",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// The conversation goes on under another id.
    pub struct ConversationResetMessage {
        /// The new id.
        new_conversation_id: String = "new_conversation_id",
        /// The old id.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
    }
}

impl ApiRetryMessage {
    /// How long the runtime waits before it asks again.
    pub fn retry_delay(&self) -> Option<Duration> {
        let milliseconds: f64 = serde_json::from_str(self.retry_delay_ms.as_ref()?.get()).ok()?;
        Duration::try_from_secs_f64(milliseconds / 1000.0).ok()
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
