//! The model's message that is being streamed: its blocks, and which of them the runtime kept.
//!
//! The runtime confirms a finished block with an `assistant` frame. After a broken connection it
//! repeats the answer, and blocks without confirmation are not part of the conversation: they are
//! abandoned. After an interrupt nothing follows, so the visible part of the answer stays.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

/// What a streamed block contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamedKind {
    Text,
    Reasoning,
    Tool,
}

#[derive(Debug)]
struct StreamedBlock {
    kind: StreamedKind,
    /// The id of the response part or tool call.
    part: String,
    /// Whether the runtime confirmed the block.
    kept: bool,
    /// The complete text of a confirmed text block.
    text: String,
}

/// The blocks of one message, by index. Indices restart with every message.
#[derive(Debug, Default)]
pub(super) struct StreamedMessage {
    id: String,
    blocks: BTreeMap<u32, StreamedBlock>,
    /// An earlier message whose confirmed start the model was asked to continue.
    cut: Option<CutMessage>,
    /// Whether the message broke off.
    broken: bool,
}

/// The confirmed blocks of a message that broke off.
#[derive(Debug)]
struct CutMessage {
    parts: Vec<String>,
    /// Its first text.
    text: String,
}

/// The runtime's mark of the blocks that a broken connection left incomplete.
#[derive(Deserialize)]
struct AbandonedBlocks {
    from_block_index: u32,
}

impl StreamedMessage {
    /// Whether this is the message with the id, as far as the id is known.
    pub(super) fn is(&self, id: Option<&str>) -> bool {
        id.is_none_or(|id| id == self.id)
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Whether the runtime has reported that the message broke off.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Starts a message. The caller has taken the abandoned parts of the previous one.
    pub(super) fn begin(&mut self, id: &str) {
        let cut = self.broken.then(|| self.cut_message()).flatten();
        *self = Self { id: id.to_owned(), cut: cut.or_else(|| self.cut.take()), ..Self::default() };
    }

    /// Adds a block.
    pub(super) fn add(&mut self, index: u32, kind: StreamedKind, part: &str) {
        let part = part.to_owned();
        self.blocks.insert(index, StreamedBlock { kind, part, kept: false, text: String::new() });
    }

    /// Kind and id of a block.
    pub(super) fn block(&self, index: u32) -> Option<(StreamedKind, &str)> {
        self.blocks.get(&index).map(|block| (block.kind, block.part.as_str()))
    }

    /// Confirms the blocks that have started: the runtime sends the frame of a block before it
    /// reports the next one. Returns the parts of an earlier answer that this one repeats.
    pub(super) fn keep(&mut self, text: Option<&str>) -> Vec<String> {
        self.blocks.values_mut().for_each(|block| block.kept = true);
        let Some(text) = text else { return Vec::new() };
        if let Some(mut newest) = self.blocks.last_entry()
            && newest.get().kind == StreamedKind::Text
        {
            text.clone_into(&mut newest.get_mut().text);
        }
        // Asked to continue, the model has repeated the text instead.
        match self.cut.take() {
            Some(cut) if text.trim_start().starts_with(cut.text.trim()) => cut.parts,
            Some(_) | None => Vec::new(),
        }
    }

    /// Ends the message; `abandoned` marks the blocks of a broken one.
    pub(super) fn end(&mut self, abandoned: Option<&RawValue>) {
        let mark = abandoned.and_then(|raw| serde_json::from_str::<AbandonedBlocks>(raw.get()).ok());
        self.broken = mark.is_some();
        for (index, block) in &mut self.blocks {
            block.kept = mark.as_ref().is_none_or(|mark| *index < mark.from_block_index);
        }
    }

    /// Removes the blocks that the runtime did not confirm; returns their ids.
    pub(super) fn take_abandoned(&mut self) -> Vec<String> {
        let mut abandoned = Vec::new();
        self.blocks.retain(|_, block| {
            if !block.kept {
                abandoned.push(std::mem::take(&mut block.part));
            }
            block.kept
        });
        abandoned
    }

    /// The confirmed blocks, unless a tool call is among them: then the answer continues after it.
    fn cut_message(&self) -> Option<CutMessage> {
        let blocks = || self.blocks.values();
        let text = blocks().find(|block| !block.text.trim().is_empty())?.text.clone();
        let has_tools = blocks().any(|block| block.kind == StreamedKind::Tool);
        (!has_tools).then(|| CutMessage { parts: blocks().map(|block| block.part.clone()).collect(), text })
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
