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
use super::events::{
    self, Delta, DemoBlock, DemoEvent, DemoMessage, DemoToolInput, MessageEnd, OutputUsage, TokenUsage,
};
use super::fingerprint::{Fingerprint, tool_use_id};
use super::log::{OpenResponse, ResponseOutcome};
use super::memory::AttemptMemory;
use super::plan::{CallAction, ModelCall, Part, StopReason};
use super::script::{FaultKind, FaultRepeat};
use crate::error::ApiError;
use crate::tap::Reading;
use crate::upstream::{Cut, UpstreamFailure};
use crate::usage_ledger::{OpenRequest, RequestEnd};

/// A placeholder for the signature of thinking blocks.
const SIGNATURE: &str = "ZGVtbyBtb2RlbA==";

/// One response that is about to be played.
#[derive(Debug)]
pub(super) struct DemoResponse {
    pub(super) call: ModelCall,
    /// Identifies its faults in the memory.
    pub(super) key: Fingerprint,
    pub(super) memory: Arc<AttemptMemory>,
    pub(super) message_id: String,
    pub(super) model: String,
    pub(super) input_tokens: usize,
    pub(super) request_id: String,
    /// Receives the outcome for the log.
    pub(super) log: Option<OpenResponse>,
    /// Receives the usage.
    pub(super) accounting: Option<OpenRequest>,
}

impl DemoResponse {
    /// Returns the response as one JSON message, after all waits and faults.
    pub(super) async fn whole(mut self) -> Result<Bytes, UpstreamFailure> {
        let mut parts = Vec::new();
        for action in std::mem::take(&mut self.call.actions) {
            match action {
                CallAction::Send(part) => parts.push(part),
                CallAction::Wait(pause) => sleep(pause).await,
                CallAction::Chunk(_) => {}
                CallAction::Fault { place, kind, repeat } => self.apply_fault(place, &kind, repeat)?,
            }
        }
        let output = tokens(parts.iter().map(|part| part.payload().len()).sum());
        let content = parts.iter().enumerate().map(|(index, part)| self.block(index, part)).collect();
        let message = self.message(content, Some(self.call.stop), output);
        let json = serde_json::to_vec(&message).map_err(|error| ApiError::internal(error.to_string()))?;
        self.record_usage(output, Some(self.call.stop));
        self.end(ResponseOutcome::Finished);
        Ok(json.into())
    }

