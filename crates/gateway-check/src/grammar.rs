//! Checks the order of events in a streamed response.
//!
//! Owns the state of one message: which events are allowed now and what
//! earlier events require. It receives events, not bytes. After a violation it
//! continues from the most likely intended state, so that one defect is not
//! reported many times.

use serde_json::{Map, Value};

use crate::block::{OpenBlock, Stopped};
use crate::excerpt::excerpt;
use crate::rule::{Rule, Violation};
use crate::shape;
use crate::stream::StreamEnding;
use crate::usage::{UsageCounters, UsageFault};

/// Kept violations per rule. Further ones add no information and are only
/// counted.
const MOST_OF_A_RULE: usize = 4;

/// Kept notes, and kept types of blocks.
const MOST_NOTES: usize = 16;

/// Stop reasons that clients know.
const STOP_REASONS: [&str; 8] = [
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "compaction",
    OUT_OF_CONTEXT,
];

const OUT_OF_CONTEXT: &str = "model_context_window_exceeded";

/// The progress of the message.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MessagePhase {
    BeforeStart,
    Open,
    /// The stop reason was received.
    Reasoned,
    /// `message_stop` was received.
    Stopped,
    /// An `error` event of this type was received.
    Failed(String),
}

/// Checks events in the order in which they arrive.
#[derive(Debug)]
pub(super) struct Grammar {
    phase: MessagePhase,
    block: Option<OpenBlock>,
    /// The expected index of the next block.
    next_index: u64,
    usage: UsageCounters,
    /// Whether there was a tool call that the client runs.
    client_tool: bool,
    /// Set if the last block is a tool call with truncated input. The stop
    /// reason decides whether this is a violation.
    cut_input: Option<Violation>,
    /// Number of events.
    pub(super) events: usize,
    pub(super) violations: Vec<Violation>,
    pub(super) omitted: usize,
    pub(super) notes: Vec<String>,
    /// Types of content blocks, deduplicated.
    pub(super) blocks: Vec<String>,
}

