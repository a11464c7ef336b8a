//! Work in the background: its end with its process, and truncation while it runs.

use std::sync::Arc;

use ahp_types::state::{ChatState, MessageKind};
use innkeeper_core::agent::{AgentCommand, AgentEvent, AgentFeatures, TurnOutcome};
use innkeeper_core::ids::TurnId;
use innkeeper_core_fakes::{Player, Stage, StageTraits};
use innkeeper_testkit::Observer;
use serde_json::{Value, json};

use crate::scene::{Scene, started};
use crate::stage_host::{StageHost, StageOptions};
use crate::stored_host::{SESSION, StoredHost, said_by};

/// The description of the work that `working` starts.
fn stopped_work() -> Value {
    json!({
        "id": "w1", "kind": "command", "label": "npm run dev", "status": "stopped",
        "toolCallId": "k1", "turnId": "t1",
    })
}

/// The number of pieces of work in the background.
fn work_count(chat: &ChatState) -> usize {
    chat.background_work.iter().flatten().count()
}

/// Starts work in the background.
async fn working(kept: &mut StoredHost, player: &Player) {
    player.run_in_background("t1", "k1", "w1", "npm run dev").await.unwrap();
    let shown = |alice: &Observer| alice.chat(&kept.chat).is_ok_and(|chat| work_count(chat) == 1);
    kept.alice.until("the work is shown", shown).await.unwrap();
}

/// Checks that the chat has no work, and that its last turn is a note about the work.
fn has_note(kept: &StoredHost, text: &str) {
    assert_eq!(work_count(kept.alice.chat(&kept.chat).unwrap()), 0);
    let turn = kept.last_turn();
    assert!(turn["id"].as_str().unwrap().starts_with("work-stopped-"), "{turn}");
    assert_eq!((&turn["state"], &turn["message"]["text"]), (&json!("complete"), &json!(text)));
    assert_eq!(turn["message"]["origin"]["kind"], "systemNotification");
    assert_eq!(turn["message"]["_meta"]["innkeeper.work"], stopped_work());
}

/// Checks that the chat has no work, and that its last turn failed after a note about the work.
fn has_note_in_turn(kept: &StoredHost, text: &str, error: &str) {
    assert_eq!(work_count(kept.alice.chat(&kept.chat).unwrap()), 0);
    let turn = kept.last_turn();
    let parts = turn["responseParts"].as_array().unwrap();
    let [.., note, failure] = parts.as_slice() else { panic!("no note: {turn}") };
    assert_eq!((&note["kind"], &note["content"]), (&json!("systemNotification"), &json!(text)));
    assert_eq!(note["_meta"]["innkeeper.work"], stopped_work());
    assert_eq!((&failure["error"]["errorType"], &failure["resumable"]), (&json!(error), &json!(true)));
}

const WITH_AGENT: &str = "Stopped with the Scripted process: npm run dev";
const WITH_HOST: &str = "Stopped with the host: npm run dev";

#[tokio::test]
async fn work_that_ends_with_a_crashed_agent_is_noted_in_its_turn() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    working(&mut kept, &player).await;
    player.crash().await.unwrap();
    kept.alice.until_turn_over(&kept.chat, "t1").await.unwrap();
    has_note_in_turn(&kept, WITH_AGENT, "agent_closed");
    let kept = kept.restart().await;
    has_note_in_turn(&kept, WITH_AGENT, "agent_closed");
}

#[tokio::test]
async fn work_that_ends_with_its_process_is_noted_before_the_agent_ends_the_turn() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    working(&mut kept, &player).await;
    player.send(AgentEvent::Exited).await.unwrap();
    let info = json!({"errorType": "runtime_exited", "message": "killed by SIGKILL"});
    let outcome = TurnOutcome::Interrupted(serde_json::from_value(info).unwrap());
    player.end("t1", outcome).await.unwrap();
    player.crash().await.unwrap();
    kept.alice.until_turn_over(&kept.chat, "t1").await.unwrap();
    kept.alice.settle().await.unwrap();
    has_note_in_turn(&kept, WITH_AGENT, "runtime_exited");
    assert_eq!(kept.alice.chat(&kept.chat).unwrap().turns.len(), 1);
    let kept = kept.restart().await;
    has_note_in_turn(&kept, WITH_AGENT, "runtime_exited");
}

