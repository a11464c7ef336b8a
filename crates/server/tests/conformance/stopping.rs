//! `innkeeper/stop` and `innkeeper/restartAgent`.

use ahp_types::state::{ChatState, MessageKind, TurnState};
use innkeeper_core::agent::{
    AgentCommand, AgentEvent, AgentFeatures, ChildChat, ChildId, History, StopTarget, TurnOutcome,
};
use innkeeper_core::ids::TurnId;
use innkeeper_core_fakes::{Player, StageTraits};
use innkeeper_testkit::Observer;
use serde_json::{Value, json};

use crate::scene::{Scene, message, pending, started};
use crate::stored_host::{SESSION, StoredHost, said_by};
use crate::wire::Wire;

const STOP: &str = "innkeeper/stop";
const RESTART: &str = "innkeeper/restartAgent";

/// Waits until the agent is asked to stop work. Returns the request.
async fn asked_to_stop(player: &mut Player, wanted: StopTarget) -> u64 {
    match player.command().await.unwrap() {
        AgentCommand::StopWork { request, target } if target == wanted => request,
        other => panic!("not a request to stop {wanted:?}: {other:?}"),
    }
}

/// Sends a request about the chat.
async fn begin(scene: &mut Scene, what: Value) -> Value {
    let channel = scene.chat.clone();
    scene.wire.send_request(STOP, json!({"channel": channel, "what": what})).await
}

/// Sends a request about the chat that must fail because of its parameters. Returns the message.
async fn refused(scene: &mut Scene, what: Value) -> String {
    let id = begin(scene, what.clone()).await;
    let answer = scene.wire.answer(&id).await;
    assert_eq!(answer["error"]["code"], -32602, "{what}: {answer}");
    answer["error"]["message"].as_str().unwrap().to_owned()
}

fn command(label: &str) -> Value {
    json!({"kind": "command", "label": label})
}

async fn works(scene: &mut Scene, player: &Player, id: &str, label: &str) {
    player.run_in_background("t1", "k1", id, label).await.unwrap();
    let has = |chat: &ChatState| json!(chat.background_work).to_string().contains(label);
    scene.until("the work is shown", has).await;
}

#[tokio::test]
async fn stop_of_everything_cancels_the_turn_and_stops_the_background_work() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    works(&mut scene, &player, "w1", "npm run dev").await;
    scene.chat_accepts(pending("queued", "m1", "later")).await;
    let id = begin(&mut scene, json!("all")).await;
    // The turn ends before the agent answers.
    scene.until_over("t1").await;
    assert_eq!(scene.alice.chat(&scene.chat).unwrap().turns[0].state, TurnState::Cancelled);
    assert_eq!(player.command().await.unwrap(), AgentCommand::Cancel { turn: TurnId::new("t1") });
    let request = asked_to_stop(&mut player, StopTarget::Background).await;
    player.stopped(request, Ok(&["npm run dev"])).await.unwrap();
    let stopped = json!([{"kind": "turn", "label": "list files"}, command("npm run dev")]);
    assert_eq!(scene.wire.answer(&id).await["result"], json!({"stopped": stopped}));
    // The queue is held, as after a client's cancel.
    scene.agree().await;
    assert_eq!(player.waiting_command(), None);
    assert!(scene.alice.chat(&scene.chat).unwrap().queued_messages.is_some());
}

