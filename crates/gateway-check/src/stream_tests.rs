use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// One correctly framed event.
fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

fn start() -> Value {
    json!({"type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-a", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 9, "output_tokens": 1},
    }})
}

fn block(index: u64, content: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": content})
}

fn text(index: u64) -> Value {
    block(index, json!({"type": "text", "text": ""}))
}

fn thinking(index: u64) -> Value {
    block(index, json!({"type": "thinking", "thinking": "", "signature": ""}))
}

fn tool(index: u64) -> Value {
    block(index, json!({"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}))
}

fn delta(index: u64, kind: &str, field: &str, value: &str) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": {"type": kind, field: value}})
}

fn say(index: u64, words: &str) -> Value {
    delta(index, "text_delta", "text", words)
}

fn think(index: u64, words: &str) -> Value {
    delta(index, "thinking_delta", "thinking", words)
}

fn sign(index: u64) -> Value {
    delta(index, "signature_delta", "signature", "c2ln")
}

fn input(index: u64, piece: &str) -> Value {
    delta(index, "input_json_delta", "partial_json", piece)
}

fn stop(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn reason(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
           "usage": {"output_tokens": 12}})
}

fn end() -> Value {
    json!({"type": "message_stop"})
}

fn ping() -> Value {
    json!({"type": "ping"})
}

/// A complete message with this content.
fn message(content: &[Value], stop_reason: &str) -> Vec<Value> {
    let mut events = vec![start()];
    events.extend_from_slice(content);
    events.extend([reason(stop_reason), end()]);
    events
}

fn framed(events: &[Value]) -> String {
    events.iter().map(event).collect()
}

fn judge(bytes: impl AsRef<[u8]>) -> StreamVerdict {
    let mut validator = StreamValidator::default();
    validator.feed(bytes.as_ref());
    validator.finish()
}

fn rules(verdict: &StreamVerdict) -> Vec<Rule> {
    verdict.violations.iter().map(|violation| violation.rule).collect()
}

/// A response with all known kinds of content.
fn rich() -> Vec<Value> {
    message(
        &[
            ping(),
            thinking(0),
            think(0, "let me"),
            think(0, " see"),
            sign(0),
            stop(0),
            text(1),
            say(1, "Grüße \u{1f600}"),
            ping(),
            json!({"type": "content_block_delta", "index": 1,
                   "delta": {"type": "citations_delta", "citation": {"type": "page_location"}}}),
            stop(1),
            tool(2),
            input(2, ""),
            input(2, "{\"path\": \"a"),
            input(2, "b\"}"),
            stop(2),
            tool(3),
            stop(3),
            block(4, json!({"type": "redacted_thinking", "data": "eHg="})),
            stop(4),
            block(5, json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []})),
            stop(5),
        ],
        "tool_use",
    )
}

#[test]
fn valid_streams_have_no_violations() {
    let empty_answer = message(&[], "end_turn");
    let ping_first = [vec![ping()], empty_answer.clone()].concat();
    let mut with_interim = message(&[text(0), say(0, "a"), stop(0)], "max_tokens");
    with_interim.insert(4, json!({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 5}}));
    for events in [rich(), empty_answer, ping_first, with_interim] {
        let verdict = judge(framed(&events));
        assert!(verdict.is_ok(), "{verdict:?}");
        assert_eq!(verdict.events, events.len());
    }
    let verdict = judge(framed(&rich()));
    assert_eq!(
        verdict.blocks,
        ["thinking", "text", "tool_use", "redacted_thinking", "web_search_tool_result"]
    );
    assert_eq!(verdict.notes, Vec::<String>::new());
}

#[test]
fn line_breaks_comments_and_split_data_do_not_change_verdict() {
    let plain = framed(&rich());
    let expected = judge(&plain);
    let comments = plain.replace("event: ", ": keep-alive\nid: 7\nretry: 10\nevent:");
    let split = plain.replace("\"type\":\"ping\"", "\ndata: \"type\":\"ping\"");
    for variant in [plain.replace('\n', "\r\n"), plain.replace('\n', "\r"), comments, split] {
        assert_eq!(judge(&variant), expected, "{variant}");
    }
}

#[test]
fn unknown_types_are_notes() {
    let new_block = block(0, json!({"type": "hologram"}));
    let new_delta = delta(0, "hologram_delta", "light", "x");
    let content = [json!({"type": "weather"}), new_block, new_delta, say(0, "a"), stop(0)];
    let verdict = judge(framed(&message(&content, "bored")));
    assert!(verdict.is_ok(), "{verdict:?}");
    assert_eq!(
        verdict.notes,
        [
            "unknown event `weather`",
            "content block of unknown type `hologram`",
            "delta of unknown type `hologram_delta`",
            "unknown stop_reason `bored`",
        ]
    );
}

