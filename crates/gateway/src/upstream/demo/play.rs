//! Plays a planned call as a stream of events or as one message.
//!
//! Implements waits and faults. A stream is pulled: nothing runs ahead of the
//! client, and dropping the stream ends the response at any point.

use std::sync::Arc;
use std::vec;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::task::yield_now;
use tokio::time::sleep;

use super::conversation::tokens;
use super::fingerprint::{Fingerprint, tool_use_id};
use super::log::{AnswerOutcome, OpenAnswer};
use super::memory::Memory;
use super::plan::{Act, Call, Part, StopReason};
use super::script::{FaultKind, Times};
use super::wire::{
    self, Delta, MessageEnd, OutputUsage, StreamEvent, Usage, WholeMessage, WireBlock, WireInput,
};
use crate::error::ApiError;
use crate::ledger::{OpenRequest, RequestEnd};
use crate::tap::Reading;
use crate::upstream::{Cut, UpstreamFailure};

/// A placeholder for the signature of thinking blocks.
const SIGNATURE: &str = "ZGVtbyBtb2RlbA==";

/// One response that is about to be played.
#[derive(Debug)]
pub(super) struct Performance {
    pub(super) call: Call,
    /// Identifies its faults in the memory.
    pub(super) key: Fingerprint,
    pub(super) memory: Arc<Memory>,
    pub(super) message_id: String,
    pub(super) model: String,
    pub(super) input_tokens: usize,
    pub(super) request_id: String,
    /// Receives the outcome for the log.
    pub(super) log: Option<OpenAnswer>,
    /// Receives the usage.
    pub(super) books: Option<OpenRequest>,
}

impl Performance {
    /// Returns the response as one JSON message, after all waits and faults.
    pub(super) async fn whole(mut self) -> Result<Bytes, UpstreamFailure> {
        let mut parts = Vec::new();
        for act in std::mem::take(&mut self.call.acts) {
            match act {
                Act::Say(part) => parts.push(part),
                Act::Wait(pause) => sleep(pause).await,
                Act::Chunk(_) => {}
                Act::Fault { place, kind, times } => self.meet(place, &kind, times)?,
            }
        }
        let output = tokens(parts.iter().map(|part| part.payload().len()).sum());
        let content = parts.iter().enumerate().map(|(index, part)| self.block(index, part)).collect();
        let message = self.message(content, Some(self.call.stop), output);
        let json = serde_json::to_vec(&message).map_err(|error| ApiError::internal(error.to_string()))?;
        self.book(output, Some(self.call.stop));
        self.end(AnswerOutcome::Finished);
        Ok(json.into())
    }