impl Grammar {
    pub(super) fn new() -> Self {
        Self {
            phase: MessagePhase::BeforeStart,
            block: None,
            next_index: 0,
            usage: UsageCounters::default(),
            client_tool: false,
            cut_input: None,
            events: 0,
            violations: Vec::new(),
            omitted: 0,
            notes: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// Processes the next event.
    pub(super) fn event(&mut self, kind: &str, data: &Map<String, Value>) {
        match (&self.phase, kind) {
            (MessagePhase::Stopped | MessagePhase::Failed(_), _) => {
                self.violation(Rule::NothingAfter, format!("`{}`", excerpt(kind)));
                return;
            }
            (_, "ping") => return,
            (MessagePhase::BeforeStart, "message_start" | "error") => {}
            (MessagePhase::BeforeStart, _) => {
                self.violation(Rule::StartFirst, format!("`{}` before `message_start`", excerpt(kind)));
                self.phase = MessagePhase::Open;
            }
            (MessagePhase::Open | MessagePhase::Reasoned, _) => {}
        }
        match kind {
            "message_start" => self.message_start(data),
            "content_block_start" => self.block_start(data),
            "content_block_delta" => self.block_delta(data),
            "content_block_stop" => self.block_stop(data),
            "message_delta" => self.message_delta(data),
            "message_stop" => self.message_stop(),
            "error" => self.error(data),
            _ => self.note(format!("unknown event `{}`", excerpt(kind))),
        }
    }

    /// Ends the stream.
    pub(super) fn finish(&mut self) -> StreamEnding {
        if let Some(cut) = self.cut_input.take() {
            self.push(cut);
        }
        match self.phase.clone() {
            MessagePhase::Stopped => StreamEnding::Complete,
            MessagePhase::Failed(kind) => StreamEnding::Error(kind),
            MessagePhase::BeforeStart => {
                self.violation(Rule::StartFirst, "stream without a message".to_owned());
                StreamEnding::Truncated
            }
            MessagePhase::Open | MessagePhase::Reasoned => {
                let seen = match &self.block {
                    Some(block) => format!("stream ends inside content block {}", block.index),
                    None => "stream ends without `message_stop`".to_owned(),
                };
                self.violation(Rule::StopLast, seen);
                StreamEnding::Truncated
            }
        }
    }

    pub(super) fn violation(&mut self, rule: Rule, seen: String) {
        self.push(Violation { rule, event: self.events, seen });
    }

    fn push(&mut self, violation: Violation) {
        let same = self.violations.iter().filter(|other| other.rule == violation.rule).count();
        if same < MOST_OF_A_RULE {
            self.violations.push(violation);
        } else {
            self.omitted += 1;
        }
    }

    fn note(&mut self, note: String) {
        if self.notes.len() < MOST_NOTES && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn message_start(&mut self, data: &Map<String, Value>) {
        if self.phase != MessagePhase::BeforeStart {
            self.violation(Rule::StartOnce, "second `message_start`".to_owned());
            return;
        }
        self.phase = MessagePhase::Open;
        let message = data.get("message").and_then(Value::as_object);
        let Some(message) = message else {
            self.violation(Rule::StartShape, "missing message object".to_owned());
            return;
        };
        let mut faults = shape::message_head(message);
        if !message.get("content").and_then(Value::as_array).is_some_and(Vec::is_empty) {
            faults.push("content is not an empty list".to_owned());
        }
        if message.get("stop_reason").is_some_and(|reason| !reason.is_null()) {
            faults.push("stop_reason at the start".to_owned());
        }
        for fault in faults {
            self.violation(Rule::StartShape, fault);
        }
        self.usage(message.get("usage"), &["input_tokens", "output_tokens"]);
    }

    fn block_start(&mut self, data: &Map<String, Value>) {
        if let Some(cut) = self.cut_input.take() {
            self.push(cut);
        }
        if self.phase == MessagePhase::Reasoned {
            self.violation(Rule::NothingAfter, "content block after the stop_reason".to_owned());
        }
        if let Some(open) = self.block.take() {
            let seen = format!("content block started while block {} was open", open.index);
            self.violation(Rule::BlockOverlap, seen);
        }
        let index = data.get("index").and_then(Value::as_u64);
        if index != Some(self.next_index) {
            self.violation(Rule::BlockIndex, format!("{}, not {}", shown_index(index), self.next_index));
        }
        let index = index.unwrap_or(self.next_index);
        self.next_index = index.saturating_add(1);
        let started = OpenBlock::start(index, data.get("content_block"));
        for (rule, seen) in started.faults {
            self.violation(rule, seen);
        }
        if let Some(note) = started.note {
            self.note(note);
        }
        self.client_tool |= started.block.is_client_tool();
        if self.blocks.len() < MOST_NOTES && !self.blocks.contains(&started.block.name) {
            self.blocks.push(started.block.name.clone());
        }
        self.block = Some(started.block);
    }

    fn block_delta(&mut self, data: &Map<String, Value>) {
        let index = data.get("index").and_then(Value::as_u64);
        let Some(block) = self.block.as_mut().filter(|block| Some(block.index) == index) else {
            self.not_open("delta", index);
            return;
        };
        match block.delta(data.get("delta")) {
            Ok(Some(note)) => self.note(note),
            Ok(None) => {}
            Err((rule, seen)) => self.violation(rule, seen),
        }
    }

    fn block_stop(&mut self, data: &Map<String, Value>) {
        let index = data.get("index").and_then(Value::as_u64);
        let Some(block) = self.block.take_if(|block| Some(block.index) == index) else {
            self.not_open("stop", index);
            return;
        };
        let name = block.name.clone();
        match block.stop() {
            Stopped::Whole => {}
            Stopped::BadInput(seen) => self.violation(Rule::ToolInputJson, seen),
            Stopped::CutInput(seen) => {
                self.cut_input = Some(Violation { rule: Rule::ToolInputJson, event: self.events, seen });
            }
            Stopped::Unsigned => self.note(format!("{name} block without a signature")),
        }
    }

    fn not_open(&mut self, what: &str, index: Option<u64>) {
        let open = match &self.block {
            Some(block) => format!("while block {} is open", block.index),
            None => "while no block is open".to_owned(),
        };
        self.violation(Rule::BlockOpen, format!("{what} for a block with {} {open}", shown_index(index)));
    }

    fn message_delta(&mut self, data: &Map<String, Value>) {
        if let Some(block) = self.block.take() {
            self.violation(
                Rule::BlockStopped,
                format!("`message_delta` while block {} was open", block.index),
            );
        }
        self.usage(data.get("usage"), &["output_tokens"]);
        if self.phase == MessagePhase::Reasoned {
            self.violation(Rule::StopReasonOnce, "second `message_delta`".to_owned());
            return;
        }
        let reason = data.get("delta").and_then(|delta| delta.get("stop_reason"));
        match reason {
            None | Some(Value::Null) => self.note("`message_delta` without a stop_reason".to_owned()),
            Some(Value::String(reason)) => {
                self.phase = MessagePhase::Reasoned;
                self.stop_reason(reason);
            }
            Some(other) => {
                self.phase = MessagePhase::Reasoned;
                self.violation(Rule::StopReason, format!("stop_reason {}", excerpt(&other.to_string())));
            }
        }
    }

    fn stop_reason(&mut self, reason: &str) {
        if let Some(cut) = self.cut_input.take() {
            if reason == "max_tokens" || reason == OUT_OF_CONTEXT {
                self.note(format!("tool input truncated by {reason}"));
            } else {
                self.push(cut);
            }
        }
        if !STOP_REASONS.contains(&reason) {
            self.note(format!("unknown stop_reason `{}`", excerpt(reason)));
        }
        if reason == "tool_use" && !self.client_tool {
            self.violation(Rule::StopReasonFits, "tool_use without a tool_use block".to_owned());
        }
        if reason == "end_turn" && self.client_tool {
            self.note("tool_use block with stop_reason end_turn".to_owned());
        }
    }

    fn message_stop(&mut self) {
        if let Some(block) = self.block.take() {
            self.violation(
                Rule::BlockStopped,
                format!("`message_stop` while block {} was open", block.index),
            );
        }
        if self.phase != MessagePhase::Reasoned {
            self.violation(Rule::StopReason, "`message_stop` without a preceding stop_reason".to_owned());
        }
        self.phase = MessagePhase::Stopped;
    }

    fn error(&mut self, data: &Map<String, Value>) {
        match shape::error_object(data) {
            Ok(error) => {
                let seen = format!("{}: {}", excerpt(error.kind), excerpt(error.message));
                self.phase = MessagePhase::Failed(error.kind.to_owned());
                self.violation(Rule::NoError, seen);
            }
            Err(fault) => {
                self.phase = MessagePhase::Failed(String::new());
                self.violation(Rule::NoError, "error without a reason".to_owned());
                self.violation(Rule::ErrorShape, fault);
            }
        }
        // An open block or truncated input at an error is part of the same defect.
        self.block = None;
        self.cut_input = None;
    }

    fn usage(&mut self, usage: Option<&Value>, required: &[&str]) {
        for fault in self.usage.take(usage, required) {
            match fault {
                UsageFault::Missing(seen) => self.violation(Rule::UsagePresent, seen),
                UsageFault::WentDown(seen) => self.violation(Rule::UsageMonotone, seen),
            }
        }
    }
}

fn shown_index(index: Option<u64>) -> String {
    index.map_or_else(|| "no index".to_owned(), |index| format!("index {index}"))
}