#[test]
fn truncated_tool_input_is_valid_only_at_token_limit() {
    let cut = [tool(0), input(0, "{\"a\": ["), stop(0)];
    let verdict = judge(framed(&message(&cut, "max_tokens")));
    assert!(verdict.is_ok() && verdict.notes == ["tool input truncated by max_tokens"], "{verdict:?}");
    assert_eq!(rules(&judge(framed(&message(&cut, "tool_use")))), [Rule::ToolInputJson]);
    let followed = [cut.as_slice(), &[text(1), stop(1)]].concat();
    assert_eq!(rules(&judge(framed(&message(&followed, "max_tokens")))), [Rule::ToolInputJson]);
}

#[test]
fn thinking_without_signature_is_a_note() {
    let verdict = judge(framed(&message(&[thinking(0), think(0, "hm"), stop(0)], "end_turn")));
    assert!(verdict.is_ok() && verdict.notes == ["thinking block without a signature"], "{verdict:?}");
}

#[test]
fn each_order_defect_violates_only_its_rule() {
    let hello = [text(0), say(0, "hello"), stop(0)];
    let good = message(&hello, "end_turn");
    let without = |index: usize| {
        let mut events = good.clone();
        events.remove(index);
        events
    };
    let plus = |event: Value| [good.clone(), vec![event]].concat();
    let content = |content: &[Value]| message(content, "end_turn");
    let failed = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
    let odd_error = json!({"type": "error", "error": "busy"});
    let cases: Vec<(&str, Vec<Value>, Vec<Rule>)> = vec![
        ("empty", vec![], vec![Rule::StartFirst]),
        ("only a ping", vec![ping()], vec![Rule::StartFirst]),
        ("no start", without(0), vec![Rule::StartFirst]),
        (
            "unknown event first",
            [vec![json!({"type": "new"})], good.clone()].concat(),
            vec![Rule::StartFirst, Rule::StartOnce],
        ),
        ("two starts", content(&[start()]), vec![Rule::StartOnce]),
        ("no block start", without(1), vec![Rule::BlockOpen, Rule::BlockOpen]),
        ("no block stop", without(3), vec![Rule::BlockStopped]),
        ("no stop reason", without(4), vec![Rule::StopReason]),
        ("no message stop", without(5), vec![Rule::StopLast]),
        ("cut in a block", good[..3].to_vec(), vec![Rule::StopLast]),
        ("ping after the end", plus(ping()), vec![Rule::NothingAfter]),
        ("two stops", plus(end()), vec![Rule::NothingAfter]),
        ("first index 1", content(&[text(1), stop(1)]), vec![Rule::BlockIndex]),
        ("gap", content(&[text(0), stop(0), text(2), stop(2)]), vec![Rule::BlockIndex]),
        ("same index", content(&[text(0), stop(0), text(0), stop(0)]), vec![Rule::BlockIndex]),
        (
            "no index",
            content(&[
                json!({"type": "content_block_start", "content_block": {"type": "text", "text": ""}}),
                stop(0),
            ]),
            vec![Rule::BlockIndex],
        ),
        (
            "interleaved",
            content(&[text(0), text(1), say(0, "a"), say(1, "b"), stop(1)]),
            vec![Rule::BlockOverlap, Rule::BlockOpen],
        ),
        ("stopped twice", content(&[text(0), stop(0), stop(0)]), vec![Rule::BlockOpen]),
        ("two reasons", [good[..5].to_vec(), good[4..].to_vec()].concat(), vec![Rule::StopReasonOnce]),
        (
            "block after the reason",
            [good[..5].to_vec(), vec![text(1), stop(1), end()]].concat(),
            vec![Rule::NothingAfter],
        ),
        ("tool_use without a tool", message(&hello, "tool_use"), vec![Rule::StopReasonFits]),
        ("error", [good[..3].to_vec(), vec![failed.clone()]].concat(), vec![Rule::NoError]),
        ("error at once", vec![failed.clone()], vec![Rule::NoError]),
        (
            "error, then a stop",
            [good[..3].to_vec(), vec![failed, end()]].concat(),
            vec![Rule::NoError, Rule::NothingAfter],
        ),
        ("odd error", [good[..3].to_vec(), vec![odd_error]].concat(), vec![Rule::NoError, Rule::ErrorShape]),
    ];
    for (name, events, expected) in cases {
        let verdict = judge(framed(&events));
        assert_eq!(rules(&verdict), expected, "{name}: {verdict:?}");
        assert!(!verdict.is_ok(), "{name}");
    }
}

