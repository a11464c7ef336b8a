//! The `#demo` script language: one step per line.
//!
//! Owns the grammar and its limits; playback is elsewhere. A script is parsed
//! completely first, so an invalid line is reported before any step is played.

use std::time::Duration;

use http::StatusCode;
use serde_json::value::RawValue;

/// First line of a script.
const MARK: &str = "#demo";

/// Limit for the output of all `repeat` steps of a script together, so that a
/// short script cannot exhaust memory.
const REPEAT_CAP: usize = 16 * 1024 * 1024;

/// Longest `wait`; more than an hour is most likely a typing error.
const WAIT_CAP: Duration = Duration::from_secs(3600);

/// One step of a script.
#[derive(Clone, Debug)]
pub(super) enum ScriptStep {
    /// Text.
    Text(String),
    /// Thinking.
    Think(String),
    /// A tool call.
    Tool { name: String, input: Box<RawValue>, placement: ToolPlacement },
    /// A pause before the next step's first byte.
    Wait(Duration),
    /// Characters per streamed chunk from here on.
    Chunk(usize),
    /// A planned fault.
    Fault { kind: FaultKind, repeat: FaultRepeat },
    /// Outputs the conversation as received.
    Echo,
    /// Ends the response.
    End,
}

/// Whether a tool call is in the same message as the call before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolPlacement {
    Alone,
    Previous,
}

/// The kind of a planned fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// An error response or an `error` event; `kind` overrides the status's error type.
    Error { status: StatusCode, kind: Option<String> },
    /// Cuts the connection.
    Drop,
}

/// How often a fault occurs for the same request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultRepeat {
    Once,
    Always,
}

/// An invalid line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BadLine {
    /// Line number from 1, including the first line.
    pub(super) number: usize,
    /// The line as written.
    pub(super) text: String,
    /// What is wrong with it.
    pub(super) problem: String,
}

/// Whether a user's text is a script.
pub(super) fn is_script(text: &str) -> bool {
    text.trim_start().lines().next().is_some_and(|line| line.trim_end() == MARK)
}

/// Parses a script; empty lines are skipped.
pub(super) fn parse(text: &str) -> Result<Vec<ScriptStep>, BadLine> {
    let mut steps = Vec::new();
    let mut repeat_left = REPEAT_CAP;
    for (index, line) in text.trim_start().lines().enumerate().skip(1) {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        match step(line, &mut repeat_left) {
            Ok(step) => steps.push(step),
            Err(problem) => return Err(BadLine { number: index + 1, text: line.to_owned(), problem }),
        }
    }
    Ok(steps)
}

fn step(line: &str, repeat_left: &mut usize) -> Result<ScriptStep, String> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim_start();
    match word {
        "text" => words(rest).map(ScriptStep::Text),
        "think" => words(rest).map(ScriptStep::Think),
        "tool" => tool(rest, ToolPlacement::Alone),
        "+tool" => tool(rest, ToolPlacement::Previous),
        "wait" => wait(rest),
        "chunk" => chunk(rest),
        "repeat" => repeat(rest, repeat_left),
        "error" => error(rest),
        "drop" => drop_step(rest),
        "echo" => nothing(rest, ScriptStep::Echo),
        "end" => nothing(rest, ScriptStep::End),
        _ => Err(format!("unknown step `{word}`")),
    }
}

fn words(rest: &str) -> Result<String, String> {
    if rest.is_empty() { Err("missing text".into()) } else { Ok(rest.to_owned()) }
}

fn nothing(rest: &str, step: ScriptStep) -> Result<ScriptStep, String> {
    if rest.is_empty() { Ok(step) } else { Err(format!("unexpected `{rest}`; this step has no arguments")) }
}

fn tool(rest: &str, placement: ToolPlacement) -> Result<ScriptStep, String> {
    let (name, input) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if name.is_empty() {
        return Err("missing tool name".into());
    }
    let input = if input.trim().is_empty() { "{}" } else { input.trim() };
    let input: Box<RawValue> =
        serde_json::from_str(input).map_err(|error| format!("the input is not JSON ({error})"))?;
    if !input.get().starts_with('{') {
        return Err("the input is not a JSON object".into());
    }
    Ok(ScriptStep::Tool { name: name.to_owned(), input, placement })
}

fn wait(rest: &str) -> Result<ScriptStep, String> {
    let pause = rest.parse().map(Duration::from_millis).map_err(|_| "expected a number of milliseconds")?;
    if pause > WAIT_CAP {
        return Err(format!("the longest wait is {} milliseconds", WAIT_CAP.as_millis()));
    }
    Ok(ScriptStep::Wait(pause))
}

fn chunk(rest: &str) -> Result<ScriptStep, String> {
    match rest.parse() {
        Ok(0) | Err(_) => Err("expected a number of characters, 1 or more".into()),
        Ok(characters) => Ok(ScriptStep::Chunk(characters)),
    }
}

fn repeat(rest: &str, repeat_left: &mut usize) -> Result<ScriptStep, String> {
    let (times, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let times: usize = times.parse().map_err(|_| "missing repeat count")?;
    let words = words(rest.trim_start())?;
    if times == 0 {
        return Err("the repeat count must be 1 or more".into());
    }
    let size = (words.len() + 1).saturating_mul(times);
    *repeat_left = repeat_left
        .checked_sub(size)
        .ok_or_else(|| format!("all repeats together produce more than {REPEAT_CAP} characters"))?;
    let mut text = format!("{words} ").repeat(times);
    text.pop();
    Ok(ScriptStep::Text(text))
}

fn error(rest: &str) -> Result<ScriptStep, String> {
    let mut parts = rest.split_whitespace();
    let status = parts
        .next()
        .and_then(|status| status.parse::<u16>().ok())
        .filter(|status| (400..600).contains(status))
        .and_then(|status| StatusCode::from_u16(status).ok())
        .ok_or("expected an HTTP status from 400 to 599")?;
    let mut kind = None;
    let mut repeat = FaultRepeat::Once;
    for part in parts {
        match part {
            "always" => repeat = FaultRepeat::Always,
            name if kind.is_none() && repeat == FaultRepeat::Once => kind = Some(name.to_owned()),
            other => return Err(format!("unexpected `{other}`")),
        }
    }
    Ok(ScriptStep::Fault { kind: FaultKind::Error { status, kind }, repeat })
}

fn drop_step(rest: &str) -> Result<ScriptStep, String> {
    let repeat = match rest {
        "" => FaultRepeat::Once,
        "always" => FaultRepeat::Always,
        other => return Err(format!("unexpected `{other}`; expected `always` or nothing")),
    };
    Ok(ScriptStep::Fault { kind: FaultKind::Drop, repeat })
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
