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
