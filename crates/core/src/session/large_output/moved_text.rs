//! Streamed text that is moved to pieces, because its part has no room for it.
//!
//! Each piece is published as a part that refers to it; these parts are the pages of the
//! text. A last part shows how much was moved, and the end of the text. At most one piece
//! is kept in memory.

use ahp_types::actions::{ChatResponsePartAction, StateAction};
use ahp_types::state::{MarkdownResponsePart, ReasoningResponsePart, ResourceResponsePart, ResponsePart};
use bytes::Bytes;

use super::cutting::{PIECE, tail, text_pieces};
use super::{DESCRIPTION, LimitedOutput, OutputPiece};
use crate::output::OutputId;

/// The kind of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MovedTextKind {
    Markdown,
    Reasoning,
}

impl MovedTextKind {
    /// A part with text of this kind.
    pub(super) fn part(self, id: String, content: String) -> ResponsePart {
        match self {
            Self::Markdown => ResponsePart::Markdown(MarkdownResponsePart { id, content }),
            Self::Reasoning => ResponsePart::Reasoning(ReasoningResponsePart { id, content }),
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Markdown => "text/markdown",
            Self::Reasoning => "text/plain",
        }
    }
}

/// Names a text of a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextName {
    turn: String,
    part: String,
    kind: MovedTextKind,
}

impl TextName {
    pub(super) fn new(turn: &str, part: &str, kind: MovedTextKind) -> Self {
        Self { turn: turn.to_owned(), part: part.to_owned(), kind }
    }

    /// The id of its part.
    pub(super) fn part(&self) -> &str {
        &self.part
    }
}

/// A text that is being moved.
#[derive(Debug)]
pub(super) struct MovedText {
    name: TextName,
    /// The text of the next piece.
    next: String,
    /// The end of the text, at least as long as it is shown.
    end: String,
    /// Number of moved bytes.
    bytes: usize,
}

impl MovedText {
    pub(super) fn new(name: TextName) -> Self {
        Self { name, next: String::new(), end: String::new(), bytes: 0 }
    }

    pub(super) fn name(&self) -> &TextName {
        &self.name
    }

    /// Appends text. Returns how many pieces were published.
    pub(super) fn push(
        &mut self,
        text: &str,
        new_id: fn() -> OutputId,
        limited: &mut LimitedOutput,
    ) -> usize {
        self.bytes += text.len();
        let end = tail(text, DESCRIPTION);
        if end.len() < text.len() {
            self.end.clear();
        }
        self.end.push_str(end);
        if self.end.len() > 4 * DESCRIPTION {
            self.end = tail(&self.end, DESCRIPTION).to_owned();
        }
        self.next.push_str(text);
        if self.next.len() < PIECE {
            return 0;
        }
        let mut pieces = text_pieces(std::mem::take(&mut self.next));
        if let Some(last) = pieces.pop_if(|last| last.len() < PIECE)
            && let Ok(last) = std::str::from_utf8(&last)
        {
            last.clone_into(&mut self.next);
        }
        let count = pieces.len();
        for piece in pieces {
            self.publish(piece, new_id, limited);
        }
        count
    }

    /// Publishes the last piece and the end of the text.
    pub(super) fn end(mut self, room: usize, new_id: fn() -> OutputId, limited: &mut LimitedOutput) {
        if !self.next.is_empty() {
            let last = Bytes::from(std::mem::take(&mut self.next));
            self.publish(last, new_id, limited);
        }
        // Unique, since it is not the id of a piece either.
        let id = format!("end-{}", new_id());
        let (bytes, end) = (self.bytes, tail(&self.end, room));
        let content = format!("[{bytes} bytes of this text are stored separately. They end with:]\n\n{end}");
        let part = self.name.kind.part(id, content);
        limited.actions.push(self.part(part));
    }

    fn publish(&self, body: Bytes, new_id: fn() -> OutputId, limited: &mut LimitedOutput) {
        let content_type = self.name.kind.content_type();
        let piece = OutputPiece::new(new_id(), &self.name.turn, content_type, body);
        limited.actions.push(self.part(ResponsePart::ContentRef(ResourceResponsePart {
            uri: piece.id.uri(),
            size_hint: piece.size_hint(),
            content_type: Some(piece.content_type.clone()),
            nonce: None,
        })));
        limited.pieces.push(piece);
    }

    fn part(&self, part: ResponsePart) -> StateAction {
        let turn_id = self.name.turn.clone();
        StateAction::ChatResponsePart(ChatResponsePartAction { turn_id, part, meta: None })
    }
}