    /// Returns the response as a stream of events.
    ///
    /// Returns when the first byte is due: waits and faults before the first
    /// content block happen here, so that a fault can still set the status.
    pub(super) async fn stream(mut self) -> Result<BoxStream<'static, Result<Bytes, Cut>>, UpstreamFailure> {
        let mut actions = std::mem::take(&mut self.call.actions).into_iter();
        let mut first = None;
        while first.is_none() {
            match actions.next() {
                Some(CallAction::Send(part)) => first = Some(part),
                Some(CallAction::Wait(pause)) => sleep(pause).await,
                Some(CallAction::Chunk(characters)) => self.call.chunk = characters,
                Some(CallAction::Fault { place, kind, repeat }) => self.apply_fault(place, &kind, repeat)?,
                None => break,
            }
        }
        self.record_usage(1, None);
        let stream =
            DemoStream { response: self, actions, state: StreamState::Start { first }, index: 0, output: 0 };
        Ok(stream::unfold(stream, |mut stream| async {
            // Yielding lets the HTTP layer flush, so that each event is sent
            // as its own chunk.
            yield_now().await;
            let item = stream.next().await?;
            Some((item, stream))
        })
        .boxed())
    }

    /// Fails if a fault is due.
    fn apply_fault(
        &mut self,
        place: usize,
        kind: &FaultKind,
        repeat: FaultRepeat,
    ) -> Result<(), UpstreamFailure> {
        let due = match repeat {
            FaultRepeat::Always => true,
            FaultRepeat::Once => self.memory.take_fault(self.key, place),
        };
        if !due {
            return Ok(());
        }
        match kind {
            FaultKind::Drop => {
                self.end(ResponseOutcome::Cut);
                Err(Cut.into())
            }
            FaultKind::Error { status, kind } => {
                self.end(ResponseOutcome::Failed(status.as_u16()));
                let error = ApiError::from_status(*status, "error requested by the demo script");
                let error = match kind {
                    Some(kind) => error.with_kind(kind.clone()),
                    None => error,
                };
                if let Some(accounting) = &mut self.accounting {
                    accounting.end(RequestEnd::Failed(error.clone()));
                }
                Err(error.into())
            }
        }
    }

    fn end(&mut self, outcome: ResponseOutcome) {
        if let Some(log) = self.log.take() {
            log.end(outcome);
        }
        if outcome == ResponseOutcome::Finished
            && let Some(accounting) = &mut self.accounting
        {
            accounting.end(RequestEnd::Completed);
            accounting.settle();
        }
    }

    /// Records the usage so far.
    fn record_usage(&mut self, output_tokens: usize, stop: Option<StopReason>) {
        if let Some(accounting) = &mut self.accounting {
            let stop_reason =
                stop.and_then(|stop| Some(serde_json::to_value(stop).ok()?.as_str()?.to_owned()));
            accounting.update(Reading {
                input_tokens: self.input_tokens as u64,
                output_tokens: output_tokens as u64,
                stop_reason,
                ..Reading::default()
            });
        }
    }

    fn message<'a>(
        &'a self,
        content: Vec<DemoBlock<'a>>,
        stop_reason: Option<StopReason>,
        output_tokens: usize,
    ) -> DemoMessage<'a> {
        DemoMessage {
            id: &self.message_id,
            tag: "message",
            role: "assistant",
            model: &self.model,
            content,
            stop_reason,
            stop_sequence: None,
            usage: TokenUsage::new(self.input_tokens, output_tokens),
        }
    }

    fn block<'a>(&self, index: usize, part: &'a Part) -> DemoBlock<'a> {
        match part {
            Part::Text(text) => DemoBlock::Text { text },
            Part::Thinking(thinking) => DemoBlock::Thinking { thinking, signature: SIGNATURE },
            Part::ToolUse { name, input } => DemoBlock::ToolUse {
                id: tool_use_id(&self.message_id, index),
                name,
                input: DemoToolInput::Whole(input),
            },
        }
    }

    /// The block at its start, before its first chunk.
    fn empty_block<'a>(&self, index: usize, part: &'a Part) -> DemoBlock<'a> {
        match part {
            Part::Text(_) => DemoBlock::Text { text: "" },
            Part::Thinking(_) => DemoBlock::Thinking { thinking: "", signature: "" },
            Part::ToolUse { name, .. } => DemoBlock::ToolUse {
                id: tool_use_id(&self.message_id, index),
                name,
                input: DemoToolInput::Empty {},
            },
        }
    }
}

/// A stream that is being played.
#[derive(Debug)]
struct DemoStream {
    response: DemoResponse,
    actions: vec::IntoIter<CallAction>,
    state: StreamState,
    /// Index of the current or next content block.
    index: usize,
    /// Bytes of content sent so far.
    output: usize,
}

/// The next event to send.
#[derive(Debug)]
enum StreamState {
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
    BlockTail,
    EndOfBlock,
    NextAction,
    Stop,
    Ended,
}

type EventResult = Result<Bytes, Cut>;

