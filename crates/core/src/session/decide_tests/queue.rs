use super::*;

#[test]
fn waiting_message_starts_when_chat_is_idle() {
    let pending = json!({"id": "m1", "message": message()});
    let idle = |extra: Value| {
        let mut chat = serde_json::to_value(chat(None)).unwrap();
        chat.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value::<ChatState>(chat).unwrap()
    };
    let settle = |chat: &ChatState, held: bool| {
        let session = session();
        let view = DecisionView {
            session: &session,
            chat,
            turns: &stored(chat),
            has_agent: true,
            now: Duration::ZERO,
            time: NOW,
        };
        let agent = AgentState { queue_held: held, ..agent_state(Phase::Live(History::Resume)) };
        decide(&agent, view, DecisionInput::StartWaiting)
    };
    let other = json!({"id": "m2", "message": message()});
    let queued = idle(json!({"queuedMessages": [pending, other]}));
    let decision = settle(&queued, false);
    let [(ActionTarget::Chat, StateAction::ChatTurnStarted(started)), ..] = decision.actions.as_slice()
    else {
        panic!()
    };
    assert_eq!((started.queued_message_id.as_deref(), started.started_at.as_str()), (Some("m1"), NOW));
    assert!(matches!(decision.effects.as_slice(), [Effect::Agent(AgentCommand::Prompt { .. })]));

    let steering = idle(json!({"steeringMessage": other, "queuedMessages": [pending]}));
    let decision = settle(&steering, false);
    let [(_, StateAction::ChatTurnStarted(started)), ..] = decision.actions.as_slice() else { panic!() };
    assert_eq!(started.queued_message_id.as_deref(), Some("m2"), "the steering message comes first");

    let busy = chat_with(json!([]), json!({"queuedMessages": [pending]}));
    assert!(settle(&busy, false).actions.is_empty());
    assert!(settle(&queued, true).actions.is_empty());
}

#[test]
fn queue_is_held_after_cancel_or_resumable_failure_until_client_continues() {
    let error = |resumable: bool| {
        json!({"type": "chat/error", "turnId": "t", "duration": 1, "part": {
            "kind": "error", "error": {"errorType": "x", "message": "y"}, "resumable": resumable,
        }})
    };
    let set = json!({"type": "chat/pendingMessageSet", "kind": "queued", "id": "m", "message": message()});
    let reorder = json!({"type": "chat/queuedMessagesReordered", "order": []});
    let remove = json!({"type": "chat/pendingMessageRemoved", "kind": "queued", "id": "m"});
    let cancel = json!({"type": "chat/turnCancelled", "turnId": "t", "duration": 1});
    let complete = json!({"type": "chat/turnComplete", "turnId": "t", "duration": 1});
    let start = json!({"type": "chat/turnStarted", "turnId": "t", "startedAt": NOW, "message": message()});
    let resume = json!({"type": "chat/turnResume", "turnId": "t"});
    let truncate = json!({"type": "chat/truncated", "turnId": "t"});
    use QueueEffect::{Continues, Held, None};
    for (action, by_client, by_host) in [
        (set, Continues, None),
        (reorder, Continues, None),
        (start, Continues, None),
        (resume, Continues, None),
        (remove, None, None),
        (cancel, Held, Held),
        (truncate, Held, Held),
        (complete, Continues, Continues),
        (error(true), Held, Held),
        (error(false), Continues, Continues),
    ] {
        let typed: StateAction = serde_json::from_value(action.clone()).unwrap();
        assert_eq!(
            (QueueEffect::of_client(&typed), QueueEffect::of_host(&typed)),
            (by_client, by_host),
            "{action}"
        );
    }
}

