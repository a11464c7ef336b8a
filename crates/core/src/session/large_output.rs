//! Limits the output that an agent adds to a chat's document.
//!
//! The limiter sees every action on a chat before it is published. Text for which a part has
//! no room is moved to pieces of stored output, to which the document refers. Pure: the
//! caller stores the pieces, then publishes the actions. Invariant: the document of a turn
//! stays small enough for every client; inline text and pieces together are complete,
//! except for the progress of running tools and for fields that only describe others.

mod cutting;
mod moved_text;
mod tool_output;

use std::collections::HashMap;

use ahp_types::actions::{ChatDeltaAction, ChatReasoningAction, ChatResponsePartAction, StateAction};
use ahp_types::common::StringOrMarkdown;
use ahp_types::state::{ErrorInfo, ResponsePart};
use bytes::Bytes;

use super::decide::STEERING_META;
use crate::action::meaning;
use crate::output::OutputId;
use cutting::{head, json_size, shorten};
use moved_text::{MovedText, MovedTextKind, TextName};

/// The inline size of a part, by the inline size of its turn. Short answers after much
/// output stay visible, and a turn stays far below the 64 MiB that clients accept.
const PART_LIMITS: [(usize, usize); 2] = [(8 * 1024 * 1024, 256 * 1024), (16 * 1024 * 1024, 8 * 1024)];

/// The inline size of a part of a larger turn.
const SMALLEST_PART: usize = 512;

/// Largest size of a field that describes other content, such as a tool call's message.
const DESCRIPTION: usize = 4 * 1024;

/// The approximate size of a part's other fields.
const PART_OVERHEAD: usize = 256;

/// A piece of output to store.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OutputPiece {
    pub(super) id: OutputId,
    /// The turn that it belongs to.
    pub(super) turn: String,
    pub(super) content_type: String,
    pub(super) body: Bytes,
}

impl OutputPiece {
    fn new(id: OutputId, turn: &str, content_type: &str, body: Bytes) -> Self {
        Self { id, turn: turn.to_owned(), content_type: content_type.to_owned(), body }
    }

    /// The size for references to it.
    fn size_hint(&self) -> Option<i64> {
        i64::try_from(self.body.len()).ok()
    }
}

/// Pieces to store, and actions to publish after that.
#[derive(Debug, Default)]
pub(super) struct LimitedOutput {
    pub(super) pieces: Vec<OutputPiece>,
    pub(super) actions: Vec<StateAction>,
}

/// Limits the output of one chat.
#[derive(Debug)]
pub(super) struct OutputLimiter {
    /// Creates the ids of pieces.
    new_id: fn() -> OutputId,
    /// The inline size of the running turn.
    turn_size: usize,
    /// The inline sizes of its texts and tool calls, by id.
    sizes: HashMap<String, PartSize>,
    /// The text that is being moved to pieces.
    moved: Option<MovedText>,
}

/// The inline size of a part.
#[derive(Clone, Copy, Debug, Default)]
struct PartSize {
    /// A tool call's input.
    input: usize,
    /// A text, or a tool call's content.
    content: usize,
}

impl OutputLimiter {
    /// A limiter for a chat without a running turn.
    pub(super) fn new(new_id: fn() -> OutputId) -> Self {
        Self { new_id, turn_size: 0, sizes: HashMap::new(), moved: None }
    }

    /// Prepares for a turn whose document has this size.
    pub(super) fn begin_turn(&mut self, turn_size: usize) {
        *self = Self { turn_size, ..Self::new(self.new_id) };
    }

    /// Limits an action.
    pub(super) fn limit(&mut self, action: StateAction, limited: &mut LimitedOutput) {
        if adds_part(&action) || meaning(&action).ends_turn() {
            self.end_text(limited);
        }
        #[expect(clippy::wildcard_enum_match_arm, reason = "other actions do not carry output")]
        let action = match action {
            StateAction::ChatDelta(mut delta) => {
                let name = TextName::new(&delta.turn_id, &delta.part_id, MovedTextKind::Markdown);
                let content = std::mem::take(&mut delta.content);
                let publish = |content| StateAction::ChatDelta(ChatDeltaAction { content, ..delta });
                return self.limit_text(name, content, publish, limited);
            }
            StateAction::ChatReasoning(mut delta) => {
                let name = TextName::new(&delta.turn_id, &delta.part_id, MovedTextKind::Reasoning);
                let content = std::mem::take(&mut delta.content);
                let publish = |content| StateAction::ChatReasoning(ChatReasoningAction { content, ..delta });
                return self.limit_text(name, content, publish, limited);
            }
            StateAction::ChatResponsePart(part) => return self.limit_part(part, limited),
            StateAction::ChatToolCallStart(mut start) => {
                self.turn_size += PART_OVERHEAD;
                shorten(&mut start.tool_name, DESCRIPTION);
                shorten(&mut start.display_name, DESCRIPTION);
                start.intention.iter_mut().for_each(|intention| shorten(intention, DESCRIPTION));
                StateAction::ChatToolCallStart(start)
            }
            StateAction::ChatToolCallDelta(mut delta) => {
                if !self.limit_input_delta(&mut delta) {
                    return;
                }
                StateAction::ChatToolCallDelta(delta)
            }
            StateAction::ChatToolCallReady(mut ready) => {
                self.limit_input(&mut ready, limited);
                StateAction::ChatToolCallReady(ready)
            }
            StateAction::ChatToolCallContentChanged(mut changed) => {
                self.limit_progress(&mut changed);
                StateAction::ChatToolCallContentChanged(changed)
            }
            StateAction::ChatToolCallComplete(mut complete) => {
                self.limit_result(&mut complete, limited);
                StateAction::ChatToolCallComplete(complete)
            }
            StateAction::ChatError(mut error) => {
                shorten_error(&mut error.part.error);
                StateAction::ChatError(error)
            }
            other => other,
        };
        limited.actions.push(action);
    }

