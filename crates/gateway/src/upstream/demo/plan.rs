//! Plans the response to one request from its conversation.
//!
//! Pure: the same conversation gives the same plan. Which faults are due and
//! the timing are decided when the plan is played.

use std::time::Duration;

use serde_json::value::RawValue;

use super::conversation::{DemoConversation, DemoPrompt, PriorResponse};
use super::script::{self, FaultKind, FaultRepeat, ScriptStep, ToolPlacement};
use super::{tour, words};
use crate::request::MessagesRequest;

/// Default number of characters per streamed chunk.
pub(super) const DEFAULT_CHUNK: usize = 12;

/// Stands for the plan file in the input of a `tool` step.
const PLAN_FILE: &str = "{plan-file}";

/// The planned actions of one model call, in order.
#[derive(Debug)]
pub(super) struct ModelCall {
    pub(super) actions: Vec<CallAction>,
    pub(super) stop: StopReason,
    /// Characters per chunk at the start.
    pub(super) chunk: usize,
}

/// One action of a call.
#[derive(Debug)]
pub(super) enum CallAction {
    Send(Part),
    Wait(Duration),
    Chunk(usize),
    /// `place` is the position of the step in the script and identifies the fault.
    Fault {
        place: usize,
        kind: FaultKind,
        repeat: FaultRepeat,
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

impl ModelCall {
    /// A response with these parts; stops for tools if there are any.
    pub(super) fn of(parts: Vec<Part>) -> Self {
        let tools = parts.iter().any(|part| matches!(part, Part::ToolUse { .. }));
        let stop = if tools { StopReason::ToolUse } else { StopReason::EndTurn };
        Self { actions: parts.into_iter().map(CallAction::Send).collect(), stop, chunk: DEFAULT_CHUNK }
    }

    /// The response to a request for a single token, which only tests whether the model is available.
    pub(super) fn probe() -> Self {
        let actions = vec![CallAction::Send(Part::Text("Hi".to_owned()))];
        Self { actions, stop: StopReason::MaxTokens, chunk: DEFAULT_CHUNK }
    }

    fn text(text: impl Into<String>) -> Self {
        Self::of(vec![Part::Text(text.into())])
    }
}

/// Plans the response to a request.
pub(super) fn next_call(conversation: &DemoConversation<'_>, request: &MessagesRequest) -> ModelCall {
    match conversation.prompt {
        DemoPrompt::Plain => ModelCall::text(words::WELCOME),
        DemoPrompt::Summary => ModelCall::text(words::summary(conversation.prompts())),
        DemoPrompt::Tour => tour::next_call(conversation, request),
        DemoPrompt::Script(text) => match script::parse(text) {
            Ok(steps) => play_on(&steps, conversation),
            Err(bad) => ModelCall::text(words::bad_line(&bad)),
        },
    }
}

fn play_on(steps: &[ScriptStep], conversation: &DemoConversation<'_>) -> ModelCall {
    let place = place(steps, &conversation.responses());
    let (played, rest) = steps.split_at_checked(place).unwrap_or((steps, &[]));
    let chunk = played.iter().rev().find_map(|step| match step {
        ScriptStep::Chunk(characters) => Some(*characters),
        ScriptStep::Text(_)
        | ScriptStep::Think(_)
        | ScriptStep::Tool { .. }
        | ScriptStep::Wait(_)
        | ScriptStep::Fault { .. }
        | ScriptStep::Echo
        | ScriptStep::End => None,
    });
    let mut call =
        ModelCall { actions: Vec::new(), stop: StopReason::EndTurn, chunk: chunk.unwrap_or(DEFAULT_CHUNK) };
    for (offset, step) in rest.iter().enumerate() {
        if call.stop == StopReason::ToolUse && !more_tools(rest.get(offset..).unwrap_or_default()) {
            break;
        }
        let action = match step {
            ScriptStep::Text(text) => CallAction::Send(Part::Text(text.clone())),
            ScriptStep::Think(text) => CallAction::Send(Part::Thinking(text.clone())),
            ScriptStep::Echo => CallAction::Send(Part::Text(conversation.transcript())),
            ScriptStep::Wait(pause) => CallAction::Wait(*pause),
            ScriptStep::Chunk(characters) => CallAction::Chunk(*characters),
            ScriptStep::Fault { kind, repeat } => {
                CallAction::Fault { place: place + offset, kind: kind.clone(), repeat: *repeat }
            }
            ScriptStep::Tool { name, input, .. } => {
                call.stop = StopReason::ToolUse;
                let input = with_plan_file(input, conversation);
                CallAction::Send(Part::ToolUse { name: name.clone(), input })
            }
            ScriptStep::End => break,
        };
        call.actions.push(action);
    }
    let visible =
        |action: &CallAction| matches!(action, CallAction::Send(Part::Text(_) | Part::ToolUse { .. }));
    if !call.actions.iter().any(visible) {
        // A runtime treats a response without visible content as an error and retries.
        call.actions.push(CallAction::Send(Part::Text(words::END_OF_SCRIPT.to_owned())));
    }
    call
}

/// Replaces the placeholder for the plan file, whose name only the runtime knows.
fn with_plan_file(input: &RawValue, conversation: &DemoConversation<'_>) -> Box<RawValue> {
    let replaced = || {
        let path = serde_json::to_string(&conversation.plan_file()?).ok()?;
        let path = path.strip_prefix('"')?.strip_suffix('"')?;
        RawValue::from_string(input.get().replace(PLAN_FILE, path)).ok()
    };
    let replaced = if input.get().contains(PLAN_FILE) { replaced() } else { None };
    replaced.unwrap_or_else(|| input.to_owned())
}

/// Whether the next step with content is a `+tool`.
fn more_tools(rest: &[ScriptStep]) -> bool {
    rest.iter()
        .find(|step| !matches!(step, ScriptStep::Wait(_) | ScriptStep::Chunk(_)))
        .is_some_and(is_parallel)
}

fn is_parallel(step: &ScriptStep) -> bool {
    matches!(step, ScriptStep::Tool { placement: ToolPlacement::Previous, .. })
}

/// The first step that was not played yet.
///
/// Tool calls are counted one by one, so that a response of which only some
/// calls were kept continues with the others. A response without a tool call
/// ended the script or reached an `end`; one that should have called a tool
/// was not kept completely and is played again.
fn place(steps: &[ScriptStep], responses: &[PriorResponse]) -> usize {
    let mut place = 0;
    for response in responses {
        let ahead = || steps.iter().enumerate().skip(place);
        let is_tool = |step: &ScriptStep| matches!(step, ScriptStep::Tool { .. });
        place = match response {
            PriorResponse::Tools(count) => ahead()
                .filter(|(_, step)| is_tool(step))
                .nth(count.saturating_sub(1))
                .map_or(steps.len(), |(index, _)| index + 1),
            PriorResponse::Text => {
                match ahead().find(|(_, step)| is_tool(step) || matches!(step, ScriptStep::End)) {
                    Some((index, ScriptStep::End)) => index + 1,
                    Some(_) => place,
                    None => steps.len(),
                }
            }
        };
    }
    place
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
