//! Limits the inputs and results of tool calls.

use ahp_types::actions::{
    ChatToolCallCompleteAction, ChatToolCallContentChangedAction, ChatToolCallDeltaAction,
    ChatToolCallReadyAction,
};
use ahp_types::state::{
    ContentRef, ToolCallResult, ToolInput, ToolResultContent, ToolResultResourceContent,
    ToolResultTextContent,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use super::cutting::{byte_pieces, head, head_and_tail, json_size, text_pieces};
use super::{LimitedOutput, OutputLimiter, OutputPiece, SMALLEST_PART, shorten_message};
use crate::output::OutputId;

/// Largest piece of binary content and of a tool's input, in bytes. These are useless in
/// pieces; as base64, one still fits in a message.
const LARGE_PIECE: usize = 32 * 1024 * 1024;

/// Most resources of one result that are stored separately. Further ones are stored
/// together, as JSON.
const MAX_RESOURCES: usize = 64;

/// Size of the file edits of one result that stay in it, even in a large turn: a few edits.
const SMALLEST_EDITS: usize = 4 * 1024;

impl OutputLimiter {
    /// Limits a part of a tool's input. Returns whether anything is left to publish; the
    /// complete input follows later.
    pub(super) fn limit_input_delta(&mut self, delta: &mut ChatToolCallDeltaAction) -> bool {
        delta.invocation_message.iter_mut().for_each(shorten_message);
        let Some(content) = &mut delta.content else { return true };
        let limit = self.part_limit();
        let size = self.sizes.entry(delta.tool_call_id.clone()).or_default();
        content.truncate(head(content, limit.saturating_sub(size.input)).len());
        let kept = json_size(content);
        size.input += kept;
        self.turn_size += kept;
        delta.content.take_if(|content| content.is_empty());
        delta.content.is_some() || delta.invocation_message.is_some()
    }

    /// Limits a tool's complete input.
    pub(super) fn limit_input(&mut self, ready: &mut ChatToolCallReadyAction, limited: &mut LimitedOutput) {
        shorten_message(&mut ready.invocation_message);
        ready.confirmation_title.iter_mut().for_each(shorten_message);
        let Some(ToolInput::Inline(input)) = &mut ready.tool_input else { return };
        if fits(input, self.part_limit()) {
            let size = json_size(input);
            self.resize(&ready.tool_call_id, |sizes| &mut sizes.input, size);
            return;
        }
        let mut body = std::mem::take(input);
        body.truncate(body.floor_char_boundary(LARGE_PIECE));
        let content_type = if serde_json::from_str::<&serde_json::value::RawValue>(&body).is_ok() {
            "application/json"
        } else {
            "text/plain"
        };
        let piece = OutputPiece::new((self.new_id)(), &ready.turn_id, content_type, body.into());
        ready.tool_input = Some(ToolInput::ContentRef(ContentRef {
            uri: piece.id.uri(),
            size_hint: piece.size_hint(),
            content_type: Some(piece.content_type.clone()),
            nonce: None,
        }));
        limited.pieces.push(piece);
        self.resize(&ready.tool_call_id, |sizes| &mut sizes.input, SMALLEST_PART);
    }

    /// Limits the progress of a running tool. It is not stored: the result follows.
    pub(super) fn limit_progress(&mut self, changed: &mut ChatToolCallContentChangedAction) {
        let mut room = self.part_limit();
        changed.content.retain_mut(|content| {
            if let ToolResultContent::Text(text) = content
                && !fits(&text.text, room)
            {
                text.text = head_and_tail(&text.text, room);
            }
            let size = encoded_size(content);
            // The text may exceed the room by the note between its start and its end.
            let is_kept = size <= room + SMALLEST_PART;
            room = if is_kept { room.saturating_sub(size) } else { room };
            is_kept
        });
        let size = self.part_limit().saturating_sub(room);
        self.resize(&changed.tool_call_id, |sizes| &mut sizes.content, size);
    }

    /// Limits the result of a tool call.
    pub(super) fn limit_result(
        &mut self,
        complete: &mut ChatToolCallCompleteAction,
        limited: &mut LimitedOutput,
    ) {
        shorten_message(&mut complete.result.past_tense_message);
        let room = self.part_limit();
        let size = encoded_size(&complete.result);
        if size <= room {
            return self.resize(&complete.tool_call_id, |sizes| &mut sizes.content, size);
        }
        let mut reduction = Reduction {
            turn: &complete.turn_id,
            new_id: self.new_id,
            room,
            content: Vec::new(),
            resources: 0,
            limited,
        };
        reduction.reduce(&mut complete.result);
        let size = encoded_size(&complete.result);
        self.resize(&complete.tool_call_id, |sizes| &mut sizes.content, size);
    }
}

/// Moves parts of a large result to pieces.
struct Reduction<'a> {
    turn: &'a str,
    new_id: fn() -> OutputId,
    /// The inline size that is left.
    room: usize,
    /// The reduced content.
    content: Vec<ToolResultContent>,
    /// Number of resources in it that are stored separately.
    resources: usize,
    limited: &'a mut LimitedOutput,
}

