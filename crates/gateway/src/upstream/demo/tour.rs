//! The guided tour: shows what Innkeeper can do, tool by tool.
//!
//! Pure. The position in the tour is derived from the tool calls since the
//! prompt. A denied or failed call does not stop the tour and is listed at the
//! end. A tool that is not offered is skipped.

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::conversation::ToolCall;
use super::plan::{ModelCall, Part};
use super::words::short;

/// The file that the tour writes, in the working directory.
const FILE: &str = "innkeeper-tour.md";

/// Longest error excerpt in the summary.
const FAILURE_LINE: usize = 100;

const INTRODUCTION: &str = "\
Welcome! I show you what a coding agent can do here, one tool at a time. You decide about each step; \
deny any step you like, and the tour continues.

First I **read** a file. Reading needs no permission.";

const NO_TOOLS: &str = "\
The tour needs the tools of a coding agent and this client offers none. \
Send `tour` in a session of Innkeeper, or write a script: a message whose first line is `#demo`.";

/// Plans the next call of a tour.
pub(super) fn next_call(calls: &[ToolCall], offered: &[String]) -> ModelCall {
    let mut guide = Guide { calls: calls.iter(), offered, report: Vec::new() };
    match guide.walk() {
        Err(stop) => {
            let mut parts = Vec::new();
            if calls.is_empty() {
                let thought = "The user wants to see what is possible here. I start with harmless steps.";
                parts.push(Part::Thinking(thought.to_owned()));
            }
            parts.push(Part::Text(stop.text));
            parts.push(Part::ToolUse { name: stop.tool, input: stop.input });
            ModelCall::of(parts)
        }
        Ok(()) => ModelCall::of(vec![Part::Text(guide.wrap_up())]),
    }
}

/// Skips the stops that were made and finds the next one.
struct Guide<'a> {
    calls: std::slice::Iter<'a, ToolCall>,
    offered: &'a [String],
    /// One line per completed stop.
    report: Vec<String>,
}

/// The next stop.
struct TourStop {
    text: String,
    tool: String,
    input: Box<RawValue>,
}

impl<'a> Guide<'a> {
    fn walk(&mut self) -> Result<(), Box<TourStop>> {
        self.visit("Read `README.md`", "Read", INTRODUCTION, &json!({"file_path": "README.md"}))?;
        self.write()?;
        self.visit(
            &format!("Edited `{FILE}`"),
            "Edit",
            "Next I **edit** that file. The change is shown as a diff before it is made.",
            &json!({"file_path": FILE, "old_string": "It was here.", "new_string": "It was here, and it liked the place."}),
        )?;
        self.visit(
            "Ran a shell command",
            "Bash",
            "Now I run a **shell command**; it lists the working directory.",
            &json!({"command": "pwd && ls", "description": "Shows the working directory"}),
        )?;
        self.visit(
            "Asked you a question",
            "AskUserQuestion",
            "An agent can also **ask you** something in the middle of its work.",
            &question(),
        )?;
        let agent = if self.offered.iter().any(|name| name == "Agent") { "Agent" } else { "Task" };
        self.visit(
            "Delegated to a subagent",
            agent,
            "Last, I **delegate** a small task to a subagent with its own conversation.",
            &json!({
                "description": "Say hello",
                "subagent_type": "general-purpose",
                "run_in_background": false,
                "prompt": "#demo\nthink A subagent starts with nothing but its task.\ntext Hello from the subagent. My whole task was to say so.",
            }),
        )?;
        Ok(())
    }

    /// Writes the file. A file left from an earlier tour is read first, because
    /// the runtime does not overwrite a file that was not read.
    fn write(&mut self) -> Result<(), Box<TourStop>> {
        let text = format!(
            "Now I **write** the file `{FILE}`. This changes your directory, so you are asked first."
        );
        let content = "# Innkeeper was here\n\nThis file was written by the demo model's tour. It was here. Delete it when you like.\n";
        let input = json!({"file_path": FILE, "content": content});
        let what = format!("Wrote `{FILE}`");
        let Some(call) = self.visit(&what, "Write", &text, &input)? else { return Ok(()) };
        if !call.failure.as_ref().is_some_and(|failure| failure.contains("not been read")) {
            return Ok(());
        }
        self.report.pop();
        let text = "The file already exists from an earlier tour. I read it before I overwrite it.";
        self.visit(&format!("Read `{FILE}`"), "Read", text, &json!({"file_path": FILE}))?;
        self.visit(&what, "Write", "And once more:", &input)?;
        Ok(())
    }

    /// Skips a stop that was made or whose tool is not offered; returns the
    /// stop as an error if it is the next one.
    fn visit(
        &mut self,
        what: &str,
        tool: &str,
        text: &str,
        input: &serde_json::Value,
    ) -> Result<Option<&'a ToolCall>, Box<TourStop>> {
        let mut ahead = self.calls.clone();
        if let Some(call) = ahead.next() {
            if call.name != tool {
                return Ok(None);
            }
            self.calls = ahead;
            self.report.push(line(what, call));
            return Ok(Some(call));
        }
        if !self.offered.iter().any(|name| name == tool) {
            return Ok(None);
        }
        // Encoding a JSON value cannot fail.
        let Ok(input) = to_raw_value(input) else { return Ok(None) };
        Err(Box::new(TourStop { text: text.to_owned(), tool: tool.to_owned(), input }))
    }

    fn wrap_up(&self) -> String {
        if self.report.is_empty() {
            return NO_TOOLS.to_owned();
        }
        format!(
            "That was the tour:\n\n{}\n\nOpen this session in a second client to see the same conversation there. \
             Send any other message to learn how to write your own scripts and how to connect a real model.",
            self.report.join("\n")
        )
    }
}

fn line(what: &str, call: &ToolCall) -> String {
    match &call.failure {
        None => format!("- {what}: done"),
        Some(failure) => format!("- {what}: failed ({})", short(&plain(failure), FAILURE_LINE)),
    }
}

/// The first line of an error, without the runtime's tags and without Markdown
/// markup.
fn plain(failure: &str) -> String {
    let text = failure.replace("<tool_use_error>", "").replace("</tool_use_error>", "");
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    line.trim().replace(['`', '*', '<', '>'], "'")
}

fn question() -> serde_json::Value {
    json!({"questions": [{
        "question": "What would you like to try after the tour?",
        "header": "Next",
        "multiSelect": false,
        "options": [
            {"label": "A script", "description": "Write a message whose first line is #demo"},
            {"label": "A real model", "description": "Start Innkeeper with --upstream copilot or anthropic"},
        ],
    }]})
}

#[cfg(test)]
#[path = "tour_tests.rs"]
mod tests;