#[test]
fn untaken_steering_message_moves_to_front_of_queue_on_cancel() {
    let queue = json!({"queuedMessages": [{"id": "m1", "message": message()}],
        "steeringMessage": {"id": "s1", "message": message()}});
    let mut chat = chat_with(json!([]), queue);
    let cancel = json!({"type": "chat/turnCancelled", "turnId": "t1", "duration": 1});
    let decision = dispatch(Phase::Live(History::Resume), &chat, "c1", cancel);
    assert_eq!(decision.rejection, None);
    for (target, action) in &decision.actions {
        assert_eq!(*target, ActionTarget::Chat);
        ahp::reducers::apply_action_to_chat(&mut chat, action);
    }
    let queued: Vec<String> = chat.queued_messages.unwrap().into_iter().map(|message| message.id).collect();
    assert_eq!((queued, chat.steering_message), (vec!["s1".to_owned(), "m1".to_owned()], None));
}

#[test]
fn rejects_removal_of_unknown_waiting_message() {
    let queue = json!({"queuedMessages": [{"id": "m1", "message": message()}, {"id": "m2", "message": message()}],
        "steeringMessage": {"id": "s1", "message": message()}});
    let chat = chat_with(json!([]), queue);
    let set = |kind: &str| json!({"type": "chat/pendingMessageSet", "kind": kind, "id": "m3", "message": message()});
    let remove = |kind: &str, id: &str| json!({"type": "chat/pendingMessageRemoved", "kind": kind, "id": id});
    let cases = [
        (set("queued"), true),
        (remove("queued", "m1"), true),
        (remove("queued", "s1"), false),
        (remove("steering", "m1"), false),
    ];
    for (action, accepted) in cases {
        let decision = dispatch(Phase::Live(History::Resume), &chat, "c1", action.clone());
        assert_eq!((decision.rejection.is_none(), decision.effects.len()), (accepted, 0), "{action}");
    }
    let steer = dispatch(Phase::Live(History::Resume), &chat, "c1", set("steering"));
    assert!(
        matches!(
            steer.effects.as_slice(),
            [Effect::Agent(AgentCommand::Unsteer { id: old }), Effect::Agent(AgentCommand::Steer { id, .. })]
                if old == "s1" && id == "m3"
        ),
        "the replaced steering message is withdrawn"
    );
    let cancel_release = dispatch(Phase::Live(History::Resume), &chat, "c1", remove("steering", "s1"));
    assert_eq!(cancel_release.effects, [Effect::Agent(AgentCommand::Unsteer { id: "s1".to_owned() })]);
}

fn taken(chat: &ChatState, folded: Option<&str>, (turn, id, text): (&str, &str, &str)) -> Decision {
    let folded = folded.map(prompt);
    let agent = AgentState { folded, ..agent_state(Phase::Live(History::Resume)) };
    let (session, message) = (session(), Box::new(user_message(text)));
    let view = DecisionView {
        session: &session,
        chat,
        turns: &stored(chat),
        has_agent: true,
        now: Duration::ZERO,
        time: NOW,
    };
    let event = AgentEvent::SteeringTaken { id: id.to_owned(), turn: TurnId::new(turn), message };
    decide(&agent, view, DecisionInput::Agent(event))
}

/// The chat's actions of a decision, as JSON.
fn published(decision: &Decision) -> Vec<Value> {
    decision.actions.iter().map(|(_, action)| serde_json::to_value(action).unwrap()).collect()
}

#[test]
fn taken_steering_message_becomes_part_of_running_turn_only() {
    let waiting = json!({"steeringMessage": {"id": "s1", "message": message()}});
    let chat = chat_with(json!([]), waiting);
    let part = |text: &str| {
        json!({"type": "chat/responsePart", "turnId": "t1", "part": {
            "kind": "systemNotification", "content": text, "_meta": {"innkeeper.steering": {"id": "s1"}},
        }})
    };
    let removed = json!({"type": "chat/pendingMessageRemoved", "kind": "steering", "id": "s1"});
    let text = "hello there";
    assert_eq!(published(&taken(&chat, None, ("t1", "s1", text))), [part(text), removed.clone()]);
    assert_eq!(published(&taken(&chat, Some("own"), ("own", "s1", text))), [part(text), removed]);
    // The waiting message has replaced the one that the agent took.
    assert_eq!(published(&taken(&chat, None, ("t1", "s1", "another"))), [part("another")]);
    for other in ["t0", "own"] {
        assert_eq!(published(&taken(&chat, None, (other, "s1", text))), [Value::Null; 0]);
    }
}

