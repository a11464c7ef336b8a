use super::*;

fn call(status: &str, extra: Value) -> Value {
    let mut call = json!({
        "status": status, "toolCallId": "k1", "toolName": "Bash", "displayName": "Run",
        "invocationMessage": "ls", "toolInput": "ls", "confirmed": "not-needed",
    });
    call.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    json!([{"kind": "toolCall", "toolCall": call}])
}

#[test]
fn confirmation_is_accepted_only_while_call_waits_for_it() {
    let confirm = |turn: &str, call: &str, extra: Value| {
        let mut action =
            json!({"type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": call, "approved": true});
        action.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        action
    };
    let options = json!({"editable": true, "options": [{"id": "once", "label": "Allow", "kind": "approve"}]});
    let pending = chat_with(call("pending-confirmation", options), json!({}));
    let edited = dispatch(
        Phase::Live(History::Resume),
        &pending,
        "c1",
        confirm("t1", "k1", json!({"editedToolInput": "ls -l", "selectedOptionId": "once"})),
    );
    let expected = ToolAnswer::Confirmed {
        approval: crate::agent::Approval::Approved,
        input: Some("ls -l".to_owned()),
        option: Some("once".to_owned()),
        suggestion: None,
        remembered: Vec::new(),
    };
    let (turn, tool_call) = (TurnId::new("t1"), "k1".to_owned());
    assert_eq!(
        edited.effects,
        [Effect::Agent(AgentCommand::ToolAnswer { turn, tool_call, answer: expected })]
    );

    let fixed = chat_with(call("pending-confirmation", json!({})), json!({}));
    let running = chat_with(call("running", json!({})), json!({}));
    let refused = [
        dispatch(Phase::Live(History::Resume), &pending, "c1", confirm("t0", "k1", json!({}))),
        dispatch(Phase::Live(History::Resume), &pending, "c1", confirm("t1", "k2", json!({}))),
        dispatch(
            Phase::Live(History::Resume),
            &pending,
            "c1",
            confirm("t1", "k1", json!({"selectedOptionId": "always"})),
        ),
        dispatch(
            Phase::Live(History::Resume),
            &fixed,
            "c1",
            confirm("t1", "k1", json!({"editedToolInput": "rm"})),
        ),
        dispatch(Phase::Live(History::Resume), &running, "c1", confirm("t1", "k1", json!({}))),
        dispatch(Phase::Live(History::Resume), &chat(None), "c1", confirm("t1", "k1", json!({}))),
    ];
    for decision in refused {
        assert!(decision.rejection.is_some() && decision.effects.is_empty(), "{decision:?}");
    }
}

#[test]
fn rejects_tool_results_from_clients_that_do_not_run_the_tool() {
    let contributor = json!({"contributor": {"kind": "client", "clientId": "c1"}});
    let running = chat_with(call("running", contributor), json!({}));
    let hosts = chat_with(call("running", json!({})), json!({}));
    let complete = json!({
        "type": "chat/toolCallComplete", "turnId": "t1", "toolCallId": "k1",
        "result": {"success": true, "pastTenseMessage": "done"},
    });
    let progress =
        json!({"type": "chat/toolCallContentChanged", "turnId": "t1", "toolCallId": "k1", "content": []});
    let own = dispatch(Phase::Live(History::Resume), &running, "c1", complete.clone());
    assert!(matches!(
        own.effects.as_slice(),
        [Effect::Agent(AgentCommand::ToolAnswer { answer: ToolAnswer::Completed(_), .. })]
    ));
    assert!(dispatch(Phase::Live(History::Resume), &running, "c1", progress.clone()).rejection.is_none());
    for action in [complete, progress] {
        assert!(dispatch(Phase::Live(History::Resume), &running, "c2", action.clone()).rejection.is_some());
        assert!(dispatch(Phase::Live(History::Resume), &hosts, "c1", action.clone()).rejection.is_some());
        assert!(dispatch(Phase::Live(History::Resume), &chat(Some("t1")), "c1", action).rejection.is_some());
    }
}

