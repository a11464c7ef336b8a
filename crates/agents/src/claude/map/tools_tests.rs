use ahp_types::common::StringOrMarkdown;
use innkeeper_claude::wire::content::{MessageContent, ToolResultBlock};

use super::super::tool_table::TOOLS;
use super::super::{Mapper, description};
use super::*;

/// What clients see of a successful call.
#[derive(Debug, PartialEq)]
struct ShownCall {
    display_name: String,
    kind: Option<String>,
    invocation: String,
    input: String,
    past_tense: String,
    question: String,
}

fn plain(message: &StringOrMarkdown) -> String {
    message.as_text().to_owned()
}

/// The result of the call "call".
fn result(is_error: bool) -> ToolResultBlock {
    let content = Some(MessageContent::Text("done".to_owned()));
    let (id, is_error) = (Some("call".to_owned()), Some(is_error));
    ToolResultBlock { tool_use_id: id, content, is_error, ..ToolResultBlock::default() }
}

fn raw(input: &str) -> Box<RawValue> {
    RawValue::from_string(input.to_owned()).unwrap()
}

/// A call with the id "call" whose input is complete.
fn ready_call(name: &str, input: &str) -> (ToolCalls, Vec<StateAction>) {
    let mut calls = ToolCalls::default();
    let mut actions: Vec<StateAction> = calls.start(&TurnId::new("turn"), "call", name).into_iter().collect();
    actions.extend(calls.ready("call", Some(&raw(input))));
    (calls, actions)
}

fn completed(calls: &mut ToolCalls, is_error: bool, not_run: Option<NotRun>) -> ToolCallResult {
    let actions = calls.complete((&result(is_error), None, &[]), not_run, |_| None);
    let [StateAction::ChatToolCallComplete(complete)] = actions.as_slice() else { panic!("{actions:?}") };
    complete.result.clone()
}

fn shown_call(name: &str, input: &str) -> ShownCall {
    let (mut calls, actions) = ready_call(name, input);
    let [StateAction::ChatToolCallStart(start), StateAction::ChatToolCallReady(ready)] = actions.as_slice()
    else {
        panic!("unexpected actions {actions:?}");
    };
    let Some(ToolInput::Inline(shown_input)) = &ready.tool_input else { panic!("no inline input") };
    let described = Mapper::describe(name, &serde_json::from_str(input).unwrap());
    assert_eq!((&described.display_name, &described.tool_input), (&start.display_name, shown_input));
    assert_eq!(described.invocation, ready.invocation_message);
    let kind = start.meta.as_ref().and_then(|meta| Some(meta.get("toolKind")?.as_str()?.to_owned()));
    ShownCall {
        display_name: start.display_name.clone(),
        kind,
        invocation: plain(&ready.invocation_message),
        input: shown_input.replace(['\n', ' '], ""),
        past_tense: plain(&completed(&mut calls, false, None).past_tense_message),
        question: described.question,
    }
}