    /// Returns the response as a stream of events.
    ///
    /// Returns when the first byte is due: waits and faults before the first
    /// content block happen here, so that a fault can still set the status.
    pub(super) async fn stream(mut self) -> Result<BoxStream<'static, Result<Bytes, Cut>>, UpstreamFailure> {
        let mut acts = std::mem::take(&mut self.call.acts).into_iter();
        let mut first = None;
        while first.is_none() {
            match acts.next() {
                Some(Act::Say(part)) => first = Some(part),
                Some(Act::Wait(pause)) => sleep(pause).await,
                Some(Act::Chunk(characters)) => self.call.chunk = characters,
                Some(Act::Fault { place, kind, times }) => self.meet(place, &kind, times)?,
                None => break,
            }
        }
        self.book(1, None);
        let player = Player { performance: self, acts, cue: Cue::Start { first }, index: 0, output: 0 };
        Ok(stream::unfold(player, |mut player| async {
            // Yielding lets the HTTP layer flush, so that each event is sent
            // as its own chunk.
            yield_now().await;
            let item = player.next().await?;
            Some((item, player))
        })
        .boxed())
    }

    /// Fails if a fault is due.
    fn meet(&mut self, place: usize, kind: &FaultKind, times: Times) -> Result<(), UpstreamFailure> {
        let due = match times {
            Times::Always => true,
            Times::Once => self.memory.take_fault(self.key, place),
        };
        if !due {
            return Ok(());
        }
        match kind {
            FaultKind::Drop => {
                self.end(AnswerOutcome::Cut);
                Err(Cut.into())
            }
            FaultKind::Error { status, kind } => {
                self.end(AnswerOutcome::Failed(status.as_u16()));
                let error = ApiError::from_status(*status, "error requested by the demo script");
                let error = match kind {
                    Some(kind) => error.with_kind(kind.clone()),
                    None => error,
                };
                if let Some(books) = &mut self.books {
                    books.end(RequestEnd::Failed(error.clone()));
                }
                Err(error.into())
            }
        }
    }

    fn end(&mut self, outcome: AnswerOutcome) {
        if let Some(log) = self.log.take() {
            log.end(outcome);
        }
        if outcome == AnswerOutcome::Finished
            && let Some(books) = &mut self.books
        {
            books.end(RequestEnd::Completed);
        }
    }

    /// Records the usage so far.
    fn book(&mut self, output_tokens: usize, stop: Option<StopReason>) {
        if let Some(books) = &mut self.books {
            let stop_reason =
                stop.and_then(|stop| Some(serde_json::to_value(stop).ok()?.as_str()?.to_owned()));
            books.update(Reading {
                input_tokens: self.input_tokens as u64,
                output_tokens: output_tokens as u64,
                stop_reason,
                ..Reading::default()
            });
        }
    }

    fn message<'a>(
        &'a self,
        content: Vec<WireBlock<'a>>,
        stop_reason: Option<StopReason>,
        output_tokens: usize,
    ) -> WholeMessage<'a> {
        WholeMessage {
            id: &self.message_id,
            tag: "message",
            role: "assistant",
            model: &self.model,
            content,
            stop_reason,
            stop_sequence: None,
            usage: Usage::new(self.input_tokens, output_tokens),
        }
    }

    fn block<'a>(&self, index: usize, part: &'a Part) -> WireBlock<'a> {
        match part {
            Part::Text(text) => WireBlock::Text { text },
            Part::Thinking(thinking) => WireBlock::Thinking { thinking, signature: SIGNATURE },
            Part::ToolUse { name, input } => WireBlock::ToolUse {
                id: tool_use_id(&self.message_id, index),
                name,
                input: WireInput::Whole(input),
            },
        }
    }

    /// The block at its start, before its first chunk.
    fn empty_block<'a>(&self, index: usize, part: &'a Part) -> WireBlock<'a> {
        match part {
            Part::Text(_) => WireBlock::Text { text: "" },
            Part::Thinking(_) => WireBlock::Thinking { thinking: "", signature: "" },
            Part::ToolUse { name, .. } => WireBlock::ToolUse {
                id: tool_use_id(&self.message_id, index),
                name,
                input: WireInput::Empty {},
            },
        }
    }
}

/// A stream that is being played.
#[derive(Debug)]
struct Player {
    performance: Performance,
    acts: vec::IntoIter<Act>,
    cue: Cue,
    /// Index of the current or next content block.
    index: usize,
    /// Bytes of content sent so far.
    output: usize,
}

/// The next event to send.
#[derive(Debug)]
enum Cue {
    Start {
        first: Option<Part>,
    },
    Ping {
        first: Option<Part>,
    },
    Block(Part),
    /// The part's payload from byte `sent` on.
    Pieces {
        part: Part,
        sent: usize,
    },
    Signature,
    /// The block was sent except for its end.
    Trail,
    EndOfBlock,
    NextAct,
    Stop,
    Silence,
}

type Item = Result<Bytes, Cut>;

impl Player {
    /// The next event, or `None` at the end.
    async fn next(&mut self) -> Option<Item> {
        loop {
            match std::mem::replace(&mut self.cue, Cue::Silence) {
                Cue::Start { first } => {
                    self.cue = Cue::Ping { first };
                    let message = self.performance.message(Vec::new(), None, 1);
                    return Some(sent(&StreamEvent::MessageStart { message }));
                }
                Cue::Ping { first } => {
                    self.cue = first.map_or(Cue::NextAct, Cue::Block);
                    return Some(sent(&StreamEvent::Ping));
                }
                Cue::Block(part) => return Some(self.start_block(part)),
                Cue::Pieces { part, sent } => {
                    if let Some(item) = self.piece(part, sent) {
                        return Some(item);
                    }
                }
                Cue::Signature => {
                    self.cue = Cue::Trail;
                    let delta = Delta::SignatureDelta { signature: SIGNATURE };
                    return Some(sent(&StreamEvent::ContentBlockDelta { index: self.index, delta }));
                }
                Cue::Trail => {
                    if let Some(item) = self.trail().await {
                        return Some(item);
                    }
                }
                Cue::EndOfBlock => {
                    self.cue = Cue::NextAct;
                    let index = self.index;
                    self.index += 1;
                    return Some(sent(&StreamEvent::ContentBlockStop { index }));
                }
                Cue::NextAct => {
                    if let Some(item) = self.next_act().await {
                        return Some(item);
                    }
                }
                Cue::Stop => {
                    self.performance.end(AnswerOutcome::Finished);
                    return Some(sent(&StreamEvent::MessageStop));
                }
                Cue::Silence => return None,
            }
        }
    }

