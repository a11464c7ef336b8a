//! The driver when the runtime exits while a control request is pending.

use super::tests::{FakeRuntime, Scene};
use super::*;

/// Starts a scene and completes one turn.
async fn after_one_turn(asks_for_auto: bool) -> Scene {
    let mut scene = Scene::start().await;
    if asks_for_auto {
        scene.auto_mode.set(None);
    }
    scene.prompt("first", None).await;
    let first = scene.runtime.prompt().await;
    scene.runtime.result(json!({"user_message_uuids": [first]})).await;
    scene.ended().await;
    scene
}

/// Ends the runtime and returns the events until the driver's end, and the unsent message.
async fn exit(runtime: FakeRuntime, events: &mut mpsc::Receiver<AgentEvent>) -> (usize, Option<String>) {
    drop(runtime);
    let mut others = 0;
    loop {
        match events.recv().await.unwrap() {
            AgentEvent::Closed { unsent, .. } => {
                return (others, unsent.map(|unsent| unsent.turn.as_str().to_owned()));
            }
            AgentEvent::Exited => {}
            _ => others += 1,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn exit_during_probe_of_auto_mode_closes_the_agent() {
    let mut scene = after_one_turn(true).await;
    let probe = scene.runtime.request("set_permission_mode").await;
    assert_eq!(probe["request"]["mode"], "auto");
    scene.prompt("second", None).await;
    let Scene { runtime, mut events, auto_mode, .. } = scene;
    assert_eq!(exit(runtime, &mut events).await, (0, Some("second".to_owned())));
    assert!(!auto_mode.is_accepted());
}

#[tokio::test(start_paused = true)]
async fn exit_during_model_change_leaves_the_message_for_the_next_agent() {
    let mut scene = after_one_turn(false).await;
    scene.prompt("second", Some("opus")).await;
    scene.runtime.request("set_model").await;
    let Scene { runtime, mut events, .. } = scene;
    assert_eq!(exit(runtime, &mut events).await, (0, Some("second".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn exit_during_mode_change_keeps_the_mode_of_the_session() {
    let mut scene = after_one_turn(false).await;
    let values = serde_json::from_value(json!({"permissionMode": "plan"})).unwrap();
    scene.commands.send(AgentCommand::Config(values)).await.unwrap();
    scene.runtime.request("set_permission_mode").await;
    let Scene { runtime, mut events, .. } = scene;
    assert_eq!(exit(runtime, &mut events).await, (0, None), "the session's mode was changed back");
}

#[tokio::test(start_paused = true)]
async fn request_to_stop_work_at_the_exit_is_left_to_the_session() {
    let scene = after_one_turn(false).await;
    let Scene { runtime, mut events, commands, close, .. } = scene;
    // Read after the exit.
    close.cancel();
    let stop = AgentCommand::StopWork { request: 1, target: innkeeper_core::agent::StopTarget::Background };
    commands.send(stop).await.unwrap();
    assert_eq!(exit(runtime, &mut events).await, (0, None), "the driver has answered the request");
}

#[test]
fn failed_write_to_an_exited_runtime_is_an_exit() {
    assert!(is_exit(&RequestError::Exited));
    assert!(is_exit(&RequestError::Send(SendError::Exited)));
    assert!(!is_exit(&RequestError::Send(SendError::QueueFull)));
    assert!(!is_exit(&RequestError::TimedOut { after: Duration::from_secs(1) }));
}
