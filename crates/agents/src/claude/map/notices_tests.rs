use innkeeper_claude::wire::decode;
use innkeeper_core::agent::AgentEvent;

use super::super::Mapper;
use super::*;

/// Maps frames; returns activities with `~` before them, and the texts of parts.
fn noted(mapper: &mut Mapper, frames: &[Value]) -> Vec<String> {
    let turn = TurnId::new("t");
    let mut noted = Vec::new();
    for frame in frames {
        for event in mapper.map(&turn, &decode(frame.to_string().as_bytes()).unwrap()) {
            let AgentEvent::Action(action) = event else { panic!("unexpected event {event:?}") };
            let value = serde_json::to_value(*action).unwrap();
            match value["type"].as_str().unwrap() {
                "chat/activityChanged" => {
                    noted.push(format!("~{}", value["activity"].as_str().unwrap_or("")))
                }
                "chat/responsePart" => noted.push(value["part"]["content"].as_str().unwrap().to_owned()),
                "chat/toolCallStart" | "chat/toolCallReady" | "chat/toolCallComplete" => {}
                other => panic!("unexpected action {other}"),
            }
        }
    }
    noted
}

fn system(subtype: &str, fields: &Value) -> Value {
    let mut frame = json!({"type": "system", "subtype": subtype});
    frame.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    frame
}

#[test]
fn retry_says_cause_attempt_and_next_try() {
    let cases = [
        (json!(529), "overloaded", "The model is overloaded (529). Retry 3 of 10 in 8 s."),
        (json!(429), "rate_limit", "The model service limits requests (429). Retry 3 of 10 in 8 s."),
        (json!(503), "server_error", "The model service failed (503). Retry 3 of 10 in 8 s."),
        (json!(401), "x", "The model service rejects the credentials (401). Retry 3 of 10 in 8 s."),
        (json!(null), "unknown", "The connection to the model service failed. Retry 3 of 10 in 8 s."),
    ];
    for (status, error, expected) in cases {
        let fields = json!({"attempt": 3, "max_retries": 10, "retry_delay_ms": 8123.4, "error_status": status, "error": error});
        let mut mapper = Mapper::default();
        assert_eq!(noted(&mut mapper, &[system("api_retry", &fields)]), [format!("~{expected}")]);
        let start =
            json!({"type": "stream_event", "event": {"type": "message_start", "message": {"id": "a"}}});
        assert_eq!(noted(&mut mapper, &[start]), ["~"], "the stream continues");
    }
}

