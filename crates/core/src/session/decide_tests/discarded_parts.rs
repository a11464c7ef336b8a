use ahp::reducers::apply_action_to_chat;

use super::*;

fn text(id: &str) -> Value {
    json!({"kind": "markdown", "id": id, "content": format!("text of {id}")})
}

fn call(id: &str, status: &str, extra: Value) -> Value {
    let mut call = json!({
        "status": status, "toolCallId": id, "toolName": "Bash", "displayName": "Run",
        "invocationMessage": "ls", "toolInput": "ls", "_meta": {"toolKind": "terminal"},
    });
    call.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    json!({"kind": "toolCall", "toolCall": call})
}

fn request(id: &str, extra: Value) -> Value {
    let mut part = json!({"kind": "inputRequest", "request": {
        "id": id, "message": "Which?", "questions": [], "answers": {},
    }});
    part.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    part
}

/// A chat whose running turn has these parts and a usage.
fn running(parts: &[Value], status: u32) -> ChatState {
    let mut chat = chat_with(json!(parts), json!({"status": status}));
    let usage = json!({"inputTokens": 7, "outputTokens": 9});
    chat.active_turn.as_mut().unwrap().usage = Some(serde_json::from_value(usage).unwrap());
    chat
}

fn discard_of(agent: &AgentState, chat: &ChatState, turn: &str, parts: &[&str]) -> Decision {
    let (session, turns) = (session(), stored(chat));
    let view = DecisionView {
        session: &session,
        chat,
        turns: &turns,
        has_agent: true,
        now: Duration::from_millis(350),
        time: NOW,
    };
    let parts = parts.iter().map(|part| (*part).to_owned()).collect();
    let event = AgentEvent::PartsDiscarded { turn: TurnId::new(turn), parts };
    decide(agent, view, DecisionInput::Agent(event))
}

fn discard(chat: &ChatState, turn: &str, parts: &[&str]) -> Decision {
    discard_of(&agent_state(Phase::Live(History::Resume)), chat, turn, parts)
}

/// The chat after the actions of a decision.
fn after(chat: &ChatState, decision: &Decision) -> ChatState {
    let mut chat = chat.clone();
    for (target, action) in &decision.actions {
        assert_eq!(*target, ActionTarget::Chat);
        apply_action_to_chat(&mut chat, action);
    }
    chat
}

#[test]
fn discarded_parts_leave_the_turn_and_nothing_else_changes() {
    let (in_progress, input_needed, read) = (8, 24, 32);
    let pending = json!({
        "confirmationTitle": "Run?", "editable": true,
        "options": [{"id": "once", "label": "Allow", "kind": "approve"}],
    });
    let result = json!({"confirmed": "not-needed", "success": true, "pastTenseMessage": "Ran"});
    let stays = [
        vec![],
        vec![text("p0"), json!({"kind": "reasoning", "id": "r0", "content": "hm"})],
        vec![
            json!({"kind": "contentRef", "uri": "x:/1"}),
            json!({"kind": "systemNotification", "content": "n"}),
        ],
        vec![call("k0", "completed", result.clone())],
        vec![call("k0", "running", json!({"confirmed": "not-needed"})), json!({"kind": "later", "x": 1})],
        vec![request("q0", json!({"response": "accept"}))],
        vec![request("q0", json!({}))],
        vec![call("k0", "pending-confirmation", pending), text("p0")],
        vec![call("k0", "pending-result-confirmation", result)],
    ];
    let gone = [text("p1"), call("k1", "streaming", json!({"partialInput": "{"})), request("q1", json!({}))];
    for (case, stays) in stays.iter().enumerate() {
        let waits = case >= 6;
        for read in [0, read] {
            let mut parts = stays.clone();
            parts.extend(gone.clone());
            let before = running(&parts, input_needed | read);
            let expected = running(stays, if waits { input_needed } else { in_progress } | read);
            let decision = discard(&before, "t1", &["p1", "k1", "q1", "unknown"]);
            assert_eq!(json!(after(&before, &decision)), json!(expected), "case {case}");
            assert!(decision.discarded.is_some() && decision.effects.is_empty() && !decision.works);
        }
    }
}

#[test]
fn call_that_waits_for_a_sign_in_stays() {
    let contributor =
        json!({"confirmed": "not-needed", "contributor": {"kind": "mcp", "customizationId": "m"}});
    let running_call = call("k0", "running", contributor);
    // The official types cannot decode such a call, so the action creates it.
    let auth = json!({"reason": "required", "resource": {"resource": "https://a.example"}});
    let required =
        json!({"type": "chat/toolCallAuthRequired", "turnId": "t1", "toolCallId": "k0", "auth": auth});
    let required: StateAction = serde_json::from_value(required).unwrap();
    let (mut before, mut expected) =
        (running(&[running_call.clone(), text("p1")], 8), running(&[running_call], 8));
    apply_action_to_chat(&mut before, &required);
    apply_action_to_chat(&mut expected, &required);
    assert_eq!(expected.status, 24);
    assert_eq!(after(&before, &discard(&before, "t1", &["p1"])), expected);
}

#[test]
fn nothing_is_published_without_a_discarded_part_in_the_running_turn() {
    let chat = running(&[text("p1"), json!({"kind": "systemNotification", "content": "n"})], 8);
    for (turn, parts) in [("t1", vec![]), ("t1", vec!["p2", ""]), ("old", vec!["p1"]), ("t2", vec!["p1"])] {
        let decision = discard(&chat, turn, &parts);
        assert!(decision.actions.is_empty() && decision.discarded.is_none(), "{turn} {parts:?}");
    }
}

#[test]
fn discarded_parts_of_a_folded_turn_leave_the_running_turn() {
    let chat = running(&[text("p1"), text("p2")], 8);
    let agent = AgentState { folded: Some(prompt("own")), ..agent_state(Phase::Live(History::Resume)) };
    let decision = discard_of(&agent, &chat, "own", &["p2"]);
    assert_eq!(json!(after(&chat, &decision)), json!(running(&[text("p1")], 8)));
}

#[test]
fn error_of_an_earlier_attempt_becomes_a_notification() {
    let error =
        json!({"kind": "error", "error": {"errorType": "x", "message": "It failed."}, "resumable": true});
    let chat = running(&[text("p1"), error, text("p2")], 8);
    let notice = json!({"kind": "systemNotification", "content": "It failed."});
    let decision = discard(&chat, "t1", &["p2"]);
    assert_eq!(json!(after(&chat, &decision)), json!(running(&[text("p1"), notice], 8)));
}
