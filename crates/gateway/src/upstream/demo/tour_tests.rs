use super::*;
use crate::upstream::demo::plan::{Act, StopReason};

const OFFERED: [&str; 6] = ["Agent", "AskUserQuestion", "Bash", "Edit", "Read", "Write"];

fn offered(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Takes the whole tour, each tool answered by `respond`; returns the tools and the wrap-up.
fn take(names: &[&str], respond: impl Fn(&str, usize) -> Option<String>) -> (Vec<String>, String) {
    let names = offered(names);
    let mut calls: Vec<ToolCall> = Vec::new();
    loop {
        let call = next_call(&calls, &names);
        let mut wrap_up = String::new();
        let mut tool = None;
        for act in call.acts {
            match act {
                Act::Say(Part::Text(text)) => wrap_up = text,
                Act::Say(Part::ToolUse { name, .. }) => tool = Some(name),
                Act::Say(Part::Thinking(_)) | Act::Wait(_) | Act::Chunk(_) | Act::Fault { .. } => {}
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
fn the_tour_shows_every_tool_and_sums_up() {
    let (tools, wrap_up) = take(&OFFERED, |_, _| None);
    assert_eq!(tools, ["Read", "Write", "Edit", "Bash", "AskUserQuestion", "Agent"]);
    assert_eq!(wrap_up.matches(": done").count(), 6, "{wrap_up}");
}

#[test]
fn refusals_move_the_tour_on_and_are_told_at_the_end() {
    let refusal = |_: &str, _: usize| {
        Some("<tool_use_error>The user said `no`</tool_use_error>\n<system-reminder>".to_owned())
    };
    let (tools, wrap_up) = take(&OFFERED, refusal);
    assert_eq!(tools, ["Read", "Write", "Edit", "Bash", "AskUserQuestion", "Agent"]);
    assert_eq!(wrap_up.matches("did not happen (The user said 'no')").count(), 6, "{wrap_up}");
}

#[test]
fn a_file_from_an_earlier_tour_is_read_and_then_overwritten() {
    let unread = |name: &str, place: usize| {
        (name == "Write" && place == 1).then(|| "File has not been read yet. Read it first".to_owned())
    };
    let (tools, wrap_up) = take(&OFFERED, unread);
    assert_eq!(tools, ["Read", "Write", "Read", "Write", "Edit", "Bash", "AskUserQuestion", "Agent"]);
    assert!(!wrap_up.contains("did not happen"), "{wrap_up}");
}

#[test]
fn a_tool_that_is_not_offered_is_left_out() {
    let (tools, _) = take(&["Bash", "Task"], |_, _| None);
    assert_eq!(tools, ["Bash", "Task"]);
    let (tools, wrap_up) = take(&[], |_, _| None);
    assert!(tools.is_empty() && wrap_up.contains("offers none"), "{wrap_up}");
}
