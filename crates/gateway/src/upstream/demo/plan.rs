//! Plans the response to one request from its conversation.
//!
//! Pure: the same conversation gives the same plan. Which faults are due and
//! the timing are decided when the plan is played.

use std::time::Duration;

use serde_json::value::RawValue;

use super::conversation::{Answered, Conversation, Prompt};
use super::script::{self, Beside, FaultKind, Step, Times};
use super::{tour, words};
use crate::request::MessagesRequest;

/// Default number of characters per streamed chunk.
pub(super) const DEFAULT_CHUNK: usize = 12;

/// The planned actions of one model call, in order.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) acts: Vec<Act>,
    pub(super) stop: StopReason,
    /// Characters per chunk at the start.
    pub(super) chunk: usize,
}

/// One action of a call.
#[derive(Debug)]
pub(super) enum Act {
    Say(Part),
    Wait(Duration),
    Chunk(usize),
    /// `place` is the position of the step in the script and identifies the fault.
    Fault {
        place: usize,
        kind: FaultKind,
        times: Times,
    },
}

/// A content block of the response.
#[derive(Debug)]
pub(super) enum Part {
    Text(String),
    Thinking(String),
    ToolUse { name: String, input: Box<RawValue> },
}

impl Part {
    /// The text that is streamed in chunks.
    pub(super) fn payload(&self) -> &str {
        match self {
            Self::Text(text) | Self::Thinking(text) => text,
            Self::ToolUse { input, .. } => input.get(),
        }
    }
}

/// Why a call stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StopReason {
    EndTurn,
    ToolUse,
    MaxTokens,
}

impl Call {
    /// A response with these parts; stops for tools if there are any.
    pub(super) fn of(parts: Vec<Part>) -> Self {
        let tools = parts.iter().any(|part| matches!(part, Part::ToolUse { .. }));
        let stop = if tools { StopReason::ToolUse } else { StopReason::EndTurn };
        Self { acts: parts.into_iter().map(Act::Say).collect(), stop, chunk: DEFAULT_CHUNK }
    }

    /// The response to a request for a single token, which only tests whether the model is available.
    pub(super) fn probe() -> Self {
        let acts = vec![Act::Say(Part::Text("Hi".to_owned()))];
        Self { acts, stop: StopReason::MaxTokens, chunk: DEFAULT_CHUNK }
    }

    fn text(text: impl Into<String>) -> Self {
        Self::of(vec![Part::Text(text.into())])
    }
}

/// Plans the response to a request.
pub(super) fn next_call(conversation: &Conversation<'_>, request: &MessagesRequest) -> Call {
    match conversation.prompt {
        Prompt::Plain => Call::text(words::WELCOME),
        Prompt::Summary => Call::text(words::summary(conversation.prompts())),
        Prompt::Tour => tour::next_call(&conversation.tool_calls(), &request.tool_names()),
        Prompt::Script(text) => match script::parse(text) {
            Ok(steps) => play_on(&steps, conversation),
            Err(bad) => Call::text(words::bad_line(&bad)),
        },
    }
}

fn play_on(steps: &[Step], conversation: &Conversation<'_>) -> Call {
    let place = place(steps, &conversation.answers());
    let (played, rest) = steps.split_at_checked(place).unwrap_or((steps, &[]));
    let chunk = played.iter().rev().find_map(|step| match step {
        Step::Chunk(characters) => Some(*characters),
        Step::Text(_)
        | Step::Think(_)
        | Step::Tool { .. }
        | Step::Wait(_)
        | Step::Fault { .. }
        | Step::Echo
        | Step::End => None,
    });
    let mut call =
        Call { acts: Vec::new(), stop: StopReason::EndTurn, chunk: chunk.unwrap_or(DEFAULT_CHUNK) };
    for (offset, step) in rest.iter().enumerate() {
        if call.stop == StopReason::ToolUse && !more_tools(rest.get(offset..).unwrap_or_default()) {
            break;
        }
        let act = match step {
            Step::Text(text) => Act::Say(Part::Text(text.clone())),
            Step::Think(text) => Act::Say(Part::Thinking(text.clone())),
            Step::Echo => Act::Say(Part::Text(conversation.transcript())),
            Step::Wait(pause) => Act::Wait(*pause),
            Step::Chunk(characters) => Act::Chunk(*characters),
            Step::Fault { kind, times } => {
                Act::Fault { place: place + offset, kind: kind.clone(), times: *times }
            }
            Step::Tool { name, input, .. } => {
                call.stop = StopReason::ToolUse;
                Act::Say(Part::ToolUse { name: name.clone(), input: input.clone() })
            }
            Step::End => break,
        };
        call.acts.push(act);
    }
    let visible = |act: &Act| matches!(act, Act::Say(Part::Text(_) | Part::ToolUse { .. }));
    if !call.acts.iter().any(visible) {
        // A runtime treats a response without visible content as an error and retries.
        call.acts.push(Act::Say(Part::Text(words::END_OF_SCRIPT.to_owned())));
    }
    call
}

/// Whether the next step with content is a `+tool`.
fn more_tools(rest: &[Step]) -> bool {
    rest.iter().find(|step| !matches!(step, Step::Wait(_) | Step::Chunk(_))).is_some_and(is_parallel)
}

fn is_parallel(step: &Step) -> bool {
    matches!(step, Step::Tool { beside: Beside::Previous, .. })
}

/// The first step that was not played yet.
///
/// Tool calls are counted one by one, so that a response of which only some
/// calls were kept continues with the others. A response without a tool call
/// ended the script or reached an `end`; one that should have called a tool
/// was not kept completely and is played again.
fn place(steps: &[Step], answers: &[Answered]) -> usize {
    let mut place = 0;
    for answer in answers {
        let ahead = || steps.iter().enumerate().skip(place);
        let is_tool = |step: &Step| matches!(step, Step::Tool { .. });
        place = match answer {
            Answered::Tools(count) => ahead()
                .filter(|(_, step)| is_tool(step))
                .nth(count.saturating_sub(1))
                .map_or(steps.len(), |(index, _)| index + 1),
            Answered::Text => match ahead().find(|(_, step)| is_tool(step) || matches!(step, Step::End)) {
                Some((index, Step::End)) => index + 1,
                Some(_) => place,
                None => steps.len(),
            },
        };
    }
    place
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
