use serde_json::value::RawValue;

use super::*;

fn form(schema: &Value) -> Elicitation {
    Elicitation {
        mcp_server_name: Some("weather".to_owned()),
        message: Some("Where?".to_owned()),
        mode: Some("form".to_owned()),
        requested_schema: RawValue::from_string(schema.to_string()).ok(),
        ..Elicitation::default()
    }
}

fn answer(response: ChatInputResponseKind, answers: Value) -> InputAnswer {
    InputAnswer { request: "r".to_owned(), response, answers: serde_json::from_value(answers).unwrap() }
}

fn every_kind() -> Value {
    json!({"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "title": "City", "minLength": 1, "maxLength": 40, "format": "email", "default": "Bern"},
        "degrees": {"type": "number", "minimum": -10.5, "maximum": 40},
        "days": {"type": "integer", "minimum": 1, "default": 3},
        "detailed": {"type": "boolean", "default": true, "description": "All details?"},
        "unit": {"type": "string", "enum": ["c", "f"], "enumNames": ["Celsius", "Fahrenheit"], "default": "f"},
        "wind": {"type": "string", "oneOf": [{"const": "n", "title": "North"}, {"const": "s", "title": "South"}]},
        "parts": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"enum": ["rain", "sun"]}},
        "areas": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}},
        "other": {"type": "tuple"},
        "broken": 7,
    }})
}

#[test]
fn every_property_becomes_a_question() {
    let (_, request) = PendingElicitation::parse("r", &form(&every_kind())).unwrap();
    let shown = serde_json::to_value(request).unwrap();
    assert_eq!(shown["message"], "weather: Where?");
    let mut questions = shown["questions"].as_array().unwrap().clone();
    questions.sort_by_key(|question| question["id"].as_str().unwrap().to_owned());
    let expected = json!([
        {"kind": "multi-select", "id": "areas", "message": "areas", "options": [{"id": "a", "label": "A"}], "allowFreeformInput": false},
        {"kind": "text", "id": "city", "title": "City", "message": "City", "required": true, "min": 1, "max": 40,
         "format": "email", "defaultValue": "Bern"},
        {"kind": "integer", "id": "days", "message": "days", "min": 1.0, "defaultValue": 3.0},
        {"kind": "number", "id": "degrees", "message": "degrees", "min": -10.5, "max": 40.0},
        {"kind": "boolean", "id": "detailed", "message": "All details?", "defaultValue": true},
        {"kind": "text", "id": "other", "message": "other"},
        {"kind": "multi-select", "id": "parts", "message": "parts", "min": 1, "max": 2, "allowFreeformInput": false,
         "options": [{"id": "rain", "label": "rain"}, {"id": "sun", "label": "sun"}]},
        {"kind": "single-select", "id": "unit", "message": "unit", "allowFreeformInput": false,
         "options": [{"id": "c", "label": "Celsius"}, {"id": "f", "label": "Fahrenheit", "recommended": true}]},
        {"kind": "single-select", "id": "wind", "message": "wind", "allowFreeformInput": false,
         "options": [{"id": "n", "label": "North"}, {"id": "s", "label": "South"}]},
    ]);
    assert_eq!(Value::Array(questions), expected);
}

#[test]
fn questions_keep_the_order_of_the_schema() {
    let mut request = form(&json!({}));
    let schema = r#"{"properties":{"z":{"type":"string"},"a":{"type":"string"},"m":{"type":"string"}}}"#;
    request.requested_schema = RawValue::from_string(schema.to_owned()).ok();
    let (_, request) = PendingElicitation::parse("r", &request).unwrap();
    let shown = serde_json::to_value(request).unwrap();
    let ids: Vec<&str> =
        shown["questions"].as_array().unwrap().iter().map(|q| q["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["z", "a", "m"]);
}

#[test]
fn accepted_answers_have_the_types_of_the_schema() {
    let (pending, _) = PendingElicitation::parse("r", &form(&every_kind())).unwrap();
    let submitted = |value: Value| json!({"state": "submitted", "value": value});
    let given = answer(
        ChatInputResponseKind::Accept,
        json!({
            "city": submitted(json!({"kind": "text", "value": "Bern"})),
            "degrees": submitted(json!({"kind": "number", "value": 1.5})),
            "days": submitted(json!({"kind": "number", "value": 4.0})),
            "detailed": submitted(json!({"kind": "boolean", "value": false})),
            "unit": submitted(json!({"kind": "selected", "value": "c"})),
            "parts": submitted(json!({"kind": "selected-many", "value": ["sun"]})),
            "areas": {"state": "skipped"},
            "wind": submitted(json!({"kind": "text", "value": "does not fit"})),
            "unknown": submitted(json!({"kind": "text", "value": "not asked"})),
        }),
    );
    let expected = json!({"action": "accept", "content": {
        "city": "Bern", "degrees": 1.5, "days": 4, "detailed": false, "unit": "c", "parts": ["sun"]}});
    assert_eq!(pending.answered(&given), expected);
}

#[test]
fn declined_and_cancelled_requests_send_no_content() {
    let (pending, _) = PendingElicitation::parse("r", &form(&every_kind())).unwrap();
    let reply = |response| pending.answered(&answer(response, json!({})));
    assert_eq!(reply(ChatInputResponseKind::Decline), json!({"action": "decline"}));
    assert_eq!(reply(ChatInputResponseKind::Cancel), json!({"action": "cancel"}));
}

#[test]
fn address_is_shown_and_accepted_without_content() {
    let by_address = |url: &str| Elicitation {
        mode: Some("url".to_owned()),
        url: Some(url.to_owned()),
        ..form(&every_kind())
    };
    let (pending, request) =
        PendingElicitation::parse("r", &by_address("https://example.com/sign-in")).unwrap();
    assert_eq!((request.url.as_deref(), request.questions), (Some("https://example.com/sign-in"), None));
    let accepted = pending.answered(&answer(ChatInputResponseKind::Accept, json!({})));
    assert_eq!(accepted, json!({"action": "accept"}));
    for address in ["javascript:alert(1)", "file:///etc/passwd", "not an address"] {
        assert!(PendingElicitation::parse("r", &by_address(address)).is_none(), "{address}");
    }
}
