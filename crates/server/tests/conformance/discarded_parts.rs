//! Answers that broke off: the agent starts again, and the unfinished parts leave the turn.

use ahp_types::state::{ChatState, TurnState};
use innkeeper_core::agent::AgentEvent;
use innkeeper_core::ids::TurnId;
use innkeeper_core_fakes::Player;
use innkeeper_testkit::Observer;
use serde_json::{Value, json};

use crate::room::{Room, host_on};
use crate::scene::{Scene, confirmed, pending};

async fn discard(player: &Player, parts: &[&str]) {
    let parts = parts.iter().map(|part| (*part).to_owned()).collect();
    player.send(AgentEvent::PartsDiscarded { turn: TurnId::new("t1"), parts }).await.unwrap();
}

/// The ids of a turn's parts; the kind for a part without an id.
fn ids(turn: &Value) -> Vec<String> {
    let id = |part: &Value| {
        let id = [&part["id"], &part["toolCall"]["toolCallId"], &part["request"]["id"], &part["kind"]];
        id.iter().find_map(|id| id.as_str()).unwrap().to_owned()
    };
    turn["responseParts"].as_array().unwrap().iter().map(id).collect()
}

fn has_parts(chat: &ChatState, expected: &[&str]) -> bool {
    chat.active_turn.as_ref().is_some_and(|turn| ids(&json!(turn)) == expected)
}

/// How often a client saw the start of the turn.
fn starts(client: &Observer, chat: &str) -> usize {
    client.actions(chat).unwrap().iter().filter(|action| *action == "chat/turnStarted").count()
}

#[tokio::test]
async fn discarded_parts_leave_the_turn_of_every_client() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    scene.chat_accepts(pending("queued", "m1", "next")).await;
    player.text("t1", "p1", &["Something ", "first."]).await.unwrap();
    player.run("t1", "k1").await.unwrap();
    player.ran("t1", "k1", json!({})).await.unwrap();
    let usage = json!({"type": "chat/usage", "turnId": "t1", "usage": {"inputTokens": 5}});
    player.act(usage).await.unwrap();
    let mut before = None;
    for attempt in ["a1", "a2", "a3"] {
        scene.until("the complete parts", |chat| has_parts(chat, &["p1", "k1"])).await;
        let chat = scene.alice.chat(&scene.chat).unwrap().clone();
        assert_eq!(*before.get_or_insert(chat.clone()), chat, "the chat is as before the attempt");
        player.reasoning("t1", &format!("r-{attempt}"), &["hm"]).await.unwrap();
        player.text("t1", attempt, &["Half a sen"]).await.unwrap();
        discard(&player, &["unknown", &format!("r-{attempt}"), attempt]).await;
    }
    scene.until("the complete parts", |chat| has_parts(chat, &["p1", "k1"])).await;
    assert_eq!(*scene.alice.chat(&scene.chat).unwrap(), before.unwrap());
    assert_eq!(scene.alice.root().unwrap().active_sessions, Some(1), "no turn was started");
    assert_eq!(starts(&scene.alice, &scene.chat), 4);

    // Parts that are not in the turn do not cause any action.
    discard(&player, &["a1", "unknown"]).await;
    player.text("t1", "a4", &["A whole ", "sentence."]).await.unwrap();
    player.complete("t1").await.unwrap();
    scene.until("the end", |chat| chat.turns.len() == 1).await;
    assert_eq!(starts(&scene.alice, &scene.chat), 5, "the fifth start is that of the queued message");
    let turn = json!(scene.alice.chat(&scene.chat).unwrap().turns[0]);
    assert_eq!(ids(&turn), ["p1", "k1", "a4"]);
    assert_eq!(turn["responseParts"][2]["content"], "A whole sentence.");
    assert_eq!(turn["usage"]["inputTokens"], 5);
    assert_eq!(turn["startedAt"], "2025-11-15T09:00:05.000Z");

    // The queue continues as after any turn.
    let (next, text) = player.prompt().await.unwrap();
    assert_eq!(text, "next");
    player.complete(&next).await.unwrap();
    scene.until("the end", |chat| chat.turns.len() == 2).await;
    assert_eq!(scene.alice.root().unwrap().active_sessions, Some(0));
}

#[tokio::test]
async fn requests_that_stay_can_be_answered_after_parts_are_discarded() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    player.ask_to_run("t1", "k1", json!({"confirmationTitle": "Run it?"})).await.unwrap();
    player.ask_to_run("t1", "k2", json!({})).await.unwrap();
    player.ask("q1", json!([])).await.unwrap();
    player.text("t1", "p1", &["Half"]).await.unwrap();
    scene.until("all parts", |chat| has_parts(chat, &["k1", "k2", "q1", "p1"])).await;
    let waiting = scene.alice.session(&scene.session).unwrap().input_needed.clone();
    assert_eq!(waiting.as_ref().unwrap().len(), 3);
    discard(&player, &["p1"]).await;
    scene.until("the requests", |chat| has_parts(chat, &["k1", "k2", "q1"])).await;
    assert_eq!(scene.alice.session(&scene.session).unwrap().input_needed, waiting);

    // A discarded request is removed everywhere.
    discard(&player, &["k2", "q1"]).await;
    scene.until("one request", |chat| has_parts(chat, &["k1"])).await;
    assert_eq!(scene.alice.session(&scene.session).unwrap().input_needed.as_ref().unwrap().len(), 1);
    scene.chat_rejects(confirmed("t1", "k2")).await;
    scene.chat_accepts(confirmed("t1", "k1")).await;
    let answer = player.command().await.unwrap();
    assert!(matches!(answer, innkeeper_core::agent::AgentCommand::ToolAnswer { .. }), "{answer:?}");
    assert_eq!(scene.alice.session(&scene.session).unwrap().input_needed, None);
}

