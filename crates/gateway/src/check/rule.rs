//! The rules of a streamed answer, by name.
//!
//! Owns their wording and which part of the stream each belongs to. Whether a
//! rule was kept is decided elsewhere.

use std::fmt;

/// A part of the stream's grammar that is reported on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aspect {
    /// The text framing of events.
    Framing,
    /// `message_start`.
    Start,
    /// The order of content blocks.
    Blocks,
    /// What content blocks hold.
    Content,
    /// The token counters.
    Usage,
    /// Stop reason and `message_stop`.
    End,
}

impl Aspect {
    /// Every aspect, in the order of a report.
    pub const ALL: [Self; 6] =
        [Self::Framing, Self::Start, Self::Blocks, Self::Content, Self::Usage, Self::End];

    /// The word for it in a report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Framing => "framing",
            Self::Start => "start",
            Self::Blocks => "blocks",
            Self::Content => "content",
            Self::Usage => "usage",
            Self::End => "end",
        }
    }
}

/// A rule that a streamed answer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Events are UTF-8 text.
    Utf8,
    /// Every event has a name.
    EventName,
    /// The name of an event is its data's type.
    NameIsType,
    /// The data of an event is a JSON object with a type.
    EventJson,
    /// No event is above the size limit.
    EventSize,
    /// The stream is not above the size limit.
    StreamSize,
    /// The stream does not end inside an event.
    WholeEvents,
    /// `message_start` comes first.
    StartFirst,
    /// There is one `message_start`.
    StartOnce,
    /// `message_start` has an empty assistant message.
    StartShape,
    /// Blocks are numbered from 0 without a gap.
    BlockIndex,
    /// One block is open at a time.
    BlockOverlap,
    /// Deltas and stops are of the open block.
    BlockOpen,
    /// A block starts with what its type needs.
    BlockShape,
    /// Every block is stopped.
    BlockStopped,
    /// Deltas are of a kind that fits their block.
    DeltaKind,
    /// A delta holds what its kind needs.
    DeltaShape,
    /// A tool's input comes in deltas only.
    ToolInputInDeltas,
    /// A tool's input is a JSON object.
    ToolInputJson,
    /// All thinking comes before its one signature.
    ThinkingOrder,
    /// The token counters are there.
    UsagePresent,
    /// The token counters never go down.
    UsageMonotone,
    /// There is a stop reason before `message_stop`.
    StopReason,
    /// There is one stop reason.
    StopReasonOnce,
    /// The stop reason fits what was said.
    StopReasonFits,
    /// The stream ends with `message_stop`.
    StopLast,
    /// Nothing follows the end.
    NothingAfter,
    /// The answer does not break off in an error.
    NoError,
    /// An error event has Anthropic's error object.
    ErrorShape,
}

impl Rule {
    /// The part of the grammar that it belongs to.
    pub fn aspect(self) -> Aspect {
        match self {
            Self::Utf8
            | Self::EventName
            | Self::NameIsType
            | Self::EventJson
            | Self::EventSize
            | Self::StreamSize
            | Self::WholeEvents => Aspect::Framing,
            Self::StartFirst | Self::StartOnce | Self::StartShape => Aspect::Start,
            Self::BlockIndex
            | Self::BlockOverlap
            | Self::BlockOpen
            | Self::BlockShape
            | Self::BlockStopped => Aspect::Blocks,
            Self::DeltaKind
            | Self::DeltaShape
            | Self::ToolInputInDeltas
            | Self::ToolInputJson
            | Self::ThinkingOrder => Aspect::Content,
            Self::UsagePresent | Self::UsageMonotone => Aspect::Usage,
            Self::StopReason
            | Self::StopReasonOnce
            | Self::StopReasonFits
            | Self::StopLast
            | Self::NothingAfter
            | Self::NoError
            | Self::ErrorShape => Aspect::End,
        }
    }

    /// What a stream that keeps it has.
    pub fn expected(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8 text",
            Self::EventName => "an `event:` line in every event",
            Self::NameIsType => "the name of an event to be the `type` in its data",
            Self::EventJson => "a JSON object with a `type` as the data of every event",
            Self::EventSize => "no event above the size limit",
            Self::StreamSize => "no stream above the size limit",
            Self::WholeEvents => "a blank line after the last event",
            Self::StartFirst => "`message_start` before every other event but `ping`",
            Self::StartOnce => "exactly one `message_start`",
            Self::StartShape => "an assistant message with id, model and no content in `message_start`",
            Self::BlockIndex => "content blocks numbered from 0 without a gap",
            Self::BlockOverlap => "one content block at a time",
            Self::BlockOpen => "deltas and stops of the open content block only",
            Self::BlockShape => "a `content_block` with what its type needs",
            Self::BlockStopped => "every content block to be stopped before the message ends",
            Self::DeltaKind => "deltas of a kind that fits their content block",
            Self::DeltaShape => "a `delta` with what its type needs",
            Self::ToolInputInDeltas => "a tool's `input` to be {} at first and to come in input_json_delta",
            Self::ToolInputJson => "the pieces of a tool's input to join to one JSON object",
            Self::ThinkingOrder => "all thinking of a block before its one signature",
            Self::UsagePresent => "usage with whole numbers of tokens in `message_start` and `message_delta`",
            Self::UsageMonotone => "token counters that never go down",
            Self::StopReason => "a `message_delta` with a stop_reason before `message_stop`",
            Self::StopReasonOnce => "exactly one `message_delta` with a stop_reason, and no other after it",
            Self::StopReasonFits => "a tool_use block where the stop_reason is tool_use",
            Self::StopLast => "the stream to end with `message_stop`",
            Self::NothingAfter => "nothing after the end of the message",
            Self::NoError => "no `error` event",
            Self::ErrorShape => "an error object with type and message in an `error` event",
        }
    }
}

/// A place where a stream breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The event that broke it, counted from 1; the last one if the end did.
    pub event: usize,
    /// What there was instead.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "event {}: {}; expected {}", self.event, self.seen, self.rule.expected())
    }
}
