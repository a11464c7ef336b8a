//! Tools that the model service runs itself. Their calls and results are blocks of one message.

use innkeeper_claude::wire::content::ContentBlock;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// A call in a message, to be run by the runtime or by the model service.
pub(super) struct MessageCall<'a> {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) input: Option<&'a RawValue>,
}

/// The result of a server tool.
pub(super) struct ServerToolResult {
    pub(super) id: String,
    pub(super) content: Value,
    pub(super) success: bool,
}

/// The call in a block.
pub(super) fn call_in(block: &ContentBlock) -> Option<MessageCall<'_>> {
    #[derive(Deserialize)]
    struct ServerToolUse<'a> {
        id: String,
        name: String,
        server_name: Option<String>,
        #[serde(borrow)]
        input: Option<&'a RawValue>,
    }
    match block {
        ContentBlock::ToolUse(call) => Some(MessageCall {
            id: call.id.clone()?,
            name: call.name.clone().unwrap_or_else(|| "unknown".to_owned()),
            input: call.input.as_deref(),
        }),
        ContentBlock::Unknown(block) if matches!(block.kind.as_str(), "server_tool_use" | "mcp_tool_use") => {
            let call: ServerToolUse<'_> = serde_json::from_str(block.raw.get()).ok()?;
            let name = match &call.server_name {
                Some(server) => format!("mcp__{server}__{}", call.name),
                None => call.name,
            };
            Some(MessageCall { id: call.id, name, input: call.input })
        }
        ContentBlock::Text(_)
        | ContentBlock::Thinking(_)
        | ContentBlock::ToolResult(_)
        | ContentBlock::Unknown(_) => None,
    }
}

/// The result in a block of the model's message.
pub(super) fn result_in(block: &ContentBlock) -> Option<ServerToolResult> {
    #[derive(Deserialize)]
    struct ResultFields {
        tool_use_id: String,
        #[serde(default)]
        content: Value,
        is_error: Option<bool>,
    }
    let ContentBlock::Unknown(block) = block else { return None };
    if !block.kind.ends_with("_tool_result") {
        return None;
    }
    let fields: ResultFields = serde_json::from_str(block.raw.get()).ok()?;
    let failed = fields.is_error == Some(true) || fields.content.get("error_code").is_some();
    Some(ServerToolResult { id: fields.tool_use_id, content: fields.content, success: !failed })
}

#[cfg(test)]
mod tests {
    use ahp_types::actions::StateAction;
    use innkeeper_claude::wire::decode;
    use innkeeper_core::agent::AgentEvent;
    use innkeeper_core::ids::TurnId;
    use serde_json::json;

    use super::super::Mapper;
    use super::*;

    fn mapped(mapper: &mut Mapper, frames: &[Value]) -> Vec<Value> {
        let mut mapped = Vec::new();
        for frame in frames {
            for event in mapper.map(&TurnId::new("t"), &decode(frame.to_string().as_bytes()).unwrap()) {
                let AgentEvent::Action(action) = event else { panic!("unexpected event {event:?}") };
                if !matches!(*action, StateAction::ChatToolCallDelta(_)) {
                    mapped.push(serde_json::to_value(*action).unwrap());
                }
            }
        }
        mapped
    }

    fn block(index: u32, block: &Value) -> Value {
        let event = json!({"type": "content_block_start", "index": index, "content_block": block});
        json!({"type": "stream_event", "event": event})
    }

    fn whole(block: &Value) -> Value {
        json!({"type": "assistant", "message": {"id": "m", "model": "x", "content": [block]}})
    }

    #[test]
    fn streamed_call_of_a_server_tool_completes_once() {
        let call = json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}});
        let found = json!([{"type": "web_search_result", "title": "E", "url": "https://e.org/"}]);
        let result = json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": found});
        let delta = json!({"type": "input_json_delta", "partial_json": "{\"query\":\"rust\"}"});
        let delta = json!({"type": "content_block_delta", "index": 0, "delta": delta});
        let start = json!({"type": "message_start", "message": {"id": "m"}});
        let frames = [
            json!({"type": "stream_event", "event": start}),
            block(0, &call),
            json!({"type": "stream_event", "event": delta}),
            whole(&call),
            block(1, &result),
            whole(&result),
        ];
        let mapped = mapped(&mut Mapper::default(), &frames);
        let kinds: Vec<&str> = mapped.iter().map(|action| action["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["chat/toolCallStart", "chat/toolCallReady", "chat/toolCallComplete"]);
        assert_eq!(mapped[1]["toolInput"], "rust");
        assert_eq!(mapped[2]["result"]["pastTenseMessage"]["markdown"], "Searched the web for `rust`");
        assert_eq!(mapped[2]["result"]["content"][0]["text"], "E: https://e.org/");
    }

    #[test]
    fn failed_call_of_an_unknown_server_tool_completes() {
        let call = json!({"type": "mcp_tool_use", "id": "s", "name": "find", "server_name": "docs", "input": {"a": 1}});
        let error = json!({"type": "x_error", "error_code": "unavailable"});
        let result = json!({"type": "mcp_tool_result", "tool_use_id": "s", "content": error});
        let mapped = mapped(&mut Mapper::default(), &[whole(&call), whole(&result)]);
        assert_eq!(mapped[0]["displayName"], "docs: find");
        assert_eq!(mapped[2]["result"]["error"], json!({"code": "failed", "message": "unavailable"}));
    }
}
