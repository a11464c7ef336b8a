use ahp_types::actions::{
    ChatDeltaAction, ChatInputCompletedAction, ChatTurnCancelledAction, ChatTurnCompleteAction,
    ChatTurnStartedAction, SessionActiveClientSetAction, SessionConfigChangedAction,
    SessionTitleChangedAction,
};
use ahp_types::state::{ChatInputResponseKind, Message, MessageKind, MessageOrigin, ResponsePart};
use serde_json::{Value, json};

use super::agent::MAX_OPENINGS;
use super::*;
use crate::agent::{OpeningOption, OpeningQuestion, ToolAnswer};
use crate::ids::TurnId;
use crate::state::ChatDoc;

#[path = "decide_tests/discarded_parts.rs"]
mod discarded_parts;
#[path = "decide_tests/opening_question.rs"]
mod opening_question;
#[path = "decide_tests/queue.rs"]
mod queue;
#[path = "decide_tests/starting.rs"]
mod starting;
#[path = "decide_tests/stopping.rs"]
mod stopping;
#[path = "decide_tests/tools_and_inputs.rs"]
mod tools_and_inputs;
#[path = "decide_tests/usage.rs"]
mod usage;

const NOW: &str = "2026-11-15T10:00:00.000Z";

fn session() -> SessionState {
    serde_json::from_value(json!({
        "provider": "claude", "title": "", "status": 1, "lifecycle": "creating", "activeClients": [],
        "chats": [],
        "config": {
            "schema": {"type": "object", "properties": {
                "fixed": {"type": "string", "title": "Fixed"},
                "free": {"type": "string", "title": "Free", "sessionMutable": true},
            }},
            "values": {"fixed": "x"},
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

fn agent_state(phase: Phase) -> AgentState {
    AgentState {
        phase,
        turn_began: Duration::from_millis(100),
        openings: 1,
        features: AgentFeatures::ALL,
        name: "Claude".to_owned(),
        restart: None,
        queue_held: false,
        reopened: false,
        folded: None,
        permissions: PermissionLedger::default(),
        directories: None,
        rewind: None,
    }
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

fn prompt(turn: &str) -> TurnMessage {
    TurnMessage { turn: TurnId::new(turn), message: user_message("hello there") }
}

/// The finished turns of a chat in their stored form.
fn stored(chat: &ChatState) -> Vec<StoredTurn> {
    ChatDoc::new(chat.clone()).unwrap().turns().to_vec()
}

fn run(phase: Phase, active: Option<&str>, input: DecisionInput<'_>) -> Decision {
    let (session, chat) = (session(), chat(active));
    let view = DecisionView {
        session: &session,
        chat: &chat,
        turns: &stored(&chat),
        has_agent: true,
        now: Duration::from_millis(350),
        time: NOW,
    };
    decide(&agent_state(phase), view, input)
}

fn from_client(phase: Phase, active: Option<&str>, target: ActionTarget, action: StateAction) -> Decision {
    run(phase, active, DecisionInput::Client { target, action: &action, client: &ClientId::new("c1") })
}

/// A chat whose running turn has these parts, with extra fields.
fn chat_with(parts: Value, extra: Value) -> ChatState {
    let mut chat = serde_json::to_value(chat(Some("t1"))).unwrap();
    chat["activeTurn"]["responseParts"] = parts;
    chat.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    serde_json::from_value(chat).unwrap()
}

/// The decision when `client` dispatches an action in a chat.
fn dispatch(phase: Phase, chat: &ChatState, client: &str, action: Value) -> Decision {
    let session = session();
    let view = DecisionView {
        session: &session,
        chat,
        turns: &stored(chat),
        has_agent: true,
        now: Duration::from_millis(350),
        time: NOW,
    };
    let action: StateAction = serde_json::from_value(action).unwrap();
    assert!(!matches!(action, StateAction::Unknown(_)), "{action:?}");
    decide(
        &agent_state(phase),
        view,
        DecisionInput::Client { target: ActionTarget::Chat, action: &action, client: &ClientId::new(client) },
    )
}

fn opening(prompt: Option<TurnMessage>) -> Phase {
    Phase::Opening { history: History::Fresh, prompt: prompt.map(Box::new) }
}

#[test]
fn first_message_opens_agent_and_sets_session_title() {
    let action = StateAction::ChatTurnStarted(started("t1"));
    let decision = from_client(Phase::Cold(History::Fresh), None, ActionTarget::Chat, action);
    assert_eq!(decision.rejection, None);
    assert_eq!(decision.effects, [Effect::open(History::Fresh)]);
    assert!(matches!(decision.phase, Some(Phase::Opening { prompt: Some(_), .. })));
    assert_eq!(
        decision.actions,
        [
            (
                ActionTarget::Session,
                StateAction::SessionTitleChanged(SessionTitleChangedAction {
                    title: "hello there".to_owned()
                })
            ),
            starting::shows(Some("Starting Claude")),
        ]
    );
}

#[test]
fn opened_agent_makes_session_ready_and_gets_message() {
    let decision = run(opening(Some(prompt("t1"))), Some("t1"), DecisionInput::Opened);
    assert_eq!(decision.actions, [(ActionTarget::Session, StateAction::SessionReady(SessionReadyAction {}))]);
    assert_eq!(decision.effects, [Effect::Agent(prompt("t1").into())]);
    assert!(matches!(decision.phase, Some(Phase::Live(History::Resume))));
}

#[test]
fn live_agent_gets_next_message_immediately() {
    let action = StateAction::ChatTurnStarted(started("t2"));
    let decision = from_client(Phase::Live(History::Resume), None, ActionTarget::Chat, action);
    assert_eq!(decision.effects, [Effect::Agent(prompt("t2").into())]);
    assert!(decision.phase.is_none());
}

#[test]
fn message_that_cannot_start_turn_is_rejected_without_effects() {
    let mut from_tool = started("t1");
    from_tool.message.origin.kind = MessageKind::Tool;
    let mut bad_time = started("t1");
    bad_time.started_at = "yesterday".to_owned();
    let mut endless = started("t1");
    endless.started_at = "9999-12-30T22:00:00.999Z".to_owned();
    let cases = [
        (Phase::Live(History::Resume), Some("t0"), started("t1")),
        (opening(Some(prompt("t0"))), Some("t0"), started("t1")),
        (Phase::Live(History::Resume), None, started("old")),
        (Phase::Live(History::Resume), None, from_tool),
        (Phase::Live(History::Resume), None, bad_time),
        (Phase::Live(History::Resume), None, endless),
        (Phase::Closing(History::Resume), None, started("t1")),
    ];
    for (phase, active, action) in cases {
        let decision =
            from_client(phase, active, ActionTarget::Chat, StateAction::ChatTurnStarted(action.clone()));
        assert!(decision.rejection.is_some(), "{action:?}");
        assert!(decision.phase.is_none() && decision.actions.is_empty() && decision.effects.is_empty());
    }
}

#[test]
fn read_only_chat_rejects_messages() {
    let session = session();
    for interactivity in ["read-only", "hidden"] {
        let mut closed = chat(None);
        closed.interactivity = serde_json::from_value(json!(interactivity)).unwrap();
        let view = DecisionView {
            session: &session,
            chat: &closed,
            turns: &stored(&closed),
            has_agent: true,
            now: Duration::ZERO,
            time: NOW,
        };
        let queued =
            json!({"type": "chat/pendingMessageSet", "kind": "queued", "id": "m", "message": message()});
        for action in [StateAction::ChatTurnStarted(started("t1")), serde_json::from_value(queued).unwrap()] {
            let client = &ClientId::new("c1");
            let input = DecisionInput::Client { target: ActionTarget::Chat, action: &action, client };
            let decision = decide(&agent_state(Phase::Live(History::Resume)), view, input);
            assert!(decision.rejection.is_some() && decision.effects.is_empty(), "{interactivity}");
        }
    }
}

#[test]
fn cancel_interrupts_live_agent_or_drops_unsent_message() {
    let cancel = |turn: &str| {
        StateAction::ChatTurnCancelled(ChatTurnCancelledAction {
            turn_id: turn.to_owned(),
            duration: 1,
            meta: None,
        })
    };
    let live = from_client(Phase::Live(History::Resume), Some("t1"), ActionTarget::Chat, cancel("t1"));
    assert_eq!(live.effects, [Effect::Agent(AgentCommand::Cancel { turn: TurnId::new("t1") })]);
    let waiting = from_client(opening(Some(prompt("t1"))), Some("t1"), ActionTarget::Chat, cancel("t1"));
    assert!(matches!(waiting.phase, Some(Phase::Opening { prompt: None, .. })));
    for (active, turn) in [(None, "t1"), (Some("t2"), "t1")] {
        assert!(
            from_client(Phase::Live(History::Resume), active, ActionTarget::Chat, cancel(turn))
                .rejection
                .is_some()
        );
    }
}

#[test]
fn late_output_of_finished_turn_is_dropped() {
    let delta = |turn: &str| {
        AgentEvent::Action(Box::new(StateAction::ChatDelta(ChatDeltaAction {
            turn_id: turn.to_owned(),
            part_id: "p".to_owned(),
            content: "x".to_owned(),
            meta: None,
        })))
    };
    assert_eq!(
        run(Phase::Live(History::Resume), Some("t1"), DecisionInput::Agent(delta("t1"))).actions.len(),
        1
    );
    assert!(
        run(Phase::Live(History::Resume), Some("t2"), DecisionInput::Agent(delta("t1"))).actions.is_empty()
    );
    assert!(run(Phase::Live(History::Resume), None, DecisionInput::Agent(delta("t1"))).actions.is_empty());
    let ended = AgentEvent::TurnEnded { turn: TurnId::new("t1"), outcome: TurnOutcome::Completed };
    assert!(run(Phase::Live(History::Resume), Some("t2"), DecisionInput::Agent(ended)).actions.is_empty());
}

#[test]
fn turn_end_carries_duration() {
    let ended = AgentEvent::TurnEnded { turn: TurnId::new("t1"), outcome: TurnOutcome::Completed };
    let decision = run(Phase::Live(History::Resume), Some("t1"), DecisionInput::Agent(ended));
    let expected = ChatTurnCompleteAction { turn_id: "t1".to_owned(), duration: 250, meta: None };
    assert_eq!(decision.actions, [(ActionTarget::Chat, StateAction::ChatTurnComplete(expected))]);
}

#[test]
fn failed_opening_fails_turn_and_leaves_session_usable() {
    let error = OpenError::Failed { error_type: "x".to_owned(), message: "install it".to_owned() };
    let decision = run(opening(Some(prompt("t1"))), Some("t1"), DecisionInput::OpenFailed(&error));
    assert!(matches!(decision.phase, Some(Phase::Cold(History::Fresh))));
    let [
        (ActionTarget::Chat, StateAction::ChatError(failed)),
        (ActionTarget::Session, StateAction::SessionCreationFailed(creation)),
    ] = decision.actions.as_slice()
    else {
        panic!("{:?}", decision.actions)
    };
    assert_eq!((failed.turn_id.as_str(), failed.part.error.message.as_str()), ("t1", "install it"));
    assert_eq!(creation.error, failed.part.error);
}

#[test]
fn creation_failure_is_published_only_before_session_is_ready() {
    let error = OpenError::Failed { error_type: "x".to_owned(), message: "install it".to_owned() };
    let (mut session, chat) = (session(), chat(None));
    let fails = |session: &SessionState| {
        let view = DecisionView {
            session,
            chat: &chat,
            turns: &[],
            has_agent: true,
            now: Duration::ZERO,
            time: NOW,
        };
        decide(&agent_state(opening(Some(prompt("t1")))), view, DecisionInput::OpenFailed(&error))
            .actions
            .len()
    };
    session.lifecycle = SessionLifecycle::Failed;
    assert_eq!(fails(&session), 1, "a new error is published");
    session.creation_error = Some(error_info("x", "install it"));
    assert_eq!(fails(&session), 0, "the same error is not published again");
    session.lifecycle = SessionLifecycle::Ready;
    session.creation_error = None;
    assert_eq!(fails(&session), 0);
}

#[test]
fn closed_agent_fails_turn_and_next_message_resumes_history() {
    let closed = AgentEvent::Closed { history: History::Resume, unsent: None, restart: None };
    let decision = run(Phase::Live(History::Resume), Some("t1"), DecisionInput::Agent(closed));
    assert!(matches!(decision.phase, Some(Phase::Cold(History::Resume))));
    assert!(matches!(decision.actions.as_slice(), [(ActionTarget::Chat, StateAction::ChatError(_))]));
    let action = StateAction::ChatTurnStarted(started("t2"));
    let next = from_client(Phase::Cold(History::Resume), None, ActionTarget::Chat, action);
    assert_eq!(next.effects, [Effect::open(History::Resume)]);
}

#[test]
fn mcp_servers_stop_with_last_agent_of_session() {
    let server = json!({
        "type": "mcpServer", "id": "m", "uri": "file:///m", "name": "M", "state": {"kind": "ready"},
    });
    let (mut session, chat) = (session(), chat(None));
    session.customizations = serde_json::from_value(json!([server])).unwrap();
    for (has_agent, stopped) in [(true, 0), (false, 1)] {
        let view = DecisionView {
            session: &session,
            chat: &chat,
            turns: &[],
            has_agent,
            now: Duration::ZERO,
            time: NOW,
        };
        let closed = AgentEvent::Closed { history: History::Resume, unsent: None, restart: None };
        let decision = decide(&agent_state(Phase::Live(History::Resume)), view, DecisionInput::Agent(closed));
        assert_eq!(decision.actions.len(), stopped, "{:?}", decision.actions);
    }
}

#[test]
fn unread_message_is_retried_with_new_agent_up_to_limit() {
    let closed = || {
        let unsent = TurnMessage { turn: TurnId::new("t1"), message: user_message("hello there") };
        AgentEvent::Closed { history: History::Resume, unsent: Some(Box::new(unsent)), restart: None }
    };
    let again = run(Phase::Live(History::Resume), Some("t1"), DecisionInput::Agent(closed()));
    assert_eq!(again.effects, [Effect::open(History::Resume)]);
    assert_eq!(again.actions, [starting::shows(Some("Starting Claude"))]);
    let (session, chat) = (session(), chat(Some("t1")));
    let view = DecisionView {
        session: &session,
        chat: &chat,
        turns: &stored(&chat),
        has_agent: true,
        now: Duration::ZERO,
        time: NOW,
    };
    let at_limit = AgentState { openings: MAX_OPENINGS, ..agent_state(Phase::Live(History::Resume)) };
    let decision = decide(&at_limit, view, DecisionInput::Agent(closed()));
    assert!(matches!(decision.actions.as_slice(), [(ActionTarget::Chat, StateAction::ChatError(_))]));
    let other = run(Phase::Live(History::Resume), Some("t2"), DecisionInput::Agent(closed()));
    assert!(other.effects.is_empty(), "its turn is over");
}

#[test]
fn session_end_waits_for_agent() {
    let provisional = run(Phase::Cold(History::Fresh), None, DecisionInput::End(SessionEnding::Dispose));
    assert_eq!(provisional.effects, [Effect::Finish]);
    for phase in [opening(Some(prompt("t1"))), Phase::Live(History::Resume)] {
        let decision = run(phase, Some("t1"), DecisionInput::End(SessionEnding::Dispose));
        assert_eq!(decision.effects, [Effect::CloseAgent]);
        assert!(matches!(
            decision.actions.as_slice(),
            [(ActionTarget::Chat, StateAction::ChatTurnCancelled(_))]
        ));
    }
    let gone = run(
        Phase::Closing(History::Resume),
        None,
        DecisionInput::Agent(AgentEvent::Closed { history: History::Resume, unsent: None, restart: None }),
    );
    assert_eq!(gone.effects, [Effect::Finish]);
    let never_opened =
        run(Phase::Closing(History::Resume), None, DecisionInput::OpenFailed(&OpenError::Cancelled));
    assert_eq!(never_opened.effects, [Effect::Finish]);
}

#[test]
fn rejects_session_changes_that_clients_may_not_make() {
    let active = |client: &str| {
        let active_client = serde_json::from_value(json!({"clientId": client, "tools": []})).unwrap();
        StateAction::SessionActiveClientSet(SessionActiveClientSetAction { active_client })
    };
    let config = |key: &str| {
        let config = json!({ key: "x" }).as_object().unwrap().clone();
        StateAction::SessionConfigChanged(SessionConfigChangedAction { config, replace: None })
    };
    let replaced = StateAction::SessionConfigChanged(SessionConfigChangedAction {
        config: json!({"free": "x"}).as_object().unwrap().clone(),
        replace: Some(true),
    });
    let unknown = StateAction::Unknown(json!({"type": "session/fromTheFuture"}));
    let ready = StateAction::SessionReady(SessionReadyAction {});
    let misplaced = StateAction::ChatTurnStarted(started("t1"));
    let cases = [
        (active("c1"), true),
        (active("c2"), false),
        (config("free"), true),
        (config("fixed"), false),
        (config("unknown"), false),
        (replaced, false),
        (unknown, false),
        (ready, false),
        (misplaced, false),
    ];
    for (action, accepted) in cases {
        let decision = from_client(Phase::Live(History::Resume), None, ActionTarget::Session, action.clone());
        assert_eq!(decision.rejection.is_none(), accepted, "{action:?}");
    }
}
#[test]
fn only_last_turn_with_resumable_error_is_resumed() {
    let ended = |id: &str, resumable: bool| {
        json!({"id": id, "message": message(), "state": "error", "responseParts": [
            {"kind": "error", "error": {"errorType": "x", "message": "y"}, "resumable": resumable},
        ]})
    };
    let chat_of = |turns: Value| {
        let mut chat = serde_json::to_value(chat(None)).unwrap();
        chat["turns"] = turns;
        serde_json::from_value::<ChatState>(chat).unwrap()
    };
    let resume = json!({"type": "chat/turnResume", "turnId": "t1"});
    let good = chat_of(json!([ended("t0", true), ended("t1", true)]));
    let decision = dispatch(Phase::Live(History::Resume), &good, "c1", resume.clone());
    assert!(
        matches!(decision.effects.as_slice(), [Effect::Agent(AgentCommand::Prompt { turn, .. })] if turn.as_str() == "t1")
    );
    let bad = [
        chat_of(json!([ended("t1", true), ended("t2", true)])),
        chat_of(json!([ended("t1", false)])),
        chat(Some("t1")),
    ];
    for chat in bad {
        assert!(dispatch(Phase::Live(History::Resume), &chat, "c1", resume.clone()).rejection.is_some());
    }
}