#[tokio::test]
async fn work_that_ends_with_a_crashed_agent_is_noted_after_its_turn() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    kept.finish(&player, "t1").await;
    working(&mut kept, &player).await;
    let read = json!({"type": "session/isReadChanged", "isRead": true});
    kept.alice.dispatch(SESSION, read).await.unwrap();
    kept.alice.settle().await.unwrap();
    player.crash().await.unwrap();
    let noted = |alice: &Observer| alice.chat(&kept.chat).is_ok_and(|chat| chat.turns.len() == 2);
    kept.alice.until("the note", noted).await.unwrap();
    kept.alice.settle().await.unwrap();
    has_note(&kept, WITH_AGENT);
    assert_eq!(kept.alice.session(SESSION).unwrap().status & 32, 0, "the session is read");
    kept.alice.agrees_with_a_fresh_client(kept.host.address()).await.unwrap();
    let mut kept = kept.restart().await;
    has_note(&kept, WITH_AGENT);
    // The chat goes on.
    let player = kept.begin("t2").await;
    kept.finish(&player, "t2").await;
}

#[tokio::test]
async fn work_that_ends_with_a_stopped_host_is_noted() {
    for in_turn in [false, true] {
        let mut kept = StoredHost::start(StageTraits::default()).await;
        let player = kept.begin("t1").await;
        if !in_turn {
            kept.finish(&player, "t1").await;
        }
        working(&mut kept, &player).await;
        let (kept, left) = tokio::join!(kept.restart(), player.leave_when_told());
        left.unwrap();
        if in_turn {
            has_note_in_turn(&kept, WITH_AGENT, "host_stopped");
        } else {
            has_note(&kept, WITH_AGENT);
        }
    }
}

#[tokio::test]
async fn work_that_ends_with_a_killed_host_is_noted() {
    for in_turn in [false, true] {
        let mut kept = StoredHost::start(StageTraits::default()).await;
        let player = kept.begin("t1").await;
        if !in_turn {
            kept.finish(&player, "t1").await;
        }
        working(&mut kept, &player).await;
        // Storing a decision also stores all earlier actions.
        let title = json!({"type": "session/titleChanged", "title": "mine"});
        let seq = kept.alice.dispatch(SESSION, title).await.unwrap();
        kept.alice.until("the answer", |alice| !alice.answers("alice", seq).is_empty()).await.unwrap();
        let storage = kept.storage.after_a_crash();
        let options = StageOptions {
            stage: Stage::default(),
            storage: Arc::new(storage.clone()),
            ..StageOptions::default()
        };
        let host = StageHost::start(options).await.unwrap();
        let mut alice = host.observer("again").await.unwrap();
        alice.open_session(SESSION).await.unwrap();
        let mut next = StoredHost { host, storage, alice, chat: kept.chat.clone() };
        if in_turn {
            has_note_in_turn(&next, WITH_HOST, "host_stopped");
        } else {
            has_note(&next, WITH_HOST);
            let player = next.begin("t2").await;
            next.finish(&player, "t2").await;
            next = next.restart_with(player).await;
            assert_eq!(json!(next.alice.chat(&next.chat).unwrap().turns).as_array().unwrap().len(), 3);
        }
        next.alice.agrees_with_a_fresh_client(next.host.address()).await.unwrap();
    }
}

