//! Finds the place in the tour by replaying the tool calls since the prompt.
//!
//! Pure. The tour visits one stop after the other. A stop that was made already
//! returns the results of its calls; the first other stop ends the replay and
//! becomes the next response.

use std::ops::ControlFlow;

use serde_json::Value;
use serde_json::value::to_raw_value;

use crate::upstream::demo::conversation::ToolCall;
use crate::upstream::demo::plan::Part;
use crate::upstream::demo::words::short;

/// Longest excerpt of a reason.
const REASON_LIMIT: usize = 100;

/// What a stop returns: its results, or the parts of the next response.
pub(super) type Visit<T> = ControlFlow<Vec<Part>, T>;

/// Replays the calls since the prompt.
pub(super) struct TourGuide<'a> {
    calls: std::slice::Iter<'a, ToolCall>,
    offered: &'a [String],
    /// One line per completed step.
    report: Vec<String>,
    /// Why the last call was not carried out; the next text acknowledges it.
    refusal: Option<String>,
}

impl<'a> TourGuide<'a> {
    pub(super) fn new(calls: &'a [ToolCall], offered: &'a [String]) -> Self {
        Self { calls: calls.iter(), offered, report: Vec::new(), refusal: None }
    }

    /// Whether the runtime offers a tool now.
    pub(super) fn offers(&self, tool: &str) -> bool {
        self.offered.iter().any(|name| name == tool)
    }

    /// Skips the next call if it is one of this tool.
    pub(super) fn skip_made(&mut self, tool: &str) -> bool {
        let mut ahead = self.calls.clone();
        let made = ahead.next().is_some_and(|call| call.name == tool);
        if made {
            self.calls = ahead;
        }
        made
    }

    /// Calls a tool, unless it was called or is not offered.
    pub(super) fn visit(&mut self, text: &str, tool: &str, input: Value) -> Visit<Option<&'a ToolCall>> {
        ControlFlow::Continue(self.visit_all(text, tool, vec![input])?.into_iter().next())
    }

    /// Calls a tool several times in one response. The result is empty if the
    /// tool is not offered.
    pub(super) fn visit_all(
        &mut self,
        text: &str,
        tool: &str,
        inputs: Vec<Value>,
    ) -> Visit<Vec<&'a ToolCall>> {
        let mut made = Vec::new();
        let mut missing = Vec::new();
        for input in inputs {
            let mut ahead = self.calls.clone();
            match ahead.next() {
                Some(call) if call.name == tool => {
                    self.calls = ahead;
                    self.refusal = call.failure.as_deref().map(reason);
                    made.push(call);
                }
                // Another call follows, so the tool was not offered at this stop.
                Some(_) => break,
                None => missing.push(input),
            }
        }
        if missing.is_empty() || !self.offers(tool) {
            return ControlFlow::Continue(made);
        }
        let mut parts = vec![Part::Text(self.acknowledged(text))];
        for input in missing {
            // Encoding a JSON value cannot fail.
            let Ok(input) = to_raw_value(&input) else { continue };
            parts.push(Part::ToolUse { name: tool.to_owned(), input });
        }
        ControlFlow::Break(parts)
    }

    /// Adds a line to the report.
    pub(super) fn note(&mut self, step: &str, call: &ToolCall) {
        let outcome = match &call.failure {
            None => "done".to_owned(),
            Some(failure) => format!("not done ({})", reason(failure)),
        };
        self.note_outcome(step, &outcome);
    }

    pub(super) fn note_outcome(&mut self, step: &str, outcome: &str) {
        self.report.push(format!("- {step}: {outcome}"));
    }

    /// Leaves out the acknowledgement, because the next text explains the failure.
    pub(super) fn explained(&mut self) {
        self.refusal = None;
    }

    /// The report; empty if no step was possible.
    pub(super) fn into_report(self) -> Vec<String> {
        self.report
    }

    fn acknowledged(&self, text: &str) -> String {
        match &self.refusal {
            None => text.to_owned(),
            Some(reason) => format!("That step was not done ({reason}). I continue without it.\n\n{text}"),
        }
    }
}

/// The first line of an error, without the runtime's tags, Markdown markup and
/// final full stop.
pub(super) fn reason(failure: &str) -> String {
    let text = failure.replace("<tool_use_error>", "").replace("</tool_use_error>", "");
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    short(line.trim().trim_end_matches('.'), REASON_LIMIT).replace(['`', '*', '<', '>'], "'")
}
