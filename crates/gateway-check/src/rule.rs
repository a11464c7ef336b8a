//! The rules of a streamed response.
//!
//! Owns their wording and their assignment to aspects. They are checked
//! elsewhere.

use std::fmt;

/// A part of the stream's grammar that is reported separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aspect {
    /// The text framing of events.
    Framing,
    /// `message_start`.
    Start,
    /// The order of content blocks.
    Blocks,
    /// The content of blocks.
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

    /// The name in a report.
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

/// A rule that a streamed response must follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Events are UTF-8 text.
    Utf8,
    /// Every event has a name.
    EventName,
    /// The name of an event equals the `type` in its data.
    NameIsType,
    /// The data of an event is a JSON object with a type.
    EventJson,
    /// No event exceeds the size limit.
    EventSize,
    /// The stream does not exceed the size limit.
    StreamSize,
    /// The stream does not end inside an event.
    WholeEvents,
    /// `message_start` comes first.
    StartFirst,
    /// There is exactly one `message_start`.
    StartOnce,
    /// `message_start` contains an empty assistant message.
    StartShape,
    /// Blocks are numbered from 0 without gaps.
    BlockIndex,
    /// Only one block is open at a time.
    BlockOverlap,
    /// Deltas and stops belong to the open block.
    BlockOpen,
    /// A block starts with the fields that its type needs.
    BlockShape,
    /// Every block is stopped.
    BlockStopped,
    /// The type of a delta matches its block.
    DeltaKind,
    /// A delta has the fields that its type needs.
    DeltaShape,
    /// Tool input is sent in deltas only.
    ToolInputInDeltas,
    /// Tool input is a JSON object.
    ToolInputJson,
    /// All thinking comes before its only signature.
    ThinkingOrder,
    /// The token counters are present.
    UsagePresent,
    /// The token counters never decrease.
    UsageMonotone,
    /// There is a stop reason before `message_stop`.
    StopReason,
    /// There is exactly one stop reason.
    StopReasonOnce,
    /// The stop reason matches the content.
    StopReasonFits,
    /// The stream ends with `message_stop`.
    StopLast,
    /// Nothing follows the end.
    NothingAfter,
    /// The response does not end with an error.
    NoError,
    /// An error event contains Anthropic's error object.
    ErrorShape,
}

impl Rule {
    /// The aspect that the rule belongs to.
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

    /// The behaviour that the rule expects.
    pub fn expected(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8 text",
            Self::EventName => "an `event:` line in every event",
            Self::NameIsType => "an event name equal to the `type` in its data",
            Self::EventJson => "a JSON object with a `type` as the data of every event",
            Self::EventSize => "no event above the size limit",
            Self::StreamSize => "no stream above the size limit",
            Self::WholeEvents => "an empty line after the last event",
            Self::StartFirst => "`message_start` before every other event except `ping`",
            Self::StartOnce => "exactly one `message_start`",
            Self::StartShape => "an assistant message with id, model and no content in `message_start`",
            Self::BlockIndex => "content blocks numbered from 0 without gaps",
            Self::BlockOverlap => "one open content block at a time",
            Self::BlockOpen => "deltas and stops for the open content block only",
            Self::BlockShape => "a `content_block` with the fields that its type needs",
            Self::BlockStopped => "every content block stopped before the message ends",
            Self::DeltaKind => "deltas whose type matches their content block",
            Self::DeltaShape => "a `delta` with the fields that its type needs",
            Self::ToolInputInDeltas => "a tool's `input` that starts as {} and is sent in input_json_delta",
            Self::ToolInputJson => "tool input deltas that join to one JSON object",
            Self::ThinkingOrder => "all thinking of a block before its only signature",
            Self::UsagePresent => "usage with integer token counts in `message_start` and `message_delta`",
            Self::UsageMonotone => "token counters that never decrease",
            Self::StopReason => "a `message_delta` with a stop_reason before `message_stop`",
            Self::StopReasonOnce => "exactly one `message_delta` with a stop_reason, and none after it",
            Self::StopReasonFits => "a tool_use block if the stop_reason is tool_use",
            Self::StopLast => "a stream that ends with `message_stop`",
            Self::NothingAfter => "nothing after the end of the message",
            Self::NoError => "no `error` event",
            Self::ErrorShape => "an error object with type and message in an `error` event",
        }
    }
}

/// A violation of a rule in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The violated rule.
    pub rule: Rule,
    /// The number of the event from 1; the last event if the end violated the rule.
    pub event: usize,
    /// The observed behaviour.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "event {}: {}; expected {}", self.event, self.seen, self.rule.expected())
    }
}
