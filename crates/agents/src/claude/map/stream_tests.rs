use ahp_types::actions::StateAction;
use innkeeper_claude::wire::decode;
use innkeeper_core::agent::AgentEvent;
use innkeeper_core::ids::TurnId;
use serde_json::{Value, json};

use super::super::Mapper;

/// Maps frames; returns parts as they are added, and `-` with the parts that are discarded.
fn shown(frames: &[Value]) -> Vec<String> {
    let mut mapper = Mapper::default();
    let turn = TurnId::new("t");
    let mut shown = Vec::new();
    for frame in frames {
        let message = decode(frame.to_string().as_bytes()).unwrap();
        for event in mapper.map(&turn, &message) {
            match event {
                AgentEvent::Action(action) => match *action {
                    StateAction::ChatDelta(delta) => {
                        shown.push(format!("{}: {}", delta.part_id, delta.content))
                    }
                    StateAction::ChatToolCallStart(start) => shown.push(start.tool_call_id),
                    StateAction::ChatResponsePart(part) => {
                        let part = serde_json::to_value(part.part).unwrap();
                        if part["content"] != "" {
                            shown.push(format!("{}: {}", part["id"], part["content"]).replace('"', ""));
                        }
                    }
                    StateAction::ChatToolCallReady(_)
                    | StateAction::ChatToolCallDelta(_)
                    | StateAction::ChatActivityChanged(_) => {}
                    other => panic!("unexpected action {other:?}"),
                },
                AgentEvent::PartsDiscarded { turn, parts } => {
                    assert_eq!(turn.as_str(), "t");
                    shown.push(format!("-{}", parts.join(" ")));
                }
                AgentEvent::Used { .. } => {}
                other => panic!("unexpected event {other:?}"),
            }
        }
    }
    shown
}

fn event(event: &Value) -> Value {
    json!({"type": "stream_event", "event": event})
}

fn start(id: &str) -> Value {
    event(&json!({"type": "message_start", "message": {"id": id, "model": "m"}}))
}

/// The start of a text block with its text.
fn text(index: u32, text: &str) -> [Value; 2] {
    let block = json!({"type": "text", "text": ""});
    [
        event(&json!({"type": "content_block_start", "index": index, "content_block": block})),
        event(
            &json!({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}}),
        ),
    ]
}

fn tool(index: u32, id: &str) -> Value {
    let block = json!({"type": "tool_use", "id": id, "name": "Bash", "input": {}});
    event(&json!({"type": "content_block_start", "index": index, "content_block": block}))
}

fn kept(id: &str, content: &Value) -> Value {
    json!({"type": "assistant", "message": {"id": id, "content": [content]}})
}

fn kept_text(id: &str, text: &str) -> Value {
    kept(id, &json!({"type": "text", "text": text}))
}

fn stop() -> Value {
    event(&json!({"type": "message_stop"}))
}

fn broken(from: u32) -> Value {
    let mark = json!({"from_block_index": from});
    json!({"type": "stream_event", "event": {"type": "message_stop"}, "abandoned_blocks": mark})
}

fn failed(text: &str) -> Value {
    let content = json!([{"type": "text", "text": text}]);
    let message = json!({"id": "e", "model": "<synthetic>", "content": content});
    json!({"type": "assistant", "error": "unknown", "message": message})
}

fn concat(parts: &[&[Value]]) -> Vec<Value> {
    parts.concat()
}

#[test]
fn unconfirmed_blocks_are_discarded_when_answer_starts_again() {
    let frames = concat(&[&[start("a")], &text(0, "half"), &[tool(1, "k"), start("b")], &text(0, "whole")]);
    assert_eq!(shown(&frames), ["t#a#0: half", "k", "-t#a#0 k", "t#b#0: whole"]);
    let frames = concat(&[&[start("a")], &text(0, "half"), &[kept_text("b", "whole")]]);
    assert_eq!(shown(&frames), ["t#a#0: half", "-t#a#0", "t#b#0: whole"]);
    let frames = concat(&[&[start("a")], &text(0, "half"), &[failed("no")]]);
    assert_eq!(shown(&frames), ["t#a#0: half", "-t#a#0"]);
}

