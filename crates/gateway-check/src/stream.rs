//! Validates one streamed response.
//!
//! Turns bytes into a verdict: framing, JSON, then grammar. Does no I/O. The
//! verdict depends only on the bytes and not on how they are split into
//! chunks, and memory is bounded by the limits.

use serde_json::Value;

use crate::excerpt::excerpt;
use crate::frames::{FrameFault, FrameReader, SseFrame};
use crate::grammar::Grammar;
use crate::rule::{Aspect, Rule, Violation};

/// Size limits of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Bytes of one event, including its framing.
    pub event: usize,
    /// Bytes of the whole stream.
    pub stream: usize,
}

impl Default for StreamLimits {
    /// An event contains at most one block, such as a search result, and every
    /// proxy has to buffer it: 4 MiB. The longest responses, sent a few
    /// characters at a time, take about 20 MB.
    fn default() -> Self {
        Self { event: 4 * 1024 * 1024, stream: 64 * 1024 * 1024 }
    }
}

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEnding {
    /// With `message_stop`.
    Complete,
    /// With an `error` event of this type.
    Error(String),
    /// Before its end.
    Truncated,
}

/// The result of validating a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamVerdict {
    /// How it ended.
    pub ending: StreamEnding,
    /// Number of events.
    pub events: usize,
    /// The first violations of each rule, in stream order.
    pub violations: Vec<Violation>,
    /// Number of further violations.
    pub omitted: usize,
    /// Unusual observations that are not violations.
    pub notes: Vec<String>,
    /// The types of its first content blocks, deduplicated.
    pub blocks: Vec<String>,
}

impl StreamVerdict {
    /// Whether the response is complete and violates no rule.
    pub fn is_ok(&self) -> bool {
        self.ending == StreamEnding::Complete && self.violations.is_empty()
    }

    /// The violations of one aspect.
    pub fn of(&self, aspect: Aspect) -> impl Iterator<Item = &Violation> {
        self.violations.iter().filter(move |violation| violation.rule.aspect() == aspect)
    }
}

/// Validates a streamed response while it arrives.
#[derive(Debug)]
pub struct StreamValidator {
    frames: FrameReader,
    grammar: Grammar,
    /// Bytes left until the size limit.
    room: usize,
    /// A limit was exceeded; the rest is not validated.
    over: bool,
}

impl Default for StreamValidator {
    fn default() -> Self {
        Self::new(StreamLimits::default())
    }
}

impl StreamValidator {
    /// Creates a validator.
    pub fn new(limits: StreamLimits) -> Self {
        Self {
            frames: FrameReader::new(limits.event),
            grammar: Grammar::new(),
            room: limits.stream,
            over: false,
        }
    }

    /// Processes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.over {
                return;
            }
            if self.room == 0 {
                self.over = true;
                self.grammar.violation(Rule::StreamSize, "stream exceeds the limit".to_owned());
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

    /// Whether a limit was exceeded, so that further bytes are ignored.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Ends the stream and returns the verdict.
    pub fn finish(mut self) -> StreamVerdict {
        let ending = if self.over {
            StreamEnding::Truncated
        } else {
            if let Err(fault) = self.frames.finish() {
                self.fault(fault);
            }
            self.grammar.finish()
        };
        let Grammar { events, violations, omitted, notes, blocks, .. } = self.grammar;
        StreamVerdict { ending, events, violations, omitted, notes, blocks }
    }

    fn frame(&mut self, frame: &SseFrame) {
        self.grammar.events += 1;
        let data = match serde_json::from_str::<Value>(&frame.data) {
            Ok(Value::Object(data)) => data,
            Ok(_) | Err(_) => {
                self.grammar.violation(Rule::EventJson, format!("data: {}", excerpt(&frame.data)));
                return;
            }
        };
        let Some(kind) = data.get("type").and_then(Value::as_str) else {
            self.grammar.violation(Rule::EventJson, format!("missing type in {}", excerpt(&frame.data)));
            return;
        };
        match frame.name.as_deref() {
            None => self.grammar.violation(Rule::EventName, format!("`{}` without a name", excerpt(kind))),
            Some(name) if name != kind => {
                let seen = format!("name `{}` with type `{}`", excerpt(name), excerpt(kind));
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
                self.grammar.violation(Rule::EventSize, "event exceeds the limit".to_owned());
            }
            FrameFault::Unfinished => {
                self.grammar.violation(Rule::WholeEvents, "stream ends inside an event".to_owned());
            }
        }
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
