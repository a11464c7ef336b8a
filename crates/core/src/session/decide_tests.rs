use ahp_types::actions::{ChatDeltaAction, SessionActiveClientSetAction, SessionConfigChangedAction};
use ahp_types::state::MessageOrigin;
use serde_json::{Value, json};

use super::*;

fn session() -> SessionState {
    serde_json::from_value(json!({
        "provider": "claude", "title": "", "status": 1, "lifecycle": "creating", "activeClients": [],
        "chats": [],
        "config": {
            "schema": {"type": "object", "properties": {
                "fixed": {"type": "string", "title": "Fixed"},
                "free": {"type": "string", "title": "Free", "sessionMutable": true},
            }},
            "values": {},
        },
    }))
    .unwrap()
}

fn chat(active: Option<&str>) -> ChatState {
    let mut chat = json!({
        "resource": "ahp-chat:/1", "title": "", "status": 1,
        "modifiedAt": "2026-11-15T09:00:00.000Z",
        "turns": [{"id": "old", "message": message(), "responseParts": [], "state": "complete"}],
    });
    if let Some(turn) = active {
        chat["activeTurn"] = json!({
            "id": turn, "startedAt": "2026-11-15T09:00:00.000Z", "message": message(), "responseParts": [],
        });
    }
    serde_json::from_value(chat).unwrap()
}

fn message() -> Value {
    json!({"text": "hello there", "origin": {"kind": "user"}})
}

fn model(phase: Phase) -> Model {
    Model { phase, turn_began: Duration::from_millis(100), listed: false }
}

fn user_message(text: &str) -> Message {
    Message {
        text: text.to_owned(),
        origin: MessageOrigin { kind: MessageKind::User },
        attachments: None,
        model: None,
        agent: None,
        meta: None,
    }
}

fn started(turn: &str) -> ChatTurnStartedAction {
    ChatTurnStartedAction {
        turn_id: turn.to_owned(),
        started_at: "2026-11-15T09:00:05Z".to_owned(),
        message: user_message("hello there"),
        queued_message_id: None,
        meta: None,
    }
}

fn prompt(turn: &str) -> Prompt {
    Prompt { turn: TurnId::new(turn), message: user_message("hello there") }
}

fn run(phase: Phase, active: Option<&str>, input: Input<'_>) -> Decision {
    let (session, chat) = (session(), chat(active));
    let view = View { session: &session, chat: &chat, now: Duration::from_millis(350) };
    decide(&model(phase), view, input)
}

fn from_client(phase: Phase, active: Option<&str>, target: Target, action: StateAction) -> Decision {
    run(phase, active, Input::Client { target, action: &action, client: &ClientId::new("c1") })
}

fn opening(prompt: Option<Prompt>) -> Phase {
    Phase::Opening { history: History::Fresh, prompt: prompt.map(Box::new) }
}

#[test]
fn the_first_message_opens_the_agent_and_names_the_session() {
    let action = StateAction::ChatTurnStarted(started("t1"));
    let decision = from_client(Phase::Cold(History::Fresh), None, Target::Chat, action);
    assert_eq!(decision.rejection, None);
    assert_eq!(decision.effects, [Effect::OpenAgent(History::Fresh)]);
    assert!(matches!(decision.phase, Some(Phase::Opening { prompt: Some(_), .. })));
    assert_eq!(
        decision.actions,
        [(
            Target::Session,
            StateAction::SessionTitleChanged(SessionTitleChangedAction { title: "hello there".to_owned() })
        )]
    );
}

#[test]
fn an_opened_agent_makes_the_session_ready_lists_it_and_gets_the_message() {
    let decision = run(opening(Some(prompt("t1"))), Some("t1"), Input::Opened);
    assert_eq!(decision.actions, [(Target::Session, StateAction::SessionReady(SessionReadyAction {}))]);
    assert_eq!(decision.effects, [Effect::List, Effect::Prompt(prompt("t1"))]);
    assert!(matches!(decision.phase, Some(Phase::Live)));
}

#[test]
fn a_live_agent_gets_the_next_message_at_once() {
    let action = StateAction::ChatTurnStarted(started("t2"));
    let decision = from_client(Phase::Live, None, Target::Chat, action);
    assert_eq!(decision.effects, [Effect::Prompt(prompt("t2"))]);
    assert!(decision.phase.is_none());
}

#[test]
fn a_message_that_cannot_start_a_turn_is_rejected_without_any_effect() {
    let mut from_tool = started("t1");
    from_tool.message.origin.kind = MessageKind::Tool;
    let mut bad_time = started("t1");
    bad_time.started_at = "yesterday".to_owned();
    let cases = [
        (Phase::Live, Some("t0"), started("t1")),
        (opening(Some(prompt("t0"))), Some("t0"), started("t1")),
        (Phase::Live, None, started("old")),
        (Phase::Live, None, from_tool),
        (Phase::Live, None, bad_time),
        (Phase::Closing, None, started("t1")),
    ];
    for (phase, active, action) in cases {
        let decision = from_client(phase, active, Target::Chat, StateAction::ChatTurnStarted(action.clone()));
        assert!(decision.rejection.is_some(), "{action:?}");
        assert!(decision.phase.is_none() && decision.actions.is_empty() && decision.effects.is_empty());
    }
}

#[test]
fn a_cancel_stops_the_agent_or_takes_back_the_waiting_message() {
    let cancel = |turn: &str| {
        StateAction::ChatTurnCancelled(ChatTurnCancelledAction {
            turn_id: turn.to_owned(),
            duration: 1,
            meta: None,
        })
    };
    let live = from_client(Phase::Live, Some("t1"), Target::Chat, cancel("t1"));
    assert_eq!(live.effects, [Effect::Cancel(TurnId::new("t1"))]);
    let waiting = from_client(opening(Some(prompt("t1"))), Some("t1"), Target::Chat, cancel("t1"));
    assert!(matches!(waiting.phase, Some(Phase::Opening { prompt: None, .. })));
    for (active, turn) in [(None, "t1"), (Some("t2"), "t1")] {
        assert!(from_client(Phase::Live, active, Target::Chat, cancel(turn)).rejection.is_some());
    }
}

