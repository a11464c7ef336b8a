//! The guided tour: shows what Innkeeper can do, tool by tool.
//!
//! Pure. The position in the tour is derived from the tool calls since the
//! prompt. A denied or failed call does not stop the tour: the next text
//! acknowledges it, and the summary lists it. A tool that is not offered is
//! skipped. Files are only written in the tour's own folder, except for the
//! plan, whose file the runtime names.

use std::ops::ControlFlow;

use serde_json::{Value, json};

use self::guide::{TourGuide, Visit, reason};
use super::conversation::{DemoConversation, ToolCall};
use super::plan::{ModelCall, Part};
use crate::request::MessagesRequest;

mod guide;

/// The tour's folder in the working directory.
const FOLDER: &str = "innkeeper-tour";

const THOUGHT: &str = "The user wants to see what is possible here. I start with harmless steps.";

const INTRODUCTION: &str = "\
Welcome! I show you what a coding agent can do here, one tool at a time. You decide about each step; \
deny any step you like, and the tour continues. All files are in the folder `innkeeper-tour`.";

const NO_TOOLS: &str = "\
The tour needs the tools of a coding agent and this client offers none. \
Send `tour` in a session of Innkeeper, or write a script: a message whose first line is `#demo`.";

const NOTES: &str =
    "# Notes of the tour\n\nThe demo model wrote this file. It was here. Delete the folder when you like.\n";

/// The parts of the tour, as a to-do list.
const TODO: [(&str, &str); 3] = [
    ("Change files and run a command", "Changing files and running a command"),
    ("Ask a question and delegate a task", "Asking a question and delegating a task"),
    ("Make a plan and carry it out", "Making a plan and carrying it out"),
];

/// Tools that newer runtimes load on request only.
const DEFERRED: [&str; 4] = ["EnterPlanMode", "ExitPlanMode", "TaskCreate", "TaskUpdate"];

/// What the tour needs to know about the conversation.
#[derive(Debug, Default)]
struct TourSetting {
    calls: Vec<ToolCall>,
    offered: Vec<String>,
    /// The working directory, if the runtime names it.
    directory: Option<String>,
    /// The file for the plan, once the runtime named it.
    plan_file: Option<String>,
}

/// Plans the next call of a tour.
pub(super) fn next_call(conversation: &DemoConversation<'_>, request: &MessagesRequest) -> ModelCall {
    plan(&TourSetting {
        calls: conversation.tool_calls(),
        offered: request.tool_names(),
        directory: conversation.working_directory(request),
        plan_file: conversation.plan_file(),
    })
}

fn plan(setting: &TourSetting) -> ModelCall {
    let mut guide = TourGuide::new(&setting.calls, &setting.offered);
    let ControlFlow::Break(next) = walk(&mut guide, setting) else {
        return ModelCall::of(vec![Part::Text(wrap_up(&guide.into_report()))]);
    };
    let mut parts = Vec::new();
    if setting.calls.is_empty() {
        parts.push(Part::Thinking(THOUGHT.to_owned()));
        parts.push(Part::Text(INTRODUCTION.to_owned()));
    }
    parts.extend(next);
    ModelCall::of(parts)
}

fn walk(guide: &mut TourGuide<'_>, setting: &TourSetting) -> Visit<()> {
    load_tools(guide)?;
    let tasks = start_todo_list(guide)?;
    change_files(guide, setting)?;
    if let Some(call) = guide.visit(
        "Now I run a **shell command**. It creates a folder and lists the tour's files.",
        "Bash",
        json!({
            "command": format!("mkdir -p {FOLDER}/shell && ls {FOLDER}"),
            "description": "Creates a folder and lists the tour's files",
        }),
    )? {
        guide.note("Ran a shell command", call);
    }
    ask_question(guide)?;
    delegate(guide)?;
    make_plan(guide, setting)?;
    finish_todo_list(guide, &tasks)
}

/// Loads the tools that the runtime does not offer from the start.
fn load_tools(guide: &mut TourGuide<'_>) -> Visit<()> {
    let todo = guide.offers("TodoWrite");
    let missing: Vec<&str> = DEFERRED
        .into_iter()
        .filter(|tool| !(guide.offers(tool) || todo && tool.starts_with("Task")))
        .collect();
    // After the call nothing is missing, but the call is still in the conversation.
    if guide.skip_made("ToolSearch") || missing.is_empty() {
        return ControlFlow::Continue(());
    }
    let input = json!({"query": format!("select:{}", missing.join(","))});
    guide.visit("First I load the tools that the tour needs.", "ToolSearch", input)?;
    ControlFlow::Continue(())
}