#[tokio::test]
async fn turn_can_be_resumed_after_background_work_has_ended_with_its_agent() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    let info = json!({"errorType": "overloaded", "message": "try again"});
    player.end("t1", TurnOutcome::Interrupted(serde_json::from_value(info).unwrap())).await.unwrap();
    kept.alice.until_turn_over(&kept.chat, "t1").await.unwrap();
    working(&mut kept, &player).await;
    player.crash().await.unwrap();
    let gone = |alice: &Observer| alice.chat(&kept.chat).is_ok_and(|chat| work_count(chat) == 0);
    kept.alice.until("the work is removed", gone).await.unwrap();
    assert_eq!(kept.alice.chat(&kept.chat).unwrap().turns.len(), 1);
    kept.alice.dispatch(&kept.chat, json!({"type": "chat/turnResume", "turnId": "t1"})).await.unwrap();
    let mut player = kept.host.stage().player().await.unwrap();
    assert_eq!(player.prompt().await.unwrap().0, "t1");
}

#[tokio::test]
async fn several_pieces_of_work_share_a_note() {
    let (mut scene, player) = Scene::after_turn("t1").await;
    for number in 0..10 {
        player.run_in_background("t1", "k1", &format!("w{number}"), "npm run dev").await.unwrap();
    }
    scene.until("the work is shown", |chat| work_count(chat) == 10).await;
    player.crash().await.unwrap();
    scene.until("the note", |chat| chat.turns.len() == 2).await;
    let message = json!(scene.alice.chat(&scene.chat).unwrap().turns[1].message);
    let text = message["text"].as_str().unwrap();
    assert!(text.ends_with("npm run dev; and 2 more"), "{text}");
    let work = &message["_meta"]["innkeeper.work"];
    assert_eq!((&work["status"], work["works"].as_array().unwrap().len()), (&json!("stopped"), 8));
    assert_eq!(work_count(scene.alice.chat(&scene.chat).unwrap()), 0);
}

/// Scenario P: a client truncates the chat while work of a removed turn runs.
#[tokio::test]
async fn background_work_of_a_truncated_turn_goes_on_and_reports_in_its_own_turn() {
    let traits = StageTraits { features: AgentFeatures::ALL, ..StageTraits::default() };
    let mut scene = Scene::with(traits).await;
    let mut player = scene.begin("t1").await;
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    scene.chat_accepts(started("t2")).await;
    player.prompt().await.unwrap();
    player.run("t2", "k1").await.unwrap();
    player.run_in_background("t2", "k1", "w1", "npm run dev").await.unwrap();
    player.ran("t2", "k1", json!({})).await.unwrap();
    player.complete("t2").await.unwrap();
    scene.until_over("t2").await;
    scene.chat_accepts(json!({"type": "chat/truncated", "turnId": "t1"})).await;
    assert_eq!(player.command().await.unwrap(), AgentCommand::Rewind { to: Some(TurnId::new("t1")) });
    let chat = scene.alice.chat(&scene.chat).unwrap();
    assert_eq!((chat.turns.len(), work_count(chat)), (1, 1));
    // A late result of the removed turn is dropped.
    player.ran("t2", "k1", json!({})).await.unwrap();
    player.text("t2", "p1", &["too late"]).await.unwrap();
    player.act(json!({"type": "chat/backgroundWorkRemoved", "id": "w1"})).await.unwrap();
    let message = said_by(MessageKind::SystemNotification, "npm run dev has finished");
    player.send(AgentEvent::TurnStarted { turn: TurnId::new("background-1"), message }).await.unwrap();
    player.text("background-1", "p2", &["it works"]).await.unwrap();
    player.complete("background-1").await.unwrap();
    scene.until_over("background-1").await;
    let chat = json!(scene.alice.chat(&scene.chat).unwrap());
    let ids: Vec<&str> =
        chat["turns"].as_array().unwrap().iter().map(|turn| turn["id"].as_str().unwrap()).collect();
    assert_eq!((ids, &chat["backgroundWork"]), (vec!["t1", "background-1"], &json!([])));
    assert!(!chat.to_string().contains("too late"), "{chat}");
    // The next message follows the rewind.
    scene.chat_accepts(started("t3")).await;
    assert_eq!(player.prompt().await.unwrap().0, "t3");
}
