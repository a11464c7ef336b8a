//! What a failure means for the user: its kind, its cause, what to do, and whether the turn can be
//! resumed. Pure.
//!
//! The runtime describes a failed model request for users of its own command line: it names the
//! gateway's address, its own `/login`, and options that users of the host do not have. The model
//! endpoint's record of the failure is preferred; otherwise those sentences are removed.

use std::time::Duration;

use ahp_types::state::ErrorInfo;
use innkeeper_claude::wire::message::ResultMessage;
use innkeeper_claude::{Exit, ExitReason};
use innkeeper_core::agent::TurnOutcome;
use innkeeper_core::model::ModelFailure;
use serde_json::Value;

/// Start of an error text of the runtime for its developers.
const DIAGNOSTIC: &str = "[ede_diagnostic]";

/// Parts of sentences that are wrong for users of the host.
const MISLEADING: [&str; 10] = [
    "127.0.0.1",
    "localhost",
    "inference gateway",
    "/login",
    "/model",
    "--model",
    "ANTHROPIC_",
    "status.claude.com",
    "proxy or gateway",
    "check your internet connection",
];

/// Number of the signal that the system uses if memory runs out.
const SIGKILL: i32 = 9;

/// Longest quoted output of a runtime, in characters.
const QUOTE_LENGTH: usize = 1000;

/// A failure of the API, as the runtime reports it to the user.
#[derive(Debug)]
pub(super) struct ApiFailure {
    /// Name of the kind.
    pub(super) kind: String,
    pub(super) text: String,
}

/// Kinds of failures of model requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureKind {
    Authentication,
    Billing,
    Permission,
    ModelNotFound,
    RateLimit,
    Overloaded,
    Timeout,
    Service,
    Connection,
    ContextTooLong,
    Image,
    RequestTooLarge,
    InvalidRequest,
    /// The model refused to answer.
    Refusal,
    /// A failure without a status, inside the runtime.
    Execution,
}

impl FailureKind {
    fn error_type(self) -> &'static str {
        match self {
            Self::Authentication => "authentication",
            Self::Billing => "billing",
            Self::Permission => "permission",
            Self::ModelNotFound => "model_not_found",
            Self::RateLimit => "rate_limit",
            Self::Overloaded => "overloaded",
            Self::Timeout => "timeout",
            Self::Service => "model_service",
            Self::Connection => "connection",
            Self::ContextTooLong => "context_too_long",
            Self::Image => "invalid_image",
            Self::RequestTooLarge => "request_too_large",
            Self::InvalidRequest => "invalid_request",
            Self::Refusal => "refusal",
            Self::Execution => "error_during_execution",
        }
    }

    /// Whether the same message can succeed later.
    fn is_resumable(self) -> bool {
        match self {
            Self::Authentication
            | Self::Billing
            | Self::Permission
            | Self::RateLimit
            | Self::Overloaded
            | Self::Timeout
            | Self::Service
            | Self::Connection
            | Self::Execution => true,
            Self::ModelNotFound
            | Self::ContextTooLong
            | Self::Image
            | Self::RequestTooLarge
            | Self::InvalidRequest
            | Self::Refusal => false,
        }
    }

    /// What failed, as a sentence without its end. The cause follows.
    fn summary(self, service: &str) -> String {
        match self {
            Self::Authentication => format!("{service} rejected the credentials"),
            Self::Billing => format!("{service} reports a billing problem or an exhausted quota"),
            Self::Permission => format!("{service} does not allow this request"),
            Self::ModelNotFound => format!("{service} does not have this model"),
            Self::RateLimit => format!("{service} limits requests"),
            Self::Overloaded => "The model is overloaded".to_owned(),
            Self::Timeout => format!("{service} did not answer in time"),
            Self::Service => format!("{service} failed"),
            Self::Connection => "The connection to the model service failed".to_owned(),
            Self::ContextTooLong => "The conversation is too long for the model".to_owned(),
            Self::Image => "An image cannot be used".to_owned(),
            Self::RequestTooLarge => "The request is too large".to_owned(),
            Self::InvalidRequest => format!("{service} rejected the request"),
            Self::Refusal => "The model refused to answer".to_owned(),
            Self::Execution => "Claude stopped because of an error".to_owned(),
        }
    }

    fn advice(self, failure: Option<&ModelFailure>) -> String {
        let wait = failure.and_then(|failure| failure.retry_after);
        match self {
            Self::Authentication => {
                let advice = failure.map(|failure| failure.credentials_advice.as_str());
                let advice = advice.unwrap_or("Check the host's credentials for the model service.");
                format!("{advice} Then resume the turn.")
            }
            Self::Billing => {
                "Check the account's plan and credit, or wait for its next period; then resume the turn."
                    .to_owned()
            }
            Self::Permission => {
                "Check that the account may use this model, then resume the turn; or choose another model."
                    .to_owned()
            }
            Self::ModelNotFound => "Choose another model and send the message again.".to_owned(),
            Self::RateLimit => match wait {
                Some(wait) => format!("Resume the turn in {}.", readable_time(wait)),
                None => "Resume the turn later.".to_owned(),
            },
            Self::Overloaded | Self::Timeout | Self::Service | Self::Connection => match wait {
                Some(wait) => {
                    format!("This is usually temporary. Resume the turn in {}.", readable_time(wait))
                }
                None => "This is usually temporary. Resume the turn in a moment.".to_owned(),
            },
            Self::ContextTooLong => {
                "Send /compact to shorten the conversation, or start a new session.".to_owned()
            }
            Self::Image => {
                "Remove the image, or attach a smaller one, and send the message again.".to_owned()
            }
            Self::RequestTooLarge => {
                "Remove attachments, or send /compact, and send the message again.".to_owned()
            }
            Self::InvalidRequest => "Change the message, or start a new session.".to_owned(),
            Self::Refusal => "Change the message, or choose another model.".to_owned(),
            Self::Execution => "Resume the turn, or send another message.".to_owned(),
        }
    }
}