#[test]
fn taken_message_of_a_cancelled_turn_is_shown_as_clients_know_it() {
    let mut waiting = message();
    waiting["attachments"] = json!([{"type": "resource", "label": "a", "uri": "innkeeper-output:/1"}]);
    let mut chat = chat(None);
    chat.queued_messages = serde_json::from_value(json!([{"id": "s1", "message": waiting}])).unwrap();
    let cancelled = json!({"id": "t1", "message": message(), "responseParts": [], "state": "cancelled"});
    chat.turns = vec![serde_json::from_value(cancelled).unwrap()];
    // The agent's copy has the content of the attachments.
    let shown = published(&taken(&chat, None, ("t1", "s1", "hello there")));
    assert_eq!((shown.len(), &shown[0]["message"]), (2, &waiting));
}

#[test]
fn steering_part_counts_attachments() {
    let attachment = serde_json::from_value(json!({"type": "simple", "label": "a.txt"})).unwrap();
    let message = Message { attachments: Some(vec![attachment]), ..user_message("look") };
    let event =
        AgentEvent::SteeringTaken { id: "s1".to_owned(), turn: TurnId::new("t1"), message: message.into() };
    let decision = run(Phase::Live(History::Resume), Some("t1"), DecisionInput::Agent(event));
    let meta = &published(&decision)[0]["part"]["_meta"]["innkeeper.steering"];
    assert_eq!(*meta, json!({"id": "s1", "attachments": 1}));
}

#[test]
fn waiting_steering_message_follows_message_of_started_or_resumed_turn() {
    let mut chat = chat(None);
    let pending = json!({"id": "s1", "message": message()});
    chat.steering_message = Some(serde_json::from_value(pending).unwrap());
    let error = json!({"kind": "error", "error": {"errorType": "x", "message": "y"}, "resumable": true});
    let failed = json!({"id": "old", "message": message(), "responseParts": [error], "state": "error"});
    chat.turns = vec![serde_json::from_value(failed).unwrap()];
    let start = json!({"type": "chat/turnStarted", "turnId": "t1", "startedAt": NOW, "message": message()});
    let resume = json!({"type": "chat/turnResume", "turnId": "old"});
    for (action, turn) in [(start, "t1"), (resume, "old")] {
        let decision = dispatch(Phase::Live(History::Resume), &chat, "c1", action.clone());
        assert!(
            matches!(
                decision.effects.as_slice(),
                [Effect::Agent(AgentCommand::Prompt { turn: one, .. }), Effect::Agent(AgentCommand::Steer { turn: two, .. })]
                    if one.as_str() == turn && two.as_str() == turn
            ),
            "{action}: {decision:?}"
        );
        // The opening sends it, too.
        let cold = dispatch(Phase::Cold(History::Resume), &chat, "c1", action);
        assert!(matches!(cold.effects.as_slice(), [Effect::OpenAgent { .. }]), "{cold:?}");
    }
}

#[test]
fn resumed_turn_of_the_agent_itself_continues_without_the_text_for_clients() {
    for (origin, text) in [("user", "hi"), ("systemNotification", "Continue from where you left off.")] {
        let mut chat = chat(None);
        let error = json!({"kind": "error", "error": {"errorType": "x", "message": "y"}, "resumable": true});
        let message = json!({"text": "hi", "origin": {"kind": origin}});
        let failed = json!({"id": "old", "message": message, "responseParts": [error], "state": "error"});
        chat.turns = vec![serde_json::from_value(failed).unwrap()];
        let resume = json!({"type": "chat/turnResume", "turnId": "old"});
        let decision = dispatch(Phase::Live(History::Resume), &chat, "c1", resume);
        let [Effect::Agent(AgentCommand::Prompt { message, .. })] = decision.effects.as_slice() else {
            panic!("{decision:?}")
        };
        assert_eq!(message.text, text);
    }
}