#[test]
fn each_content_defect_violates_only_its_rule() {
    let cases: Vec<(&str, Vec<Value>, Rule)> = vec![
        ("text in a tool", vec![tool(0), say(0, "a"), stop(0)], Rule::DeltaKind),
        ("input in a text", vec![text(0), input(0, "{}"), stop(0)], Rule::DeltaKind),
        ("thinking in a text", vec![text(0), think(0, "a"), stop(0)], Rule::DeltaKind),
        (
            "delta in a whole block",
            vec![block(0, json!({"type": "redacted_thinking", "data": "x"})), say(0, "a"), stop(0)],
            Rule::DeltaKind,
        ),
        ("empty delta", vec![text(0), delta(0, "text_delta", "words", "a"), stop(0)], Rule::DeltaShape),
        (
            "no delta",
            vec![text(0), json!({"type": "content_block_delta", "index": 0}), stop(0)],
            Rule::DeltaShape,
        ),
        (
            "no content block",
            vec![json!({"type": "content_block_start", "index": 0}), stop(0)],
            Rule::BlockShape,
        ),
        ("untyped block", vec![block(0, json!({"text": ""})), stop(0)], Rule::BlockShape),
        ("text without text", vec![block(0, json!({"type": "text"})), stop(0)], Rule::BlockShape),
        (
            "tool without a name",
            vec![block(0, json!({"type": "tool_use", "id": "t", "input": {}})), stop(0)],
            Rule::BlockShape,
        ),
        (
            "input at the start",
            vec![block(0, json!({"type": "tool_use", "id": "t", "name": "n", "input": {"a": 1}})), stop(0)],
            Rule::ToolInputInDeltas,
        ),
        ("input is a list", vec![tool(0), input(0, "[1]"), stop(0)], Rule::ToolInputJson),
        ("input is not JSON", vec![tool(0), input(0, "{a}"), stop(0)], Rule::ToolInputJson),
        ("input twice", vec![tool(0), input(0, "{}"), input(0, "{}"), stop(0)], Rule::ToolInputJson),
        (
            "thinking after its signature",
            vec![thinking(0), think(0, "a"), sign(0), think(0, "b"), stop(0)],
            Rule::ThinkingOrder,
        ),
        ("two signatures", vec![thinking(0), sign(0), sign(0), stop(0)], Rule::ThinkingOrder),
    ];
    for (name, content, expected) in cases {
        let verdict = judge(framed(&message(&content, "end_turn")));
        assert_eq!(rules(&verdict), [expected], "{name}: {verdict:?}");
    }
}

#[test]
fn each_message_field_defect_violates_its_rule() {
    let change = |index: usize, pointer: &str, new: Value| {
        let mut events = message(&[], "end_turn");
        *events[index].pointer_mut(pointer).unwrap() = new;
        rules(&judge(framed(&events)))
    };
    assert_eq!(change(0, "/message/id", json!("")), [Rule::StartShape]);
    assert_eq!(change(0, "/message/role", json!("user")), [Rule::StartShape]);
    assert_eq!(change(0, "/message/content", json!([{"type": "text", "text": "a"}])), [Rule::StartShape]);
    assert_eq!(change(0, "/message/stop_reason", json!("end_turn")), [Rule::StartShape]);
    assert_eq!(change(0, "/message", json!(null)), [Rule::StartShape]);
    assert_eq!(change(0, "/message/usage", json!(null)), [Rule::UsagePresent]);
    assert_eq!(change(0, "/message/usage", json!({"output_tokens": 1})), [Rule::UsagePresent]);
    assert_eq!(change(1, "/usage", json!({})), [Rule::UsagePresent]);
    assert_eq!(change(1, "/usage/output_tokens", json!("12")), [Rule::UsagePresent]);
    assert_eq!(change(1, "/usage/output_tokens", json!(0)), [Rule::UsageMonotone]);
    assert_eq!(change(1, "/delta/stop_reason", json!(null)), [Rule::StopReason]);
    assert_eq!(change(1, "/delta/stop_reason", json!(5)), [Rule::StopReason]);
}

