//! Short names for the kinds and events of decoded frames.

use innkeeper_claude::wire::{
    ApiMessage, BlockDelta, ContentBlock, IncomingRequest, MessageContent, StreamEvent, SystemMessage,
};
use innkeeper_claude::{EventKind, Message, classify};
use serde_json::Value;

/// Returns the name of a frame's kind, from the types that it decoded to; `None` if any part is of an unknown kind.
pub(crate) fn kind_of(message: &Message) -> Option<String> {
    let frame = serde_json::to_value(message).unwrap();
    let tag = |pointer: &str| frame.pointer(pointer).and_then(Value::as_str).unwrap_or("?").to_owned();
    Some(match message {
        Message::Unknown(_) | Message::System(SystemMessage::Unknown(_)) => return None,
        Message::System(_) => format!("system/{}{}", tag("/subtype"), detail(&frame)),
        Message::StreamEvent(event) => format!("stream_event/{}", event_kind(event.event.as_ref()?)?),
        Message::Assistant(assistant) => format!("assistant/{}", blocks_of(assistant.message.as_ref()?)?),
        Message::User(user) => format!("user/{}", blocks_of(user.message.as_ref()?)?),
        Message::Result(_) => format!("result/{}", tag("/subtype")),
        Message::ControlRequest(request) => match request.request.as_ref()? {
            IncomingRequest::Unknown(_) => return None,
            _ => format!("control_request/{}", tag("/request/subtype")),
        },
        Message::ControlResponse(_) => format!("control_response/{}", tag("/response/subtype")),
        _ => tag("/type"),
    })
}

/// Returns the events of a frame, without those of kind `Other`.
pub(crate) fn events_of(message: &Message) -> Vec<String> {
    let cut = |text: &str| text.chars().take(40).collect::<String>().replace('\n', " ");
    let event = |kind: &EventKind| {
        Some(match kind {
            EventKind::TextDelta { .. } => "text delta".into(),
            EventKind::ThinkingDelta { .. } => "thinking delta".into(),
            EventKind::Text { text } => format!("text {:?}", cut(text)),
            EventKind::Thinking { text } => format!("thinking {:?}", cut(text)),
            EventKind::ToolUse { name, .. } => format!("tool use {name}"),
            EventKind::ToolResult { is_error: false, .. } => "tool result".into(),
            EventKind::ToolResult { is_error: true, .. } => "failed tool result".into(),
            EventKind::Result { text, is_error: false, .. } => format!("result {:?}", cut(text)),
            EventKind::Result { text, is_error: true, .. } => format!("failed result {:?}", cut(text)),
            EventKind::Error { message } => format!("error {:?}", cut(message)),
            EventKind::Compaction { trigger, .. } => format!("compaction {trigger:?}"),
            _ => return None,
        })
    };
    classify(message).iter().filter_map(event).collect()
}

/// Distinguishes frames of the same subtype.
fn detail(frame: &Value) -> String {
    let text = |key: &str| frame[key].as_str().map(|text| format!("/{text}"));
    match frame["subtype"].as_str() {
        Some("status") => text("status").unwrap_or_default(),
        Some("session_state_changed") => text("state").unwrap_or_default(),
        Some("task_notification") => text("status").unwrap_or_default(),
        _ => String::new(),
    }
}

fn event_kind(event: &StreamEvent) -> Option<String> {
    Some(match event {
        StreamEvent::MessageStart(_) => "message_start".into(),
        StreamEvent::ContentBlockStart(start) => {
            format!("content_block_start/{}", block_kind(start.content_block.as_ref()?)?)
        }
        StreamEvent::ContentBlockDelta(delta) => {
            format!("content_block_delta/{}", delta_kind(delta.delta.as_ref()?)?)
        }
        StreamEvent::ContentBlockStop(_) => "content_block_stop".into(),
        StreamEvent::MessageDelta(_) => "message_delta".into(),
        StreamEvent::MessageStop(_) => "message_stop".into(),
        StreamEvent::Error(_) => "error".into(),
        _ => return None,
    })
}

fn delta_kind(delta: &BlockDelta) -> Option<&'static str> {
    Some(match delta {
        BlockDelta::Text(_) => "text",
        BlockDelta::Thinking(_) => "thinking",
        BlockDelta::InputJson(_) => "input_json",
        BlockDelta::Signature(_) => "signature",
        _ => return None,
    })
}

fn block_kind(block: &ContentBlock) -> Option<String> {
    if matches!(block, ContentBlock::Unknown(_)) {
        return None;
    }
    Some(serde_json::to_value(block).unwrap()["type"].as_str()?.to_owned())
}

fn blocks_of(message: &ApiMessage) -> Option<String> {
    match message.content.as_ref()? {
        MessageContent::Text(_) => Some("string".into()),
        content => {
            let kinds: Option<Vec<String>> = content.blocks().iter().map(block_kind).collect();
            kinds.map(|kinds| kinds.join("+"))
        }
    }
}