/// Outcome of a turn with this result. `last_failure` returns the model endpoint's record of the
/// failure. A `success` can still be an API failure.
pub(super) fn outcome(
    result: &ResultMessage,
    api_error: Option<&ApiFailure>,
    last_failure: impl FnOnce() -> Option<ModelFailure>,
) -> TurnOutcome {
    let subtype = result.subtype.as_deref().unwrap_or_default();
    let reason = result.terminal_reason.as_deref().unwrap_or_default();
    // A steering message also aborts a stream, and then the result is a success.
    if reason.starts_with("aborted") && subtype != "success" {
        return TurnOutcome::Cancelled;
    }
    if subtype == "success" && result.is_error != Some(true) {
        return TurnOutcome::Completed;
    }
    let text = said(result, api_error);
    if let Some(advice) = limit_advice(subtype) {
        let cause = if text.is_empty() { "The turn reached a limit".to_owned() } else { text };
        return TurnOutcome::Failed(error(subtype, format!("{cause}\n{advice}")));
    }
    let failure = last_failure().filter(|failure| {
        // A request in the background may have failed later, with another status.
        result.api_error_status.is_none_or(|status| status == u64::from(failure.status))
    });
    let kind = kind_of(result, api_error.map_or("", |error| error.kind.as_str()), &text, failure.as_ref());
    let info = error(kind.error_type(), message(kind, &text, failure.as_ref()));
    if kind.is_resumable() { TurnOutcome::Interrupted(info) } else { TurnOutcome::Failed(info) }
}

/// The runtime's own description.
fn said(result: &ResultMessage, api_error: Option<&ApiFailure>) -> String {
    let errors = result.errors.iter().flatten().filter(|error| !error.starts_with(DIAGNOSTIC));
    let errors = errors.map(String::as_str).collect::<Vec<_>>().join("\n");
    let text = Some(errors)
        .filter(|errors| !errors.is_empty())
        .or_else(|| result.result.clone().filter(|text| !text.is_empty()))
        .or_else(|| api_error.map(|error| error.text.clone()));
    readable_error(&text.unwrap_or_default())
}

/// What the user can do after a limit of the host's own options.
fn limit_advice(subtype: &str) -> Option<&'static str> {
    match subtype {
        "error_max_turns" => Some("Send a message to continue."),
        "error_max_budget_usd" => Some("Raise the budget, or start another session."),
        "error_max_structured_output_retries" => {
            Some("The model did not return a result of the requested form. Send the message again.")
        }
        _ => None,
    }
}

fn kind_of(
    result: &ResultMessage,
    runtime_kind: &str,
    text: &str,
    failure: Option<&ModelFailure>,
) -> FailureKind {
    let reason = result.terminal_reason.as_deref().unwrap_or_default();
    let cause = failure.map_or("", |failure| failure.message.as_str());
    let either = |part: &str| contains(text, part) || contains(cause, part);
    let status = result.api_error_status.or_else(|| failure.map(|failure| u64::from(failure.status)));
    let api_kind = failure.map_or("", |failure| failure.kind.as_str());
    if reason == "prompt_too_long" || either("prompt is too long") || either("exceed context limit") {
        return FailureKind::ContextTooLong;
    }
    if result.stop_reason.as_deref() == Some("refusal") || either("unable to respond to this request") {
        return FailureKind::Refusal;
    }
    if status == Some(413) || api_kind == "request_too_large" {
        return FailureKind::RequestTooLarge;
    }
    let is_image = reason == "image_error"
        || [
            "could not process image",
            "image was too large",
            "unable to resize image",
            "image file is empty",
        ]
        .iter()
        .any(|part| either(part))
        || (status == Some(400) && either("image exceeds"));
    if is_image {
        return FailureKind::Image;
    }
    if runtime_kind == "billing_error" || contains(cause, "credit balance is too low") {
        return FailureKind::Billing;
    }
    match (api_kind, status) {
        ("overloaded_error", _) | (_, Some(529)) => FailureKind::Overloaded,
        ("authentication_error", _) | (_, Some(401)) => FailureKind::Authentication,
        ("billing_error", _) | (_, Some(402)) => FailureKind::Billing,
        ("permission_error", _) | (_, Some(403)) => FailureKind::Permission,
        ("rate_limit_error", _) | (_, Some(429)) => FailureKind::RateLimit,
        ("not_found_error", _) | (_, Some(404)) => FailureKind::ModelNotFound,
        ("timeout_error", _) | (_, Some(408 | 504)) => FailureKind::Timeout,
        (_, Some(500..)) => FailureKind::Service,
        (_, Some(_)) => FailureKind::InvalidRequest,
        (_, None) if runtime_kind == "authentication_failed" => FailureKind::Authentication,
        (_, None) if result.subtype.as_deref() == Some("success") => FailureKind::Connection,
        (_, None) => FailureKind::Execution,
    }
}