/// A tool's name and input, and the expected texts of a call.
type ShownCase = (
    &'static str,
    &'static str,
    &'static str,
    Option<&'static str>,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

fn cases() -> Vec<ShownCase> {
    let file = r#"{"file_path":"/a.rs"}"#;
    let book = r#"{"notebook_path":"/a.ipynb"}"#;
    let pattern = r#"{"path":"/src","pattern":"fn\\s"}"#;
    let task = r#"{"description":"findit","prompt":"find"}"#;
    let page = r#"{"prompt":"read","url":"https://example.com"}"#;
    let shell = r#"{"bash_id":"b1"}"#;
    let id = r#"{"task_id":"t1"}"#;
    let todo = r#"{"taskId":"7"}"#;
    let questions = r#"{"questions":[{"question":"Which_one?"},{"question":"Why?"}]}"#;
    #[rustfmt::skip]
    let cases = vec![
        ("Bash", r#"{"command":"ls\npwd"}"#, "Run command", Some("terminal"), "Running `ls…`", "lspwd", "Ran `ls…`", "Run this command?"),
        ("PowerShell", r#"{"command":"ls"}"#, "Run command", Some("terminal"), "Running `ls`", "ls", "Ran `ls`", "Run this command?"),
        ("BashOutput", shell, "Read command output", Some("terminal"), "Reading the output of `b1`", shell, "Read the output of `b1`", "Read the output of b1?"),
        ("KillBash", shell, "Stop command", Some("terminal"), "Stopping `b1`", shell, "Stopped `b1`", "Stop this command?"),
        ("KillShell", shell, "Stop command", Some("terminal"), "Stopping `b1`", shell, "Stopped `b1`", "Stop this command?"),
        ("Monitor", r#"{"command":"tail"}"#, "Watch command", None, "Watching `tail`", "tail", "Watched `tail`", "Run this command?"),
        ("Read", file, "Read file", Some("read"), "Reading [a.rs](file:///a.rs)", file, "Read [a.rs](file:///a.rs)", "Read a.rs?"),
        ("NotebookRead", book, "Read notebook", Some("read"), "Reading [a.ipynb](file:///a.ipynb)", book, "Read [a.ipynb](file:///a.ipynb)", "Read a.ipynb?"),
        ("Write", file, "Write file", None, "Writing [a.rs](file:///a.rs)", file, "Wrote [a.rs](file:///a.rs)", "Write a.rs?"),
        ("Edit", file, "Edit file", None, "Editing [a.rs](file:///a.rs)", file, "Edited [a.rs](file:///a.rs)", "Edit a.rs?"),
        ("MultiEdit", file, "Edit file", None, "Editing [a.rs](file:///a.rs)", file, "Edited [a.rs](file:///a.rs)", "Edit a.rs?"),
        ("NotebookEdit", book, "Edit notebook", None, "Editing [a.ipynb](file:///a.ipynb)", book, "Edited [a.ipynb](file:///a.ipynb)", "Edit a.ipynb?"),
        ("LS", r#"{"path":"/src"}"#, "List folder", None, "Listing [src](file:///src)", r#"{"path":"/src"}"#, "Listed [src](file:///src)", "List src?"),
        ("Glob", pattern, "Find files", Some("search"), "Looking for files like `fn\\s`", "fn\\s", "Looked for files like `fn\\s`", "Search for files?"),
        ("Grep", pattern, "Search files", Some("search"), "Searching for `fn\\s`", "fn\\s", "Searched for `fn\\s`", "Search in files?"),
        ("LSP", r#"{"operation":"hover"}"#, "Ask language server", None, "Asking the language server for `hover`", r#"{"operation":"hover"}"#, "Asked the language server for `hover`", "Ask the language server for hover?"),
        ("WebFetch", page, "Fetch page", None, "Fetching [https://example.com](https://example.com/)", "https://example.com", "Fetched [https://example.com](https://example.com/)", "Fetch this page?"),
        ("web_fetch", page, "Fetch page", None, "Fetching [https://example.com](https://example.com/)", "https://example.com", "Fetched [https://example.com](https://example.com/)", "Fetch this page?"),
        ("WebSearch", r#"{"query":"rust"}"#, "Search the web", None, "Searching the web for `rust`", "rust", "Searched the web for `rust`", "Search the web?"),
        ("web_search", r#"{"query":"rust"}"#, "Search the web", None, "Searching the web for `rust`", "rust", "Searched the web for `rust`", "Search the web?"),
        ("SandboxNetworkAccess", r#"{"host":"h"}"#, "Network access", None, "Connecting to `h`", "h", "Connected to `h`", "Connect to h?"),
        ("Task", task, "Delegate", None, "Delegating: findit", task, "Delegated: findit", "Start a subagent?"),
        ("Agent", task, "Delegate", None, "Delegating: findit", task, "Delegated: findit", "Start a subagent?"),
        ("SendMessage", r#"{"to":"a1"}"#, "Message agent", None, "Sending a message to `a1`", r#"{"to":"a1"}"#, "Sent a message to `a1`", "Send a message to a1?"),
        ("ListAgents", "{}", "List agents", None, "Listing the agents", "{}", "Listed the agents", "List the agents?"),
        ("EnterPlanMode", "{}", "Start planning", None, "Entering plan mode", "{}", "Entered plan mode", "Enter plan mode?"),
        ("ExitPlanMode", r##"{"plan":"#Do"}"##, "Present plan", None, "Presenting the plan", "#Do", "Presented the plan", "Approve this plan?"),
        ("AskUserQuestion", questions, "Ask question", None, "Asking: Which\\_one?", questions, "Asked: Which\\_one?", "Answer these questions?"),
        ("TodoWrite", "{}", "Update to-do list", None, "Updating the to-do list", "{}", "Updated the to-do list", "Update the to-do list?"),
        ("TaskCreate", r#"{"subject":"s"}"#, "Add to-do", None, "Adding to-do: s", r#"{"subject":"s"}"#, "Added to-do: s", "Add to-do: s?"),
        ("TaskUpdate", r#"{"status":"completed","taskId":"7"}"#, "Update to-do", None, "Completing to-do `7`", r#"{"status":"completed","taskId":"7"}"#, "Completed to-do `7`", "Complete to-do 7?"),
        ("TaskList", "{}", "Read to-do list", None, "Reading the to-do list", "{}", "Read the to-do list", "Read the to-do list?"),
        ("TaskGet", todo, "Read to-do", None, "Reading to-do `7`", todo, "Read to-do `7`", "Read to-do 7?"),
        ("TaskOutput", id, "Read task output", None, "Reading the output of `t1`", id, "Read the output of `t1`", "Read the output of t1?"),
        ("AgentOutputTool", r#"{"agentId":"t1"}"#, "Read task output", None, "Reading the output of `t1`", r#"{"agentId":"t1"}"#, "Read the output of `t1`", "Read the output of t1?"),
        ("TaskStop", id, "Stop task", None, "Stopping `t1`", id, "Stopped `t1`", "Stop this task?"),
        ("ToolSearch", r#"{"query":"q"}"#, "Find tools", None, "Looking for tools: `q`", r#"{"query":"q"}"#, "Looked for tools: `q`", "Look for tools: q?"),
        ("Skill", r#"{"skill":"pdf"}"#, "Use skill", None, "Using skill `pdf`", r#"{"skill":"pdf"}"#, "Used skill `pdf`", "Use skill pdf?"),
        ("SlashCommand", r#"{"command":"/x"}"#, "Run slash command", None, "Running `/x`", "/x", "Ran `/x`", "Run /x?"),
        ("ReadMcpResource", r#"{"uri":"a:b"}"#, "Read resource", None, "Reading `a:b`", r#"{"uri":"a:b"}"#, "Read `a:b`", "Read a:b?"),
        ("ReadMcpResourceTool", r#"{"uri":"a:b"}"#, "Read resource", None, "Reading `a:b`", r#"{"uri":"a:b"}"#, "Read `a:b`", "Read a:b?"),
        ("ListMcpResources", "{}", "List resources", None, "Listing the resources of all servers", "{}", "Listed the resources of all servers", "List the resources of all servers?"),
        ("ListMcpResourcesTool", r#"{"server":"s"}"#, "List resources", None, "Listing the resources of `s`", r#"{"server":"s"}"#, "Listed the resources of `s`", "List the resources of s?"),
        ("StructuredOutput", "{}", "Return result", None, "Returning a structured result", "{}", "Returned a structured result", "Return a structured result?"),
        ("CronCreate", r#"{"cron":"0*"}"#, "Schedule prompt", None, "Scheduling a prompt: `0*`", r#"{"cron":"0*"}"#, "Scheduled a prompt: `0*`", "Schedule a prompt: 0*?"),
        ("CronDelete", r#"{"id":"c"}"#, "Delete schedule", None, "Deleting schedule `c`", r#"{"id":"c"}"#, "Deleted schedule `c`", "Delete schedule c?"),
        ("CronList", "{}", "List schedules", None, "Listing the schedules", "{}", "Listed the schedules", "List the schedules?"),
        ("ScheduleWakeup", r#"{"reason":"r"}"#, "Schedule wake-up", None, "Scheduling a wake-up: r", r#"{"reason":"r"}"#, "Scheduled a wake-up: r", "Schedule a wake-up: r?"),
        ("EnterWorktree", r#"{"name":"w"}"#, "Enter worktree", None, "Entering worktree `w`", r#"{"name":"w"}"#, "Entered worktree `w`", "Enter worktree w?"),
        ("ExitWorktree", "{}", "Leave worktree", None, "Leaving the worktree", "{}", "Left the worktree", "Leave the worktree?"),
        ("Workflow", r#"{"name":"w"}"#, "Run workflow", None, "Running `w`", r#"{"name":"w"}"#, "Ran `w`", "Run w?"),
        ("ReportFindings", "{}", "Report findings", None, "Reporting findings", "{}", "Reported findings", "Report findings?"),
        ("RemoteTrigger", r#"{"action":"list"}"#, "Remote trigger", None, "Calling a remote trigger: `list`", r#"{"action":"list"}"#, "Called a remote trigger: `list`", "Call a remote trigger: list?"),
        ("DesignSync", "{}", "Synchronise design", None, "Synchronising a design", "{}", "Synchronised a design", "Synchronise a design?"),
        ("mcp__my_srv__do_it", file, "my_srv: do_it", None, "Calling `do_it` of my\\_srv", file, "Called `do_it` of my\\_srv", "Call do_it of my_srv?"),
        ("Brand_New", file, "Brand_New", None, "Calling `Brand_New`", file, "Called `Brand_New`", "Call Brand_New?"),
    ];
    cases
}

#[test]
fn each_tool_is_shown_with_its_description() {
    let cases = cases();
    for name in TOOLS.iter().flat_map(|tool| tool.names) {
        assert_eq!(cases.iter().filter(|case| case.0 == *name).count(), 1, "{name} has no case");
    }
    for (name, input, display_name, kind, invocation, shown_input, past_tense, question) in cases {
        let expected = ShownCall {
            display_name: display_name.to_owned(),
            kind: kind.map(str::to_owned),
            invocation: invocation.to_owned(),
            input: shown_input.to_owned(),
            past_tense: past_tense.to_owned(),
            question: question.to_owned(),
        };
        assert_eq!(shown_call(name, input), expected, "{name}");
    }
}

#[test]
fn mcp_tool_carries_names_of_server_and_tool() {
    let meta = description::meta("mcp__calc__add");
    assert_eq!(Value::Object(meta), json!({"mcpServerName": "calc", "mcpToolName": "add"}));
    assert_eq!(description::mcp_names("mcp__calc"), None);
}

#[test]
fn call_without_target_or_with_invalid_input_is_described() {
    let bash = shown_call("Bash", "{}");
    assert_eq!((bash.invocation.as_str(), bash.past_tense.as_str()), ("Running a command", "Ran a command"));
    let mut calls = ToolCalls::default();
    calls.start(&TurnId::new("turn"), "call", "Bash");
    let delta = json!({"type": "input_json_delta", "partial_json": "{\"comm"}).to_string();
    let delta = <BlockDelta as innkeeper_claude::wire::Wire>::from_json(&delta).unwrap();
    assert!(calls.delta("call", &delta).is_some());
    let actions = calls.ready("call", None);
    let [StateAction::ChatToolCallReady(ready)] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!(ready.tool_input, Some(ToolInput::Inline("{\"comm".to_owned())));
}

#[test]
fn failed_call_names_its_target() {
    let (mut calls, _) = ready_call("Read", r#"{"file_path":"/a.rs"}"#);
    let result = completed(&mut calls, true, None);
    assert_eq!(plain(&result.past_tense_message), "Failed to read [a.rs](file:///a.rs)");
    assert_eq!(result.error, Some(json!({"code": "failed", "message": "done"})));
}

#[test]
fn asked_call_is_reported_as_ready_by_the_driver_only() {
    let turn = TurnId::new("turn");
    let mut calls = ToolCalls::default();
    let input = json!({"command": "ls"});
    assert!(calls.asked(&turn, "call", "Bash", &input).is_some(), "the request overtook the stream");
    assert!(calls.asked(&turn, "call", "Bash", &json!({"command": "pwd"})).is_none());
    assert!(calls.start(&turn, "call", "Bash").is_none());
    assert!(calls.ready("call", Some(&raw(r#"{"command":"ls"}"#))).is_empty());
    let result = completed(&mut calls, false, None);
    assert_eq!(plain(&result.past_tense_message), "Ran `pwd`", "the edited input");
}

#[test]
fn denied_calls_are_known_by_id() {
    let write = || ready_call("Write", r#"{"file_path":"/src/main.rs"}"#).0;
    let mut calls = write();
    calls.denied("call");
    assert!(
        calls.complete((&result(true), None, &[]), None, |_| None).is_empty(),
        "clients cancelled the call"
    );
    assert!(calls.complete((&result(true), None, &[]), None, |_| None).is_empty());

    let mut calls = write();
    calls.denied("other");
    let runtime = completed(&mut calls, true, Some(NotRun::Denied("by a hook")));
    let message = "Denied: write [main.rs](file:///src/main.rs) (by a hook)";
    assert_eq!(plain(&runtime.past_tense_message), message);
    assert_eq!(runtime.error, Some(json!({"code": "denied", "message": "done"})));
    assert!(!runtime.success);

    let stopped = completed(&mut write(), true, Some(NotRun::Stopped));
    assert_eq!(plain(&stopped.past_tense_message), "Stopped: write [main.rs](file:///src/main.rs)");
    assert_eq!((stopped.content, stopped.error.unwrap()["code"].as_str()), (None, Some("cancelled")));
}

#[test]
fn completed_call_is_not_started_again() {
    let (mut calls, _) = ready_call("Bash", "{}");
    completed(&mut calls, false, None);
    assert!(calls.start(&TurnId::new("turn"), "call", "Bash").is_none());
    assert!(!calls.is_open("call"));
}
