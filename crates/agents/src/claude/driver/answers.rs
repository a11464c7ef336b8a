//! Answers to the runtime and questions to the session about tool calls. Pure.

use innkeeper_claude::PermissionAnswer;
use innkeeper_claude::wire::control::CanUseTool;
use innkeeper_core::agent::{Approval, PermissionQuestion};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::map::Mapper;
use super::super::rule_suggestions::{self, RuleSuggestions};

/// The answer to the hook before the use of a tool.
pub(super) fn hook_decision(decision: &str, reason: &str) -> Value {
    json!({"hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": decision,
        "permissionDecisionReason": reason,
    }})
}

/// The user's decision in the runtime's format. Rules are returned for the session only: the
/// runtime would write the other destinations to the user's files.
pub(super) fn permission_answer(
    ask: &CanUseTool,
    approval: Approval,
    input: Option<&str>,
    suggestion: Option<&str>,
    remembered: &[String],
) -> PermissionAnswer {
    if approval == Approval::Denied {
        return PermissionAnswer::deny(match suggestion.filter(|text| !text.trim().is_empty()) {
            Some(reason) => format!("The user denied this call: {reason}"),
            None => "The user denied this call. Do not try it in another way; continue without it, or ask."
                .to_owned(),
        });
    }
    let name = ask.tool_name.as_deref().unwrap_or_default();
    let original = value_of(ask.input.as_deref());
    match input.map(|shown| edited_input(name, &original, shown)).transpose() {
        Ok(edited) => PermissionAnswer::Allow {
            updated_input: edited.flatten(),
            updated_permissions: rule_suggestions::for_runtime(remembered),
        },
        Err(problem) => PermissionAnswer::deny(problem),
    }
}

/// The input with a user's changes; `None` if it is unchanged. The user sees either the whole
/// input as JSON or the value of one field.
fn edited_input(name: &str, original: &Value, edited: &str) -> Result<Option<Value>, String> {
    let shown = Mapper::describe(name, original).tool_input;
    if shown == edited {
        return Ok(None);
    }
    let mut input = original.clone();
    let field = input
        .as_object_mut()
        .and_then(|fields| fields.values_mut().find(|value| value.as_str() == Some(shown.as_str())));
    match field {
        Some(field) => {
            *field = Value::String(edited.to_owned());
            Ok(Some(input))
        }
        None => match serde_json::from_str(edited) {
            Ok(edited @ Value::Object(_)) => Ok(Some(edited)),
            Ok(_) | Err(_) => {
                Err("The user changed the input of this call, but the result is not a JSON object."
                    .to_owned())
            }
        },
    }
}

/// How a call is shown when a user is asked about it.
pub(super) fn question(
    name: &str,
    input: &Value,
    ask: Option<&CanUseTool>,
    suggestions: RuleSuggestions,
) -> PermissionQuestion {
    let described = Mapper::describe(name, input);
    PermissionQuestion {
        title: described.question,
        invocation: described.invocation,
        input: described.tool_input,
        editable: true,
        agent_reason: ask.and_then(|ask| ask.decision_reason.clone()),
        suggested_rules: suggestions.rules,
        suggests_accepting_edits: suggestions.accept_edits,
        can_remember: ask.is_none_or(|ask| ask.suppress_always_allow_rule != Some(true)),
        edits: Vec::new(),
    }
}

/// The input of a call as a value.
pub(super) fn value_of(input: Option<&RawValue>) -> Value {
    input.and_then(|input| serde_json::from_str(input.get()).ok()).unwrap_or_else(|| json!({}))
}
