use serde_json::{Value, json};

use super::*;

fn whole() -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-a",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "hello"},
            {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}},
            {"type": "something_new", "whatever": 1},
        ],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {"input_tokens": 3, "output_tokens": 4},
        "context_management": null,
    })
}

fn list() -> Value {
    let model = |id: &str| json!({"type": "model", "id": id, "display_name": id, "created_at": "2026-01-01T00:00:00Z"});
    json!({"data": [model("a"), model("b")], "has_more": false, "first_id": "a", "last_id": "b"})
}

/// Replaces a field of a value; null removes it.
fn with(mut value: Value, pointer: &str, new: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let object = value.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    if new.is_null() {
        object.remove(field).unwrap();
    } else {
        object.insert(field.to_owned(), new);
    }
    value
}

#[test]
fn complete_message_has_no_defects() {
    assert_eq!(message(&whole()), Vec::<String>::new());
}

#[test]
fn each_defect_of_a_message_is_reported() {
    for (pointer, new, expected) in [
        ("/type", json!("completion"), "`type` is \"completion\", not \"message\""),
        ("/role", json!("user"), "`role` is \"user\", not \"assistant\""),
        ("/id", json!(""), "no `id`"),
        ("/model", Value::Null, "no `model`"),
        ("/content", json!("hello"), "no `content` list"),
        ("/content/1/text", Value::Null, "text block without `text`"),
        ("/content/2/id", json!(7), "tool_use block without `id`"),
        ("/content/2/input", json!("{}"), "tool_use block whose `input` is not an object"),
        ("/content/3/type", Value::Null, "content block without a type"),
        ("/stop_reason", Value::Null, "`stop_reason` is missing"),
        ("/stop_sequence", json!(1), "`stop_sequence` is 1"),
        ("/usage", Value::Null, "`usage.input_tokens` is missing"),
        ("/usage/output_tokens", json!(1.5), "`usage.output_tokens` is 1.5"),
    ] {
        let faults = message(&with(whole(), pointer, new));
        assert_eq!(faults.first().map(String::as_str), Some(expected), "{pointer}: {faults:?}");
    }
    assert_eq!(message(&json!([])), ["not an object"]);
}

#[test]
fn model_list_may_be_empty() {
    assert_eq!(models(&list()), Vec::<String>::new());
    assert_eq!(first_model(&list()), Some("a"));
    let empty = json!({"data": [], "has_more": false, "first_id": null, "last_id": null});
    assert_eq!(models(&empty), Vec::<String>::new());
    assert_eq!(first_model(&empty), None);
}

#[test]
fn each_defect_of_a_model_list_is_reported() {
    for (pointer, new, expected) in [
        ("/data", json!({}), "no `data` list"),
        ("/data/1/type", json!("m"), "`data[1].type` is \"m\", not \"model\""),
        ("/data/0/display_name", Value::Null, "no `data[0].display_name`"),
        ("/has_more", Value::Null, "`has_more` is missing"),
        ("/first_id", json!("b"), "`first_id` is \"b\", not \"a\""),
        ("/last_id", Value::Null, "`last_id` is missing, not \"b\""),
    ] {
        assert_eq!(models(&with(list(), pointer, new)), [expected], "{pointer}");
    }
}

#[test]
fn token_count_must_be_positive() {
    assert_eq!(token_count(&json!({"input_tokens": 1})), Vec::<String>::new());
    for bad in [json!({"input_tokens": 0}), json!({"input_tokens": "1"}), json!({}), json!(1)] {
        assert_eq!(token_count(&bad).len(), 1, "{bad}");
    }
}

#[test]
fn error_object_gives_type_and_message() {
    let read = |value: &Value| {
        error_object(value.as_object().unwrap()).map(|error| format!("{}: {}", error.kind, error.message))
    };
    let good = json!({"type": "error", "error": {"type": "api_error", "message": "broken"}});
    assert_eq!(read(&good), Ok("api_error: broken".to_owned()));
    for (bad, expected) in [
        (json!({"error": {"type": "api_error", "message": "broken"}}), "`type` is missing, not \"error\""),
        (json!({"type": "error", "error": "broken"}), "`error` is \"broken\", not an object"),
        (json!({"type": "error", "error": {"message": "broken"}}), "no `error.type`"),
        (json!({"type": "error", "error": {"type": "api_error", "message": ""}}), "no `error.message`"),
    ] {
        assert_eq!(read(&bad), Err(expected.to_owned()), "{bad}");
    }
}
