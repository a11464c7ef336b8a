//! Text and reasoning: one part per block, followed by its deltas.

use ahp_types::actions::{ChatDeltaAction, ChatReasoningAction, ChatResponsePartAction, StateAction};
use ahp_types::state::{MarkdownResponsePart, ReasoningResponsePart, ResponsePart};
use innkeeper_claude::wire::content::ContentBlock;
use innkeeper_claude::wire::message::BlockDelta;
use innkeeper_core::ids::TurnId;

use super::stream::StreamedKind;

/// Content of the part for reasoning that the model service encrypted.
const REDACTED: &str = "This part of the reasoning is encrypted and cannot be shown.";

/// Kind and first content of a block of text or reasoning.
pub(super) fn content_of(block: &ContentBlock) -> Option<(StreamedKind, String)> {
    match block {
        ContentBlock::Text(block) => Some((StreamedKind::Text, block.text.clone().unwrap_or_default())),
        ContentBlock::Thinking(block) => {
            Some((StreamedKind::Reasoning, block.thinking.clone().unwrap_or_default()))
        }
        ContentBlock::Unknown(block) if block.kind == "redacted_thinking" => {
            Some((StreamedKind::Reasoning, REDACTED.to_owned()))
        }
        ContentBlock::ToolUse(_) | ContentBlock::ToolResult(_) | ContentBlock::Unknown(_) => None,
    }
}

/// Appends to a block. Deltas of another kind are dropped.
pub(super) fn delta(
    turn: &TurnId,
    kind: StreamedKind,
    part: &str,
    delta: &BlockDelta,
) -> Option<StateAction> {
    let (turn_id, part_id) = (turn.as_str().to_owned(), part.to_owned());
    match (kind, delta) {
        (StreamedKind::Text, BlockDelta::Text(delta)) => {
            let content = delta.text.clone().filter(|text| !text.is_empty())?;
            Some(StateAction::ChatDelta(ChatDeltaAction { turn_id, part_id, content, meta: None }))
        }
        (StreamedKind::Reasoning, BlockDelta::Thinking(delta)) => {
            let content = delta.thinking.clone().filter(|text| !text.is_empty())?;
            Some(StateAction::ChatReasoning(ChatReasoningAction { turn_id, part_id, content, meta: None }))
        }
        (StreamedKind::Text | StreamedKind::Reasoning | StreamedKind::Tool, _) => None,
    }
}

/// Joins the text of all text blocks.
pub(super) fn joined(blocks: &[ContentBlock]) -> Option<String> {
    let texts: Vec<&str> = blocks
        .iter()
        .filter_map(|block| match block {
            ContentBlock::Text(block) => block.text.as_deref(),
            ContentBlock::Thinking(_)
            | ContentBlock::ToolUse(_)
            | ContentBlock::ToolResult(_)
            | ContentBlock::Unknown(_) => None,
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// The id of a block's part. Block indices restart with every message, so it includes the message.
pub(super) fn part_id(turn: &TurnId, message: &str, index: u32) -> String {
    format!("{turn}#{message}#{index}")
}

/// A part of text or reasoning.
pub(super) fn part(turn: &TurnId, kind: StreamedKind, id: String, content: String) -> StateAction {
    response_part(
        turn,
        match kind {
            StreamedKind::Reasoning => ResponsePart::Reasoning(ReasoningResponsePart { id, content }),
            StreamedKind::Text | StreamedKind::Tool => {
                ResponsePart::Markdown(MarkdownResponsePart { id, content })
            }
        },
    )
}

/// Adds a part to the turn.
pub(super) fn response_part(turn: &TurnId, part: ResponsePart) -> StateAction {
    StateAction::ChatResponsePart(ChatResponsePartAction {
        turn_id: turn.as_str().to_owned(),
        part,
        meta: None,
    })
}
