use ahp_types::actions::StateAction;
use ahp_types::common::StringOrMarkdown;
use ahp_types::state::ToolInput;
use innkeeper_claude::wire::content::{MessageContent, ToolResultBlock, ToolUseBlock};
use innkeeper_core::ids::TurnId;
use serde_json::json;
use serde_json::value::RawValue;

use super::{SUMMARY_LENGTH, TOOLS, ToolCalls};

/// What clients see of a successful call.
#[derive(Debug, PartialEq)]
struct Shown {
    display_name: String,
    kind: Option<String>,
    invocation: String,
    input: String,
    past_tense: String,
}

fn text(message: StringOrMarkdown) -> String {
    match message {
        StringOrMarkdown::Plain(text) => text,
        StringOrMarkdown::Markdown { markdown } => panic!("unexpected Markdown {markdown:?}"),
    }
}

/// A call with the id "call".
fn call(name: &str, input: &str) -> ToolUseBlock {
    let input = RawValue::from_string(input.to_owned()).unwrap();
    let (id, name) = (Some("call".to_owned()), Some(name.to_owned()));
    ToolUseBlock { id, name, input: Some(input), ..ToolUseBlock::default() }
}

/// The result of [`call`].
fn result(is_error: bool) -> ToolResultBlock {
    let content = Some(MessageContent::Text("done".to_owned()));
    let (id, is_error) = (Some("call".to_owned()), Some(is_error));
    ToolResultBlock { tool_use_id: id, content, is_error, ..ToolResultBlock::default() }
}

fn shown(name: &str, input: &str) -> Shown {
    let mut calls = ToolCalls::default();
    let started: [StateAction; 2] = calls.whole(&TurnId::new("turn"), &call(name, input)).try_into().unwrap();
    let [StateAction::ChatToolCallStart(start), StateAction::ChatToolCallReady(ready)] = started else {
        panic!("unexpected actions {started:?}");
    };
    let completed: [StateAction; 1] = calls.complete(&result(false)).try_into().unwrap();
    let [StateAction::ChatToolCallComplete(complete)] = completed else {
        panic!("unexpected actions {completed:?}");
    };
    let Some(ToolInput::Inline(input)) = ready.tool_input else { panic!("no inline input") };
    Shown {
        display_name: start.display_name,
        kind: start.meta.map(|meta| meta["toolKind"].as_str().unwrap().to_owned()),
        invocation: text(ready.invocation_message),
        input,
        past_tense: text(complete.result.past_tense_message),
    }
}

#[test]
fn each_tool_is_shown_with_its_description() {
    let file = r#"{"file_path":"/a.rs"}"#;
    let notebook = r#"{"notebook_path":"/a.ipynb"}"#;
    let pattern = r#"{"pattern":"fn main","path":"/src"}"#;
    let task = r#"{"description":"find it","prompt":"find"}"#;
    let url = r#"{"url":"https://example.com","prompt":"read"}"#;
    let shell = r#"{"bash_id":"1"}"#;
    let other = r#"{"path":"/b","query":"q"}"#;
    #[rustfmt::skip]
    let cases = [
        ("Bash", r#"{"command":"ls -l\npwd"}"#, "Run command", Some("terminal"), "Run command: ls -l", "ls -l\npwd", "Ran ls -l"),
        ("BashOutput", shell, "BashOutput", Some("terminal"), "BashOutput", shell, "BashOutput finished"),
        ("KillBash", shell, "KillBash", Some("terminal"), "KillBash", shell, "KillBash finished"),
        ("Read", file, "Read file", Some("read"), "Read file: /a.rs", file, "Read /a.rs"),
        ("NotebookRead", notebook, "NotebookRead", Some("read"), "NotebookRead: /a.ipynb", notebook, "NotebookRead: /a.ipynb"),
        ("Write", file, "Write file", None, "Write file: /a.rs", file, "Wrote /a.rs"),
        ("Edit", file, "Edit file", None, "Edit file: /a.rs", file, "Edited /a.rs"),
        ("MultiEdit", file, "Edit file", None, "Edit file: /a.rs", file, "Edited /a.rs"),
        ("Glob", pattern, "Glob", Some("search"), "Glob: fn main", pattern, "Glob: fn main"),
        ("Grep", pattern, "Grep", Some("search"), "Grep: fn main", pattern, "Grep: fn main"),
        ("WebFetch", url, "WebFetch", None, "WebFetch: https://example.com", url, "WebFetch: https://example.com"),
        ("Task", task, "Delegate", Some("subagent"), "Delegate: find it", task, "Delegate: find it"),
        ("Agent", task, "Delegate", Some("subagent"), "Delegate: find it", task, "Delegate: find it"),
        ("mcp__x__y", other, "mcp__x__y", None, "mcp__x__y: /b", other, "mcp__x__y: /b"),
        ("TodoWrite", "{}", "TodoWrite", None, "TodoWrite", "{}", "TodoWrite finished"),
    ];
    for name in TOOLS.iter().flat_map(|tool| tool.names) {
        assert_eq!(cases.iter().filter(|case| case.0 == *name).count(), 1, "{name} has no case");
    }
    for (name, input, display_name, kind, invocation, shown_input, past_tense) in cases {
        let expected = Shown {
            display_name: display_name.to_owned(),
            kind: kind.map(str::to_owned),
            invocation: invocation.to_owned(),
            input: shown_input.to_owned(),
            past_tense: past_tense.to_owned(),
        };
        assert_eq!(shown(name, input), expected, "{name}");
    }
}

#[test]
fn call_without_described_field_is_shown_by_name() {
    let bash = shown("Bash", "{}");
    assert_eq!((bash.invocation.as_str(), bash.input.as_str()), ("Run command", "{}"));
    assert_eq!(bash.past_tense, "Run command finished");
}

#[test]
fn long_description_is_cut() {
    let command = "é".repeat(SUMMARY_LENGTH + 1);
    let input = json!({ "command": command }).to_string();
    let cut = format!("{}…", "é".repeat(SUMMARY_LENGTH));
    let Shown { invocation, input, .. } = shown("Bash", &input);
    assert_eq!(invocation, format!("Run command: {cut}"));
    assert_eq!(input, command);
}

#[test]
fn failed_call_is_shown_with_display_name() {
    let mut calls = ToolCalls::default();
    calls.whole(&TurnId::new("turn"), &call("Read", "{}"));
    let actions = calls.complete(&result(true));
    let [StateAction::ChatToolCallComplete(complete)] = actions.as_slice() else {
        panic!("unexpected actions {actions:?}");
    };
    assert_eq!(text(complete.result.past_tense_message.clone()), "Read file failed");
}