#[tokio::test]
async fn stop_of_everything_holds_the_queue_during_a_turn_of_the_agent() {
    let (mut scene, mut player) = Scene::after_turn("t1").await;
    let message = said_by(MessageKind::SystemNotification, "The build has finished");
    player.send(AgentEvent::TurnStarted { turn: TurnId::new("task-1"), message }).await.unwrap();
    scene.until("the turn of the agent", |chat| chat.active_turn.is_some()).await;
    scene.chat_accepts(pending("queued", "m1", "later")).await;
    let id = begin(&mut scene, json!("all")).await;
    scene.until_over("task-1").await;
    assert!(matches!(player.command().await.unwrap(), AgentCommand::Cancel { .. }));
    let request = asked_to_stop(&mut player, StopTarget::Background).await;
    player.stopped(request, Ok(&[])).await.unwrap();
    let stopped = json!([{"kind": "turn", "label": "The build has finished"}]);
    assert_eq!(scene.wire.answer(&id).await["result"]["stopped"], stopped);
    scene.agree().await;
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test]
async fn stop_in_an_idle_chat_stops_nothing() {
    let mut scene = Scene::new().await;
    let nothing = json!({"stopped": []});
    let params = json!({"channel": scene.chat, "what": "all"});
    assert_eq!(scene.wire.ask(STOP, params.clone()).await, nothing);
    assert_eq!(scene.host.stage().asked(), 0, "the agent was opened");
    let mut player = scene.begin("t1").await;
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    assert_eq!(scene.wire.ask(STOP, params).await, nothing);
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test]
async fn stop_while_the_agent_is_being_opened_cancels_the_turn() {
    let mut scene = Scene::new().await;
    scene.host.stage().hold_openings();
    scene.chat_accepts(started("t1")).await;
    let params = json!({"channel": scene.chat, "what": "all"});
    let stopped = json!({"stopped": [{"kind": "turn", "label": "list files"}]});
    assert_eq!(scene.wire.ask(STOP, params).await, stopped);
    scene.until_over("t1").await;
    scene.host.stage().release_openings();
    let mut player = scene.host.stage().player().await.unwrap();
    scene.agree().await;
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test]
async fn one_command_is_stopped_and_the_turn_goes_on() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    player.run("t1", "k1").await.unwrap();
    works(&mut scene, &player, "w1", "npm run dev").await;
    player.run("t1", "k2").await.unwrap();
    scene.until("the second call", |chat| json!(chat.active_turn).to_string().contains("k2")).await;
    for (what, target) in [
        (json!({"toolCallId": "k2"}), StopTarget::ToolCall("k2".to_owned())),
        (json!({"workId": "w1"}), StopTarget::Work("w1".to_owned())),
    ] {
        let id = begin(&mut scene, what.clone()).await;
        let request = asked_to_stop(&mut player, target.clone()).await;
        // An answer to an unknown request changes nothing.
        player.stopped(request + 7, Ok(&["x"])).await.unwrap();
        player.stopped(request, Ok(&["it"])).await.unwrap();
        assert_eq!(scene.wire.answer(&id).await["result"], json!({"stopped": [command("it")]}));
        let id = begin(&mut scene, what).await;
        let request = asked_to_stop(&mut player, target).await;
        player.stopped(request, Err("cannot be stopped by itself; stop the turn instead")).await.unwrap();
        let answer = scene.wire.answer(&id).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("stop the turn"), "{answer}");
    }
    // The call has finished; its work goes on in the background and can be stopped by its call.
    player.ran("t1", "k1", json!({})).await.unwrap();
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    let id = begin(&mut scene, json!({"toolCallId": "k1"})).await;
    let request = asked_to_stop(&mut player, StopTarget::ToolCall("k1".to_owned())).await;
    player.stopped(request, Ok(&["it"])).await.unwrap();
    assert_eq!(scene.wire.answer(&id).await["result"], json!({"stopped": [command("it")]}));
}

#[tokio::test]
async fn rejects_stop_of_work_that_is_unknown_or_not_running() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    player.run("t1", "k1").await.unwrap();
    player.ran("t1", "k1", json!({})).await.unwrap();
    player.ask_to_run("t1", "k2", json!({})).await.unwrap();
    scene.until("the question", |chat| chat.status & 24 == 24).await;
    for (what, hint) in [
        (json!({"toolCallId": "unknown"}), "no tool call"),
        (json!({"toolCallId": "k1"}), "finished"),
        (json!({"toolCallId": "k2"}), "deny it"),
        (json!({"workId": "unknown"}), "no work"),
        (json!("everything"), "pass \"all\""),
        (json!({"toolCallId": "k1", "workId": "w1"}), "pass \"all\""),
        (json!({"workId": 1}), "pass \"all\""),
        (json!(null), "pass \"all\""),
    ] {
        let message = refused(&mut scene, what.clone()).await;
        assert!(message.contains(hint), "{what}: {message}");
    }
    assert_eq!(player.waiting_command(), None);
    for method in [STOP, RESTART] {
        for unknown in ["ahp-chat:/unknown", scene.session.as_str()] {
            let params = json!({"channel": unknown, "what": "all"});
            assert_eq!(scene.wire.refused(method, params).await, -32008, "{method} {unknown}");
        }
        assert_eq!(scene.wire.refused(method, json!({"channel": 1, "what": "all"})).await, -32602);
    }
    scene.agree().await;
}

