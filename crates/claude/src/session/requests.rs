//! Handles requests from the runtime.
//!
//! Owns the handler trait and the typed answers. Every request is answered in a separate task, so neither
//! the reader nor the session waits for an answer.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::transport::BoxFuture;
use crate::wire::{CanUseTool, IncomingRequest};

/// Answers requests from the runtime.
pub trait RequestHandler: Send + Sync + 'static {
    /// Answers a request; an error text is sent to the runtime. There is no time limit. After `cancel` is
    /// cancelled, the answer is ignored.
    fn answer(
        &self,
        request: IncomingRequest,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, String>>;
}

impl<F> RequestHandler for F
where
    F: Fn(IncomingRequest, CancellationToken) -> BoxFuture<'static, Result<Value, String>>
        + Send
        + Sync
        + 'static,
{
    fn answer(
        &self,
        request: IncomingRequest,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, String>> {
        self(request, cancel)
    }
}

/// Denies all tools that need permission and declines all other requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct RefuseAll;

impl RequestHandler for RefuseAll {
    fn answer(
        &self,
        request: IncomingRequest,
        _: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, String>> {
        let answer = match request {
            IncomingRequest::CanUseTool(question) => {
                let reason = "no permission handler is available".to_owned();
                Ok(PermissionAnswer::deny(reason).to_json(&question))
            }
            IncomingRequest::Elicitation(_) => Ok(json!({ "action": "decline" })),
            IncomingRequest::HookCallback(_) => Ok(json!({})),
            IncomingRequest::McpMessage(_) => Err("unknown MCP server".to_owned()),
            IncomingRequest::UserDialog(_) => Err("dialogs are not supported".to_owned()),
            IncomingRequest::TokenRefresh(_) => Err("token refresh is not supported".to_owned()),
            IncomingRequest::Unknown(request) => Err(format!("unsupported request: {}", request.kind)),
        };
        Box::pin(std::future::ready(answer))
    }
}

/// The answer to a permission request for a tool.
#[derive(Debug, Clone, PartialEq)]
pub enum PermissionAnswer {
    /// Allows the tool to run.
    Allow {
        /// Replaces the tool's input; `None` keeps it.
        updated_input: Option<Value>,
        /// Rules for later requests.
        updated_permissions: Vec<Value>,
    },
    /// Denies the tool.
    Deny {
        /// Message to the model.
        message: String,
        /// Whether to end the turn.
        interrupt: bool,
    },
}

impl PermissionAnswer {
    /// Allows the tool with its input unchanged.
    pub fn allow() -> Self {
        Self::Allow { updated_input: None, updated_permissions: Vec::new() }
    }

    /// Denies the tool and continues the turn.
    pub fn deny(message: impl Into<String>) -> Self {
        Self::Deny { message: message.into(), interrupt: false }
    }

    /// The answer in wire format. Older runtimes require the input even if it is unchanged.
    pub fn to_json(&self, question: &CanUseTool) -> Value {
        let mut answer = match self {
            Self::Allow { updated_input, updated_permissions } => {
                let input = updated_input.clone().unwrap_or_else(|| input_of(question.input.as_deref()));
                let mut answer = Map::from_iter([
                    ("behavior".to_owned(), json!("allow")),
                    ("updatedInput".to_owned(), input),
                ]);
                if !updated_permissions.is_empty() {
                    answer.insert("updatedPermissions".to_owned(), json!(updated_permissions));
                }
                answer
            }
            Self::Deny { message, interrupt } => {
                let mut answer = Map::from_iter([
                    ("behavior".to_owned(), json!("deny")),
                    ("message".to_owned(), json!(message)),
                ]);
                if *interrupt {
                    answer.insert("interrupt".to_owned(), json!(true));
                }
                answer
            }
        };
        if let Some(id) = &question.tool_use_id {
            answer.insert("toolUseID".to_owned(), json!(id));
        }
        Value::Object(answer)
    }
}

fn input_of(input: Option<&RawValue>) -> Value {
    input.and_then(|input| serde_json::from_str(input.get()).ok()).unwrap_or_else(|| json!({}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> CanUseTool {
        CanUseTool {
            input: RawValue::from_string(r#"{"command":"ls"}"#.to_owned()).ok(),
            tool_use_id: Some("t".to_owned()),
            ..CanUseTool::default()
        }
    }

    #[test]
    fn permission_answer_contains_tool_use_id_and_input() {
        let allowed = PermissionAnswer::allow().to_json(&question());
        let expected = json!({ "behavior": "allow", "updatedInput": { "command": "ls" }, "toolUseID": "t" });
        assert_eq!(allowed, expected);
        let changed = PermissionAnswer::Allow {
            updated_input: Some(json!({ "command": "pwd" })),
            updated_permissions: vec![json!({ "type": "setMode" })],
        };
        assert_eq!(changed.to_json(&question())["updatedInput"]["command"], "pwd");
        let denied = PermissionAnswer::Deny { message: "no".to_owned(), interrupt: true };
        let expected = json!({ "behavior": "deny", "message": "no", "interrupt": true, "toolUseID": "t" });
        assert_eq!(denied.to_json(&question()), expected);
    }
}
