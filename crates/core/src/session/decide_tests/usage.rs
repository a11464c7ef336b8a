use super::*;
use crate::usage::{ContextUse, ModelUse, UsageReport};

fn used(turn: Option<&str>) -> AgentEvent {
    let used = ModelUse { requests: 1, output_tokens: 5, ..ModelUse::default() };
    let context = Some(ContextUse { input_tokens: 70, cache_read_tokens: 0 });
    let report = Box::new(UsageReport { used, context, model: None });
    AgentEvent::Used { turn: turn.map(TurnId::new), report }
}

/// The turn whose usage is published, with its output tokens.
fn published(decision: &Decision) -> Option<(String, i64)> {
    let [(ActionTarget::Chat, StateAction::ChatUsage(action))] = decision.actions.as_slice() else {
        assert!(decision.actions.is_empty(), "{:?}", decision.actions);
        return None;
    };
    assert_eq!(action.usage.input_tokens, Some(70));
    Some((action.turn_id.clone(), action.usage.output_tokens?))
}

#[test]
fn usage_is_added_to_the_running_turn_and_to_the_session() {
    let mut chat = chat(Some("t1"));
    let before =
        json!({"inputTokens": 9, "outputTokens": 3, "_meta": {"innkeeper.usage": {"outputTokens": 3}}});
    chat.active_turn.as_mut().unwrap().usage = Some(serde_json::from_value(before).unwrap());
    let decide_for = |turn: Option<&str>, folded: Option<TurnMessage>| {
        let mut agent = agent_state(Phase::Live(History::Resume));
        agent.folded = folded;
        let session = session();
        let view = DecisionView {
            session: &session,
            chat: &chat,
            turns: &stored(&chat),
            has_agent: true,
            now: Duration::ZERO,
            time: NOW,
        };
        let decision = decide(&agent, view, DecisionInput::Agent(used(turn)));
        assert_eq!(decision.used.map(|used| (used.requests, used.output_tokens)), Some((1, 5)));
        published(&decision)
    };
    assert_eq!(decide_for(Some("t1"), None), Some(("t1".to_owned(), 8)));
    // A turn of the agent's own whose output is added to the running turn.
    assert_eq!(decide_for(Some("own"), Some(prompt("own"))), Some(("t1".to_owned(), 8)));
    assert_eq!(decide_for(Some("own"), None), None);
    assert_eq!(decide_for(None, None), None);
}

#[test]
fn late_usage_counts_for_the_session_only() {
    for (phase, active) in [(Phase::Live(History::Resume), None), (opening(Some(prompt("t2"))), Some("t2"))] {
        let decision = run(phase, active, DecisionInput::Agent(used(Some("t1"))));
        assert_eq!(published(&decision), None);
        assert_eq!(decision.used.map(|used| used.requests), Some(1));
    }
}
