//! The judgement of one streamed answer.
//!
//! Owns the way from bytes to a verdict: framing, JSON, then grammar. It does
//! no I/O. The verdict depends on the bytes alone and never on how they were
//! cut into chunks, and memory is bounded by the limits.

use serde_json::Value;

use super::excerpt;
use super::frames::{Frame, FrameFault, FrameReader};
use super::grammar::Grammar;
use super::rule::{Aspect, Rule, Violation};

/// How large a stream may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Bytes of one event with its framing.
    pub event: usize,
    /// Bytes of the whole stream.
    pub stream: usize,
}

impl Default for StreamLimits {
    /// An event carries at most one block, such as the result of a search,
    /// and everybody on the way has to hold it in memory: 4 MiB. The longest
    /// answers, sent a few characters at a time, come to some 20 MB.
    fn default() -> Self {
        Self { event: 4 * 1024 * 1024, stream: 64 * 1024 * 1024 }
    }
}

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With `message_stop`.
    Complete,
    /// With an `error` event of this type.
    Error(String),
    /// In the middle of something.
    Truncated,
}

/// What there is to say about a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamVerdict {
    /// How it ended.
    pub ending: Ending,
    /// Events in it.
    pub events: usize,
    /// The first violations of each rule, in the order of the stream.
    pub violations: Vec<Violation>,
    /// Violations beyond those.
    pub omitted: usize,
    /// What is no violation and yet unusual.
    pub notes: Vec<String>,
    /// The types of its first content blocks, each once.
    pub blocks: Vec<String>,
}

impl StreamVerdict {
    /// Whether a client gets a whole answer and every rule was kept.
    pub fn is_ok(&self) -> bool {
        self.ending == Ending::Complete && self.violations.is_empty()
    }

    /// The violations of one part of the grammar.
    pub fn of(&self, aspect: Aspect) -> impl Iterator<Item = &Violation> {
        self.violations.iter().filter(move |violation| violation.rule.aspect() == aspect)
    }
}

/// Judges a streamed answer while it arrives.
#[derive(Debug)]
pub struct StreamValidator {
    frames: FrameReader,
    grammar: Grammar,
    /// Bytes that may still come.
    room: usize,
    /// A limit was passed, and nothing after it can be judged.
    over: bool,
}

impl Default for StreamValidator {
    fn default() -> Self {
        Self::new(StreamLimits::default())
    }
}

impl StreamValidator {
    /// Makes a judge that has seen nothing yet.
    pub fn new(limits: StreamLimits) -> Self {
        Self {
            frames: FrameReader::new(limits.event),
            grammar: Grammar::new(),
            room: limits.stream,
            over: false,
        }
    }

    /// Takes the next bytes, however many there are.
    pub fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.over {
                return;
            }
            if self.room == 0 {
                self.over = true;
                self.grammar.violation(Rule::StreamSize, "more bytes than that".to_owned());
                return;
            }
            self.room -= 1;
            match self.frames.push(*byte) {
                None => {}
                Some(Ok(frame)) => self.frame(&frame),
                Some(Err(fault)) => self.fault(fault),
            }
        }
    }

    /// Whether a limit was passed, so that reading on is of no use.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Says that the bytes ended, and gives the verdict.
    pub fn finish(mut self) -> StreamVerdict {
        let ending = if self.over {
            Ending::Truncated
        } else {
            if let Err(fault) = self.frames.finish() {
                self.fault(fault);
            }
            self.grammar.finish()
        };
        let Grammar { events, violations, omitted, notes, blocks, .. } = self.grammar;
        StreamVerdict { ending, events, violations, omitted, notes, blocks }
    }

    fn frame(&mut self, frame: &Frame) {
        self.grammar.events += 1;
        let data = match serde_json::from_str::<Value>(&frame.data) {
            Ok(Value::Object(data)) => data,
            Ok(_) | Err(_) => {
                self.grammar.violation(Rule::EventJson, format!("data: {}", excerpt(&frame.data)));
                return;
            }
        };
        let Some(kind) = data.get("type").and_then(Value::as_str) else {
            self.grammar.violation(Rule::EventJson, format!("no type in {}", excerpt(&frame.data)));
            return;
        };
        match frame.name.as_deref() {
            None => self.grammar.violation(Rule::EventName, format!("`{}` without one", excerpt(kind))),
            Some(name) if name != kind => {
                let seen = format!("`{}` with the type `{}`", excerpt(name), excerpt(kind));
                self.grammar.violation(Rule::NameIsType, seen);
            }
            Some(_) => {}
        }
        self.grammar.event(kind, &data);
    }

    fn fault(&mut self, fault: FrameFault) {
        match fault {
            FrameFault::NotUtf8 => {
                self.grammar.events += 1;
                self.grammar.violation(Rule::Utf8, "bytes that are not UTF-8".to_owned());
            }
            FrameFault::NoData { name } => {
                self.grammar.events += 1;
                let seen = format!("`{}` without a `data:` line", excerpt(&name));
                self.grammar.violation(Rule::EventJson, seen);
            }
            FrameFault::TooLarge => {
                self.grammar.events += 1;
                self.over = true;
                self.grammar.violation(Rule::EventSize, "an event larger than that".to_owned());
            }
            FrameFault::Unfinished => {
                self.grammar.violation(Rule::WholeEvents, "an end inside an event".to_owned());
            }
        }
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