impl DemoStream {
    /// The next event, or `None` at the end.
    async fn next(&mut self) -> Option<EventResult> {
        loop {
            match std::mem::replace(&mut self.state, StreamState::Ended) {
                StreamState::Start { first } => {
                    self.state = StreamState::Ping { first };
                    let message = self.response.message(Vec::new(), None, 1);
                    return Some(sent(&DemoEvent::MessageStart { message }));
                }
                StreamState::Ping { first } => {
                    self.state = first.map_or(StreamState::NextAction, StreamState::Block);
                    return Some(sent(&DemoEvent::Ping));
                }
                StreamState::Block(part) => return Some(self.start_block(part)),
                StreamState::Pieces { part, sent } => {
                    if let Some(item) = self.piece(part, sent) {
                        return Some(item);
                    }
                }
                StreamState::Signature => {
                    self.state = StreamState::BlockTail;
                    let delta = Delta::SignatureDelta { signature: SIGNATURE };
                    return Some(sent(&DemoEvent::ContentBlockDelta { index: self.index, delta }));
                }
                StreamState::BlockTail => {
                    if let Some(item) = self.block_tail().await {
                        return Some(item);
                    }
                }
                StreamState::EndOfBlock => {
                    self.state = StreamState::NextAction;
                    let index = self.index;
                    self.index += 1;
                    return Some(sent(&DemoEvent::ContentBlockStop { index }));
                }
                StreamState::NextAction => {
                    if let Some(item) = self.next_action().await {
                        return Some(item);
                    }
                }
                StreamState::Stop => {
                    self.response.end(ResponseOutcome::Finished);
                    return Some(sent(&DemoEvent::MessageStop));
                }
                StreamState::Ended => return None,
            }
        }
    }

    fn start_block(&mut self, part: Part) -> EventResult {
        let content_block = self.response.empty_block(self.index, &part);
        let item = sent(&DemoEvent::ContentBlockStart { index: self.index, content_block });
        self.state = StreamState::Pieces { part, sent: 0 };
        item
    }

    /// Sends the next chunk of a part; `None` when all of it was sent.
    fn piece(&mut self, part: Part, already: usize) -> Option<EventResult> {
        let rest = part.payload().get(already..).unwrap_or_default();
        let piece = first_piece(rest, self.response.call.chunk);
        if piece.is_empty() {
            self.state = match part {
                Part::Thinking(_) => StreamState::Signature,
                Part::Text(_) | Part::ToolUse { .. } => StreamState::BlockTail,
            };
            return None;
        }
        let item = sent(&DemoEvent::ContentBlockDelta { index: self.index, delta: Delta::of(&part, piece) });
        let length = piece.len();
        self.output += length;
        self.state = StreamState::Pieces { part, sent: already + length };
        Some(item)
    }

    /// Plays a fault that follows a block before the block's end, so that the
    /// stream breaks inside a block, which is the hardest case for clients.
    async fn block_tail(&mut self) -> Option<EventResult> {
        let is_pause = |action: &&CallAction| matches!(action, CallAction::Wait(_) | CallAction::Chunk(_));
        let next = self.actions.as_slice().iter().find(|action| !is_pause(action));
        if !matches!(next, Some(CallAction::Fault { .. })) {
            self.state = StreamState::EndOfBlock;
            return None;
        }
        self.state = StreamState::BlockTail;
        let action = self.actions.next()?;
        self.play(action).await
    }

    async fn next_action(&mut self) -> Option<EventResult> {
        self.state = StreamState::NextAction;
        if let Some(action) = self.actions.next() {
            return self.play(action).await;
        }
        self.state = StreamState::Stop;
        let delta = MessageEnd { stop_reason: self.response.call.stop, stop_sequence: None };
        let usage = OutputUsage { output_tokens: tokens(self.output) };
        self.response.record_usage(usage.output_tokens, Some(delta.stop_reason));
        Some(sent(&DemoEvent::MessageDelta { delta, usage }))
    }

    async fn play(&mut self, action: CallAction) -> Option<EventResult> {
        match action {
            CallAction::Send(part) => self.state = StreamState::Block(part),
            CallAction::Wait(pause) => sleep(pause).await,
            CallAction::Chunk(characters) => self.response.call.chunk = characters,
            CallAction::Fault { place, kind, repeat } => {
                if let Err(failure) = self.response.apply_fault(place, &kind, repeat) {
                    self.state = StreamState::Ended;
                    return Some(self.failed(&failure));
                }
            }
        }
        None
    }

    fn failed(&self, failure: &UpstreamFailure) -> EventResult {
        match failure {
            UpstreamFailure::Cut(cut) => Err(*cut),
            UpstreamFailure::Api(error) => {
                events::encode_error(&error.object(&self.response.request_id)).map_err(|_| Cut)
            }
        }
    }
}

/// Encodes an event; if that fails, the connection is cut instead of skipping the event.
fn sent(event: &DemoEvent<'_>) -> EventResult {
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
