//! Responses in the Anthropic format, for scripts.

use serde_json::{Value, json};

/// Formats one server-sent event.
pub fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// A complete message, as in a response that is not streamed.
pub fn message(model: &str, text: &str) -> Value {
    json!({
        "id": "msg_fake", "type": "message", "role": "assistant", "model": model,
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {"input_tokens": 11, "output_tokens": 7, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 3},
    })
}

/// The events of a streamed response.
#[derive(Clone, Debug)]
pub struct EventStream {
    /// The formatted events.
    pub events: Vec<String>,
}

impl EventStream {
    /// A message with a thinking block, a text block of these pieces and a tool use.
    pub fn of(model: &str, pieces: &[&str]) -> Self {
        let mut start = message(model, "");
        start["content"] = json!([]);
        start["stop_reason"] = Value::Null;
        start["usage"]["output_tokens"] = 1.into();
        let mut events = vec![
            event("message_start", &json!({"type": "message_start", "message": start})),
            event("ping", &json!({"type": "ping"})),
        ];
        let thinking = [
            json!({"type": "thinking_delta", "thinking": "hm"}),
            json!({"type": "signature_delta", "signature": "c2ln"}),
        ];
        events.extend(block(0, &json!({"type": "thinking", "thinking": "", "signature": ""}), &thinking));
        let text: Vec<Value> =
            pieces.iter().map(|piece| json!({"type": "text_delta", "text": piece})).collect();
        events.extend(block(1, &json!({"type": "text", "text": ""}), &text));
        let input = [
            json!({"type": "input_json_delta", "partial_json": "{\"a\":"}),
            json!({"type": "input_json_delta", "partial_json": "1}"}),
        ];
        events.extend(block(
            2,
            &json!({"type": "tool_use", "id": "toolu_fake", "name": "Bash", "input": {}}),
            &input,
        ));
        events.push(event(
            "message_delta",
            &json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"output_tokens": 7}}),
        ));
        events.push(event("message_stop", &json!({"type": "message_stop"})));
        Self { events }
    }

    /// A message with a text block only, and Copilot's report of its credits.
    pub fn of_text(model: &str, text: &str, copilot_usage: &Value) -> Self {
        let mut start = message(model, "");
        start["content"] = json!([]);
        start["stop_reason"] = Value::Null;
        start["usage"]["output_tokens"] = 1.into();
        let mut events = vec![event("message_start", &json!({"type": "message_start", "message": start}))];
        let deltas = [json!({"type": "text_delta", "text": text})];
        events.extend(block(0, &json!({"type": "text", "text": ""}), &deltas));
        events.push(event(
            "message_delta",
            &json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": {"output_tokens": 7}}),
        ));
        let stop = json!({"type": "message_stop", "copilot_usage": copilot_usage});
        events.push(event("message_stop", &stop));
        Self { events }
    }

    /// All events concatenated.
    pub fn text(&self) -> String {
        self.events.concat()
    }
}

fn block(index: usize, start: &Value, deltas: &[Value]) -> Vec<String> {
    let mut events = vec![event(
        "content_block_start",
        &json!({"type": "content_block_start", "index": index, "content_block": start}),
    )];
    events.extend(deltas.iter().map(|delta| {
        event("content_block_delta", &json!({"type": "content_block_delta", "index": index, "delta": delta}))
    }));
    events.push(event("content_block_stop", &json!({"type": "content_block_stop", "index": index})));
    events
}
