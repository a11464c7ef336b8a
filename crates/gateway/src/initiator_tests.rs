use http::HeaderValue;
use serde_json::{Value, json};

use super::*;

const CLI: &str = "claude-cli/2.1.325 (external, cli)";

/// A request of the runtime with this content in its last message.
fn ask_with(content: &Value, change: impl FnOnce(&mut Value, &mut HeaderMap)) -> RequestTraits {
    let mut body = json!({
        "model": "claude-x",
        "max_tokens": 1000,
        "tools": [{"name": "Bash"}],
        "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2"}],
        "messages": [{"role": "user", "content": "earlier"}, {"role": "assistant", "content": "yes"}, {"role": "user", "content": content}],
    });
    let mut headers = HeaderMap::new();
    headers.insert(http::header::USER_AGENT, HeaderValue::from_static(CLI));
    change(&mut body, &mut headers);
    let text = body.to_string();
    RequestTraits::read(&RequestHead::parse(text.as_bytes()).unwrap(), &headers)
}

fn ask(content: &Value) -> RequestTraits {
    ask_with(content, |_, _| {})
}

fn tool_result() -> Value {
    json!([{"type": "tool_result", "tool_use_id": "t", "content": "done"}, {"type": "text", "text": "<system-reminder>x</system-reminder>"}])
}

#[track_caller]
fn check(turns: &mut SessionTurns, ask: &RequestTraits, expected: Initiator) -> TurnReservation {
    let (initiator, reservation) = turns.decide(ask);
    assert_eq!(initiator, expected);
    reservation
}

#[test]
fn without_marks_the_last_message_decides() {
    let mut turns = SessionTurns::default();
    for (content, expected) in [
        (json!("hello"), Initiator::User),
        (json!([{"type": "text", "text": "hello again"}]), Initiator::User),
        (json!([{"type": "image", "source": {}}]), Initiator::User),
        (
            json!([{"type": "tool_result", "tool_use_id": "t", "content": "x"}, {"type": "text", "text": "and then?"}]),
            Initiator::User,
        ),
        (tool_result(), Initiator::Agent),
        (json!([{"type": "text", "text": "<system-reminder>x"}]), Initiator::Agent),
        (json!("Your task is to create a detailed summary of the conversation so far"), Initiator::Agent),
        (json!(7), Initiator::Agent),
    ] {
        check(&mut turns, &ask(&content), expected);
    }
    let prefilled = ask_with(&json!("hello"), |body, _| {
        body["messages"].as_array_mut().unwrap().push(json!({"role": "assistant", "content": "{"}));
    });
    check(&mut turns, &prefilled, Initiator::Agent);
    let noted = ask_with(&json!("hello"), |body, _| {
        body["messages"].as_array_mut().unwrap().push(json!({"role": "system", "content": "note"}));
    });
    check(&mut turns, &noted, Initiator::User);
}

#[test]
fn subagents_probes_and_helper_calls_are_initiated_by_agent() {
    let mut turns = SessionTurns::default();
    let prompt = json!("look into this");
    let by_header = ask_with(&prompt, |_, headers| {
        headers.insert("x-claude-code-agent-id", HeaderValue::from_static("a1"));
    });
    let by_system = ask_with(&prompt, |body, _| {
        body["system"][0]["text"] = "x-anthropic-billing-header: cc_is_subagent=true;".into();
    });
    let probe = ask_with(&prompt, |body, _| body["max_tokens"] = 1.into());
    let title = ask_with(&prompt, |body, _| body["tools"] = json!([]));
    for ask in [by_header, by_system, probe, title] {
        check(&mut turns, &ask, Initiator::Agent);
    }
    let other_client = ask_with(&prompt, |body, headers| {
        body.as_object_mut().unwrap().remove("tools");
        headers.insert(http::header::USER_AGENT, HeaderValue::from_static("my-script/1"));
    });
    check(&mut turns, &other_client, Initiator::User);
}

#[test]
fn subagent_marker_far_inside_system_prompt_is_ignored() {
    let far = ask_with(&json!("hi"), |body, _| {
        body["system"] = format!("{} cc_is_subagent=true", "x".repeat(1000)).into();
    });
    check(&mut SessionTurns::default(), &far, Initiator::User);
}

#[test]
fn retry_is_initiated_by_user_until_it_succeeds() {
    let mut turns = SessionTurns::default();
    let request = ask(&json!("hello"));
    for _ in 0..3 {
        let reservation = check(&mut turns, &request, Initiator::User);
        turns.settle_failure(&reservation);
    }
    let reservation = check(&mut turns, &request, Initiator::User);
    turns.settle_success(reservation);
    check(&mut turns, &request, Initiator::Agent);
}

#[test]
fn marked_turn_has_exactly_one_successful_user_request() {
    let mut turns = SessionTurns::default();
    turns.mark(TurnMark::with_text(" fix the bug "));
    // Before the marked request the runtime may compact the history and ask for a title.
    check(&mut turns, &ask(&json!("Your task is to create a detailed summary of this")), Initiator::Agent);
    check(&mut turns, &ask(&json!("something else")), Initiator::Agent);
    let request = ask(
        &json!([{"type": "text", "text": "<system-reminder>x"}, {"type": "text", "text": "fix the bug"}]),
    );
    let failed = check(&mut turns, &request, Initiator::User);
    check(&mut turns, &request, Initiator::Agent);
    turns.settle_failure(&failed);
    let reservation = check(&mut turns, &request, Initiator::User);
    turns.settle_success(reservation);
    check(&mut turns, &ask(&tool_result()), Initiator::Agent);
    check(&mut turns, &request, Initiator::Agent);
    // A subagent's prompt looks like user text but has no mark.
    check(&mut turns, &ask(&json!("Explore the tree")), Initiator::Agent);
    turns.mark(TurnMark::with_text("fix the bug"));
    check(&mut turns, &request, Initiator::User);
}

#[test]
fn command_and_image_turns_match_next_user_content() {
    for text in ["/review this", ""] {
        let mut turns = SessionTurns::default();
        turns.mark(TurnMark::with_text(text));
        check(&mut turns, &ask(&tool_result()), Initiator::Agent);
        check(&mut turns, &ask(&json!("the expansion of the command")), Initiator::User);
    }
}

#[test]
fn turns_in_one_request_are_consumed_together() {
    let mut turns = SessionTurns::default();
    turns.mark(TurnMark::with_text("one"));
    turns.mark(TurnMark::with_text("two"));
    let reservation = check(
        &mut turns,
        &ask(&json!([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}])),
        Initiator::User,
    );
    turns.settle_success(reservation);
    assert!(turns.waiting.is_empty());
}

#[test]
fn waiting_turns_and_remembered_states_are_bounded() {
    let mut turns = SessionTurns::default();
    for number in 0..100 {
        let reservation = check(&mut turns, &ask(&json!(format!("m{number}"))), Initiator::User);
        turns.settle_success(reservation);
    }
    assert_eq!(turns.asked.len(), MAX_REMEMBERED);
    for number in 0..100 {
        turns.mark(TurnMark::with_text(format!("n{number}")));
    }
    assert_eq!(turns.waiting.len(), MAX_WAITING);
}
