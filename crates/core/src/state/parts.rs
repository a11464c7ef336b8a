//! Index of the parts of a running turn, to find the target of streamed text in constant
//! time.
//!
//! The official reducer searches parts from the front and copies every id that it passes,
//! so a delta in a turn of 500 tool calls is 100 times slower than one in an empty turn.
//! This module applies the three streaming actions through an index and leaves all others
//! to that reducer. Invariant: for every state and action, the result equals that of the
//! official reducer; the tests compare the two.

use std::collections::HashMap;

use ahp::reducers::ReduceOutcome;
use ahp_types::actions::{ChatToolCallDeltaAction, StateAction};
use ahp_types::state::{ActiveTurn, ChatState, ResponsePart, ToolCallState};

/// The position of the first part with each id in a chat's active turn.
///
/// Must receive every action on its chat, in order, before the action is applied.
#[derive(Clone, Debug, Default)]
pub(super) struct PartIndex {
    by_id: HashMap<String, Positions>,
    /// Number of indexed parts.
    indexed: usize,
}

/// The first positions of an id.
#[derive(Clone, Copy, Debug)]
struct Positions {
    /// Among all parts.
    any: usize,
    /// Among tool calls only.
    tool_call: Option<usize>,
}

/// Which parts are searched.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    AnyPart,
    ToolCall,
}

impl PartIndex {
    /// Applies a streaming action. Returns `None` for any other action, which the
    /// official reducer must apply.
    pub(super) fn apply(&mut self, chat: &mut ChatState, action: &StateAction) -> Option<ReduceOutcome> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "any other action may have moved the parts")]
        match action {
            StateAction::ChatDelta(delta) => {
                Some(self.update(chat, &delta.turn_id, &delta.part_id, Wanted::AnyPart, |part| {
                    if let ResponsePart::Markdown(markdown) = part {
                        markdown.content.push_str(&delta.content);
                    }
                }))
            }
            StateAction::ChatReasoning(delta) => {
                Some(self.update(chat, &delta.turn_id, &delta.part_id, Wanted::AnyPart, |part| {
                    if let ResponsePart::Reasoning(reasoning) = part {
                        reasoning.content.push_str(&delta.content);
                    }
                }))
            }
            StateAction::ChatToolCallDelta(delta) => {
                Some(self.update(chat, &delta.turn_id, &delta.tool_call_id, Wanted::ToolCall, |part| {
                    stream_tool_call(part, delta);
                }))
            }
            StateAction::ChatResponsePart(_)
            | StateAction::ChatToolCallStart(_)
            | StateAction::ChatToolCallReady(_)
            | StateAction::ChatToolCallConfirmed(_)
            | StateAction::ChatToolCallComplete(_)
            | StateAction::ChatToolCallResultConfirmed(_)
            | StateAction::ChatToolCallContentChanged(_)
            | StateAction::ChatUsage(_)
            | StateAction::ChatActivityChanged(_) => None,
            _ => {
                self.forget();
                None
            }
        }
    }

    fn update(
        &mut self,
        chat: &mut ChatState,
        turn: &str,
        id: &str,
        wanted: Wanted,
        update: impl FnOnce(&mut ResponsePart),
    ) -> ReduceOutcome {
        let Some(active) = chat.active_turn.as_mut().filter(|active| active.id == turn) else {
            return ReduceOutcome::NoOp;
        };
        self.catch_up(active);
        let position = self.by_id.get(id).and_then(|positions| match wanted {
            Wanted::AnyPart => Some(positions.any),
            Wanted::ToolCall => positions.tool_call,
        });
        match position.and_then(|position| active.response_parts.get_mut(position)) {
            Some(part) => {
                update(part);
                ReduceOutcome::Applied
            }
            None => ReduceOutcome::NoOp,
        }
    }

    /// Indexes the parts added since the last call.
    fn catch_up(&mut self, active: &ActiveTurn) {
        if self.indexed > active.response_parts.len() {
            self.forget();
        }
        for (position, part) in active.response_parts.iter().enumerate().skip(self.indexed) {
            let tool_call = matches!(part, ResponsePart::ToolCall(_)).then_some(position);
            let Some(id) = part_id(part) else { continue };
            match self.by_id.get_mut(id) {
                Some(known) => known.tool_call = known.tool_call.or(tool_call),
                None => {
                    self.by_id.insert(id.to_owned(), Positions { any: position, tool_call });
                }
            }
        }
        self.indexed = active.response_parts.len();
    }

    /// Clears the index, because the turn may have changed.
    fn forget(&mut self) {
        self.by_id = HashMap::new();
        self.indexed = 0;
    }
}

/// The id by which streaming actions refer to a part.
fn part_id(part: &ResponsePart) -> Option<&str> {
    match part {
        ResponsePart::Markdown(part) => Some(&part.id),
        ResponsePart::Reasoning(part) => Some(&part.id),
        ResponsePart::ToolCall(part) => Some(tool_call_id(&part.tool_call)),
        ResponsePart::Error(_)
        | ResponsePart::ContentRef(_)
        | ResponsePart::SystemNotification(_)
        | ResponsePart::InputRequest(_)
        | ResponsePart::Unknown(_) => None,
    }
}

fn tool_call_id(call: &ToolCallState) -> &str {
    match call {
        ToolCallState::Streaming(call) => &call.tool_call_id,
        ToolCallState::PendingConfirmation(call) => &call.tool_call_id,
        ToolCallState::Running(call) => &call.tool_call_id,
        ToolCallState::AuthRequired(call) => &call.tool_call_id,
        ToolCallState::PendingResultConfirmation(call) => &call.tool_call_id,
        ToolCallState::Completed(call) => &call.tool_call_id,
        ToolCallState::Cancelled(call) => &call.tool_call_id,
        // The official reducer gives such a call an empty id.
        ToolCallState::Unknown(_) => "",
    }
}

fn stream_tool_call(part: &mut ResponsePart, delta: &ChatToolCallDeltaAction) {
    let ResponsePart::ToolCall(part) = part else { return };
    let ToolCallState::Streaming(call) = &mut part.tool_call else { return };
    if let Some(content) = &delta.content {
        call.partial_input.get_or_insert_default().push_str(content);
    }
    if let Some(meta) = &delta.meta {
        call.meta = Some(meta.clone());
    }
    if let Some(message) = &delta.invocation_message {
        call.invocation_message = Some(message.clone());
    }
}

#[cfg(test)]
#[path = "parts_tests.rs"]
mod tests;