#[test]
fn confirmed_blocks_stay_when_answer_breaks_off_after_them() {
    let first = concat(&[&[start("a")], &text(0, "one"), &[kept_text("a", "one")]]);
    let frames = concat(&[&first, &text(1, "ha"), &[broken(1), start("b")], &text(0, "two")]);
    assert_eq!(shown(&frames), ["t#a#0: one", "t#a#1: ha", "-t#a#1", "t#b#0: two"]);
    let frames = concat(&[&first, &[stop(), start("b")], &text(0, "two"), &[stop(), start("c")]]);
    assert_eq!(shown(&frames), ["t#a#0: one", "t#b#0: two"]);
}

#[test]
fn answer_that_repeats_a_broken_one_replaces_it() {
    let attempt = |id: &str| {
        concat(&[&[start(id)], &text(0, "Something first."), &[kept_text(id, "Something first."), broken(1)]])
    };
    let frames = concat(&[&attempt("a"), &attempt("b"), &attempt("c"), &[failed("lost")]]);
    let expected =
        ["t#a#0: Something first.", "t#b#0: Something first.", "-t#a#0", "t#c#0: Something first.", "-t#b#0"];
    assert_eq!(shown(&frames), expected);
    let other = concat(&[&[start("b")], &text(0, " and more"), &[kept_text("b", " and more"), stop()]]);
    let continued = concat(&[&attempt("a"), &other]);
    assert_eq!(shown(&continued), ["t#a#0: Something first.", "t#b#0:  and more"]);
}

#[test]
fn interrupted_answer_stays() {
    let interrupted = json!({"type": "result", "subtype": "error_during_execution", "is_error": true});
    let frames = concat(&[&[start("a")], &text(0, "half"), &[broken(0)]]);
    assert_eq!(shown(&frames), ["t#a#0: half"]);
    let mut mapper = Mapper::default();
    let message = decode(interrupted.to_string().as_bytes()).unwrap();
    let events = mapper.map(&TurnId::new("t"), &message);
    assert!(!events.iter().any(|event| matches!(event, AgentEvent::PartsDiscarded { .. })));
}

#[test]
fn retry_of_a_subagent_leaves_the_streamed_answer() {
    let retry = json!({"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 2});
    let frames = concat(&[&[start("a")], &text(0, "one"), std::slice::from_ref(&retry), &text(1, "two")]);
    assert_eq!(shown(&frames), ["t#a#0: one", "t#a#1: two"]);
    let frames = concat(&[&[start("a")], &text(0, "one"), &[broken(0), retry]]);
    assert_eq!(shown(&frames), ["t#a#0: one", "-t#a#0"]);
}

#[test]
fn messages_of_subagents_do_not_disturb_the_stream() {
    let mut inner = kept("x", &json!({"type": "tool_use", "id": "k2", "name": "Bash", "input": {}}));
    inner["parent_tool_use_id"] = json!("k1");
    let mut other = tool(0, "k3");
    other["api_message_id"] = json!("elsewhere");
    let frames = concat(&[&[start("a")], &text(0, "one"), &[inner, other], &text(1, "two")]);
    assert_eq!(shown(&frames), ["t#a#0: one", "t#a#1: two"]);
}

#[test]
fn error_that_the_turn_survives_becomes_a_note() {
    let frames = [failed("API Error: Connection lost mid-response."), start("a")];
    assert_eq!(shown(&frames), ["null: API Error: Connection lost mid-response."]);
}

#[test]
fn encrypted_reasoning_is_noted() {
    let block = json!({"type": "redacted_thinking", "data": "abc"});
    let begin = event(&json!({"type": "content_block_start", "index": 0, "content_block": block}));
    let frames = [start("a"), begin, kept("a", &json!({"type": "redacted_thinking", "data": "abc"}))];
    assert_eq!(shown(&frames), ["t#a#0: This part of the reasoning is encrypted and cannot be shown."]);
}
