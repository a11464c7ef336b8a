use super::*;

fn question() -> OpenError {
    let option = |id: &str| OpeningOption {
        id: id.to_owned(),
        label: id.to_owned(),
        description: String::new(),
        recommended: false,
    };
    OpenError::Question(Box::new(OpeningQuestion {
        topic: "trust 1".to_owned(),
        message: "facts".to_owned(),
        title: "Trust?".to_owned(),
        question: "Trust it?".to_owned(),
        options: vec![option("yes"), option("no")],
    }))
}

/// The chat after its agent asked, and the answer with this option.
fn asked_and_answered(option: &str) -> (Decision, Decision) {
    let error = question();
    let asked = run(opening(Some(prompt("t1"))), Some("t1"), DecisionInput::OpenFailed(&error));
    let (session, mut chat) = (session(), chat(Some("t1")));
    for (target, action) in &asked.actions {
        if *target == ActionTarget::Chat {
            ahp::reducers::apply_action_to_chat(&mut chat, action);
        }
    }
    let request_id = match &chat.active_turn.as_ref().unwrap().response_parts[..] {
        [ResponsePart::InputRequest(part)] => part.request.id.clone(),
        other => panic!("{other:?}"),
    };
    let answers = json!({"choice": {"state": "submitted", "value": {"kind": "selected", "value": option}}});
    let completed = ChatInputCompletedAction {
        request_id,
        response: ChatInputResponseKind::Accept,
        answers: serde_json::from_value(answers).unwrap(),
    };
    let view = DecisionView {
        session: &session,
        chat: &chat,
        turns: &[],
        has_agent: false,
        now: Duration::ZERO,
        time: NOW,
    };
    let action = StateAction::ChatInputCompleted(completed);
    let client = ClientId::new("c1");
    let input = DecisionInput::Client { target: ActionTarget::Chat, action: &action, client: &client };
    let answered = decide(&agent_state(asked.phase.clone().unwrap()), view, input);
    (asked, answered)
}

#[test]
fn question_of_provider_is_asked_and_its_answer_opens_agent_again() {
    let (asked, answered) = asked_and_answered("yes");
    let ready = StateAction::SessionReady(SessionReadyAction {});
    assert!(asked.actions.contains(&(ActionTarget::Session, ready)));
    assert_eq!(asked.effects, []);
    let answer = OpeningAnswer { topic: "trust 1".to_owned(), option: "yes".to_owned() };
    assert_eq!(answered.effects, [Effect::OpenAgent { history: History::Fresh, answer: Some(answer) }]);
    assert!(matches!(answered.phase, Some(Phase::Opening { prompt: Some(_), .. })));
}

#[test]
fn question_of_provider_can_be_cancelled() {
    let (_, answered) = asked_and_answered("cancel");
    assert_eq!(answered.effects, []);
    assert!(matches!(answered.phase, Some(Phase::Cold(History::Fresh))));
    let cancelled = |(_, action): &(ActionTarget, StateAction)| matches!(action, StateAction::ChatTurnCancelled(cancelled) if cancelled.turn_id == "t1");
    assert!(answered.actions.iter().any(cancelled));
}

#[test]
fn question_for_cancelled_turn_is_not_asked() {
    let error = question();
    let decision = run(opening(None), None, DecisionInput::OpenFailed(&error));
    assert!(matches!(decision.phase, Some(Phase::Cold(History::Fresh))));
    assert_eq!(decision.actions, []);
}
