//! The guided tour: what Innkeeper can do, tool by tool.
//!
//! Pure. The place in the tour is found from the tool calls since the prompt;
//! a refused or failed call only moves it on and is told at the end. A tool
//! that is not offered is left out.

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::conversation::ToolCall;
use super::plan::{Call, Part};
use super::words::short;

/// The file that the tour writes, in the working directory.
const FILE: &str = "innkeeper-tour.md";

/// Most characters of an error in the wrap-up.
const FAILURE_LINE: usize = 100;

const INTRODUCTION: &str = "\
Welcome! I show you what a coding agent does here, one tool at a time. You decide about each step; \
refuse whatever you like, the tour goes on.

First I **read** a file. Reading needs no permission.";

const NO_TOOLS: &str = "\
The tour needs the tools of a coding agent and this client offers none. \
Send `tour` in a session of Innkeeper, or write a script: a message whose first line is `#demo`.";

/// Plans the next call of a tour.
pub(super) fn next_call(calls: &[ToolCall], offered: &[String]) -> Call {
    let mut guide = Guide { calls: calls.iter(), offered, report: Vec::new() };
    match guide.walk() {
        Err(stop) => {
            let mut parts = Vec::new();
            if calls.is_empty() {
                let thought = "Somebody wants to see what is possible here. I go from harmless to useful.";
                parts.push(Part::Thinking(thought.to_owned()));
            }
            parts.push(Part::Text(stop.text));
            parts.push(Part::ToolUse { name: stop.tool, input: stop.input });
            Call::of(parts)
        }
        Ok(()) => Call::of(vec![Part::Text(guide.wrap_up())]),
    }
}

/// Walks through the stops that have been made, to the first that has not.
struct Guide<'a> {
    calls: std::slice::Iter<'a, ToolCall>,
    offered: &'a [String],
    /// A line for each stop made.
    report: Vec<String>,
}

/// A stop to make now.
struct Stop {
    text: String,
    tool: String,
    input: Box<RawValue>,
}

impl<'a> Guide<'a> {
    fn walk(&mut self) -> Result<(), Box<Stop>> {
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
            "Last, I **delegate** a small task to a subagent with a conversation of its own.",
            &json!({
                "description": "Say hello",
                "subagent_type": "general-purpose",
                "run_in_background": false,
                "prompt": "#demo\nthink A subagent starts with nothing but its task.\ntext Hello from the subagent. My whole task was to say so.",
            }),
        )?;
        Ok(())
    }

    /// Writes the file. One left over from an earlier tour must be read
    /// first, as the runtime overwrites nothing that was not looked at.
    fn write(&mut self) -> Result<(), Box<Stop>> {
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
        let text = "The file is there already, from an earlier tour. I read it before I overwrite it.";
        self.visit(&format!("Read `{FILE}`"), "Read", text, &json!({"file_path": FILE}))?;
        self.visit(&what, "Write", "And once more:", &input)?;
        Ok(())
    }

    /// Passes a stop that was made, leaves out one that cannot be made, and
    /// ends the walk at one that is to be made.
    fn visit(
        &mut self,
        what: &str,
        tool: &str,
        text: &str,
        input: &serde_json::Value,
    ) -> Result<Option<&'a ToolCall>, Box<Stop>> {
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
        // A JSON value always encodes again.
        let Ok(input) = to_raw_value(input) else { return Ok(None) };
        Err(Box::new(Stop { text: text.to_owned(), tool: tool.to_owned(), input }))
    }

    fn wrap_up(&self) -> String {
        if self.report.is_empty() {
            return NO_TOOLS.to_owned();
        }
        format!(
            "That was the tour:\n\n{}\n\nOpen this session in a second client to see the same conversation there. \
             Send anything else to learn how to write scripts of your own and how to connect a real model.",
            self.report.join("\n")
        )
    }
}

fn line(what: &str, call: &ToolCall) -> String {
    match &call.failure {
        None => format!("- {what}: done"),
        Some(failure) => format!("- {what}: did not happen ({})", short(&plain(failure), FAILURE_LINE)),
    }
}

/// The first line of an error, without the runtime's tags around it and
/// without what Markdown would take as markup.
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
