//! The end of a turn: usage and outcome.

use ahp_types::actions::{ChatUsageAction, StateAction};
use ahp_types::state::{ErrorInfo, UsageInfo};
use innkeeper_claude::Exit;
use innkeeper_claude::wire::message::ResultMessage;
use innkeeper_core::agent::TurnOutcome;
use innkeeper_core::ids::TurnId;

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

/// Outcome of a turn with this result. A `success` can still be an API failure.
pub(super) fn outcome(result: &ResultMessage, api_error: Option<&str>) -> TurnOutcome {
    let subtype = result.subtype.as_deref().unwrap_or_default();
    let aborted = result.terminal_reason.as_deref().is_some_and(|reason| reason.starts_with("aborted"));
    // A steering message also aborts a stream, and then the result is a success.
    if aborted && subtype != "success" {
        return TurnOutcome::Cancelled;
    }
    if subtype == "success" && result.is_error != Some(true) {
        return TurnOutcome::Completed;
    }
    let said = result.errors.as_deref().filter(|errors| !errors.is_empty()).map(|errors| errors.join("\n"));
    let message = said
        .or_else(|| result.result.clone().filter(|text| !text.is_empty()))
        .or_else(|| api_error.map(str::to_owned))
        .unwrap_or_else(|| format!("the agent stopped without a reason ({subtype})"));
    let error_type = match result.api_error_status {
        Some(status) => format!("api_error_{status}"),
        None if subtype == "success" => "api_error".to_owned(),
        None => subtype.to_owned(),
    };
    TurnOutcome::Failed(ErrorInfo { error_type, message, stack: None, meta: None })
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
