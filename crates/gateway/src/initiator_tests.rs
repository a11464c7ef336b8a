use http::HeaderValue;
use serde_json::{Value, json};

use super::*;

const CLI: &str = "claude-cli/2.1.325 (external, cli)";

/// A request of the runtime with this content in its last message.
fn ask_with(content: &Value, change: impl FnOnce(&mut Value, &mut HeaderMap)) -> Ask {
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
    Ask::read(&RequestHead::parse(text.as_bytes()).unwrap(), &headers)
}

fn ask(content: &Value) -> Ask {
    ask_with(content, |_, _| {})
}

fn tool_result() -> Value {
    json!([{"type": "tool_result", "tool_use_id": "t", "content": "done"}, {"type": "text", "text": "<system-reminder>x</system-reminder>"}])
}

#[track_caller]
fn check(book: &mut TurnBook, ask: &Ask, expected: Initiator) -> Ticket {
    let (initiator, ticket) = book.decide(ask);
    assert_eq!(initiator, expected);
    ticket
}

#[test]
fn without_marks_the_last_message_decides() {
    let mut book = TurnBook::default();
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
        check(&mut book, &ask(&content), expected);
    }
    let prefilled = ask_with(&json!("hello"), |body, _| {
        body["messages"].as_array_mut().unwrap().push(json!({"role": "assistant", "content": "{"}));
    });
    check(&mut book, &prefilled, Initiator::Agent);
    let noted = ask_with(&json!("hello"), |body, _| {
        body["messages"].as_array_mut().unwrap().push(json!({"role": "system", "content": "note"}));
    });
    check(&mut book, &noted, Initiator::User);
}

#[test]
fn subagents_probes_and_helper_calls_are_initiated_by_agent() {
    let mut book = TurnBook::default();
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
        check(&mut book, &ask, Initiator::Agent);
    }
    let other_client = ask_with(&prompt, |body, headers| {
        body.as_object_mut().unwrap().remove("tools");
        headers.insert(http::header::USER_AGENT, HeaderValue::from_static("my-script/1"));
    });
    check(&mut book, &other_client, Initiator::User);
}

#[test]
fn subagent_marker_far_inside_system_prompt_is_ignored() {
    let far = ask_with(&json!("hi"), |body, _| {
        body["system"] = format!("{} cc_is_subagent=true", "x".repeat(1000)).into();
    });
    check(&mut TurnBook::default(), &far, Initiator::User);
}

#[test]
fn retry_is_initiated_by_user_until_it_succeeds() {
    let mut book = TurnBook::default();
    let request = ask(&json!("hello"));
    for _ in 0..3 {
        let ticket = check(&mut book, &request, Initiator::User);
        book.settle_failure(&ticket);
    }
    let ticket = check(&mut book, &request, Initiator::User);
    book.settle_success(ticket);
    check(&mut book, &request, Initiator::Agent);
}

#[test]
fn marked_turn_has_exactly_one_successful_user_request() {
    let mut book = TurnBook::default();
    book.mark(TurnMark::with_text(" fix the bug "));
    // Before the marked request the runtime may compact the history and ask for a title.
    check(&mut book, &ask(&json!("Your task is to create a detailed summary of this")), Initiator::Agent);
    check(&mut book, &ask(&json!("something else")), Initiator::Agent);
    let request = ask(
        &json!([{"type": "text", "text": "<system-reminder>x"}, {"type": "text", "text": "fix the bug"}]),
    );
    let failed = check(&mut book, &request, Initiator::User);
    check(&mut book, &request, Initiator::Agent);
    book.settle_failure(&failed);
    let ticket = check(&mut book, &request, Initiator::User);
    book.settle_success(ticket);
    check(&mut book, &ask(&tool_result()), Initiator::Agent);
    check(&mut book, &request, Initiator::Agent);
    // A subagent's prompt looks like user text but has no mark.
    check(&mut book, &ask(&json!("Explore the tree")), Initiator::Agent);
    book.mark(TurnMark::with_text("fix the bug"));
    check(&mut book, &request, Initiator::User);
}

#[test]
fn command_and_image_turns_match_next_user_content() {
    for text in ["/review this", ""] {
        let mut book = TurnBook::default();
        book.mark(TurnMark::with_text(text));
        check(&mut book, &ask(&tool_result()), Initiator::Agent);
        check(&mut book, &ask(&json!("the expansion of the command")), Initiator::User);
    }
}

#[test]
fn turns_in_one_request_are_consumed_together() {
    let mut book = TurnBook::default();
    book.mark(TurnMark::with_text("one"));
    book.mark(TurnMark::with_text("two"));
    let ticket = check(
        &mut book,
        &ask(&json!([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}])),
        Initiator::User,
    );
    book.settle_success(ticket);
    assert!(book.waiting.is_empty());
}

#[test]
fn waiting_turns_and_remembered_states_are_bounded() {
    let mut book = TurnBook::default();
    for number in 0..100 {
        let ticket = check(&mut book, &ask(&json!(format!("m{number}"))), Initiator::User);
        book.settle_success(ticket);
    }
    assert_eq!(book.asked.len(), MAX_REMEMBERED);
    for number in 0..100 {
        book.mark(TurnMark::with_text(format!("n{number}")));
    }
    assert_eq!(book.waiting.len(), MAX_WAITING);
}
