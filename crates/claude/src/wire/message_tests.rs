use super::*;
use crate::wire::MessageContent;

#[track_caller]
fn decoded(line: &str) -> Message {
    let message = decode(line.as_bytes()).unwrap();
    let again: serde_json::Value = serde_json::from_str(&serde_json::to_string(&message).unwrap()).unwrap();
    let original: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(again, original, "a field was lost");
    message
}

#[test]
fn field_of_unexpected_type_does_not_affect_other_fields() {
    let message = decoded(
        r#"{"type":"result","subtype":"success","duration_ms":"long","errors":[1],"is_error":true,"result":null}"#,
    );
    let Message::Result(result) = message else { panic!("{message:?}") };
    assert_eq!(result.is_error, Some(true));
    assert_eq!((result.duration_ms, result.errors.is_none(), result.result.is_none()), (None, true, true));
    assert_eq!(result.extra.get("duration_ms").unwrap().get(), r#""long""#);
}

#[test]
fn kind_is_found_at_any_position() {
    for line in [
        r#"{"type":"system","subtype":"status","status":"requesting"}"#,
        r#"{"status":"requesting","subtype":"status","type":"system"}"#,
        r#"{"type":"system","status":"requesting","subtype":"status"}"#,
        r#"{ "type" : "system", "subtype" : "st\u0061tus", "status" : "requesting" }"#,
    ] {
        let message = decoded(line);
        let Message::System(SystemMessage::Status(status)) = message else { panic!("{message:?}") };
        assert_eq!(status.status.as_deref(), Some("requesting"));
    }
}

#[test]
fn last_value_of_duplicate_key_wins() {
    for (line, uuid) in [
        (r#"{"type":"result","uuid":5,"uuid":"a"}"#, Some("a")),
        (r#"{"type":"result","uuid":"a","uuid":5}"#, None),
        (r#"{"type":"result","uuid":"a","uuid":"b"}"#, Some("b")),
        (r#"{"uuid":5,"type":"result","uu\u0069d":"a"}"#, Some("a")),
    ] {
        let message = decoded(line);
        let Message::Result(result) = message else { panic!("{message:?}") };
        assert_eq!(result.uuid.as_deref(), uuid, "{line}");
    }
}

#[test]
fn object_with_duplicate_kind_is_kept_unparsed() {
    for line in [
        r#"{"type":"result","type":"user"}"#,
        r#"{"uuid":"a","type":"result","type":"user"}"#,
        r#"{"type":"result","t\u0079pe":"user"}"#,
        r#"{"type":"system","subtype":"status","subtype":"init"}"#,
    ] {
        let message = decoded(line);
        let (Message::Unknown(whole) | Message::System(SystemMessage::Unknown(whole))) = message else {
            panic!("{message:?}")
        };
        assert_eq!(whole.raw.get(), line);
    }
    let nested = decoded(r#"{"type":"stream_event","event":{"type":"message_stop","type":"error"}}"#);
    let Message::StreamEvent(frame) = nested else { panic!("{nested:?}") };
    assert!(frame.event.is_none() && frame.extra.get("event").is_some());
}

#[test]
fn object_not_representable_as_value_is_kept_unparsed() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for line in [
        format!(r#"{{"a":{deep}}}"#),
        r#"{"\ud800":1}"#.to_owned(),
        r#"{"type":"x","a":1e999}"#.to_owned(),
        r#"{"type":"keep_alive","startup_mark":"\udc00"}"#.to_owned(),
    ] {
        let message = decode(line.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&message).unwrap(), line);
    }
    for line in ["[1]", "1", "null", "\"a\"", "{\"a\":}", "{", ""] {
        assert!(matches!(decode(line.as_bytes()), Err(DecodeError::NotJson(_))), "{line}");
    }
}

#[test]
fn unknown_kinds_are_kept_unparsed_at_every_level() {
    assert!(
        matches!(decoded(r#"{"type":"brand_new","a":{"b":1.50}}"#), Message::Unknown(message) if message.kind == "brand_new")
    );
    assert!(matches!(
        decoded(r#"{"type":"system","subtype":"brand_new","a":1}"#),
        Message::System(SystemMessage::Unknown(message)) if message.kind == "brand_new"
    ));
    let message =
        decoded(r#"{"type":"assistant","message":{"content":[{"type":"brand_new","x":1},{"y":2}]}}"#);
    let Message::Assistant(assistant) = message else { panic!("{message:?}") };
    let content = assistant.message.unwrap().content.unwrap();
    assert!(content.blocks().iter().all(|block| matches!(block, ContentBlock::Unknown(_))));
    let message = decoded(
        r#"{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"new_delta"}}}"#,
    );
    let Message::StreamEvent(event) = message else { panic!("{message:?}") };
    let Some(StreamEvent::ContentBlockDelta(event)) = event.event else { panic!("{event:?}") };
    assert!(matches!(event.delta, Some(BlockDelta::Unknown(_))));
}

#[test]
fn object_without_kind_is_unknown_message_with_empty_kind() {
    assert!(matches!(decoded(r#"{"a":1}"#), Message::Unknown(message) if message.kind.is_empty()));
}

#[test]
fn rejects_anything_but_an_object() {
    for line in
        ["", "hello", "[1]", "3", "{\"type\":\"user\"", "{\"type\":\"user\"} {}", "{\"type\":\"nope\""]
    {
        assert!(matches!(decode(line.as_bytes()), Err(DecodeError::NotJson(_))), "{line}");
    }
    assert!(matches!(decode(b"{\"a\":\"\xff\"}"), Err(DecodeError::NotUtf8(_))));
}

#[test]
fn tool_result_decodes_in_any_field_order_with_text_or_blocks() {
    let message = decoded(
        r#"{"type":"user","message":{"role":"user","content":[
            {"tool_use_id":"a","type":"tool_result","content":"out","is_error":true},
            {"type":"tool_result","tool_use_id":"b","content":[{"type":"text","text":"hi"}]}]}}"#,
    );
    let Message::User(user) = message else { panic!("{message:?}") };
    let content = user.message.unwrap().content.unwrap();
    let [ContentBlock::ToolResult(first), ContentBlock::ToolResult(second)] = content.blocks() else {
        panic!("{content:?}")
    };
    assert_eq!((first.tool_use_id.as_deref(), first.is_error), (Some("a"), Some(true)));
    assert!(matches!(&first.content, Some(MessageContent::Text(text)) if text == "out"));
    assert!(matches!(second.content.as_ref().unwrap().blocks(), [ContentBlock::Text(_)]));
}

#[test]
fn retry_delay_may_be_fractional() {
    let message =
        decoded(r#"{"type":"system","subtype":"api_retry","retry_delay_ms":532.25,"error_status":null}"#);
    let Message::System(SystemMessage::ApiRetry(retry)) = message else { panic!("{message:?}") };
    assert_eq!(retry.retry_delay(), Some(Duration::from_micros(532_250)));
}