#[test]
fn late_output_of_a_turn_that_is_over_is_dropped() {
    let delta = |turn: &str| {
        AgentEvent::Action(Box::new(StateAction::ChatDelta(ChatDeltaAction {
            turn_id: turn.to_owned(),
            part_id: "p".to_owned(),
            content: "x".to_owned(),
            meta: None,
        })))
    };
    assert_eq!(run(Phase::Live, Some("t1"), Input::Agent(delta("t1"))).actions.len(), 1);
    assert!(run(Phase::Live, Some("t2"), Input::Agent(delta("t1"))).actions.is_empty());
    assert!(run(Phase::Live, None, Input::Agent(delta("t1"))).actions.is_empty());
    let ended = AgentEvent::TurnEnded { turn: TurnId::new("t1"), outcome: TurnOutcome::Completed };
    assert!(run(Phase::Live, Some("t2"), Input::Agent(ended)).actions.is_empty());
}

#[test]
fn the_end_of_a_turn_carries_its_duration() {
    let ended = AgentEvent::TurnEnded { turn: TurnId::new("t1"), outcome: TurnOutcome::Completed };
    let decision = run(Phase::Live, Some("t1"), Input::Agent(ended));
    let expected = ChatTurnCompleteAction { turn_id: "t1".to_owned(), duration: 250, meta: None };
    assert_eq!(decision.actions, [(Target::Chat, StateAction::ChatTurnComplete(expected))]);
}

#[test]
fn an_agent_that_cannot_be_opened_fails_the_turn_and_leaves_the_session_usable() {
    let error = OpenError::Failed { error_type: "x".to_owned(), message: "install it".to_owned() };
    let decision = run(opening(Some(prompt("t1"))), Some("t1"), Input::OpenFailed(&error));
    assert!(matches!(decision.phase, Some(Phase::Cold(History::Fresh))));
    let [(Target::Chat, StateAction::ChatError(failed))] = decision.actions.as_slice() else { panic!() };
    assert_eq!((failed.turn_id.as_str(), failed.part.error.message.as_str()), ("t1", "install it"));
}

#[test]
fn an_agent_that_dies_fails_its_turn_and_is_resumed_by_the_next_message() {
    let closed = AgentEvent::Closed { history: History::Resume };
    let decision = run(Phase::Live, Some("t1"), Input::Agent(closed));
    assert!(matches!(decision.phase, Some(Phase::Cold(History::Resume))));
    assert!(matches!(decision.actions.as_slice(), [(Target::Chat, StateAction::ChatError(_))]));
    let action = StateAction::ChatTurnStarted(started("t2"));
    let next = from_client(Phase::Cold(History::Resume), None, Target::Chat, action);
    assert_eq!(next.effects, [Effect::OpenAgent(History::Resume)]);
}

#[test]
fn the_end_of_a_session_waits_for_its_agent() {
    let provisional = run(Phase::Cold(History::Fresh), None, Input::End);
    assert_eq!(provisional.effects, [Effect::Finish]);
    for phase in [opening(Some(prompt("t1"))), Phase::Live] {
        let decision = run(phase, Some("t1"), Input::End);
        assert_eq!(decision.effects, [Effect::CloseAgent]);
        assert!(matches!(decision.actions.as_slice(), [(Target::Chat, StateAction::ChatTurnCancelled(_))]));
    }
    let gone = run(Phase::Closing, None, Input::Agent(AgentEvent::Closed { history: History::Resume }));
    assert_eq!(gone.effects, [Effect::Finish]);
    let never_opened = run(Phase::Closing, None, Input::OpenFailed(&OpenError::Cancelled));
    assert_eq!(never_opened.effects, [Effect::Finish]);
}

#[test]
fn clients_change_only_what_is_theirs_to_change() {
    let active = |client: &str| {
        let active_client = serde_json::from_value(json!({"clientId": client, "tools": []})).unwrap();
        StateAction::SessionActiveClientSet(SessionActiveClientSetAction { active_client })
    };
    let config = |key: &str| {
        let config = json!({ key: "x" }).as_object().unwrap().clone();
        StateAction::SessionConfigChanged(SessionConfigChangedAction { config, replace: None })
    };
    let unknown = StateAction::Unknown(json!({"type": "session/fromTheFuture"}));
    let ready = StateAction::SessionReady(SessionReadyAction {});
    let misplaced = StateAction::ChatTurnStarted(started("t1"));
    let cases = [
        (active("c1"), true),
        (active("c2"), false),
        (config("free"), true),
        (config("fixed"), false),
        (config("unknown"), false),
        (unknown, false),
        (ready, false),
        (misplaced, false),
    ];
    for (action, accepted) in cases {
        let decision = from_client(Phase::Live, None, Target::Session, action.clone());
        assert_eq!(decision.rejection.is_none(), accepted, "{action:?}");
    }
}

#[test]
fn a_title_is_the_first_line_cut_at_a_word() {
    assert_eq!(title_from("\n  hi  \nthere"), "hi");
    assert_eq!(title_from(""), "");
    let long = "word ".repeat(30);
    let title = title_from(&long);
    assert!(title.chars().count() <= TITLE_LENGTH + 1 && title.ends_with("word…"), "{title}");
    assert_eq!(title_from(&"ü".repeat(80)).chars().count(), TITLE_LENGTH + 1);
}