#[test]
fn only_failed_and_blocking_hooks_become_parts() {
    let hook = |code: i64, stdout: &str, stderr: &str| {
        let outcome = if code == 0 { "success" } else { "error" };
        let fields = json!({"hook_id": "h", "hook_name": "PreToolUse:Bash", "exit_code": code, "outcome": outcome,
            "stdout": stdout, "stderr": stderr, "output": stdout});
        let started = system("hook_started", &json!({"hook_id": "h", "hook_name": "PreToolUse:Bash"}));
        noted(&mut Mapper::default(), &[started, system("hook_response", &fields)])
    };
    let running = "~Running hook PreToolUse:Bash";
    assert_eq!(hook(0, "fine", ""), [running, "~"]);
    assert_eq!(hook(1, "", "oops\n"), [running, "Hook PreToolUse:Bash failed with exit code 1: oops", "~"]);
    assert_eq!(hook(2, "", "no way\n"), [running, "Hook PreToolUse:Bash blocked: no way", "~"]);
    let output = r#"{"decision":"block","reason":"not now"}"#;
    assert_eq!(hook(0, output, ""), [running, "Hook PreToolUse:Bash blocked: not now", "~"]);
    let output = r#"{"hookSpecificOutput":{"permissionDecision":"deny"}}"#;
    assert_eq!(hook(0, output, ""), [running, "Hook PreToolUse:Bash blocked: no reason", "~"]);
    assert_eq!(hook(0, r#"{"decision":"approve"}"#, ""), [running, "~"]);
}

#[test]
fn compaction_is_activity_and_then_a_part() {
    let metadata = json!({"trigger": "auto", "pre_tokens": 150_000, "post_tokens": 9000});
    let frames = [
        system("status", &json!({"status": "compacting"})),
        system("status", &json!({"status": null, "compact_result": "success"})),
        system("compact_boundary", &json!({"compact_metadata": metadata})),
        json!({"type": "user", "isReplay": true, "message": {"role": "user", "content": "<local-command-stdout>Compacted</local-command-stdout>"}}),
    ];
    let expected = [
        "~Compacting the conversation",
        "~",
        "The conversation was compacted automatically: 150000 tokens before, 9000 after.",
    ];
    assert_eq!(noted(&mut Mapper::default(), &frames), expected);
    let failed = system("status", &json!({"status": null, "compact_error": "too long"}));
    assert_eq!(noted(&mut Mapper::default(), &[failed]), ["Compaction failed: too long"]);
}

#[test]
fn activity_before_the_first_message_of_a_turn_is_cleared_in_it() {
    let mut mapper = Mapper::default();
    let compacting =
        decode(system("status", &json!({"status": "compacting"})).to_string().as_bytes()).unwrap();
    assert_eq!(mapper.unowned(&compacting).len(), 1);
    mapper.begin_turn();
    let requesting = system("status", &json!({"status": "requesting"}));
    assert_eq!(noted(&mut mapper, std::slice::from_ref(&requesting)), ["~"]);
    assert!(noted(&mut mapper, &[requesting]).is_empty());
}

#[test]
fn task_in_foreground_is_activity_and_in_background_a_part_when_it_ends() {
    let started =
        json!({"task_id": "b", "tool_use_id": "k", "description": "tests", "task_type": "local_bash"});
    let ended = json!({
        "task_id": "b", "tool_use_id": "k", "status": "completed", "summary": "tests passed",
        "output_file": "/tasks/b.output",
    });
    let frames = [system("task_started", &started), system("task_notification", &ended)];
    // The chat's list shows the work in the background.
    assert_eq!(noted(&mut Mapper::default(), &frames), ["Background task completed: tests passed"]);
    let call = json!({"type": "tool_use", "id": "k", "name": "Bash", "input": {"command": "make"}});
    let call = json!({"type": "assistant", "message": {"id": "m", "content": [call]}});
    let frames = [call, frames[0].clone(), frames[1].clone()];
    assert_eq!(noted(&mut Mapper::default(), &frames), ["~Running: tests", "~"]);
    // A task that a subagent waits for.
    let nested = system("task_notification", &json!({"task_id": "n", "tool_use_id": "x", "output_file": ""}));
    assert_eq!(noted(&mut Mapper::default(), &[nested]), [""; 0]);
    let progress = json!({"task_id": "a", "description": "Running sub bash", "last_tool_name": "Bash"});
    assert_eq!(
        noted(&mut Mapper::default(), &[system("task_progress", &progress)]),
        ["~Subagent: Running sub bash"]
    );
}

#[test]
fn notes_of_the_runtime_are_shown_once() {
    let frames = [
        system("informational", &json!({"content": "stopped · continuing"})),
        system("notification", &json!({"key": "k", "text": "Stop hook error · ctrl+o to see"})),
        system("model_fallback", &json!({"fallback_model": "haiku", "content": "Switched to Haiku"})),
        system("model_refusal_fallback", &json!({"fallback_model": "haiku"})),
        system("permission_denied", &json!({"tool_use_id": "unknown", "message": "not allowed"})),
        system(
            "local_command_output",
            &json!({"content": "<local-command-stdout>Cost: 1</local-command-stdout>"}),
        ),
        json!({"type": "user", "isReplay": true, "message": {"role": "user", "content": "<local-command-stdout>Cost: 1</local-command-stdout>"}}),
        json!({"type": "tool_progress", "tool_name": "Bash", "elapsed_time_seconds": 12.4}),
        system("files_persisted", &json!({})),
    ];
    let expected = [
        "stopped · continuing",
        "~Stop hook error",
        "Switched to Haiku",
        "haiku answers instead of the chosen model.",
        "not allowed",
        "Cost: 1",
    ];
    let mut mapper = Mapper::default();
    assert_eq!(noted(&mut mapper, &frames), expected);
    mapper.begin_turn();
    assert_eq!(noted(&mut mapper, &frames[7..8]), ["~Run command: running for 12 s"]);
    let result = json!({"type": "tool_result", "tool_use_id": "k", "content": "done"});
    let result = json!({"type": "user", "message": {"role": "user", "content": [result]}});
    assert_eq!(noted(&mut mapper, &[result]), ["~"]);
}

#[test]
fn rate_limit_warning_names_limit_and_time() {
    let limit = |info: Value| {
        noted(&mut Mapper::default(), &[json!({"type": "rate_limit_event", "rate_limit_info": info})])
    };
    let warning = json!({"status": "allowed_warning", "resetsAt": 1_794_735_709, "rateLimitType": "seven_day", "utilization": 0.92});
    assert_eq!(limit(warning), ["92 % of your weekly limit is used. It resets at 2026-11-15 09:41 UTC."]);
    assert!(
        limit(json!({"status": "rejected", "rateLimitType": "five_hour"})).is_empty(),
        "the error says so"
    );
    let overage = json!({"status": "allowed", "rateLimitType": "five_hour", "isUsingOverage": true});
    assert_eq!(limit(overage), ["Your 5-hour limit is reached; this turn uses paid extra usage."]);
    assert!(limit(json!({"status": "allowed"})).is_empty());
}

#[test]
fn times_are_shown_in_utc() {
    for (seconds, expected) in [
        (0, "1970-01-01 00:00 UTC"),
        (951_782_399, "2000-02-28 23:59 UTC"),
        (951_868_800, "2000-03-01 00:00 UTC"),
        (1_709_164_800, "2024-02-29 00:00 UTC"),
        (-1, "1969-12-31 23:59 UTC"),
    ] {
        assert_eq!(utc_time(seconds), expected);
    }
}