impl Reduction<'_> {
    fn reduce(&mut self, result: &mut ToolCallResult) {
        let (mut texts, mut edits, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let mut edits_room = SMALLEST_EDITS.max(self.room / 2);
        for content in result.content.take().unwrap_or_default() {
            #[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds are limited by their size")]
            match content {
                ToolResultContent::Text(text) => texts.push(text.text),
                // Clients need them to show what changed, and they are small.
                ToolResultContent::FileEdit(_) if encoded_size(&content) <= edits_room => {
                    let size = encoded_size(&content);
                    edits_room -= size;
                    self.room = self.room.saturating_sub(size);
                    edits.push(content);
                }
                other => others.push(other),
            }
        }
        self.add_text(texts.join("\n"));
        self.content.append(&mut edits);
        let mut left = Vec::new();
        for other in others {
            let size = encoded_size(&other);
            if size <= self.room {
                self.room -= size;
                self.content.push(other);
            } else if let ToolResultContent::EmbeddedResource(resource) = &other
                && self.resources < MAX_RESOURCES
                && let Ok(bytes) = STANDARD.decode(&resource.data)
            {
                self.resources += 1;
                for piece in byte_pieces(bytes.into(), LARGE_PIECE) {
                    self.add_piece(&resource.content_type, piece);
                }
            } else {
                left.push(other);
            }
        }
        if !left.is_empty() {
            self.add_json(&left);
        }
        if let Some(structured) = result.structured_content.take_if(|value| encoded_size(value) > self.room) {
            self.add_json(&structured);
        }
        if let Some(error) = result.error.take_if(|error| encoded_size(error) > self.room) {
            let text = serde_json::to_string(&error).unwrap_or_default();
            result.error = Some(Value::String(head_and_tail(&text, SMALLEST_PART)));
            self.add_json(&error);
        }
        result.content = Some(std::mem::take(&mut self.content));
    }

    /// Adds the text of a result: its start and its end, and all of it as resources.
    fn add_text(&mut self, text: String) {
        if text.is_empty() {
            return;
        }
        // Other content and errors keep half of the room.
        let room = self.room / 2;
        if fits(&text, room) {
            self.room -= json_size(&text);
            self.content.push(ToolResultContent::Text(ToolResultTextContent { text }));
            return;
        }
        self.room -= room;
        let shown = ToolResultTextContent { text: head_and_tail(&text, room) };
        self.content.push(ToolResultContent::Text(shown));
        for piece in text_pieces(text) {
            self.add_piece("text/plain", piece);
        }
    }

    fn add_json(&mut self, value: &impl Serialize) {
        for piece in text_pieces(serde_json::to_string(value).unwrap_or_default()) {
            self.add_piece("application/json", piece);
        }
    }

    fn add_piece(&mut self, content_type: &str, body: Bytes) {
        let piece = OutputPiece::new((self.new_id)(), self.turn, content_type, body);
        self.content.push(ToolResultContent::Resource(ToolResultResourceContent {
            uri: piece.id.uri(),
            size_hint: piece.size_hint(),
            content_type: Some(piece.content_type.clone()),
            nonce: None,
        }));
        self.limited.pieces.push(piece);
    }
}

/// Whether a text fits into a part.
fn fits(text: &str, room: usize) -> bool {
    head(text, room).len() == text.len()
}

/// The size of a value in JSON.
fn encoded_size(value: &impl Serialize) -> usize {
    let mut counter = ByteCounter(0);
    match serde_json::to_writer(&mut counter, value) {
        Ok(()) => counter.0,
        Err(_) => usize::MAX,
    }
}

/// Counts written bytes.
struct ByteCounter(usize);

impl std::io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
