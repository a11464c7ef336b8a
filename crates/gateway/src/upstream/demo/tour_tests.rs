use super::*;
use crate::upstream::demo::plan::{CallAction, StopReason};

const OFFERED: [&str; 6] = ["Agent", "AskUserQuestion", "Bash", "Edit", "Read", "Write"];

fn offered(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Takes the whole tour with the results of `respond`; returns the tools and the summary.
fn take(names: &[&str], respond: impl Fn(&str, usize) -> Option<String>) -> (Vec<String>, String) {
    let names = offered(names);
    let mut calls: Vec<ToolCall> = Vec::new();
    loop {
        let call = next_call(&calls, &names);
        let mut wrap_up = String::new();
        let mut tool = None;
        for action in call.actions {
            match action {
                CallAction::Send(Part::Text(text)) => wrap_up = text,
                CallAction::Send(Part::ToolUse { name, .. }) => tool = Some(name),
                CallAction::Send(Part::Thinking(_))
                | CallAction::Wait(_)
                | CallAction::Chunk(_)
                | CallAction::Fault { .. } => {}
            }
        }
        let Some(name) = tool else {
            assert_eq!(call.stop, StopReason::EndTurn);
            return (calls.into_iter().map(|call| call.name).collect(), wrap_up);
        };
        assert_eq!(call.stop, StopReason::ToolUse);
        let failure = respond(&name, calls.len());
        calls.push(ToolCall { name, failure });
        assert!(calls.len() < 20, "the tour does not end: {calls:?}");
    }
}

#[test]
fn tour_calls_every_tool_and_ends_with_summary() {
    let (tools, wrap_up) = take(&OFFERED, |_, _| None);
    assert_eq!(tools, ["Read", "Write", "Edit", "Bash", "AskUserQuestion", "Agent"]);
    assert_eq!(wrap_up.matches(": done").count(), 6, "{wrap_up}");
}

#[test]
fn denied_calls_do_not_stop_tour_and_are_listed() {
    let refusal = |_: &str, _: usize| {
        Some("<tool_use_error>The user said `no`</tool_use_error>\n<system-reminder>".to_owned())
    };
    let (tools, wrap_up) = take(&OFFERED, refusal);
    assert_eq!(tools, ["Read", "Write", "Edit", "Bash", "AskUserQuestion", "Agent"]);
    assert_eq!(wrap_up.matches("failed (The user said 'no')").count(), 6, "{wrap_up}");
}

#[test]
fn file_from_earlier_tour_is_read_before_overwriting() {
    let unread = |name: &str, place: usize| {
        (name == "Write" && place == 1).then(|| "File has not been read yet. Read it first".to_owned())
    };
    let (tools, wrap_up) = take(&OFFERED, unread);
    assert_eq!(tools, ["Read", "Write", "Read", "Write", "Edit", "Bash", "AskUserQuestion", "Agent"]);
    assert!(!wrap_up.contains("failed"), "{wrap_up}");
}

#[test]
fn tool_that_is_not_offered_is_skipped() {
    let (tools, _) = take(&["Bash", "Task"], |_, _| None);
    assert_eq!(tools, ["Bash", "Task"]);
    let (tools, wrap_up) = take(&[], |_, _| None);
    assert!(tools.is_empty() && wrap_up.contains("offers none"), "{wrap_up}");
}