/// Cause and advice.
fn message(kind: FailureKind, text: &str, failure: Option<&ModelFailure>) -> String {
    let service = failure.map_or("The model service", |failure| failure.service.as_str());
    let known = failure.map(|failure| failure.message.as_str()).filter(|cause| !cause.is_empty());
    // The runtime knows from headers when a subscription's limit ends.
    let is_limit = kind == FailureKind::RateLimit && text.starts_with("You've hit your");
    let cause = match known.filter(|_| !is_limit) {
        Some(known) => Some(known.to_owned()),
        None => for_users(text),
    };
    let mut message = kind.summary(service);
    if matches!(kind, FailureKind::Service | FailureKind::InvalidRequest)
        && let Some(failure) = failure
    {
        message.push_str(&format!(" ({})", failure.status));
    }
    match cause {
        Some(cause) => {
            let cause = cause.trim_start_matches("API Error: ");
            message.push_str(": ");
            message.push_str(cause);
            if !cause.ends_with(['.', '!', '?']) {
                message.push('.');
            }
        }
        None => message.push('.'),
    }
    format!("{message}\n{}", kind.advice(failure))
}

/// A text of the runtime without the sentences that are wrong for users of the host.
pub(super) fn for_users(text: &str) -> Option<String> {
    if !MISLEADING.iter().any(|part| contains(text, part)) {
        return Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    }
    let mut kept = String::new();
    for line in text.lines() {
        let mut rest = line;
        while !rest.is_empty() {
            let end = [". ", " · ", " — "]
                .iter()
                .filter_map(|mark| rest.find(mark).map(|at| at + mark.len()))
                .min()
                .unwrap_or(rest.len());
            let (sentence, after) = rest.split_at(end);
            if !MISLEADING.iter().any(|part| contains(sentence, part)) {
                kept.push_str(sentence);
            }
            rest = after;
        }
        kept.push('\n');
    }
    let kept = kept.trim().trim_end_matches(['·', '—']).trim();
    Some(kept.to_owned()).filter(|kept| !kept.is_empty())
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
    if is_out_of_memory(&exit.stderr_tail) {
        let message = format!(
            "Claude ran out of memory: the runtime {exit} before it finished the turn.\n\
             Free some memory, or send /compact to shorten the conversation; then resume the turn."
        );
        return error("runtime_out_of_memory", message);
    }
    let mut message = format!("The Claude runtime {exit} before it finished the turn.");
    if exit.signal == Some(SIGKILL) && exit.reason == ExitReason::OnItsOwn {
        message.push_str(" The system may have run out of memory.");
    }
    let stderr = quote(&exit.stderr_tail);
    if !stderr.is_empty() {
        message.push_str("\nLast output:\n");
        message.push_str(&stderr);
    }
    message.push_str("\nResume the turn, or send another message.");
    error("runtime_exited", message)
}

/// Error of a turn whose runtime does not respond.
pub(super) fn hung_error() -> ErrorInfo {
    let message = "Claude has stopped responding, so its process was ended.\n\
                   Resume the turn, or send another message.";
    error("runtime_hung", message.to_owned())
}

/// Whether a runtime's last output says that memory ran out.
pub(super) fn is_out_of_memory(stderr: &str) -> bool {
    ["heap out of memory", "process OOM", "out of memory", "heap limit"]
        .iter()
        .any(|part| contains(stderr, part))
}

/// Whether a runtime's last output says that it does not have the conversation to resume.
pub(super) fn is_missing_conversation(stderr: &str) -> bool {
    stderr.contains("No conversation found")
}

/// The end of a runtime's output, for the user.
pub(super) fn quote(output: &str) -> String {
    let output = output.trim();
    let excess = output.chars().count().saturating_sub(QUOTE_LENGTH);
    output.chars().skip(excess).collect()
}

fn readable_time(wait: Duration) -> String {
    match wait.as_secs().max(1) {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} minutes", seconds.div_ceil(60)),
        seconds => format!("{} hours", seconds.div_ceil(3600)),
    }
}

fn contains(text: &str, part: &str) -> bool {
    text.to_ascii_lowercase().contains(&part.to_ascii_lowercase())
}

fn error(error_type: &str, message: String) -> ErrorInfo {
    ErrorInfo { error_type: error_type.to_owned(), message, stack: None, meta: None }
}

#[cfg(test)]
#[path = "failures_tests.rs"]
mod tests;