/// Makes the to-do list. Returns the ids of its tasks, if the runtime has tasks.
fn start_todo_list(guide: &mut TourGuide<'_>) -> Visit<Vec<String>> {
    let text = "I keep a **to-do list** of the tour, so that you see how far I am.";
    let list = todo_list(|place| if place == 0 { "in_progress" } else { "pending" });
    if let Some(call) = guide.visit(text, "TodoWrite", list)? {
        guide.note("Made a to-do list", call);
        return ControlFlow::Continue(Vec::new());
    }
    let create = |(subject, active): (&str, &str)| json!({"subject": subject, "description": format!("{subject}, as a part of the tour"), "activeForm": active});
    let calls = guide.visit_all(text, "TaskCreate", TODO.into_iter().map(create).collect())?;
    if let Some(call) = calls.first() {
        guide.note("Made a to-do list", call);
    }
    ControlFlow::Continue(calls.into_iter().filter_map(task_id).collect())
}

fn finish_todo_list(guide: &mut TourGuide<'_>, tasks: &[String]) -> Visit<()> {
    let text = "That was the last step. I complete the to-do list.";
    if tasks.is_empty() {
        guide.visit(text, "TodoWrite", todo_list(|_| "completed"))?;
    } else {
        let complete = |id: &String| json!({"taskId": id, "status": "completed"});
        guide.visit_all(text, "TaskUpdate", tasks.iter().map(complete).collect())?;
    }
    ControlFlow::Continue(())
}

fn todo_list(status: impl Fn(usize) -> &'static str) -> Value {
    let item = |(place, (content, active)): (usize, (&str, &str))| json!({"content": content, "status": status(place), "activeForm": active});
    json!({"todos": TODO.into_iter().enumerate().map(item).collect::<Vec<_>>()})
}

/// The id in "Task #1 created successfully".
fn task_id(call: &ToolCall) -> Option<String> {
    let (_, rest) = call.result.split_once('#')?;
    let id: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
    (call.failure.is_none() && !id.is_empty()).then_some(id)
}

/// Writes, reads and edits a file.
fn change_files(guide: &mut TourGuide<'_>, setting: &TourSetting) -> Visit<()> {
    let name = format!("{FOLDER}/notes.md");
    let path = setting.path(&name);
    let text =
        format!("I **write** the file `{name}`. This changes your directory, so you may be asked first.");
    let written = write(guide, &text, &path, NOTES)?;
    let Some(call) = written else { return ControlFlow::Continue(()) };
    guide.note(&format!("Wrote `{name}`"), call);
    if call.failure.is_some() {
        guide.note_outcome(&format!("Read and edited `{name}`"), "skipped, because it was not written");
        return ControlFlow::Continue(());
    }
    let text = "I **read** it back. Reading inside your directory needs no permission.";
    if let Some(call) = guide.visit(text, "Read", json!({"file_path": path}))? {
        guide.note(&format!("Read `{name}`"), call);
    }
    let input = json!({
        "file_path": path,
        "old_string": "It was here.",
        "new_string": "It was here, and it changed this line.",
    });
    if let Some(call) = guide.visit("Next I **edit** one line of that file.", "Edit", input)? {
        guide.note(&format!("Edited `{name}`"), call);
    }
    ControlFlow::Continue(())
}

/// Writes a file. The runtime does not overwrite a file that was not read, so
/// a file from an earlier tour is read first. Returns the last attempt.
fn write<'a>(
    guide: &mut TourGuide<'a>,
    text: &str,
    path: &str,
    content: &str,
) -> Visit<Option<&'a ToolCall>> {
    let input = json!({"file_path": path, "content": content});
    let first = guide.visit(text, "Write", input.clone())?;
    let unread =
        first.and_then(|call| call.failure.as_deref()).is_some_and(|text| text.contains("not been read"));
    if !unread {
        return ControlFlow::Continue(first);
    }
    guide.explained();
    let text = "The file exists from an earlier tour. I read it before I overwrite it.";
    guide.visit(text, "Read", json!({"file_path": path}))?;
    let second = guide.visit("And once more:", "Write", input)?;
    ControlFlow::Continue(second.or(first))
}