#[test]
fn result_confirmation_is_accepted_only_while_result_waits_for_it() {
    let waiting = call("pending-result-confirmation", json!({"success": true, "pastTenseMessage": "done"}));
    let action = json!({"type": "chat/toolCallResultConfirmed", "turnId": "t1", "toolCallId": "k1", "approved": false});
    let denied = dispatch(Phase::Live(History::Resume), &chat_with(waiting, json!({})), "c1", action.clone());
    let answer = ToolAnswer::ResultConfirmed(crate::agent::Approval::Denied);
    let (turn, tool_call) = (TurnId::new("t1"), "k1".to_owned());
    assert_eq!(denied.effects, [Effect::Agent(AgentCommand::ToolAnswer { turn, tool_call, answer })]);
    let running = chat_with(call("running", json!({})), json!({}));
    assert!(dispatch(Phase::Live(History::Resume), &running, "c1", action).rejection.is_some());
}

#[test]
fn rejects_mismatched_or_missing_answers() {
    let request = json!({"id": "r1", "questions": [
        {"kind": "single-select", "id": "colour", "message": "Which?", "required": true,
         "options": [{"id": "red", "label": "Red"}, {"id": "blue", "label": "Blue"}]},
        {"kind": "integer", "id": "count", "message": "How many?"},
    ]});
    let open = chat_with(json!([{"kind": "inputRequest", "request": request}]), json!({}));
    let done =
        chat_with(json!([{"kind": "inputRequest", "request": request, "response": "accept"}]), json!({}));
    let selected = |value: &str| json!({"state": "submitted", "value": {"kind": "selected", "value": value}});
    let number = |value: f64| json!({"state": "draft", "value": {"kind": "number", "value": value}});
    let complete = |response: &str, answers: Value| json!({"type": "chat/inputCompleted", "requestId": "r1", "response": response, "answers": answers});
    let draft = |question: &str, answer: Value| json!({"type": "chat/inputAnswerChanged", "requestId": "r1", "questionId": question, "answer": answer});
    let cases = [
        (&open, complete("accept", json!({"colour": selected("red"), "count": number(3.0)})), true),
        (&open, complete("accept", json!({"colour": selected("green")})), false),
        (&open, complete("accept", json!({"colour": selected("red"), "count": number(1.5)})), false),
        (&open, complete("accept", json!({"count": number(3.0)})), false),
        (&open, complete("accept", json!({"colour": selected("red"), "shape": selected("x")})), false),
        (&open, complete("decline", json!({})), true),
        (&done, complete("decline", json!({})), false),
        (&open, draft("count", number(2.0)), true),
        (&open, draft("count", selected("red")), false),
        (&open, draft("shape", number(2.0)), false),
        (&done, draft("count", number(2.0)), false),
    ];
    for (chat, action, accepted) in cases {
        let decision = dispatch(Phase::Live(History::Resume), chat, "c1", action.clone());
        assert_eq!(decision.rejection.is_none(), accepted, "{action}: {decision:?}");
        let answers = action["type"] == "chat/inputCompleted" && accepted;
        assert_eq!(decision.effects.len(), usize::from(answers), "{action}");
    }
}

#[test]
fn completed_call_keeps_the_metadata_of_its_permission() {
    let running =
        chat_with(call("running", json!({"_meta": {"toolKind": "terminal", "asked": 1}})), json!({}));
    let completed: StateAction = serde_json::from_value(json!({
        "type": "chat/toolCallComplete", "turnId": "t1", "toolCallId": "k1", "_meta": {"edits": 2},
        "result": {"success": true, "pastTenseMessage": "Ran"},
    }))
    .unwrap();
    let event = AgentEvent::Action(Box::new(completed));
    let session = session();
    let view = DecisionView {
        session: &session,
        chat: &running,
        turns: &[],
        has_agent: true,
        now: Duration::ZERO,
        time: NOW,
    };
    let decision = decide(&agent_state(Phase::Live(History::Resume)), view, DecisionInput::Agent(event));
    let (_, action) = decision.actions.first().unwrap();
    let published = serde_json::to_value(action).unwrap();
    assert_eq!(published["_meta"], json!({"toolKind": "terminal", "asked": 1, "edits": 2}));
}
