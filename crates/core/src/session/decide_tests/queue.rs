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
