use ahp::reducers::apply_action_to_chat;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn empty_chat() -> ChatState {
    serde_json::from_value(json!({
        "resource": "ahp-chat:/1", "title": "", "status": 1,
        "modifiedAt": "2026-11-15T09:00:00.000Z", "turns": [],
    }))
    .unwrap()
}

fn action(value: Value) -> StateAction {
    let action: StateAction = serde_json::from_value(value.clone()).unwrap();
    assert!(!matches!(action, StateAction::Unknown(_)), "unknown action: {value}");
    action
}

/// Few ids and turns, so that actions often match: includes the empty id of an unknown
/// tool call.
fn id() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("a"), Just("b"), Just("c"), Just("")]
}

fn turn() -> impl Strategy<Value = &'static str> {
    prop_oneof![6 => Just("t1"), 1 => Just("t2")]
}

fn text() -> impl Strategy<Value = String> {
    "[a-zé\u{1F600}\"]{0,4}"
}

fn part() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => (id(), text()).prop_map(|(id, text)| json!({"kind": "markdown", "id": id, "content": text})),
        2 => (id(), text()).prop_map(|(id, text)| json!({"kind": "reasoning", "id": id, "content": text})),
        1 => id().prop_map(|id| json!({"kind": "toolCall", "toolCall": {
            "status": "running", "toolCallId": id, "toolName": "Bash", "displayName": "Bash",
            "invocationMessage": "runs", "confirmed": "not-needed",
        }})),
        1 => Just(json!({"kind": "toolCall", "toolCall": {"status": "from-the-future", "toolCallId": "a"}})),
        1 => Just(json!({"kind": "systemNotification", "content": "hello"})),
        1 => Just(json!({"kind": "from-the-future", "id": "a"})),
    ]
}

/// Streaming actions, which the index handles.
fn streaming() -> impl Strategy<Value = Value> {
    prop_oneof![
        (turn(), id(), text()).prop_map(|(turn, id, text)| {
            json!({"type": "chat/delta", "turnId": turn, "partId": id, "content": text})
        }),
        (turn(), id(), text()).prop_map(|(turn, id, text)| {
            json!({"type": "chat/reasoning", "turnId": turn, "partId": id, "content": text})
        }),
        (turn(), id(), text()).prop_map(|(turn, id, text)| {
            json!({"type": "chat/toolCallDelta", "turnId": turn, "toolCallId": id, "content": text})
        }),
        (turn(), id()).prop_map(|(turn, id)| {
            json!({"type": "chat/toolCallDelta", "turnId": turn, "toolCallId": id,
                "_meta": {"x": 1}, "invocationMessage": "now"})
        }),
    ]
}

/// Actions that add parts, change tool calls, and start and end turns.
fn other() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => (turn(), part()).prop_map(|(turn, part)| {
            json!({"type": "chat/responsePart", "turnId": turn, "part": part})
        }),
        4 => (turn(), id()).prop_map(|(turn, id)| {
            json!({"type": "chat/toolCallStart", "turnId": turn, "toolCallId": id,
                "toolName": "Bash", "displayName": "Bash"})
        }),
        2 => (turn(), id()).prop_map(|(turn, id)| {
            json!({"type": "chat/toolCallReady", "turnId": turn, "toolCallId": id,
                "invocationMessage": "runs", "confirmed": "not-needed"})
        }),
        2 => (turn(), id()).prop_map(|(turn, id)| {
            json!({"type": "chat/toolCallComplete", "turnId": turn, "toolCallId": id,
                "result": {"success": true, "pastTenseMessage": "ran"}})
        }),
        1 => turn().prop_map(|turn| json!({"type": "chat/usage", "turnId": turn, "usage": {"inputTokens": 3}})),
        1 => Just(json!({"type": "chat/activityChanged", "activity": "thinks"})),
        2 => turn().prop_map(|turn| json!({"type": "chat/turnStarted", "turnId": turn,
            "startedAt": "2026-11-15T09:00:05.000Z", "message": {"text": "hi", "origin": {"kind": "user"}}})),
        1 => turn().prop_map(|turn| json!({"type": "chat/turnComplete", "turnId": turn, "duration": 7})),
        1 => turn().prop_map(|turn| json!({"type": "chat/error", "turnId": turn, "duration": 7, "part": {
            "error": {"errorType": "x", "message": "y"}, "resumable": true}})),
        1 => turn().prop_map(|turn| json!({"type": "chat/turnResume", "turnId": turn})),
        1 => Just(json!({"type": "chat/truncated"})),
        1 => Just(json!({"type": "chat/inputRequested", "request": {"id": "a", "message": "?"}})),
        1 => Just(json!({"type": "session/titleChanged", "title": "not a chat"})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn indexed_result_equals_official_reducer(
        steps in proptest::collection::vec(prop_oneof![streaming(), other()], 0..80)
    ) {
        let (mut chat, mut official, mut index) = (empty_chat(), empty_chat(), PartIndex::default());
        for step in std::iter::once(json!({"type": "chat/turnStarted", "turnId": "t1",
            "startedAt": "2026-11-15T09:00:05.000Z", "message": {"text": "hi", "origin": {"kind": "user"}}}))
            .chain(steps)
        {
            let action = action(step);
            let expected = apply_action_to_chat(&mut official, &action);
            let outcome = match index.apply(&mut chat, &action) {
                Some(outcome) => outcome,
                None => apply_action_to_chat(&mut chat, &action),
            };
            prop_assert_eq!(outcome, expected);
            prop_assert_eq!(&chat, &official);
        }
    }
}

#[test]
fn index_is_cleared_for_new_turn_with_same_id() {
    let (mut chat, mut index) = (empty_chat(), PartIndex::default());
    let started = action(json!({"type": "chat/turnStarted", "turnId": "t",
        "startedAt": "2026-11-15T09:00:05.000Z", "message": {"text": "hi", "origin": {"kind": "user"}}}));
    let part = |id: &str| {
        action(json!({"type": "chat/responsePart", "turnId": "t",
            "part": {"kind": "markdown", "id": id, "content": ""}}))
    };
    let delta = action(json!({"type": "chat/delta", "turnId": "t", "partId": "a", "content": "x"}));
    for step in [&started, &part("a"), &delta, &started, &part("b"), &part("a"), &delta] {
        if index.apply(&mut chat, step).is_none() {
            apply_action_to_chat(&mut chat, step);
        }
    }
    let parts = serde_json::to_value(chat.active_turn.unwrap().response_parts).unwrap();
    let contents: Vec<&str> =
        parts.as_array().unwrap().iter().map(|part| part["content"].as_str().unwrap()).collect();
    assert_eq!(contents, ["", "x"]);
}
