use super::*;
use crate::agent::{StopTarget, StoppedWork, WorkKind};

fn stopped(phase: Phase, chat: &ChatState, target: &StopTarget) -> Decision {
    decide_in(phase, chat, DecisionInput::Stop { request: 7, target })
}

fn decide_in(phase: Phase, chat: &ChatState, input: DecisionInput<'_>) -> Decision {
    let session = session();
    let view = DecisionView {
        session: &session,
        chat,
        turns: &stored(chat),
        has_agent: true,
        now: Duration::ZERO,
        time: NOW,
    };
    decide(&agent_state(phase), view, input)
}

fn shell(id: &str) -> Value {
    json!({"kind": "shell", "id": id, "label": "npm run dev", "startedAt": NOW, "command": "npm run dev",
        "_meta": {"innkeeper.work": {"toolCallId": "k1"}}})
}

fn work(kind: WorkKind, label: &str) -> StoppedWork {
    StoppedWork { kind, label: label.to_owned() }
}

#[test]
fn stop_of_everything_asks_only_an_open_agent() {
    let chat = chat_with(json!([]), json!({"backgroundWork": [shell("w1")]}));
    let turn = work(WorkKind::Turn, "hello there");
    let running = work(WorkKind::Command, "npm run dev");
    let all = StopTarget::Background;
    let live = stopped(Phase::Live(History::Resume), &chat, &all);
    assert_eq!(live.stop, StopPlan { stopped: vec![turn.clone()], asked: Some(vec![running]) });
    let command = AgentCommand::StopWork { request: 7, target: all.clone() };
    assert!(live.effects.contains(&Effect::Agent(command)), "{live:?}");
    assert!(matches!(live.actions.as_slice(), [(ActionTarget::Chat, StateAction::ChatTurnCancelled(_))]));
    for phase in [Phase::Cold(History::Resume), Phase::Opening { history: History::Resume, prompt: None }] {
        let decision = stopped(phase, &chat, &all);
        assert_eq!(decision.stop, StopPlan { stopped: vec![turn.clone()], asked: None });
        assert_eq!(decision.effects, []);
    }
    let closing = stopped(Phase::Closing(History::Resume), &chat, &all);
    assert!(closing.rejection.is_some() && closing.actions.is_empty());
}

#[test]
fn stop_of_a_call_finds_its_work_in_the_background() {
    let mut idle = chat(None);
    idle.background_work = serde_json::from_value(json!([shell("w1")])).unwrap();
    let live = || Phase::Live(History::Resume);
    for target in [StopTarget::ToolCall("k1".to_owned()), StopTarget::Work("w1".to_owned())] {
        let decision = stopped(live(), &idle, &target);
        assert_eq!(decision.stop.asked, Some(vec![work(WorkKind::Command, "npm run dev")]));
        assert!(decision.actions.is_empty());
        assert!(stopped(Phase::Cold(History::Resume), &idle, &target).rejection.is_some());
    }
    for target in [StopTarget::ToolCall("k2".to_owned()), StopTarget::Work("w2".to_owned())] {
        assert!(stopped(live(), &idle, &target).rejection.is_some(), "{target:?}");
    }
}

#[test]
fn message_that_arrives_during_a_restart_opens_the_next_agent() {
    let restarted = decide_in(Phase::Live(History::Resume), &chat(Some("t1")), DecisionInput::Restart);
    assert!(matches!(restarted.phase, Some(Phase::Opening { prompt: None, .. })));
    assert_eq!(restarted.effects, [Effect::CloseAgent]);
    assert!(matches!(restarted.actions.as_slice(), [(_, StateAction::ChatError(_))]));
    let waiting = || Phase::Opening { history: History::Resume, prompt: Some(Box::new(prompt("t2"))) };
    let closed = || AgentEvent::Closed { history: History::Resume, unsent: None, restart: None };
    for input in [DecisionInput::Agent(closed()), DecisionInput::OpenFailed(&OpenError::Cancelled)] {
        let next = run(waiting(), Some("t2"), input);
        assert_eq!(next.effects, [Effect::open(History::Resume)]);
        let starting = super::starting::shows(Some("Starting Claude"));
        assert!(next.actions.iter().all(|action| *action == starting), "{next:?}");
    }
    // The turn may have the id of the one that the old agent was working on.
    let outcome = TurnOutcome::Completed;
    let late = AgentEvent::TurnEnded { turn: TurnId::new("t2"), outcome };
    assert!(run(waiting(), Some("t2"), DecisionInput::Agent(late)).actions.is_empty());
    let token = AgentEvent::ResumeToken(crate::agent::ResumeToken::new("new"));
    assert!(run(waiting(), Some("t2"), DecisionInput::Agent(token)).resume_token.is_some());
    let idle = Phase::Opening { history: History::Resume, prompt: None };
    let cold = run(idle, None, DecisionInput::OpenFailed(&OpenError::Cancelled));
    assert!(matches!(cold.phase, Some(Phase::Cold(_))) && cold.actions.is_empty(), "{cold:?}");
}

#[test]
fn cause_of_a_restart_is_kept_until_an_agent_is_open() {
    let cause = Some("the changed working directories".to_owned());
    let closed = AgentEvent::Closed { history: History::Resume, unsent: None, restart: cause.clone() };
    let decision = run(Phase::Live(History::Resume), None, DecisionInput::Agent(closed));
    assert_eq!(decision.restart, Some(cause.clone()));
    // An agent without a conversation was not restarted.
    let closed = AgentEvent::Closed { history: History::Fresh, unsent: None, restart: cause };
    let decision = run(Phase::Live(History::Fresh), None, DecisionInput::Agent(closed));
    assert_eq!(decision.restart, Some(None));
    let opening = || Phase::Opening { history: History::Resume, prompt: Some(Box::new(prompt("t1"))) };
    assert_eq!(run(opening(), Some("t1"), DecisionInput::Opened).restart, Some(None));
    let failed = OpenError::Failed { error_type: "x".to_owned(), message: "y".to_owned() };
    assert_eq!(run(opening(), Some("t1"), DecisionInput::OpenFailed(&failed)).restart, None);
}