fn ask_question(guide: &mut TourGuide<'_>) -> Visit<()> {
    let options = [
        ("A script", "Write a message whose first line is #demo"),
        ("A real model", "Start Innkeeper with --upstream copilot or anthropic"),
    ];
    let input = json!({"questions": [{
        "question": "What would you like to try after the tour?",
        "header": "Next",
        "multiSelect": false,
        "options": options.map(|(label, description)| json!({"label": label, "description": description})),
    }]});
    let text = "An agent can also **ask you** something in the middle of its work.";
    if let Some(call) = guide.visit(text, "AskUserQuestion", input)? {
        guide.note("Asked you a question", call);
    }
    ControlFlow::Continue(())
}

fn delegate(guide: &mut TourGuide<'_>) -> Visit<()> {
    let text = "I **delegate** a small task to a subagent with its own conversation.";
    let input = json!({
        "description": "Say hello",
        "subagent_type": "general-purpose",
        "run_in_background": false,
        "prompt": "#demo\nthink A subagent starts with nothing but its task.\ntext Hello from the subagent. My whole task was to say so.",
    });
    // The name depends on the version of the runtime.
    for tool in ["Agent", "Task"] {
        if let Some(call) = guide.visit(text, tool, input.clone())? {
            guide.note("Delegated to a subagent", call);
            break;
        }
    }
    ControlFlow::Continue(())
}

/// Enters plan mode, presents a plan and carries it out. A rejected plan is
/// revised once.
fn make_plan(guide: &mut TourGuide<'_>, setting: &TourSetting) -> Visit<()> {
    if !guide.offers("ExitPlanMode") {
        // Plan mode could not be left again.
        return ControlFlow::Continue(());
    }
    let text = "Last, **plan mode**: I only read, and write down what I intend to do.";
    let Some(entered) = guide.visit(text, "EnterPlanMode", json!({}))? else {
        return ControlFlow::Continue(());
    };
    if entered.failure.is_some() {
        guide.note("Entered plan mode", entered);
        return ControlFlow::Continue(());
    }
    let Some(mut review) = present_plan(guide, setting, None)? else { return ControlFlow::Continue(()) };
    if let Some(feedback) = &review.failure {
        guide.explained();
        let revised = present_plan(guide, setting, Some(&reason(feedback)))?;
        review = revised.unwrap_or(review);
    }
    if review.failure.is_some() {
        guide.note_outcome(
            "Made a plan",
            "not approved, so this session stays in plan mode until you choose another mode",
        );
        guide.explained();
        return ControlFlow::Continue(());
    }
    guide.note("Made a plan that you approved", review);
    let name = format!("{FOLDER}/greeting.md");
    let text = format!("The plan is approved and plan mode is over. I carry it out and write `{name}`.");
    if let Some(call) = write(guide, &text, &setting.path(&name), "Hello from the plan.\n")? {
        guide.note("Carried out the plan", call);
    }
    ControlFlow::Continue(())
}

/// Writes the plan to its file and asks for its approval. Older runtimes take
/// the plan from the input instead.
fn present_plan<'a>(
    guide: &mut TourGuide<'a>,
    setting: &TourSetting,
    feedback: Option<&str>,
) -> Visit<Option<&'a ToolCall>> {
    let mut plan =
        format!("# Plan: greet the reader\n\n1. Write `{FOLDER}/greeting.md`.\n2. Sum up the tour.\n");
    if let Some(feedback) = feedback {
        plan.push_str("3. Consider your feedback: ");
        plan.push_str(feedback);
        plan.push_str(".\n");
    }
    let text = match feedback {
        None => "This is my plan. The runtime keeps it in a file.",
        Some(_) => "I revise the plan and add your feedback.",
    };
    if let Some(path) = &setting.plan_file {
        write(guide, text, path, &plan)?;
    }
    let text = "Please **review the plan**. I leave plan mode only if you approve it.";
    guide.visit(text, "ExitPlanMode", json!({"plan": plan}))
}

fn wrap_up(report: &[String]) -> String {
    if report.is_empty() {
        return NO_TOOLS.to_owned();
    }
    format!(
        "That was the tour:\n\n{}\n\nOpen this session in a second client to see the same conversation there. \
         Send any other message to learn how to write your own scripts and how to connect a real model.",
        report.join("\n")
    )
}

impl TourSetting {
    /// A path in the working directory; absolute if the directory is known.
    fn path(&self, name: &str) -> String {
        match &self.directory {
            Some(directory) => format!("{}/{name}", directory.trim_end_matches('/')),
            None => name.to_owned(),
        }
    }
}

#[cfg(test)]
#[path = "tour_tests.rs"]
mod tests;