#[test]
fn each_framing_defect_violates_its_rule() {
    let good = framed(&message(&[text(0), say(0, "a"), stop(0)], "end_turn"));
    let replaced = |from: &str, to: &str| {
        let changed = good.replacen(from, to, 1);
        assert_ne!(changed, good, "{from}");
        rules(&judge(changed))
    };
    assert_eq!(replaced("event: content_block_delta\n", ""), [Rule::EventName]);
    assert_eq!(replaced("event: content_block_delta\n", "event: delta\n"), [Rule::NameIsType]);
    assert_eq!(
        replaced("event: content_block_delta", "event: ping\n\nevent: content_block_delta"),
        [Rule::EventJson]
    );
    assert_eq!(
        replaced("event: content_block_delta", "data: [DONE]\n\nevent: content_block_delta"),
        [Rule::EventJson]
    );
    assert_eq!(
        replaced("event: content_block_delta", "data: [1]\n\nevent: content_block_delta"),
        [Rule::EventJson]
    );
    assert_eq!(
        replaced("event: content_block_delta", "data: {}\n\nevent: content_block_delta"),
        [Rule::EventJson]
    );
    assert_eq!(rules(&judge(good.trim_end())), [Rule::WholeEvents, Rule::StopLast]);
    assert_eq!(rules(&judge(good.clone() + "data: x")), [Rule::WholeEvents]);
    let bytes: Vec<u8> = [good.as_bytes(), b"data: \xc3\x28\n\n"].concat();
    assert_eq!(rules(&judge(bytes)), [Rule::Utf8]);
}

#[test]
fn exceeded_limit_ends_validation() {
    let good = framed(&rich());
    let run = |event: usize, stream: usize| {
        let mut validator = StreamValidator::new(StreamLimits { event, stream });
        validator.feed(good.as_bytes());
        let over = validator.is_over();
        let verdict = validator.finish();
        assert_eq!(over, verdict.ending == StreamEnding::Truncated);
        rules(&verdict)
    };
    let longest = good.split_inclusive("\n\n").map(str::len).max().unwrap();
    assert_eq!(run(longest, good.len()), []);
    assert_eq!(run(longest - 1, good.len()), [Rule::EventSize]);
    assert_eq!(run(longest, good.len() - 1), [Rule::StreamSize]);
}

#[test]
fn violations_are_bounded_and_omitted_ones_counted() {
    let verdict = judge("data: x\n\n".repeat(1000));
    let json = Rule::EventJson;
    assert_eq!(rules(&verdict), [json, json, json, json, Rule::StartFirst]);
    assert_eq!(verdict.omitted, 996);
}

#[test]
fn ending_distinguishes_errors_from_truncation() {
    let failed = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
    assert_eq!(judge(framed(&rich())).ending, StreamEnding::Complete);
    assert_eq!(judge(framed(&[start(), failed])).ending, StreamEnding::Error("overloaded_error".into()));
    assert_eq!(judge(framed(&[start()])).ending, StreamEnding::Truncated);
}

#[test]
fn violation_is_displayed_as_sentence() {
    let verdict = judge(framed(&message(&[text(1), stop(1)], "end_turn")));
    assert_eq!(
        verdict.violations[0].to_string(),
        "event 2: index 1, not 0; expected content blocks numbered from 0 without gaps"
    );
}

/// A stream with random defects: events removed, doubled, swapped and overwritten.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let edits = prop::collection::vec((0..4_u8, any::<prop::sample::Index>(), any::<u8>()), 0..6);
    edits.prop_map(|edits| {
        let mut events: Vec<Vec<u8>> = rich().iter().map(|data| event(data).into_bytes()).collect();
        for (kind, place, byte) in edits {
            let index = place.index(events.len());
            match kind {
                0 if events.len() > 1 => drop(events.remove(index)),
                1 => events.insert(index, events[index].clone()),
                2 => {
                    let other = usize::from(byte) % events.len();
                    events.swap(index, other);
                }
                _ => {
                    let at = usize::from(byte) % events[index].len();
                    events[index][at] = byte;
                }
            }
        }
        events.concat()
    })
}

/// Validates bytes split at the given positions.
fn judge_in_chunks(limits: StreamLimits, bytes: &[u8], cuts: &[prop::sample::Index]) -> StreamVerdict {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    places.sort_unstable();
    let mut validator = StreamValidator::new(limits);
    let mut from = 0;
    for place in places {
        validator.feed(&bytes[from..place]);
        from = place;
    }
    validator.feed(&bytes[from..]);
    validator.finish()
}

proptest! {
    #[test]
    fn chunk_boundaries_do_not_change_verdict(
        bytes in damaged(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        event in 100..600_usize,
        stream in 500..6000_usize,
    ) {
        for limits in [StreamLimits::default(), StreamLimits { event, stream }] {
            let whole = judge_in_chunks(limits, &bytes, &[]);
            prop_assert_eq!(judge_in_chunks(limits, &bytes, &cuts), whole);
        }
    }

    #[test]
    fn truncated_stream_is_never_complete(cut in any::<prop::sample::Index>()) {
        let bytes = framed(&rich()).into_bytes();
        let verdict = judge(&bytes[..cut.index(bytes.len())]);
        prop_assert!(!verdict.is_ok());
        prop_assert_eq!(verdict.ending, StreamEnding::Truncated);
    }

    #[test]
    fn random_bytes_get_a_verdict(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
        prop_assert!(!judge(&bytes).is_ok());
    }
}