    /// Publishes the rest of a text that is being moved.
    pub(super) fn end_text(&mut self, limited: &mut LimitedOutput) {
        let Some(moved) = self.moved.take() else { return };
        let room = self.part_limit().min(DESCRIPTION);
        moved.end(room, self.new_id, limited);
        self.turn_size += room + 2 * PART_OVERHEAD;
    }

    fn limit_part(&mut self, action: ChatResponsePartAction, limited: &mut LimitedOutput) {
        self.turn_size += PART_OVERHEAD;
        let ChatResponsePartAction { turn_id, mut part, meta } = action;
        let text = match &mut part {
            ResponsePart::Markdown(part) => Some((MovedTextKind::Markdown, &part.id, &mut part.content)),
            ResponsePart::Reasoning(part) => Some((MovedTextKind::Reasoning, &part.id, &mut part.content)),
            ResponsePart::SystemNotification(part) => {
                // A user's message stays complete, where the turn has room.
                let is_message = part.meta.as_ref().is_some_and(|meta| meta.contains_key(STEERING_META));
                let limit = if is_message { self.part_limit() } else { DESCRIPTION };
                self.turn_size += shorten_to(&mut part.content, limit);
                None
            }
            ResponsePart::Error(part) => {
                shorten_error(&mut part.error);
                None
            }
            ResponsePart::ContentRef(_)
            | ResponsePart::ToolCall(_)
            | ResponsePart::InputRequest(_)
            | ResponsePart::Unknown(_) => None,
        };
        let Some((kind, id, content)) = text else {
            let action = ChatResponsePartAction { turn_id, part, meta };
            limited.actions.push(StateAction::ChatResponsePart(action));
            return;
        };
        let (name, content) = (TextName::new(&turn_id, id, kind), std::mem::take(content));
        let part = |content| kind.part(id.clone(), content);
        let publish = |content| {
            StateAction::ChatResponsePart(ChatResponsePartAction { part: part(content), turn_id, meta })
        };
        self.limit_text(name, content, publish, limited);
    }

    /// Publishes the text for which its part has room, and moves the rest.
    fn limit_text(
        &mut self,
        name: TextName,
        mut content: String,
        publish: impl FnOnce(String) -> StateAction,
        limited: &mut LimitedOutput,
    ) {
        if self.moved.as_ref().is_some_and(|moved| *moved.name() != name) {
            self.end_text(limited);
        }
        let limit = self.part_limit();
        let size = self.sizes.entry(name.part().to_owned()).or_default();
        let room = if self.moved.is_some() { 0 } else { limit.saturating_sub(size.content) };
        let rest = content.split_off(head(&content, room).len());
        let kept = json_size(&content);
        size.content += kept;
        self.turn_size += kept;
        if rest.is_empty() || !content.is_empty() {
            limited.actions.push(publish(content));
        }
        if !rest.is_empty() {
            let moved = self.moved.get_or_insert_with(|| MovedText::new(name));
            self.turn_size += PART_OVERHEAD * moved.push(&rest, self.new_id, limited);
        }
    }

    /// The inline size of a part.
    fn part_limit(&self) -> usize {
        let limit = PART_LIMITS.iter().find(|(turn_size, _)| self.turn_size < *turn_size);
        limit.map_or(SMALLEST_PART, |(_, limit)| *limit)
    }

    /// Replaces the size of a tool call's input or content.
    fn resize(&mut self, call: &str, field: fn(&mut PartSize) -> &mut usize, size: usize) {
        let known = field(self.sizes.entry(call.to_owned()).or_default());
        self.turn_size = self.turn_size.saturating_sub(*known) + size;
        *known = size;
    }
}

/// Whether an action adds a part, which ends the text before it.
fn adds_part(action: &StateAction) -> bool {
    matches!(
        action,
        StateAction::ChatResponsePart(_)
            | StateAction::ChatToolCallStart(_)
            | StateAction::ChatInputRequested(_)
    )
}

fn shorten_message(message: &mut StringOrMarkdown) {
    shorten_to(message, DESCRIPTION);
}

/// Shortens a message. Returns its size.
fn shorten_to(message: &mut StringOrMarkdown, limit: usize) -> usize {
    match message {
        StringOrMarkdown::Plain(text) | StringOrMarkdown::Markdown { markdown: text } => {
            shorten(text, limit);
            text.len()
        }
    }
}

fn shorten_error(error: &mut ErrorInfo) {
    shorten(&mut error.message, DESCRIPTION);
    error.stack.iter_mut().for_each(|stack| shorten(stack, DESCRIPTION));
}

#[cfg(test)]
#[path = "large_output_tests.rs"]
mod tests;