#[tokio::test]
async fn rejects_stop_of_single_work_by_an_agent_that_cannot_do_it() {
    let features = AgentFeatures { stop_work: false, ..AgentFeatures::ALL };
    let mut scene = Scene::with(StageTraits { features, ..StageTraits::default() }).await;
    let mut player = scene.begin("t1").await;
    works(&mut scene, &player, "w1", "npm run dev").await;
    let message = refused(&mut scene, json!({"workId": "w1"})).await;
    assert!(message.contains("stop the turn instead"), "{message}");
    let params = json!({"channel": scene.chat, "what": "all"});
    let stopped = json!({"stopped": [{"kind": "turn", "label": "list files"}]});
    assert_eq!(scene.wire.ask(STOP, params).await, stopped);
    assert!(matches!(player.command().await.unwrap(), AgentCommand::Cancel { .. }));
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test]
async fn rejects_stop_and_restart_in_the_chat_of_a_subagent() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    let child = ChildChat {
        id: ChildId::of_tool_call("k1"),
        title: String::new(),
        turn: TurnId::new("c1"),
        message: said_by(MessageKind::Agent, "look around"),
    };
    player.send(AgentEvent::ChildStarted(Box::new(child))).await.unwrap();
    let chats = |alice: &Observer| alice.session(SESSION).unwrap().chats.len();
    kept.alice.until("the child chat", |alice| chats(alice) == 2).await.unwrap();
    let uri = kept.alice.session(SESSION).unwrap().chats[1].resource.clone();
    let mut wire = Wire::open(&kept.host, "wire", &["1.0.0"]).await;
    for method in [STOP, RESTART] {
        let answer = wire.request(method, json!({"channel": uri, "what": "all"})).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(&kept.chat), "{answer}");
    }
}

#[tokio::test]
async fn work_that_ends_with_its_agent_counts_as_stopped() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    player.run("t1", "k2").await.unwrap();
    works(&mut scene, &player, "w1", "npm run dev").await;
    let call = begin(&mut scene, json!({"toolCallId": "k2"})).await;
    let all = begin(&mut scene, json!("all")).await;
    asked_to_stop(&mut player, StopTarget::ToolCall("k2".to_owned())).await;
    assert!(matches!(player.command().await.unwrap(), AgentCommand::Cancel { .. }));
    asked_to_stop(&mut player, StopTarget::Background).await;
    player.crash().await.unwrap();
    assert_eq!(scene.wire.answer(&call).await["result"], json!({"stopped": [command("Run `ls`")]}));
    let stopped = json!([{"kind": "turn", "label": "list files"}, command("npm run dev")]);
    assert_eq!(scene.wire.answer(&all).await["result"]["stopped"], stopped);
    scene.agree().await;
    // Without a process there is nothing to stop.
    let params = json!({"channel": scene.chat, "what": "all"});
    assert_eq!(scene.wire.ask(STOP, params).await, json!({"stopped": []}));
}

#[tokio::test]
async fn number_of_unanswered_stops_is_limited() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    works(&mut scene, &player, "w1", "npm run dev").await;
    let what = json!({"workId": "w1"});
    let mut ids = Vec::new();
    for _ in 0..16 {
        ids.push(begin(&mut scene, what.clone()).await);
    }
    let message = refused(&mut scene, what.clone()).await;
    assert!(message.contains("wait for their answers"), "{message}");
    for id in ids {
        let request = asked_to_stop(&mut player, StopTarget::Work("w1".to_owned())).await;
        player.stopped(request, Ok(&[])).await.unwrap();
        assert_eq!(scene.wire.answer(&id).await["result"]["stopped"], json!([]));
    }
    let id = begin(&mut scene, what).await;
    let request = asked_to_stop(&mut player, StopTarget::Work("w1".to_owned())).await;
    player.stopped(request, Ok(&[])).await.unwrap();
    scene.wire.answer(&id).await;
}

/// The error of the last turn.
fn last_error(chat: &ChatState) -> Value {
    let turn = json!(chat.turns.last());
    turn["responseParts"].as_array().unwrap().last().unwrap().clone()
}

