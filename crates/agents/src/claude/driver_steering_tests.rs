//! Steering messages of the driver against a fake runtime.

use innkeeper_core::agent::{PermissionStage, PermissionVerdict};
use innkeeper_core::edits::NoRecorder;
use serde_json::Value;

use super::tests::{FakeRuntime, Scene, hook_about, request_about};
use super::*;

/// What the session receives about a turn, as text.
#[derive(Debug, PartialEq)]
enum Reported {
    Taken { id: String, turn: String, text: String },
    Ended { turn: String, outcome: TurnOutcome },
}

impl Scene {
    async fn steer(&self, id: &str, turn: &str, text: &str) {
        self.steer_with(id, turn, json!({"text": text, "origin": {"kind": "user"}})).await;
    }

    async fn steer_with(&self, id: &str, turn: &str, message: Value) {
        let message = serde_json::from_value(message).unwrap();
        let command = AgentCommand::Steer { id: id.to_owned(), turn: TurnId::new(turn), message };
        self.commands.send(command).await.unwrap();
    }

    async fn unsteer(&self, id: &str) {
        self.commands.send(AgentCommand::Unsteer { id: id.to_owned() }).await.unwrap();
    }

    /// The next report about steering or the end of a turn.
    async fn reported(&mut self) -> Reported {
        loop {
            match self.events.recv().await.unwrap() {
                AgentEvent::SteeringTaken { id, turn, message } => {
                    return Reported::Taken { id, turn: turn.as_str().to_owned(), text: message.text };
                }
                AgentEvent::TurnEnded { turn, outcome } => {
                    return Reported::Ended { turn: turn.as_str().to_owned(), outcome };
                }
                _ => {}
            }
        }
    }

    async fn running() -> Self {
        Self::in_recorded_turn(NoRecorder::shared()).await
    }
}

fn taken(id: &str, turn: &str, text: &str) -> Reported {
    Reported::Taken { id: id.to_owned(), turn: turn.to_owned(), text: text.to_owned() }
}

fn completed(turn: &str) -> Reported {
    Reported::Ended { turn: turn.to_owned(), outcome: TurnOutcome::Completed }
}

fn state(state: &str) -> Value {
    json!({"type": "system", "subtype": "session_state_changed", "state": state})
}

fn block(block: &Value) -> Value {
    let event = json!({"type": "content_block_start", "index": 0, "content_block": block});
    json!({"type": "stream_event", "event": event})
}

fn call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "Bash", "input": {}})
}

fn assistant(content: Value) -> Value {
    json!({"type": "assistant", "message": {"id": "m", "content": [content]}})
}

fn result_of(id: &str) -> Value {
    let content = json!([{"type": "tool_result", "tool_use_id": id, "content": "done"}]);
    json!({"type": "user", "message": {"role": "user", "content": content}})
}

impl FakeRuntime {
    /// Answers a request to cancel a message.
    async fn cancel(&mut self, request: &Value, cancelled: bool) {
        let response = json!({"subtype": "success", "request_id": request["request_id"],
            "response": {"cancelled": cancelled}});
        self.say(json!({"type": "control_response", "response": response})).await;
    }

