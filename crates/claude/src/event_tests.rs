use super::*;
use crate::wire::decode;

/// The events of a line, in debug format.
fn events(line: &str) -> Vec<String> {
    classify(&decode(line.as_bytes()).unwrap()).iter().map(|kind| format!("{kind:?}")).collect()
}

#[test]
fn assistant_message_yields_its_blocks_in_order() {
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
fn generated_error_message_is_an_error() {
    let line = r#"{"type":"assistant","error":"rate_limit",
        "message":{"model":"<synthetic>","content":[{"type":"text","text":"API Error: 429"}]}}"#;
    assert_eq!(events(line), [r#"Error { message: "API Error: 429" }"#]);
}

#[test]
fn tool_result_is_text_and_other_blocks_are_json() {
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
fn text_and_thinking_deltas_have_their_own_kinds() {
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
fn failed_turn_is_error_and_result_and_interrupted_turn_is_result() {
    let line = r#"{"type":"result","subtype":"error_max_turns","is_error":true,"errors":["too many turns"]}"#;
    assert_eq!(events(line).len(), 2);
    assert_eq!(events(line)[0], r#"Error { message: "too many turns" }"#);
    let line = r#"{"type":"result","subtype":"error_during_execution","is_error":true,
        "terminal_reason":"aborted_streaming","errors":["diagnostic"]}"#;
    assert_eq!(events(line).len(), 1);
}

#[test]
fn compact_boundary_is_compaction_and_repeated_init_is_not() {
    let line = r#"{"type":"system","subtype":"compact_boundary",
        "compact_metadata":{"trigger":"auto","pre_tokens":185000}}"#;
    assert_eq!(events(line), [r#"Compaction { trigger: Some("auto"), tokens_before: Some(185000) }"#]);
    assert_eq!(events(r#"{"type":"system","subtype":"init"}"#), ["Other"]);
}

#[test]
fn echoes_and_unknown_messages_are_other_events() {
    let echo = r#"{"type":"user","isReplay":true,"message":{"content":[{"type":"text","text":"hi"}]}}"#;
    for line in [echo, r#"{"type":"brand_new"}"#, r#"{"type":"keep_alive"}"#] {
        assert_eq!(events(line), ["Other"]);
    }
}
