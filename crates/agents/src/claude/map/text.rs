//! Text and reasoning: one part per block, followed by its deltas.

use std::collections::HashMap;

use ahp_types::actions::{ChatDeltaAction, ChatReasoningAction, ChatResponsePartAction, StateAction};
use ahp_types::state::{MarkdownResponsePart, ReasoningResponsePart, ResponsePart};
use innkeeper_claude::wire::content::ContentBlock;
use innkeeper_claude::wire::message::BlockDelta;
use innkeeper_core::ids::TurnId;

/// Text blocks of the message that is being streamed.
#[derive(Debug, Default)]
pub(super) struct TextBlocks {
    /// The message id. Block indices restart with every message, so part ids include it.
    message: String,
    open: HashMap<u32, TextKind>,
    /// Number of blocks of complete messages so far, since those blocks have no index.
    whole: HashMap<String, u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextKind {
    Text,
    Reasoning,
}

impl TextBlocks {
    /// Starts a new message.
    pub(super) fn begin_message(&mut self, id: &str) {
        id.clone_into(&mut self.message);
        self.open.clear();
    }

    /// Starts a block.
    pub(super) fn begin(&mut self, turn: &TurnId, index: u32, block: &ContentBlock) -> Option<StateAction> {
        let (kind, content) = content_of(block)?;
        self.open.insert(index, kind);
        Some(part(turn, kind, part_id(turn, &self.message, index), content))
    }

    /// Appends to a block. Deltas of unknown blocks are dropped.
    pub(super) fn delta(&self, turn: &TurnId, index: u32, delta: &BlockDelta) -> Option<StateAction> {
        let kind = *self.open.get(&index)?;
        let turn_id = turn.as_str().to_owned();
        let part_id = part_id(turn, &self.message, index);
        match (kind, delta) {
            (TextKind::Text, BlockDelta::Text(delta)) => Some(StateAction::ChatDelta(ChatDeltaAction {
                turn_id,
                part_id,
                content: delta.text.clone()?,
                meta: None,
            })),
            (TextKind::Reasoning, BlockDelta::Thinking(delta)) => {
                Some(StateAction::ChatReasoning(ChatReasoningAction {
                    turn_id,
                    part_id,
                    content: delta.thinking.clone()?,
                    meta: None,
                }))
            }
            (TextKind::Text | TextKind::Reasoning, _) => None,
        }
    }

    /// Maps a block that was not streamed.
    pub(super) fn whole(
        &mut self,
        turn: &TurnId,
        message: &str,
        block: &ContentBlock,
    ) -> Option<StateAction> {
        let (kind, content) = content_of(block)?;
        let index = self.whole.entry(message.to_owned()).or_default();
        let id = part_id(turn, message, *index);
        *index += 1;
        (!content.is_empty()).then(|| part(turn, kind, id, content))
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

fn content_of(block: &ContentBlock) -> Option<(TextKind, String)> {
    match block {
        ContentBlock::Text(block) => Some((TextKind::Text, block.text.clone().unwrap_or_default())),
        ContentBlock::Thinking(block) => {
            Some((TextKind::Reasoning, block.thinking.clone().unwrap_or_default()))
        }
        ContentBlock::ToolUse(_) | ContentBlock::ToolResult(_) | ContentBlock::Unknown(_) => None,
    }
}

fn part_id(turn: &TurnId, message: &str, index: u32) -> String {
    format!("{turn}#{message}#{index}")
}

fn part(turn: &TurnId, kind: TextKind, id: String, content: String) -> StateAction {
    let part = match kind {
        TextKind::Text => ResponsePart::Markdown(MarkdownResponsePart { id, content }),
        TextKind::Reasoning => ResponsePart::Reasoning(ReasoningResponsePart { id, content }),
    };
    StateAction::ChatResponsePart(ChatResponsePartAction {
        turn_id: turn.as_str().to_owned(),
        part,
        meta: None,
    })
}
