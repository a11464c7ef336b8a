//! The runtime's questions and who answers them.
//!
//! Owns the seam to the answerer and the answers with a shape worth naming. Every question is answered in a
//! task of its own, so that neither the reader nor the session waits for an answer.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::transport::BoxFuture;
use crate::wire::{CanUseTool, IncomingRequest};

/// Answers the runtime's questions.
pub trait RequestHandler: Send + Sync + 'static {
    /// Answers one question; an error is told to the runtime in these words. May take as long as it likes.
    /// When `cancel` is cancelled nobody wants the answer any more.
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

/// Denies every tool that needs a permission, and declines all else.
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
                let reason = "nobody is there to give permission".to_owned();
                Ok(PermissionAnswer::deny(reason).to_json(&question))
            }
            IncomingRequest::Elicitation(_) => Ok(json!({ "action": "decline" })),
            IncomingRequest::HookCallback(_) => Ok(json!({})),
            IncomingRequest::McpMessage(_) => Err("there is no such server in this host".to_owned()),
            IncomingRequest::UserDialog(_) => Err("this host shows no dialogs".to_owned()),
            IncomingRequest::TokenRefresh(_) => Err("this host has no other token".to_owned()),
            IncomingRequest::Unknown(request) => Err(format!("unsupported request: {}", request.kind)),
        };
        Box::pin(std::future::ready(answer))
    }
}

/// The answer to the question whether a tool may run.
#[derive(Debug, Clone, PartialEq)]
pub enum PermissionAnswer {
    /// It may.
    Allow {
        /// The input that it runs with; without one, that of the question.
        updated_input: Option<Value>,
        /// Rules for the questions to come.
        updated_permissions: Vec<Value>,
    },
    /// It may not.
    Deny {
        /// What the model is told.
        message: String,
        /// Whether the turn ends with it.
        interrupt: bool,
    },
}

impl PermissionAnswer {
    /// It may, with the input as it is.
    pub fn allow() -> Self {
        Self::Allow { updated_input: None, updated_permissions: Vec::new() }
    }

    /// It may not, and the turn goes on.
    pub fn deny(message: impl Into<String>) -> Self {
        Self::Deny { message: message.into(), interrupt: false }
    }

    /// The answer on the wire. Older runtimes need the input even where it is not changed.
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
    fn an_answer_names_the_call_and_always_carries_the_input() {
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