    /// Reads a steering message; returns its uuid and priority.
    async fn steered(&mut self) -> (Value, String) {
        let frame = self.read().await;
        assert_eq!(frame["type"], "user", "{frame}");
        (frame["uuid"].clone(), frame["priority"].as_str().unwrap_or_default().to_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn answer_is_cut_off_only_while_the_model_writes_text() {
    let compacting = |status: Value| json!({"type": "system", "subtype": "status", "status": status});
    let mode = json!({"type": "system", "subtype": "status", "status": null, "permissionMode": "plan"});
    let text = json!({"type": "text", "text": ""});
    let ask = json!({"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": "call", "input": {}});
    let search = json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}});
    for (frames, expected) in [
        (vec![], "now"),
        (vec![block(&text)], "now"),
        (vec![block(&json!({"type": "thinking", "thinking": ""}))], "now"),
        (vec![block(&json!({"type": "redacted_thinking"}))], "now"),
        (vec![block(&call("call"))], "next"),
        (vec![block(&search)], "next"),
        (vec![block(&call("call")), assistant(call("call"))], "next"),
        (vec![assistant(call("call")), result_of("call")], "now"),
        (vec![assistant(call("call")), assistant(call("other")), result_of("call")], "next"),
        (vec![compacting(json!("compacting"))], "next"),
        (vec![compacting(json!("compacting")), mode], "next"),
        (vec![compacting(json!("compacting")), compacting(Value::Null)], "now"),
        (vec![request_about("p", ask)], "next"),
        (vec![hook_about("h", json!({"tool_name": "Bash", "tool_input": {}}))], "next"),
    ] {
        let mut scene = Scene::running().await;
        let shown = format!("{frames:?}");
        for frame in frames {
            scene.runtime.say(frame).await;
        }
        // The driver reads the frames before the command only if the command comes later.
        tokio::time::sleep(Duration::from_millis(10)).await;
        scene.steer("s", "turn", "also this").await;
        assert_eq!(scene.runtime.steered().await.1, expected, "{shown}");
        scene.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn steering_message_is_written_after_runtime_has_begun_the_turn() {
    let mut scene = Scene::with_recorder(NoRecorder::shared()).await;
    scene.prompt("turn", None).await;
    scene.steer("s", "turn", "also this").await;
    let opening = scene.runtime.prompt().await;
    assert!(scene.runtime.is_silent(Duration::from_secs(1)).await, "it could overtake the message");
    scene.runtime.lifecycle(&opening, "started").await;
    let (steering, priority) = scene.runtime.steered().await;
    assert_eq!(priority, "now");
    scene
        .runtime
        .result(json!({"user_message_uuids": [opening], "terminal_reason": "aborted_streaming"}))
        .await;
    scene.runtime.lifecycle(&steering, "started").await;
    assert_eq!(scene.reported().await, taken("s", "turn", "also this"));
    scene.runtime.result(json!({"user_message_uuids": [steering]})).await;
    assert_eq!(scene.reported().await, completed("turn"));
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn message_for_another_turn_command_and_invalid_image_are_left_to_the_session() {
    let mut scene = Scene::running().await;
    scene.steer("s1", "earlier", "too late").await;
    scene.steer("s2", "turn", "/compact").await;
    let image = json!({"type": "embeddedResource", "label": "a.png", "contentType": "image/png", "data": ""});
    let message = json!({"text": "see", "origin": {"kind": "user"}, "attachments": [image]});
    scene.steer_with("s4", "turn", message).await;
    assert!(scene.runtime.is_silent(Duration::from_secs(1)).await);
    scene.steer("s3", "turn", "/etc/hosts is wrong").await;
    scene.runtime.steered().await;
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn message_taken_back_before_it_is_written_is_never_written() {
    let mut scene = Scene::with_recorder(NoRecorder::shared()).await;
    scene.prompt("turn", None).await;
    scene.steer("s", "turn", "also this").await;
    let opening = scene.runtime.prompt().await;
    scene.unsteer("s").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    scene.runtime.lifecycle(&opening, "started").await;
    assert!(scene.runtime.is_silent(Duration::from_secs(1)).await);
    scene.runtime.result(json!({"user_message_uuids": [opening]})).await;
    assert_eq!(scene.reported().await, completed("turn"));
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn written_message_is_taken_back_unless_runtime_has_it() {
    for (cancelled, newer) in [(true, true), (true, false), (false, true)] {
        let mut scene = Scene::running().await;
        scene.runtime.say(assistant(call("call"))).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        scene.steer("s", "turn", "also this").await;
        let (steering, _) = scene.runtime.steered().await;
        scene.unsteer("s").await;
        let request = scene.runtime.request("cancel_async_message").await;
        assert_eq!(request["request"]["message_uuid"], steering);
        let state = if cancelled { "cancelled" } else { "started" };
        if newer {
            scene.runtime.lifecycle(&steering, state).await;
        }
        scene.runtime.cancel(&request, cancelled).await;
        scene.runtime.result(json!({})).await;
        if !cancelled {
            assert_eq!(scene.reported().await, taken("s", "turn", "also this"));
        }
        assert_eq!(scene.reported().await, completed("turn"), "cancelled: {cancelled}");
        scene.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn turn_ends_when_the_withdrawal_is_answered_after_the_result() {
    let mut scene = Scene::running().await;
    scene.steer("s", "turn", "also this").await;
    scene.runtime.steered().await;
    scene.unsteer("s").await;
    let request = scene.runtime.request("cancel_async_message").await;
    scene.runtime.result(json!({})).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    scene.runtime.cancel(&request, true).await;
    assert_eq!(scene.reported().await, completed("turn"));
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn replaced_message_with_the_same_id_is_told_apart() {
    let mut scene = Scene::running().await;
    scene.runtime.say(assistant(call("call"))).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    scene.steer("s", "turn", "first").await;
    let (first, _) = scene.runtime.steered().await;
    scene.unsteer("s").await;
    scene.steer("s", "turn", "second").await;
    let request = scene.runtime.request("cancel_async_message").await;
    assert_eq!(request["request"]["message_uuid"], first);
    let (second, _) = scene.runtime.steered().await;
    // The runtime had taken up the first one.
    scene.runtime.lifecycle(&first, "started").await;
    assert_eq!(scene.reported().await, taken("s", "turn", "first"));
    scene.runtime.cancel(&request, false).await;
    scene.runtime.lifecycle(&second, "started").await;
    assert_eq!(scene.reported().await, taken("s", "turn", "second"));
    scene.runtime.result(json!({})).await;
    assert_eq!(scene.reported().await, completed("turn"));
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn cancel_takes_back_steering_messages_before_the_interrupt() {
    let mut scene = Scene::running().await;
    scene.runtime.say(assistant(call("call"))).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    scene.steer("s", "turn", "also this").await;
    let (steering, _) = scene.runtime.steered().await;
    scene.cancel("turn").await;
    scene.prompt("next", None).await;
    let withdrawal = scene.runtime.request("cancel_async_message").await;
    assert_eq!(withdrawal["request"]["message_uuid"], steering);
    let interrupt = scene.runtime.request("interrupt").await;
    scene.runtime.cancel(&withdrawal, true).await;
    scene.runtime.agree(&interrupt).await;
    let aborted = json!({"subtype": "error_during_execution", "terminal_reason": "aborted_tools"});
    scene.runtime.result(aborted).await;
    let next = scene.runtime.prompt().await;
    scene.runtime.result(json!({"user_message_uuids": [next]})).await;
    assert_eq!(scene.reported().await, completed("next"));
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn message_that_runtime_ignores_is_left_to_the_session() {
    let mut scene = Scene::running().await;
    scene.steer("s", "turn", "also this").await;
    let (steering, _) = scene.runtime.steered().await;
    scene.runtime.result(json!({})).await;
    scene.runtime.say(state("idle")).await;
    assert_eq!(scene.reported().await, completed("turn"));
    let withdrawal = scene.runtime.request("cancel_async_message").await;
    assert_eq!(withdrawal["request"]["message_uuid"], steering, "it could still run");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn turn_that_runtime_started_is_steered() {
    let mut scene = Scene::with_recorder(NoRecorder::shared()).await;
    scene.runtime.say(json!({"type": "system", "subtype": "init", "capabilities": []})).await;
    let turn = loop {
        if let AgentEvent::TurnStarted { turn, .. } = scene.events.recv().await.unwrap() {
            break turn.as_str().to_owned();
        }
    };
    scene.steer("s", &turn, "also this").await;
    let (steering, priority) = scene.runtime.steered().await;
    assert_eq!(priority, "now");
    let origin = json!({"kind": "task-notification"});
    scene.runtime.result(json!({"origin": origin, "terminal_reason": "aborted_streaming"})).await;
    scene.runtime.lifecycle(&steering, "started").await;
    assert_eq!(scene.reported().await, taken("s", &turn, "also this"));
    scene.runtime.result(json!({"user_message_uuids": [steering]})).await;
    assert_eq!(scene.reported().await, completed(&turn));
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn cancelled_background_turn_takes_its_steering_message_back() {
    let mut scene = Scene::with_recorder(NoRecorder::shared()).await;
    scene.runtime.say(json!({"type": "system", "subtype": "init", "capabilities": []})).await;
    let turn = loop {
        if let AgentEvent::TurnStarted { turn, .. } = scene.events.recv().await.unwrap() {
            break turn.as_str().to_owned();
        }
    };
    scene.steer("s", &turn, "also this").await;
    let (steering, _) = scene.runtime.steered().await;
    scene.cancel(&turn).await;
    scene.prompt("next", None).await;
    let withdrawal = scene.runtime.request("cancel_async_message").await;
    let interrupt = scene.runtime.request("interrupt").await;
    scene.runtime.lifecycle(&steering, "cancelled").await;
    scene.runtime.cancel(&withdrawal, true).await;
    scene.runtime.agree(&interrupt).await;
    scene.runtime.result(json!({"origin": {"kind": "task-notification"}})).await;
    let next = scene.runtime.prompt().await;
    scene.runtime.result(json!({"user_message_uuids": [next]})).await;
    assert_eq!(scene.reported().await, completed("next"));
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn answered_request_allows_cutting_the_answer_again() {
    let mut scene = Scene::running().await;
    scene.runtime.say(hook_about("h", json!({"tool_name": "Bash", "tool_input": {}}))).await;
    scene.query().await;
    scene.decide_about("call", PermissionStage::BeforeUse, PermissionVerdict::NoObjection).await;
    scene.runtime.read().await;
    scene.steer("s", "turn", "also this").await;
    assert_eq!(scene.runtime.steered().await.1, "now");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn steering_of_a_message_with_an_invalid_image_is_forgotten() {
    let mut scene = Scene::start().await;
    let image = json!({"type": "embeddedResource", "label": "a.png", "contentType": "image/png", "data": ""});
    for number in 0..65 {
        // The message waits for the model, so that it can be steered.
        let turn = format!("t{number}");
        let message = json!({
            "text": "see", "origin": {"kind": "user"}, "attachments": [image],
            "model": {"id": format!("model-{number}")},
        });
        let message = serde_json::from_value(message).unwrap();
        scene.commands.send(AgentCommand::Prompt { turn: TurnId::new(&turn), message }).await.unwrap();
        let select = scene.runtime.request("set_model").await;
        scene.steer("s", &turn, "more").await;
        // The command is read before the answer.
        tokio::time::sleep(Duration::from_millis(1)).await;
        scene.runtime.agree(&select).await;
        assert_eq!(scene.ended().await.1, turn);
    }
    scene.prompt("turn", None).await;
    let uuid = scene.runtime.prompt().await;
    scene.runtime.lifecycle(&uuid, "started").await;
    scene.runtime.text("m1", "an answer").await;
    scene.steer("last", "turn", "more").await;
    let steering = tokio::time::timeout(Duration::from_secs(10), scene.runtime.prompt()).await;
    assert!(steering.is_ok(), "the steering message is not written");
    scene.stop().await;
}
