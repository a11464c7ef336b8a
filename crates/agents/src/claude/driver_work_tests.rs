//! Work in the background, stopping it, and silence, against a fake runtime on a paused clock.

use innkeeper_core::agent::{
    Approval, PermissionStage, PermissionVerdict, StopTarget, StoppedWork, ToolAnswer, WorkKind,
};
use serde_json::Value;

use super::tests::{Scene, hook_about, request_about};
use super::*;

/// What the session is told next: actions as JSON, and other events as text.
async fn told(scene: &mut Scene) -> Value {
    loop {
        match scene.events.recv().await.unwrap() {
            AgentEvent::Action(action) => return serde_json::to_value(*action).unwrap(),
            AgentEvent::TurnStarted { turn, message } => {
                return json!({"started": turn.as_str(), "message": message});
            }
            AgentEvent::TurnEnded { turn, .. } => return json!({"ended": turn.as_str()}),
            AgentEvent::WorkStopped { request, result } => {
                return json!({"request": request, "result": format!("{result:?}")});
            }
            _ => {}
        }
    }
}

/// Waits for an action of this kind.
async fn action(scene: &mut Scene, kind: &str) -> Value {
    loop {
        let told = told(scene).await;
        if told["type"] == kind {
            return told;
        }
    }
}

fn task(subtype: &str, fields: Value) -> Value {
    let mut frame = json!({"type": "system", "subtype": subtype, "task_id": "b1", "tool_use_id": "call"});
    frame.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    frame
}

async fn bash(scene: &mut Scene, command: &str) {
    let call = json!({"type": "tool_use", "id": "call", "name": "Bash", "input": {"command": command}});
    scene.runtime.say(json!({"type": "assistant", "message": {"id": "m1", "content": [call]}})).await;
    action(scene, "chat/toolCallReady").await;
}

fn result_of(call: &str, structured: Value) -> Value {
    let block = json!({"type": "tool_result", "tool_use_id": call, "content": "x"});
    json!({"type": "user", "message": {"content": [block]}, "tool_use_result": structured})
}

async fn stop(scene: &Scene, request: u64, target: StopTarget) {
    scene.commands.send(AgentCommand::StopWork { request, target }).await.unwrap();
}

fn stopped(label: &str) -> String {
    let work = vec![StoppedWork { kind: WorkKind::Command, label: label.to_owned() }];
    format!("{:?}", Ok::<_, String>(work))
}

