use ahp_types::actions::ChatActivityChangedAction;

use super::*;

/// The action that shows an activity, or none.
pub(super) fn shows(activity: Option<&str>) -> (ActionTarget, StateAction) {
    let activity = activity.map(str::to_owned);
    (ActionTarget::Chat, StateAction::ChatActivityChanged(ChatActivityChangedAction { activity }))
}

/// A chat with a running turn and this activity.
fn showing(activity: Option<&str>) -> ChatState {
    ChatState { activity: activity.map(str::to_owned), ..chat(Some("t1")) }
}

fn decide_in(phase: Phase, chat: &ChatState, input: DecisionInput<'_>) -> Decision {
    let (session, turns) = (session(), stored(chat));
    let view = DecisionView {
        session: &session,
        chat,
        turns: &turns,
        has_agent: true,
        now: Duration::ZERO,
        time: NOW,
    };
    decide(&agent_state(phase), view, input)
}

fn from_agent(chat: &ChatState, action: Value) -> Decision {
    let action = Box::new(serde_json::from_value(action).unwrap());
    decide_in(Phase::Live(History::Resume), chat, DecisionInput::Agent(AgentEvent::Action(action)))
}

const STARTING: Option<&str> = Some("Starting Claude");

#[test]
fn first_output_clears_the_starting_activity() {
    let markdown = json!({"kind": "markdown", "id": "p", "content": ""});
    let part = json!({"type": "chat/responsePart", "turnId": "t1", "part": markdown});
    let call = json!({"type": "chat/toolCallStart", "turnId": "t1", "toolCallId": "k", "toolName": "Bash",
        "displayName": "Run"});
    let question = json!({"type": "chat/inputRequested", "request": {"id": "q"}});
    for output in [&part, &call, &question] {
        let decision = from_agent(&showing(STARTING), output.clone());
        assert_eq!(decision.actions[0], shows(None), "{output}");
        assert_eq!(json!(decision.actions[1].1)["type"], output["type"]);
        // The agent's own activity is the agent's to clear.
        for other in [None, Some("Thinking")] {
            let decision = from_agent(&showing(other), output.clone());
            assert_eq!(json!(decision.actions[0].1)["type"], output["type"], "{other:?}");
        }
    }
    let usage = json!({"type": "chat/usage", "turnId": "t1", "usage": {}});
    assert_eq!(from_agent(&showing(STARTING), usage).actions.len(), 1, "not an output");
    let own = json!({"type": "chat/activityChanged", "activity": "Thinking"});
    assert_eq!(from_agent(&showing(STARTING), own).actions, [shows(Some("Thinking"))]);
}

#[test]
fn opened_agent_keeps_the_starting_activity_until_it_answers() {
    let decision = decide_in(opening(Some(prompt("t1"))), &showing(STARTING), DecisionInput::Opened);
    assert!(
        decision.actions.iter().all(|(_, action)| !matches!(action, StateAction::ChatActivityChanged(_)))
    );
}

#[test]
fn starting_activity_ends_with_the_attempt() {
    let failed = OpenError::Failed { error_type: "x".to_owned(), message: "x".to_owned() };
    let ended = [DecisionInput::OpenFailed(&failed), DecisionInput::End(SessionEnding::Suspend)];
    for input in ended {
        let decision = decide_in(opening(Some(prompt("t1"))), &showing(STARTING), input);
        assert_eq!(decision.actions.last(), Some(&shows(None)));
    }
    let cancel = json!({"type": "chat/turnCancelled", "turnId": "t1", "duration": 0});
    let decision = dispatch(opening(Some(prompt("t1"))), &showing(STARTING), "c", cancel);
    assert!(decision.actions.contains(&shows(None)));
}

#[test]
fn agent_that_was_opened_in_advance_is_not_starting() {
    let action = StateAction::ChatTurnStarted(started("t1"));
    let decision = from_client(Phase::Live(History::Fresh), None, ActionTarget::Chat, action.clone());
    assert!(!decision.actions.contains(&shows(STARTING)));
    let decision = from_client(opening(None), None, ActionTarget::Chat, action);
    assert!(decision.actions.contains(&shows(STARTING)), "it is still being opened");
}
