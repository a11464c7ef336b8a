use std::time::Duration;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn response(call: ModelCall) -> DemoResponse {
    DemoResponse {
        call,
        key: Fingerprint::EMPTY,
        memory: Arc::default(),
        message_id: "msg_demo_1".into(),
        model: "claude-x".into(),
        input_tokens: 7,
        request_id: "req_1".into(),
        log: None,
        accounting: None,
    }
}

fn events(frames: &[Bytes]) -> Vec<(String, Value)> {
    frames
        .iter()
        .map(|frame| {
            let text = std::str::from_utf8(frame).unwrap();
            let (name, data) = text.strip_suffix("\n\n").unwrap().split_once("\ndata: ").unwrap();
            (name.strip_prefix("event: ").unwrap().to_owned(), serde_json::from_str(data).unwrap())
        })
        .collect()
}

async fn played(call: ModelCall) -> Vec<Result<Bytes, Cut>> {
    response(call).stream().await.unwrap().collect().await
}

fn parts() -> Vec<Part> {
    vec![
        Part::Thinking("hmm".into()),
        Part::Text("héllo".into()),
        Part::ToolUse { name: "Bash".into(), input: serde_json::from_str(r#"{"a": "ü"}"#).unwrap() },
    ]
}

#[tokio::test]
async fn stream_follows_anthropic_event_order() {
    let mut call = ModelCall::of(parts());
    call.chunk = 3;
    let frames: Vec<Bytes> = played(call).await.into_iter().map(Result::unwrap).collect();
    let events = events(&frames);
    assert!(events.iter().all(|(name, data)| data["type"] == name.as_str()));
    let data: Vec<Value> = events.into_iter().map(|(_, data)| data).collect();
    let expected = serde_json::json!([
        {"type": "message_start", "message": {
            "id": "msg_demo_1", "type": "message", "role": "assistant", "model": "claude-x", "content": [],
            "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": 7, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1},
        }},
        {"type": "ping"},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hmm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": SIGNATURE}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "hél"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "lo"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2,
            "content_block": {"type": "tool_use", "id": "toolu_demo_1_2", "name": "Bash", "input": {}}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{\"a"}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "\": "}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "\"ü\""}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "}"}},
        {"type": "content_block_stop", "index": 2},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]);
    assert_eq!(Value::Array(data), expected);
}

#[tokio::test]
async fn complete_message_has_same_blocks() {
    let json = response(ModelCall::of(parts())).whole().await.unwrap();
    let expected = serde_json::json!({
        "id": "msg_demo_1", "type": "message", "role": "assistant", "model": "claude-x",
        "content": [
            {"type": "thinking", "thinking": "hmm", "signature": SIGNATURE},
            {"type": "text", "text": "héllo"},
            {"type": "tool_use", "id": "toolu_demo_1_2", "name": "Bash", "input": {"a": "ü"}},
        ],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {"input_tokens": 7, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 5},
    });
    assert_eq!(serde_json::from_slice::<Value>(&json).unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn wait_delays_the_next_step() {
    let mut call = ModelCall::of(vec![Part::Text("a".into()), Part::Text("b".into())]);
    call.actions.insert(0, CallAction::Wait(Duration::from_secs(5)));
    call.actions.insert(2, CallAction::Wait(Duration::from_secs(60)));
    let begin = tokio::time::Instant::now();
    let mut stream = response(call).stream().await.unwrap();
    assert_eq!(begin.elapsed().as_secs(), 5);
    let mut times = Vec::new();
    while let Some(item) = stream.next().await {
        let (name, _) = events(&[item.unwrap()]).remove(0);
        times.push((name, begin.elapsed().as_secs()));
    }
    let at = |name: &str| {
        times.iter().filter(|(event, _)| event == name).map(|(_, time)| *time).collect::<Vec<_>>()
    };
    assert_eq!(at("content_block_stop"), [5, 65]);
    assert_eq!(at("content_block_start"), [5, 65]);
}

#[tokio::test]
async fn fault_inside_stream_ends_it_without_message_stop() {
    let fault = |kind| CallAction::Fault { place: 3, kind, repeat: FaultRepeat::Always };
    let mut call = ModelCall::of(vec![Part::Text("a".into())]);
    call.actions.push(fault(FaultKind::Drop));
    assert_eq!(played(call).await.last(), Some(&Err(Cut)));

    let mut call = ModelCall::of(vec![Part::Text("a".into())]);
    let status = http::StatusCode::from_u16(529).unwrap();
    call.actions.push(fault(FaultKind::Error { status, kind: None }));
    let frames: Vec<Bytes> = played(call).await.into_iter().map(Result::unwrap).collect();
    let events = events(&frames);
    assert!(events.iter().all(|(name, _)| name != "message_stop" && name != "content_block_stop"));
    let (name, data) = events.last().unwrap();
    assert_eq!((name.as_str(), &data["error"]["type"]), ("error", &Value::from("overloaded_error")));
}

#[tokio::test]
async fn stream_is_complete_after_once_only_fault() {
    let call = || {
        let mut call = ModelCall::of(vec![Part::Text("a".into()), Part::Text("b".into())]);
        call.actions.insert(1, CallAction::Wait(Duration::ZERO));
        call.actions
            .insert(2, CallAction::Fault { place: 1, kind: FaultKind::Drop, repeat: FaultRepeat::Once });
        call
    };
    let memory: Arc<AttemptMemory> = Arc::default();
    let attempt = async || {
        let response = DemoResponse { memory: Arc::clone(&memory), ..response(call()) };
        response.stream().await.unwrap().collect::<Vec<_>>().await
    };
    assert_eq!(attempt().await.last(), Some(&Err(Cut)));
    let frames: Vec<Bytes> = attempt().await.into_iter().map(Result::unwrap).collect();
    let names: Vec<String> = events(&frames).into_iter().map(|(name, _)| name).collect();
    let block = ["content_block_start", "content_block_delta", "content_block_stop"];
    let expected =
        [&["message_start", "ping"][..], &block, &block, &["message_delta", "message_stop"]].concat();
    assert_eq!(names, expected);
}

proptest! {
    #[test]
    fn chunks_join_to_text_and_have_requested_size(text in any::<String>(), characters in 1_usize..20) {
        let mut rest = text.as_str();
        let mut sizes = Vec::new();
        let mut joined = String::new();
        while !rest.is_empty() {
            let piece = first_piece(rest, characters);
            joined.push_str(piece);
            sizes.push(piece.chars().count());
            rest = rest.split_at(piece.len()).1;
        }
        prop_assert_eq!(&joined, &text);
        if let Some((last, full)) = sizes.split_last() {
            prop_assert!(full.iter().all(|size| *size == characters));
            prop_assert!((1..=characters).contains(last));
        }
    }

    #[test]
    fn chunk_size_does_not_change_streamed_text(text in any::<String>(), characters in 1_usize..20) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut call = ModelCall::of(vec![Part::Text(text.clone())]);
        call.chunk = characters;
        let frames: Vec<Bytes> = runtime.block_on(played(call)).into_iter().map(Result::unwrap).collect();
        let streamed: String = events(&frames)
            .iter()
            .filter(|(name, _)| name == "content_block_delta")
            .map(|(_, data)| data["delta"]["text"].as_str().unwrap().to_owned())
            .collect();
        prop_assert_eq!(streamed, text);
    }
}