#[tokio::test(start_paused = true)]
async fn background_work_is_listed_and_named_by_the_turn_that_follows() {
    for is_older in [false, true] {
        let mut scene = Scene::in_turn().await;
        bash(&mut scene, "make all").await;
        let flag = if is_older { json!({}) } else { json!({"is_backgrounded": true}) };
        let started = task("task_started", json!({"description": "build", "task_type": "local_bash"}));
        let mut started = started.as_object().unwrap().clone();
        started.extend(flag.as_object().unwrap().clone());
        scene.runtime.say(Value::Object(started)).await;
        scene.runtime.say(result_of("call", json!({"backgroundTaskId": "b1"}))).await;
        let work = action(&mut scene, "chat/backgroundWorkSet").await["work"].clone();
        assert_eq!((&work["kind"], &work["id"]), (&json!("shell"), &json!("b1")));
        assert_eq!((&work["label"], &work["command"]), (&json!("build"), &json!("make all")));
        assert_eq!(work["_meta"]["innkeeper.work"], json!({"toolCallId": "call", "turnId": "turn"}));
        scene.runtime.result(json!({})).await;
        scene
            .runtime
            .say(json!({"type": "system", "subtype": "session_state_changed", "state": "idle"}))
            .await;
        scene.runtime.say(task("task_updated", json!({"patch": {"status": "completed"}}))).await;
        let removed = action(&mut scene, "chat/backgroundWorkRemoved").await;
        assert_eq!(removed["id"], "b1");
        let summary = "Background command \"build\" completed";
        let ended = json!({"status": "completed", "summary": summary, "output_file": "/tasks/b1.output"});
        scene.runtime.say(task("task_notification", ended)).await;
        scene.runtime.say(json!({"type": "system", "subtype": "init", "capabilities": []})).await;
        let started = loop {
            let told = told(&mut scene).await;
            assert_ne!(told["type"], "chat/backgroundWorkRemoved", "removed twice");
            if told["started"].is_string() {
                break told;
            }
        };
        assert_eq!(started["message"]["text"], summary);
        let expected = json!({
            "id": "b1", "kind": "command", "label": "build", "status": "completed",
            "toolCallId": "call", "turnId": "turn",
        });
        assert_eq!(started["message"]["_meta"]["innkeeper.work"], expected);
        scene.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn command_is_stopped_as_soon_as_it_is_a_task() {
    let mut scene = Scene::in_turn().await;
    bash(&mut scene, "make all").await;
    stop(&scene, 7, StopTarget::ToolCall("call".to_owned())).await;
    assert!(scene.runtime.is_silent(Duration::from_secs(2)).await, "the task is not known");
    let started = json!({"description": "build", "task_type": "local_bash", "is_backgrounded": false});
    scene.runtime.say(task("task_started", started)).await;
    let ignored = scene.runtime.request("stop_task").await;
    assert_eq!(ignored["request"]["task_id"], "b1");
    scene.runtime.agree(&ignored).await;
    // Some runtimes accept the request and ignore it.
    let heeded = scene.runtime.request("stop_task").await;
    scene.runtime.say(task("task_updated", json!({"patch": {"status": "killed"}}))).await;
    scene.runtime.agree(&heeded).await;
    let answer = answer_to(&mut scene, 7).await;
    assert_eq!(answer["result"], stopped("make all"));
    let mut result = result_of("call", json!("Error: Exit code 137"));
    result["message"]["content"][0]["is_error"] = json!(true);
    scene.runtime.say(result).await;
    let complete = action(&mut scene, "chat/toolCallComplete").await;
    assert_eq!(complete["result"]["error"]["code"], "cancelled", "{complete}");
    scene.stop().await;
}

/// The driver's answer to a request to stop work.
async fn answer_to(scene: &mut Scene, request: u64) -> Value {
    loop {
        let told = told(scene).await;
        if told["request"] == request {
            return told;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn call_that_continues_in_the_background_is_stopped_there() {
    let launches = [
        ("Bash", json!({"backgroundTaskId": "b1"}), WorkKind::Command),
        ("Agent", json!({"status": "async_launched", "agentId": "b1"}), WorkKind::Subagent),
    ];
    for (name, launched, kind) in launches {
        let mut scene = Scene::in_turn().await;
        let input = json!({"command": "make all", "description": "build"});
        let call = json!({"type": "tool_use", "id": "call", "name": name, "input": input});
        scene.runtime.say(json!({"type": "assistant", "message": {"id": "m1", "content": [call]}})).await;
        action(&mut scene, "chat/toolCallReady").await;
        stop(&scene, 7, StopTarget::ToolCall("call".to_owned())).await;
        assert!(scene.runtime.is_silent(Duration::from_secs(1)).await, "the task is not known");
        scene.runtime.say(result_of("call", launched)).await;
        let request = scene.runtime.request("stop_task").await;
        assert_eq!(request["request"]["task_id"], "b1");
        scene.runtime.say(task("task_updated", json!({"patch": {"status": "killed"}}))).await;
        scene.runtime.agree(&request).await;
        let answer = answer_to(&mut scene, 7).await;
        let work = vec![StoppedWork { kind, label: "build".to_owned() }];
        assert_eq!(answer["result"], format!("{:?}", Ok::<_, String>(work)));
        scene.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_or_unstoppable_work_is_not_stopped() {
    let mut scene = Scene::in_turn().await;
    bash(&mut scene, "make all").await;
    for (target, reason) in [
        (StopTarget::ToolCall("other".to_owned()), "not running"),
        (StopTarget::Work("b9".to_owned()), "not running"),
        // No task is reported for the call.
        (StopTarget::ToolCall("call".to_owned()), "Stop the turn instead"),
    ] {
        stop(&scene, 1, target).await;
        let answer = loop {
            let told = told(&mut scene).await;
            if told["request"] == 1 {
                break told;
            }
        };
        assert!(answer["result"].to_string().contains(reason), "{answer}");
    }
    stop(&scene, 2, StopTarget::Background).await;
    assert_eq!(told(&mut scene).await, json!({"request": 2, "result": "Ok([])"}));
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn late_result_does_not_appear_in_another_turn() {
    let mut scene = Scene::in_turn().await;
    bash(&mut scene, "make all").await;
    scene.runtime.result(json!({})).await;
    scene.runtime.say(json!({"type": "system", "subtype": "session_state_changed", "state": "idle"})).await;
    while told(&mut scene).await["ended"] != "turn" {}
    scene.prompt("next", None).await;
    let next = scene.runtime.prompt().await;
    scene.runtime.lifecycle(&next, "started").await;
    scene.runtime.text("m2", "the next answer").await;
    scene.runtime.say(result_of("call", json!({"stdout": "late"}))).await;
    scene.runtime.result(json!({"user_message_uuids": [next]})).await;
    loop {
        let told = told(&mut scene).await;
        assert_ne!(told["type"], "chat/toolCallComplete", "{told}");
        if told["ended"] == "next" {
            break;
        }
    }
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn silent_turn_says_what_it_waits_for() {
    let mut scene = Scene::in_turn().await;
    let began = Instant::now();
    let activity = action(&mut scene, "chat/activityChanged").await;
    assert_eq!(activity["activity"], "Waiting for the model for 20 s");
    assert!(began.elapsed() >= Duration::from_secs(20));
    let activity = action(&mut scene, "chat/activityChanged").await;
    assert_eq!(activity["activity"], "Waiting for the model for 30 s");
    let call = json!({"type": "tool_use", "id": "call", "name": "Bash", "input": {"command": "make"}});
    scene.runtime.say(json!({"type": "assistant", "message": {"id": "m1", "content": [call]}})).await;
    assert_eq!(action(&mut scene, "chat/activityChanged").await["activity"], Value::Null);
    let activity = action(&mut scene, "chat/activityChanged").await;
    assert_eq!(activity["activity"], "Running Bash for 20 s");
    scene.stop().await;
}

/// Waits for the end of a turn, which must be interrupted. Returns the type of its error.
async fn interrupted(scene: &mut Scene, turn: &str) -> String {
    loop {
        if let AgentEvent::TurnEnded { turn: ended, outcome } = scene.events.recv().await.unwrap() {
            assert_eq!(ended.as_str(), turn);
            let TurnOutcome::Interrupted(error) = outcome else { panic!("{outcome:?}") };
            return error.error_type;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn silent_runtime_that_does_not_respond_is_ended() {
    let mut scene = Scene::in_turn().await;
    let began = Instant::now();
    // A runtime that responds may be silent as long as it likes.
    for _ in 0..3 {
        let check = scene.runtime.request("mcp_status").await;
        assert!(began.elapsed() >= Duration::from_secs(60));
        scene.runtime.agree(&check).await;
    }
    scene.runtime.request("mcp_status").await;
    let asked = Instant::now();
    assert_eq!(interrupted(&mut scene, "turn").await, "runtime_hung");
    assert!(asked.elapsed() < Duration::from_secs(45), "{:?}", asked.elapsed());
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slow_model_change_fails_its_message_and_only_a_hanging_runtime_is_ended() {
    let mut scene = Scene::start().await;
    scene.prompt("turn", Some("opus")).await;
    scene.runtime.request("set_model").await;
    assert_eq!(interrupted(&mut scene, "turn").await, "model_not_available");
    assert_eq!(scene.runtime.read().await["type"], "control_cancel_request");
    let check = scene.runtime.request("mcp_status").await;
    scene.runtime.agree(&check).await;

    // The model of the runtime is not known, so that it is set again.
    scene.prompt("default", None).await;
    let select = scene.runtime.request("set_model").await;
    assert_eq!(select["request"]["model"], Value::Null, "{select}");
    scene.runtime.agree(&select).await;
    let effort = scene.runtime.request("apply_flag_settings").await;
    scene.runtime.agree(&effort).await;
    let uuid = scene.runtime.prompt().await;
    scene.runtime.result(json!({"user_message_uuids": [uuid]})).await;
    assert_eq!(scene.ended().await.1, "default");

    scene.prompt("other", Some("opus")).await;
    scene.runtime.request("set_model").await;
    assert_eq!(interrupted(&mut scene, "other").await, "model_not_available");
    assert_eq!(scene.runtime.read().await["type"], "control_cancel_request");
    scene.runtime.request("mcp_status").await;
    loop {
        if let AgentEvent::Closed { unsent, restart, .. } = scene.events.recv().await.unwrap() {
            assert_eq!((unsent, restart), (None, None));
            break;
        }
    }
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn background_turn_is_not_cut_off_for_a_message_with_another_agent_or_model() {
    for (field, value) in
        [("agent", json!({"uri": "file:///agents/reviewer.md"})), ("model", json!({"id": "opus"}))]
    {
        let mut scene = Scene::start().await;
        scene.runtime.say(json!({"type": "system", "subtype": "init", "capabilities": []})).await;
        scene.runtime.text("m1", "background").await;
        while !matches!(scene.events.recv().await.unwrap(), AgentEvent::TurnStarted { .. }) {}
        let mut message = json!({"text": "next", "origin": {"kind": "user"}});
        message[field] = value;
        let message = serde_json::from_value(message).unwrap();
        scene.commands.send(AgentCommand::Prompt { turn: TurnId::new("next"), message }).await.unwrap();
        assert!(scene.runtime.is_silent(Duration::from_secs(1)).await, "{field}: changed in a turn");
        scene.runtime.result(json!({"origin": {"kind": "task-notification"}})).await;
        assert_eq!(scene.ended().await.2, TurnOutcome::Completed, "{field}");
        if field == "model" {
            assert_eq!(scene.runtime.request("set_model").await["request"]["model"], "opus");
        }
        scene.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn turn_that_starts_during_a_question_ends_before_the_turn_of_the_question() {
    let mut scene = Scene::start().await;
    let agent = json!({"task_id": "a1", "task_type": "local_agent", "is_backgrounded": true});
    scene.runtime.say(task("task_started", agent)).await;
    scene.runtime.say(asked_by_subagent()).await;
    let asked = scene.query().await.turn.unwrap();
    assert!(asked.as_str().starts_with("question-"), "{asked}");
    scene.runtime.say(json!({"type": "system", "subtype": "init", "capabilities": []})).await;
    scene.runtime.text("m1", "background").await;
    let background = loop {
        if let AgentEvent::TurnStarted { turn, .. } = scene.events.recv().await.unwrap() {
            break turn;
        }
    };
    scene.decide_about("inner", PermissionStage::Required, PermissionVerdict::Allowed).await;
    assert_eq!(scene.runtime.read().await["response"]["response"]["behavior"], "allow");
    scene.runtime.result(json!({"origin": {"kind": "task-notification"}})).await;
    let ended = [scene.ended().await.1, scene.ended().await.1];
    assert_eq!(ended, [background.as_str(), asked.as_str()]);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn time_of_a_call_begins_with_its_permission() {
    let mut scene = Scene::in_turn().await;
    let input = json!({"file_path": "/project/a", "content": "x"});
    let call = json!({"type": "tool_use", "id": "inner", "name": "Write", "input": input});
    scene.runtime.say(json!({"type": "assistant", "message": {"id": "m1", "content": [call]}})).await;
    scene.runtime.say(asked_by_subagent()).await;
    scene.query().await;
    assert_eq!(action(&mut scene, "chat/activityChanged").await["activity"], "Waiting for your answer");
    tokio::time::sleep(Duration::from_secs(35)).await;
    let answer = ToolAnswer::Confirmed {
        approval: Approval::Approved,
        input: None,
        option: None,
        suggestion: None,
        remembered: Vec::new(),
    };
    let (turn, tool_call) = (TurnId::new("turn"), "inner".to_owned());
    scene.commands.send(AgentCommand::ToolAnswer { turn, tool_call, answer }).await.unwrap();
    let activity = loop {
        let told = action(&mut scene, "chat/activityChanged").await["activity"].clone();
        if told != "Waiting for your answer" {
            break told;
        }
    };
    assert_eq!(activity, Value::Null);
    assert_eq!(action(&mut scene, "chat/activityChanged").await["activity"], "Running Write for 20 s");
    scene.stop().await;
}

/// A request of the subagent `a1` to use a tool.
fn asked_by_subagent() -> Value {
    let ask = json!({
        "subtype": "can_use_tool", "tool_name": "Write", "tool_use_id": "inner", "agent_id": "a1",
        "input": {"file_path": "/project/a", "content": "x"},
    });
    request_about("r2", ask)
}

#[tokio::test(start_paused = true)]
async fn subagent_in_the_background_may_ask_while_its_turn_is_being_stopped() {
    for is_detached in [true, false] {
        let mut scene = Scene::in_turn().await;
        let agent = json!({"task_id": "a1", "task_type": "local_agent", "is_backgrounded": is_detached});
        scene.runtime.say(task("task_started", agent)).await;
        if is_detached {
            action(&mut scene, "chat/backgroundWorkSet").await;
        }
        scene.cancel("turn").await;
        scene.runtime.request("interrupt").await;
        let check =
            json!({"tool_name": "Write", "agent_id": "a1", "tool_input": {"file_path": "/project/a"}});
        scene.runtime.say(hook_about("r1", check)).await;
        if is_detached {
            assert_eq!(scene.query().await.turn, None);
            scene.runtime.say(asked_by_subagent()).await;
            let started = told(&mut scene).await;
            assert_eq!(started["message"]["text"], "A background task asks about Write");
        } else {
            let denied = scene.runtime.read().await["response"]["response"].to_string();
            assert!(denied.contains("deny"), "{denied}");
            scene.runtime.say(asked_by_subagent()).await;
            assert_eq!(scene.runtime.read().await["response"]["response"]["behavior"], "deny");
        }
        scene.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn result_that_an_older_runtime_holds_back_does_not_prolong_the_turn() {
    let mut scene = Scene::start().await;
    scene.prompt("turn", None).await;
    let uuid = scene.runtime.prompt().await;
    scene
        .runtime
        .say(json!({"type": "user", "isReplay": true, "uuid": uuid, "message": {"content": "x"}}))
        .await;
    let agent = json!({"description": "look", "task_type": "local_agent", "task_id": "a1"});
    scene.runtime.say(task("task_started", agent)).await;
    let launched = json!({"status": "async_launched", "agentId": "a1"});
    scene.runtime.say(result_of("call", launched)).await;
    assert_eq!(action(&mut scene, "chat/backgroundWorkSet").await["work"]["kind"], "subagent");
    let stream = |event: Value| json!({"type": "stream_event", "event": event});
    scene.runtime.say(stream(json!({"type": "message_start", "message": {"id": "m1"}}))).await;
    scene.runtime.say(stream(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}))).await;
    scene.runtime.say(stream(json!({"type": "message_stop"}))).await;
    // Progress of the subagent does not prolong the turn.
    scene.runtime.say(task("task_progress", json!({"task_id": "a1"}))).await;
    while told(&mut scene).await["ended"] != "turn" {}

    // A cancelled turn is over with the note about the interrupt, so that the subagent survives.
    scene.prompt("next", None).await;
    let uuid = scene.runtime.prompt().await;
    scene
        .runtime
        .say(json!({"type": "user", "isReplay": true, "uuid": uuid, "message": {"content": "x"}}))
        .await;
    scene.runtime.text("m2", "an answer").await;
    action(&mut scene, "chat/responsePart").await;
    scene.cancel("next").await;
    let interrupt = scene.runtime.request("interrupt").await;
    scene.runtime.agree(&interrupt).await;
    let note = json!([{"type": "text", "text": "[Request interrupted by user]"}]);
    scene.runtime.say(json!({"type": "user", "message": {"content": note}})).await;
    assert!(scene.runtime.is_silent(Duration::from_secs(10)).await, "the turn is interrupted again");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_turn_follows_a_subagent_that_was_stopped_after_many_commands() {
    let mut scene = Scene::in_turn().await;
    let ids = (0..65).map(|number| format!("b{number}")).chain(["a1".to_owned()]);
    for (request, id) in (0..).zip(ids) {
        let task_type = if id == "a1" { "local_agent" } else { "local_bash" };
        let started =
            json!({"task_id": id, "description": id, "task_type": task_type, "is_backgrounded": true});
        scene.runtime.say(task("task_started", started)).await;
        action(&mut scene, "chat/backgroundWorkSet").await;
        stop(&scene, request, StopTarget::Background).await;
        let asked = scene.runtime.request("stop_task").await;
        scene.runtime.say(task("task_updated", json!({"task_id": id, "patch": {"status": "killed"}}))).await;
        let ended = json!({"task_id": id, "status": "stopped", "summary": id, "output_file": "/o"});
        scene.runtime.say(task("task_notification", ended)).await;
        scene.runtime.agree(&asked).await;
        while told(&mut scene).await["request"] != request {}
    }
    scene.runtime.result(json!({})).await;
    while told(&mut scene).await["ended"] != "turn" {}
    scene.runtime.say(json!({"type": "system", "subtype": "init", "capabilities": []})).await;
    let interrupt = scene.runtime.request("interrupt");
    assert!(tokio::time::timeout(Duration::from_secs(10), interrupt).await.is_ok(), "a turn follows");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn subagent_that_ends_before_it_is_stopped_reports_its_result() {
    let mut scene = Scene::in_turn().await;
    let started = json!({"task_id": "a1", "task_type": "local_agent", "is_backgrounded": true});
    scene.runtime.say(task("task_started", started)).await;
    action(&mut scene, "chat/backgroundWorkSet").await;
    stop(&scene, 1, StopTarget::Background).await;
    let asked = scene.runtime.request("stop_task").await;
    let ended = json!({"task_id": "a1", "status": "completed", "summary": "all good", "output_file": "/o"});
    scene.runtime.say(task("task_notification", ended)).await;
    scene.runtime.agree(&asked).await;
    assert_eq!(answer_to(&mut scene, 1).await["result"], "Ok([])");
    scene.runtime.result(json!({})).await;
    while told(&mut scene).await["ended"] != "turn" {}
    scene.runtime.say(json!({"type": "system", "subtype": "init", "capabilities": []})).await;
    let started = told(&mut scene).await;
    assert!(started["message"]["text"].to_string().contains("all good"), "{started}");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn next_message_waits_for_the_turn_about_a_stopped_subagent() {
    for follows in [true, false] {
        let mut scene = Scene::in_turn().await;
        let started = json!({"task_id": "a1", "task_type": "local_agent", "is_backgrounded": true});
        scene.runtime.say(task("task_started", started)).await;
        action(&mut scene, "chat/backgroundWorkSet").await;
        scene.runtime.result(json!({})).await;
        while told(&mut scene).await["ended"] != "turn" {}
        let stopped = Instant::now();
        stop(&scene, 1, StopTarget::Background).await;
        let asked = scene.runtime.request("stop_task").await;
        scene
            .runtime
            .say(task("task_updated", json!({"task_id": "a1", "patch": {"status": "killed"}})))
            .await;
        scene.runtime.agree(&asked).await;
        answer_to(&mut scene, 1).await;
        scene.prompt("next", None).await;
        assert!(scene.runtime.is_silent(Duration::from_secs(1)).await, "an interrupt could hit the message");
        if follows {
            let ended = json!({"task_id": "a1", "status": "stopped", "summary": "x", "output_file": "/o"});
            scene.runtime.say(task("task_notification", ended)).await;
            scene.runtime.say(json!({"type": "system", "subtype": "init", "capabilities": []})).await;
            let interrupt = scene.runtime.request("interrupt").await;
            let origin = json!({"kind": "task-notification"});
            scene.runtime.result(json!({"origin": origin, "subtype": "error_during_execution"})).await;
            scene.runtime.agree(&interrupt).await;
        }
        let next = scene.runtime.prompt().await;
        assert!(stopped.elapsed() < Duration::from_secs(3), "{:?}", stopped.elapsed());
        scene.runtime.result(json!({"user_message_uuids": [next]})).await;
        assert_eq!(told_end(&mut scene).await, "next", "a turn about the subagent is shown");
        scene.stop().await;
    }
}

/// The next turn that is started or ended.
async fn told_end(scene: &mut Scene) -> String {
    loop {
        match scene.events.recv().await.unwrap() {
            AgentEvent::TurnStarted { turn, .. } | AgentEvent::TurnEnded { turn, .. } => {
                return turn.as_str().to_owned();
            }
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_does_not_end_is_named() {
    let mut scene = Scene::in_turn().await;
    let started = json!({"description": "build", "task_type": "local_bash", "is_backgrounded": true});
    scene.runtime.say(task("task_started", started)).await;
    action(&mut scene, "chat/backgroundWorkSet").await;
    stop(&scene, 1, StopTarget::Background).await;
    let answer = loop {
        let told = told(&mut scene).await;
        if told["request"] == 1 {
            break told;
        }
    };
    let expected = "Still running: build. Restart the agent to end them.";
    assert_eq!(answer["result"], format!("{:?}", Err::<(), _>(expected)));
    scene.stop().await;
}