    fn start_block(&mut self, part: Part) -> Item {
        let content_block = self.performance.empty_block(self.index, &part);
        let item = sent(&StreamEvent::ContentBlockStart { index: self.index, content_block });
        self.cue = Cue::Pieces { part, sent: 0 };
        item
    }

    /// Sends the next chunk of a part; `None` when all of it was sent.
    fn piece(&mut self, part: Part, already: usize) -> Option<Item> {
        let rest = part.payload().get(already..).unwrap_or_default();
        let piece = first_piece(rest, self.performance.call.chunk);
        if piece.is_empty() {
            self.cue = match part {
                Part::Thinking(_) => Cue::Signature,
                Part::Text(_) | Part::ToolUse { .. } => Cue::Trail,
            };
            return None;
        }
        let item =
            sent(&StreamEvent::ContentBlockDelta { index: self.index, delta: Delta::of(&part, piece) });
        let length = piece.len();
        self.output += length;
        self.cue = Cue::Pieces { part, sent: already + length };
        Some(item)
    }

    /// Plays a fault that follows a block before the block's end, so that the
    /// stream breaks inside a block, which is the hardest case for clients.
    async fn trail(&mut self) -> Option<Item> {
        let is_pause = |act: &&Act| matches!(act, Act::Wait(_) | Act::Chunk(_));
        let next = self.acts.as_slice().iter().find(|act| !is_pause(act));
        if !matches!(next, Some(Act::Fault { .. })) {
            self.cue = Cue::EndOfBlock;
            return None;
        }
        self.cue = Cue::Trail;
        let act = self.acts.next()?;
        self.play(act).await
    }

    async fn next_act(&mut self) -> Option<Item> {
        self.cue = Cue::NextAct;
        if let Some(act) = self.acts.next() {
            return self.play(act).await;
        }
        self.cue = Cue::Stop;
        let delta = MessageEnd { stop_reason: self.performance.call.stop, stop_sequence: None };
        let usage = OutputUsage { output_tokens: tokens(self.output) };
        self.performance.book(usage.output_tokens, Some(delta.stop_reason));
        Some(sent(&StreamEvent::MessageDelta { delta, usage }))
    }

    async fn play(&mut self, act: Act) -> Option<Item> {
        match act {
            Act::Say(part) => self.cue = Cue::Block(part),
            Act::Wait(pause) => sleep(pause).await,
            Act::Chunk(characters) => self.performance.call.chunk = characters,
            Act::Fault { place, kind, times } => {
                if let Err(failure) = self.performance.meet(place, &kind, times) {
                    self.cue = Cue::Silence;
                    return Some(self.failed(&failure));
                }
            }
        }
        None
    }

    fn failed(&self, failure: &UpstreamFailure) -> Item {
        match failure {
            UpstreamFailure::Cut(cut) => Err(*cut),
            UpstreamFailure::Api(error) => {
                wire::encode_error(&error.object(&self.performance.request_id)).map_err(|_| Cut)
            }
        }
    }
}

/// Encodes an event; if that fails, the connection is cut instead of skipping the event.
fn sent(event: &StreamEvent<'_>) -> Item {
    event.encode().map_err(|error| {
        tracing::error!(%error, "cannot encode event of the demo model");
        Cut
    })
}

/// The first `characters` characters of a text.
fn first_piece(text: &str, characters: usize) -> &str {
    match text.char_indices().nth(characters) {
        Some((end, _)) => text.get(..end).unwrap_or(text),
        None => text,
    }
}

#[cfg(test)]
#[path = "play_tests.rs"]
mod tests;