#[tokio::test]
async fn restart_fails_the_turn_and_the_resumed_turn_gets_a_new_agent() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    let chat = scene.chat.clone();
    player.ask("q1", json!([{"kind": "text", "id": "name", "message": "?"}])).await.unwrap();
    works(&mut scene, &player, "w1", "npm run dev").await;
    let restarted = scene.wire.send_request(RESTART, json!({"channel": chat})).await;
    scene.until_over("t1").await;
    let error = last_error(scene.alice.chat(&chat).unwrap());
    assert_eq!(
        (&error["error"]["errorType"], &error["resumable"]),
        (&json!("agent_restarted"), &json!(true))
    );
    assert_eq!(error["error"]["message"], "Scripted was restarted. Resume the turn, or send a message.");
    let parts = json!(scene.alice.chat(&chat).unwrap().turns[0].response_parts);
    assert_eq!(parts[0]["response"], "cancel", "{parts}");
    assert_eq!(parts[1]["content"], "Stopped with the Scripted process: npm run dev");
    assert_eq!(scene.alice.chat(&chat).unwrap().background_work, Some(Vec::new()));
    // The process is still ending: the resumed turn waits, and late output is dropped.
    scene.chat_accepts(json!({"type": "chat/turnResume", "turnId": "t1"})).await;
    scene.chat_accepts(pending("steering", "s1", "quickly")).await;
    player.text("t1", "late", &["too late"]).await.unwrap();
    player.end("t1", TurnOutcome::Completed).await.unwrap();
    let again = scene.wire.send_request(RESTART, json!({"channel": chat})).await;
    scene.agree().await;
    assert_eq!((player.waiting_command(), scene.host.stage().asked()), (None, 1));
    player.leave_when_told().await.unwrap();
    for id in [restarted, again] {
        assert_eq!(scene.wire.answer(&id).await["result"], json!({}));
    }
    let mut player = scene.host.stage().player().await.unwrap();
    assert_eq!(player.prompt().await.unwrap().0, "t1");
    assert!(matches!(player.command().await.unwrap(), AgentCommand::Steer { .. }));
    assert_eq!(scene.host.stage().openings()[1].history, History::Resume);
    player.steered("t1", "s1", "quickly").await.unwrap();
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    let text = json!(scene.alice.chat(&chat).unwrap().turns).to_string();
    assert!(!text.contains("too late") && text.contains("quickly"), "{text}");
}

#[tokio::test]
async fn restart_in_an_idle_chat_ends_the_process_and_its_work() {
    let (mut scene, player) = Scene::after_turn("t1").await;
    let chat = scene.chat.clone();
    works(&mut scene, &player, "w1", "npm run dev").await;
    let restarted = scene.wire.send_request(RESTART, json!({"channel": chat})).await;
    player.leave_when_told().await.unwrap();
    assert_eq!(scene.wire.answer(&restarted).await["result"], json!({}));
    scene.agree().await;
    let state = scene.alice.chat(&chat).unwrap();
    assert_eq!((state.turns.len(), &state.background_work), (2, &Some(Vec::new())));
    // There is no process now.
    assert_eq!(scene.wire.ask(RESTART, json!({"channel": chat})).await, json!({}));
    assert_eq!(scene.host.stage().asked(), 1);
    scene.chat_accepts(started("t2")).await;
    let mut player = scene.host.stage().player().await.unwrap();
    assert_eq!(player.prompt().await.unwrap().0, "t2");
}

#[tokio::test]
async fn restart_cancels_the_opening_of_an_agent() {
    for with_message in [false, true] {
        let mut scene = Scene::new().await;
        let chat = scene.chat.clone();
        scene.host.stage().hold_openings();
        scene.chat_accepts(started("t1")).await;
        scene.host.stage().opened(1).await.unwrap();
        let restarted = scene.wire.send_request(RESTART, json!({"channel": chat})).await;
        let next = json!({
            "type": "chat/turnStarted", "turnId": "t2", "startedAt": "2025-11-15T09:00:05.000Z",
            "message": message("more"),
        });
        if with_message {
            scene.wire.dispatch(&chat, next.clone()).await;
        }
        assert_eq!(scene.wire.answer(&restarted).await["result"], json!({}));
        if !with_message {
            scene.chat_accepts(next).await;
        }
        scene.host.stage().release_openings();
        let mut player = scene.host.stage().player().await.unwrap();
        assert_eq!(player.prompt().await.unwrap().0, "t2");
        scene.agree().await;
        let error = last_error(scene.alice.chat(&chat).unwrap());
        assert_eq!(error["error"]["errorType"], "agent_restarted");
        assert_eq!(scene.host.stage().asked(), 2);
        assert_eq!(scene.alice.session(&scene.session).unwrap().creation_error, None);
    }
}
