use super::*;

fn discard(chat: &ChatState, turn: &str, parts: &[&str]) -> Decision {
    let parts = parts.iter().map(|part| (*part).to_owned()).collect();
    let event = AgentEvent::PartsDiscarded { turn: TurnId::new(turn), parts };
    let (session, turns) = (session(), stored(chat));
    let view = DecisionView {
        session: &session,
        chat,
        turns: &turns,
        has_agent: true,
        now: Duration::ZERO,
        time: "2026-01-01T00:00:00.000Z",
    };
    decide(&agent_state(Phase::Live(History::Resume)), view, DecisionInput::Agent(event))
}

#[test]
fn answer_that_broke_off_stays_and_is_named_in_a_notification() {
    let parts = json!([
        {"kind": "markdown", "id": "p1", "content": "Before."},
        {"kind": "markdown", "id": "p2", "content": "Half a sen"},
        {"kind": "toolCall", "toolCall": {"status": "streaming", "toolCallId": "k1", "toolName": "Bash", "displayName": "Run"}},
    ]);
    let chat = chat_with(parts, json!({}));
    let decision = discard(&chat, "t1", &["p2", "k1", "unknown"]);
    let actions: Vec<Value> = decision.actions.iter().map(|(_, action)| json!(action)).collect();
    let kinds: Vec<_> = actions.iter().map(|action| action["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["chat/toolCallReady", "chat/toolCallConfirmed", "chat/responsePart"]);
    assert_eq!(actions[1]["reason"], "skipped");
    let part = &actions[2]["part"];
    assert_eq!(part["kind"], "systemNotification");
    assert_eq!(part["_meta"]["innkeeper.discardedParts"], json!(["p2", "k1"]));

    assert!(discard(&chat, "t1", &["unknown"]).actions.is_empty());
    assert!(discard(&chat, "other", &["p2"]).actions.is_empty(), "the turn is over");
}
