use innkeeper_claude::wire::Wire as _;
use serde_json::json;

use super::*;

fn failure(status: u16, kind: &str, message: &str) -> ModelFailure {
    ModelFailure {
        service: "GitHub Copilot".to_owned(),
        credentials_advice: "Run `innkeeper login`.".to_owned(),
        status,
        kind: kind.to_owned(),
        message: message.to_owned(),
        retry_after: Some(Duration::from_secs(42)),
    }
}

fn result(fields: &Value) -> ResultMessage {
    let mut frame = json!({"subtype": "success", "is_error": true});
    frame.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    ResultMessage::from_json(&frame.to_string()).unwrap()
}

/// Type, message, and whether the turn can be resumed.
fn judged(fields: &Value, known: Option<ModelFailure>) -> (String, String, bool) {
    match outcome(&result(fields), None, || known) {
        TurnOutcome::Interrupted(info) => (info.error_type, info.message, true),
        TurnOutcome::Failed(info) => (info.error_type, info.message, false),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_status_has_type_and_resumability() {
    for (status, error_type, resumable) in [
        (400, "invalid_request", false),
        (401, "authentication", true),
        (402, "billing", true),
        (403, "permission", true),
        (404, "model_not_found", false),
        (408, "timeout", true),
        (413, "request_too_large", false),
        (429, "rate_limit", true),
        (500, "model_service", true),
        (502, "model_service", true),
        (504, "timeout", true),
        (529, "overloaded", true),
    ] {
        let fields = json!({"api_error_status": status, "result": "API Error"});
        let (found, message, can_resume) = judged(&fields, None);
        assert_eq!((found.as_str(), can_resume), (error_type, resumable), "{status}: {message}");
        let (found, message, can_resume) = judged(&fields, Some(failure(status, "", "the cause")));
        assert_eq!((found.as_str(), can_resume), (error_type, resumable), "{status}: {message}");
        assert!(message.contains("the cause"), "{message}");
    }
}

#[test]
fn failure_of_the_endpoint_wins_over_the_text_of_the_runtime() {
    let fields = json!({"api_error_status": 401, "result": "Not logged in · Please run /login"});
    let (_, message, _) = judged(&fields, Some(failure(401, "authentication_error", "bad token")));
    assert_eq!(
        message,
        "GitHub Copilot rejected the credentials: bad token.\nRun `innkeeper login`. Then resume the turn."
    );
    let (_, message, _) = judged(&fields, None);
    assert_eq!(
        message,
        "The model service rejected the credentials: Not logged in.\n\
         Check the host's credentials for the model service. Then resume the turn."
    );
    // Another request failed in the background.
    let (found, message, _) = judged(&fields, Some(failure(500, "api_error", "other")));
    assert_eq!(found, "authentication");
    assert!(!message.contains("other"), "{message}");
}

#[test]
fn retry_time_is_named() {
    let fields = json!({"api_error_status": 429, "result": "x"});
    let (_, message, _) = judged(&fields, Some(failure(429, "rate_limit_error", "slow down")));
    assert_eq!(message, "GitHub Copilot limits requests: slow down.\nResume the turn in 42 s.");
    let times = [(0, "1 s"), (119, "119 s"), (120, "2 minutes"), (3601, "61 minutes"), (7200, "2 hours")];
    for (seconds, expected) in times {
        assert_eq!(readable_time(Duration::from_secs(seconds)), expected);
    }
}

#[test]
fn error_event_inside_a_stream_is_judged_by_its_kind() {
    let fields = json!({"result": "API Error: Connection lost mid-response."});
    let (found, _, resumable) = judged(&fields, Some(failure(502, "overloaded_error", "Overloaded")));
    assert_eq!((found.as_str(), resumable), ("overloaded", true));
    let (found, _, resumable) = judged(&fields, None);
    assert_eq!((found.as_str(), resumable), ("connection", true));
}

#[test]
fn long_context_and_images_cannot_be_resumed() {
    for (fields, expected) in [
        (json!({"api_error_status": 400, "terminal_reason": "prompt_too_long"}), "context_too_long"),
        (json!({"api_error_status": 400, "result": "Prompt is too long"}), "context_too_long"),
        (json!({"api_error_status": 400, "terminal_reason": "image_error"}), "invalid_image"),
        (json!({"api_error_status": 400, "result": "Could not process image"}), "invalid_image"),
        (
            json!({"subtype": "error_during_execution", "errors": ["Image file is empty (0 bytes)"]}),
            "invalid_image",
        ),
        (json!({"api_error_status": 413, "terminal_reason": "image_error"}), "request_too_large"),
        (json!({"stop_reason": "refusal", "result": "API Error: no"}), "refusal"),
        (json!({"subtype": "error_max_turns"}), "error_max_turns"),
        (
            json!({"subtype": "error_max_budget_usd", "errors": ["Reached maximum budget"]}),
            "error_max_budget_usd",
        ),
    ] {
        let (found, message, resumable) = judged(&fields, None);
        assert_eq!((found.as_str(), resumable), (expected, false), "{message}");
        assert!(message.contains('\n'), "no advice: {message}");
    }
}

#[test]
fn misleading_sentences_are_removed() {
    for (text, expected) in [
        (
            "API Error: 529 Overloaded. This is a server-side issue, usually temporary — try again in a moment. \
             If it persists, check your inference gateway (127.0.0.1:44771).",
            Some(
                "API Error: 529 Overloaded. This is a server-side issue, usually temporary — try again in a moment.",
            ),
        ),
        ("Not logged in · Please run /login", Some("Not logged in")),
        ("Please run /login", None),
        ("API Error: 500 x · check status.claude.com", Some("API Error: 500 x")),
        ("plain", Some("plain")),
        ("", None),
    ] {
        assert_eq!(for_users(text).as_deref(), expected, "{text}");
    }
}

#[test]
fn exit_names_signal_and_memory() {
    let exit = |signal, stderr: &str| Exit {
        code: None,
        signal: Some(signal),
        stderr_tail: stderr.to_owned(),
        reason: ExitReason::OnItsOwn,
    };
    let info = exit_error(&exit(9, ""));
    assert_eq!(info.error_type, "runtime_exited");
    assert!(info.message.contains("SIGKILL") && info.message.contains("out of memory"), "{}", info.message);
    let info = exit_error(&exit(11, "boom"));
    assert!(info.message.contains("SIGSEGV") && info.message.contains("boom"), "{}", info.message);
    assert!(!info.message.contains("memory"), "{}", info.message);
    let info = exit_error(&exit(6, "FATAL ERROR: Reached heap limit Allocation failed"));
    assert_eq!(info.error_type, "runtime_out_of_memory");
}
