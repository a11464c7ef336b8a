use super::*;

fn read(tap: &mut Tap, name: &str, data: &str) -> EventVerdict {
    tap.read(format!("event: {name}\ndata: {data}\n\n").as_bytes())
}

#[test]
fn usage_and_stop_reason_are_read_from_events() {
    let mut tap = Tap::default();
    let start = r#"{"type":"message_start","message":{"model":"m","usage":{"input_tokens":10,"cache_creation_input_tokens":2,"cache_read_input_tokens":3,"output_tokens":1}}}"#;
    assert!(matches!(read(&mut tap, "message_start", start), EventVerdict::Start(Some(_))));
    for name in ["ping", "content_block_start", "content_block_delta", "content_block_stop", "new_event"] {
        assert_eq!(read(&mut tap, name, "{}"), EventVerdict::Pass);
    }
    let delta = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":42},"copilot_usage":{"total_nano_aiu":7.9}}"#;
    assert_eq!(read(&mut tap, "message_delta", delta), EventVerdict::Pass);
    let stop = r#"{"type":"message_stop","copilot_usage":{"total_nano_aiu":9}}"#;
    assert_eq!(read(&mut tap, "message_stop", stop), EventVerdict::Stop);
    let expected = Reading {
        input_tokens: 10,
        output_tokens: 42,
        cache_creation_input_tokens: 2,
        cache_read_input_tokens: 3,
        nano_aiu: Some(9),
        stop_reason: Some("end_turn".to_owned()),
    };
    assert_eq!(tap.reading(), &expected);
}

#[test]
fn invalid_credits_are_ignored() {
    let mut tap = Tap::default();
    for odd in ["-1", "\"5\"", "null", "{}", "1e999"] {
        read(&mut tap, "other", &format!(r#"{{"copilot_usage":{{"total_nano_aiu":{odd}}}}}"#));
        assert_eq!(tap.reading().nano_aiu, None, "{odd}");
    }
    read(&mut tap, "other", r#"{"copilot_usage":{"total_nano_aiu":5}}"#);
    assert_eq!(tap.reading().nano_aiu, Some(5));
}

#[test]
fn event_without_name_is_handled_by_its_type() {
    let mut tap = Tap::default();
    assert_eq!(tap.read(b": comment\n\n"), EventVerdict::Nothing);
    assert_eq!(tap.read(b"\n"), EventVerdict::Nothing);
    assert_eq!(tap.read(b"data: [DONE]\n\n"), EventVerdict::Pass);
    assert!(matches!(
        tap.read(b"data: {\"type\":\"message_start\",\"message\":{}}\n\n"),
        EventVerdict::Start(None)
    ));
    assert_eq!(tap.read(b"data: {\"type\":\"message_stop\"}\n\n"), EventVerdict::Stop);
}

#[test]
fn invalid_event_breaks_response() {
    for (name, data) in [
        ("message_start", "{"),
        ("message_start", r#"{"type":"message_start"}"#),
        ("message_start", r#"{"type":"message_stop"}"#),
        ("message_stop", r#"{"type":"message_stop"}"#),
        ("message_delta", "x"),
        ("message_delta", r#"["message_delta"]"#),
    ] {
        assert!(matches!(read(&mut Tap::default(), name, data), EventVerdict::Broken(_)), "{name} {data}");
    }
    let mut tap = Tap::default();
    let start = r#"{"type":"message_start","message":{}}"#;
    read(&mut tap, "message_start", start);
    assert!(matches!(read(&mut tap, "message_start", start), EventVerdict::Broken(_)));
    assert!(matches!(read(&mut tap, "message_stop", "{}"), EventVerdict::Broken(_)));
}

#[test]
fn model_is_found_in_multi_line_data() {
    let event = b"event: message_start\ndata: {\"type\":\"message_start\",\ndata:  \"message\":{\"id\":1,\ndata: \"model\" : \"a-b\"}}\n\n";
    let EventVerdict::Start(Some(place)) = Tap::default().read(event) else { panic!("not a start") };
    assert_eq!((place.model.as_str(), &event[place.span]), ("a-b", &b"\"a-b\""[..]));
}

#[test]
fn complete_message_is_parsed() {
    let body = br#"{"type":"message","model":"m-1","stop_reason":"tool_use","usage":{"input_tokens":4,"output_tokens":5},"copilot_usage":{"total_nano_aiu":6}}"#;
    let mut tap = Tap::default();
    let place = tap.read_whole(body).unwrap();
    assert_eq!((place.model.as_str(), &body[place.span]), ("m-1", &b"\"m-1\""[..]));
    assert_eq!(
        (tap.reading().input_tokens, tap.reading().output_tokens, tap.reading().nano_aiu),
        (4, 5, Some(6))
    );
    assert_eq!(tap.reading().stop_reason.as_deref(), Some("tool_use"));
    assert!(Tap::default().read_whole(b"not json").is_none());
}
