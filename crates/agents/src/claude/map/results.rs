//! The end of a turn: usage and outcome.

use ahp_types::actions::{ChatUsageAction, StateAction};
use ahp_types::state::{ErrorInfo, UsageInfo};
use innkeeper_claude::Exit;
use innkeeper_claude::wire::message::ResultMessage;
use innkeeper_core::agent::TurnOutcome;
use innkeeper_core::ids::TurnId;
use serde_json::Value;

/// Start of an error text of the runtime for its developers.
const DIAGNOSTIC: &str = "[ede_diagnostic]";

/// Token usage of a turn.
pub(super) fn usage(turn: &TurnId, result: &ResultMessage, model: Option<&str>) -> StateAction {
    let usage = result.usage.as_ref();
    let count = |tokens: Option<u64>| tokens.and_then(|tokens| i64::try_from(tokens).ok());
    let only_model = || result.model_usage.as_ref().and_then(|usage| usage.keys().next().cloned());
    StateAction::ChatUsage(ChatUsageAction {
        turn_id: turn.as_str().to_owned(),
        usage: UsageInfo {
            input_tokens: usage.and_then(|usage| count(usage.input_tokens)),
            output_tokens: usage.and_then(|usage| count(usage.output_tokens)),
            cache_read_tokens: usage.and_then(|usage| count(usage.cache_read_input_tokens)),
            model: model.map(str::to_owned).or_else(only_model),
            meta: None,
        },
        meta: None,
    })
}

/// A failure of the API, as the runtime reports it to the user.
#[derive(Debug)]
pub(super) struct ApiFailure {
    /// Name of the kind.
    pub(super) kind: String,
    pub(super) text: String,
}

/// Outcome of a turn with this result. A `success` can still be an API failure.
pub(super) fn outcome(result: &ResultMessage, api_error: Option<&ApiFailure>) -> TurnOutcome {
    let subtype = result.subtype.as_deref().unwrap_or_default();
    let aborted = result.terminal_reason.as_deref().is_some_and(|reason| reason.starts_with("aborted"));
    // A steering message also aborts a stream, and then the result is a success.
    if aborted && subtype != "success" {
        return TurnOutcome::Cancelled;
    }
    if subtype == "success" && result.is_error != Some(true) {
        return TurnOutcome::Completed;
    }
    let errors = result.errors.iter().flatten().filter(|error| !error.starts_with(DIAGNOSTIC));
    let said = errors.map(String::as_str).collect::<Vec<_>>().join("\n");
    let said = Some(said)
        .filter(|said| !said.is_empty())
        .or_else(|| result.result.clone().filter(|text| !text.is_empty()))
        .or_else(|| api_error.map(|error| error.text.clone()));
    let mut message = said.map_or_else(
        || format!("The agent stopped without a reason ({subtype})."),
        |said| readable_error(&said),
    );
    let kind = api_error.map_or("", |error| error.kind.as_str());
    if let Some(advice) = advice(subtype, result.api_error_status, kind) {
        message = format!("{message}\n{advice}");
    }
    let error_type = match result.api_error_status {
        Some(status) => format!("api_error_{status}"),
        None if subtype == "success" => "api_error".to_owned(),
        None => subtype.to_owned(),
    };
    TurnOutcome::Failed(ErrorInfo { error_type, message, stack: None, meta: None })
}

/// What the user can do about a failed turn.
fn advice(subtype: &str, status: Option<u64>, kind: &str) -> Option<&'static str> {
    match (subtype, status) {
        ("error_max_turns", _) => Some("Send a message to continue."),
        ("error_max_budget_usd", _) => Some("Raise the budget, or start another session."),
        ("error_max_structured_output_retries", _) => {
            Some("The model did not return a result of the requested form. Send the message again.")
        }
        ("error_during_execution", _) => Some("Send the message again."),
        ("success", Some(401 | 403)) => Some("Check the host's credentials for the model service."),
        ("success", Some(404)) => Some("Choose another model."),
        ("success", Some(408 | 429 | 500..)) => Some("Send the message again later."),
        ("success", None) if kind == "authentication_failed" => {
            Some("Check the host's credentials for the model service.")
        }
        (_, _) => None,
    }
}

/// Replaces the API's JSON in an error text by the message in it.
pub(super) fn readable_error(text: &str) -> String {
    let Some((before, rest)) = text.split_once('{') else { return text.to_owned() };
    let json = format!("{{{rest}");
    let mut values = serde_json::Deserializer::from_str(&json).into_iter::<Value>();
    let Some(Ok(value)) = values.next() else { return text.to_owned() };
    let after = json.get(values.byte_offset()..).unwrap_or_default();
    match value.pointer("/error/message").and_then(Value::as_str) {
        Some(message) => format!("{before}{message}{after}"),
        None => text.to_owned(),
    }
}

/// Error of a turn that was cut off by the runtime's exit.
pub(super) fn exit_error(exit: &Exit) -> ErrorInfo {
    let mut message = format!("The Claude runtime {exit} before it finished the turn.");
    let stderr = exit.stderr_tail.trim();
    if !stderr.is_empty() {
        message.push_str("\nLast output:\n");
        message.push_str(stderr);
    }
    ErrorInfo { error_type: "runtime_exited".to_owned(), message, stack: None, meta: None }
}