#[tokio::test]
async fn late_discard_is_dropped() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    player.text("t1", "p1", &["Half"]).await.unwrap();
    scene.until("the part", |chat| has_parts(chat, &["p1"])).await;
    scene.chat_accepts(crate::scene::cancelled("t1")).await;
    player.command().await.unwrap();
    discard(&player, &["p1"]).await;
    player.end("t1", innkeeper_core::agent::TurnOutcome::Cancelled).await.unwrap();
    scene.chat_accepts(crate::scene::started("t2")).await;
    player.prompt().await.unwrap();
    assert_eq!(ids(&json!(scene.alice.chat(&scene.chat).unwrap().turns[0])), ["p1"]);
}

#[tokio::test]
async fn discarded_parts_do_not_return_after_a_crash() {
    let mut room = Room::new().await;
    let chat = room.chat.clone();
    let player = room.begin(&chat, "t1").await;
    player.text("t1", "p1", &["first"]).await.unwrap();
    player.run("t1", "k1").await.unwrap();
    player.ran("t1", "k1", json!({})).await.unwrap();
    player.text("t1", "p2", &["Half"]).await.unwrap();
    discard(&player, &["p2"]).await;
    let is_discarded = |client: &Observer| {
        starts(client, &chat) == 2 && has_parts(client.chat(&chat).unwrap(), &["p1", "k1"])
    };
    room.alice.until("two parts", is_discarded).await.unwrap();
    // The repeated turn is stored before it is published.
    let next = host_on(&room.storage.after_a_crash()).await;
    let mut again = next.observer("again").await.unwrap();
    again.subscribe(&chat).await.unwrap();
    let turn = &again.chat(&chat).unwrap().turns[0];
    assert_eq!(turn.state, TurnState::Error);
    assert_eq!(ids(&json!(turn)), ["p1", "k1", "error"]);
    let seen = room.alice.chat(&chat).unwrap().active_turn.clone().unwrap();
    assert_eq!(
        json!(turn)["responseParts"].as_array().unwrap()[..2],
        json!(seen)["responseParts"].as_array().unwrap()[..]
    );
    assert_eq!(again.chat(&chat).unwrap().turns.len(), 1);
    assert_eq!(again.root().unwrap().active_sessions, Some(0));

    // The error stays visible when the resumed answer breaks off, too.
    again.dispatch(&chat, json!({"type": "chat/turnResume", "turnId": "t1"})).await.unwrap();
    let mut player = next.stage().player().await.unwrap();
    player.prompt().await.unwrap();
    player.text("t1", "p3", &["Half"]).await.unwrap();
    discard(&player, &["p3"]).await;
    let resumed = ["p1", "k1", "systemNotification"];
    again.until("the notice", |again| has_parts(again.chat(&chat).unwrap(), &resumed)).await.unwrap();
    player.complete("t1").await.unwrap();
    again.until_turn_over(&chat, "t1").await.unwrap();
}

#[tokio::test]
async fn stored_pages_of_discarded_text_leave_the_turn() {
    const MIB: usize = 1024 * 1024;
    let mut room = Room::new().await;
    let chat = room.chat.clone();
    let player = room.begin(&chat, "t1").await;
    let long = "long ".repeat(MIB);
    player.text("t1", "p1", &[&long, "x"]).await.unwrap();
    player.text("t1", "p2", &[&long, "half"]).await.unwrap();
    let parts = |client: &Observer| {
        let turn = json!(client.chat(&chat).unwrap().active_turn);
        if turn.is_null() { Vec::new() } else { ids(&turn) }
    };
    let has_pages = |client: &Observer| parts(client).iter().skip_while(|id| *id != "p2").count() >= 5;
    room.alice.until("pages of both texts", has_pages).await.unwrap();
    let first: Vec<String> = parts(&room.alice).into_iter().take_while(|id| id != "p2").collect();
    assert!(first.len() >= 6, "{first:?}");
    discard(&player, &["p2"]).await;
    room.alice.until("the first text", |client| parts(client) == first).await.unwrap();
    // The answer starts again with the same id and has its full room.
    let again = "again ".repeat(1000);
    player.text("t1", "p2", &[&again]).await.unwrap();
    player.complete("t1").await.unwrap();
    room.alice.until_turn_over(&chat, "t1").await.unwrap();
    let turn = json!(room.alice.chat(&chat).unwrap().turns[0]);
    assert_eq!(turn["responseParts"].as_array().unwrap().last().unwrap()["content"], again);
    assert_eq!(ids(&turn).len(), first.len() + 1);
    room.agree().await;
}
