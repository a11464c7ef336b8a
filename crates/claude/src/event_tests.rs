use super::*;
use crate::wire::decode;

/// The events of a line, as words.
fn events(line: &str) -> Vec<String> {
    classify(&decode(line.as_bytes()).unwrap()).iter().map(|kind| format!("{kind:?}")).collect()
}

#[test]
fn an_answer_is_its_blocks_in_order() {
    let line = r#"{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"hm"},
        {"type":"text","text":"hi"},{"type":"tool_use","id":"t","name":"Read","input":{"a":1}}]}}"#;
    assert_eq!(
        events(line),
        [
            r#"Thinking { text: "hm" }"#,
            r#"Text { text: "hi" }"#,
            r#"ToolUse { id: "t", name: "Read", input: Some(RawValue({"a":1})) }"#,
        ]
    );
}

#[test]
fn an_answer_that_the_runtime_made_up_is_an_error() {
    let line = r#"{"type":"assistant","error":"rate_limit",
        "message":{"model":"<synthetic>","content":[{"type":"text","text":"API Error: 429"}]}}"#;
    assert_eq!(events(line), [r#"Error { message: "API Error: 429" }"#]);
}

#[test]
fn a_tool_result_is_text_and_the_rest_of_it_json() {
    let line = r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","is_error":true,
        "content":[{"type":"text","text":"no"},{"type":"image","source":1}]}]}}"#;
    assert_eq!(
        events(line),
        [
            r#"ToolResult { tool_use_id: "t", output: "no\n{\"type\":\"image\",\"source\":1}", is_error: true }"#
        ]
    );
}

#[test]
fn deltas_of_text_and_thinking_are_told_apart_from_the_rest() {
    let delta = |delta: &str| {
        format!(r#"{{"type":"stream_event","event":{{"type":"content_block_delta","delta":{delta}}}}}"#)
    };
    assert_eq!(events(&delta(r#"{"type":"text_delta","text":"a"}"#)), [r#"TextDelta { text: "a" }"#]);
    assert_eq!(
        events(&delta(r#"{"type":"thinking_delta","thinking":"b"}"#)),
        [r#"ThinkingDelta { text: "b" }"#]
    );
    assert_eq!(events(&delta(r#"{"type":"input_json_delta","partial_json":"{"}"#)), ["Other"]);
}

#[test]
fn a_failed_turn_is_an_error_and_a_result_and_an_interrupted_one_a_result() {
    let line = r#"{"type":"result","subtype":"error_max_turns","is_error":true,"errors":["too many turns"]}"#;
    assert_eq!(events(line).len(), 2);
    assert_eq!(events(line)[0], r#"Error { message: "too many turns" }"#);
    let line = r#"{"type":"result","subtype":"error_during_execution","is_error":true,
        "terminal_reason":"aborted_streaming","errors":["diagnostic"]}"#;
    assert_eq!(events(line).len(), 1);
}

#[test]
fn the_boundary_is_the_compaction_and_another_init_is_none() {
    let line = r#"{"type":"system","subtype":"compact_boundary",
        "compact_metadata":{"trigger":"auto","pre_tokens":185000}}"#;
    assert_eq!(events(line), [r#"Compaction { trigger: Some("auto"), tokens_before: Some(185000) }"#]);
    assert_eq!(events(r#"{"type":"system","subtype":"init"}"#), ["Other"]);
}

#[test]
fn echoes_and_unknown_messages_are_events_of_no_kind() {
    let echo = r#"{"type":"user","isReplay":true,"message":{"content":[{"type":"text","text":"hi"}]}}"#;
    for line in [echo, r#"{"type":"brand_new"}"#, r#"{"type":"keep_alive"}"#] {
        assert_eq!(events(line), ["Other"]);
    }
}
