//! Titles that a model writes after the first exchange.

use std::sync::Arc;

use innkeeper_core::HostServices;
use innkeeper_core::agent::{AgentEvent, TurnOutcome};
use innkeeper_core_fakes::{Player, ScriptedTitles, TitleQuery};
use innkeeper_testkit::Observer;
use serde_json::{Value, json};

use crate::scene::{Scene, started};
use crate::stage_host::StageOptions;

/// A scene with a running turn.
async fn in_turn() -> (Scene, Player, ScriptedTitles) {
    let titles = ScriptedTitles::default();
    let services = HostServices { titles: Arc::new(titles.clone()), ..HostServices::default() };
    let mut scene = Scene::of(StageOptions { services, ..StageOptions::default() }).await;
    let player = scene.begin("t1").await;
    (scene, player, titles)
}

/// A scene whose first turn is over, and the request for a title.
async fn asked() -> (Scene, Player, TitleQuery) {
    let (mut scene, player, titles) = in_turn().await;
    player.text("t1", "p1", &["Two ", "files."]).await.unwrap();
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    let query = titles.waiting().expect("a request");
    assert!(titles.waiting().is_none());
    (scene, player, query)
}

fn rename(title: &str) -> Value {
    json!({"type": "session/titleChanged", "title": title})
}

fn title(scene: &Scene) -> String {
    scene.bob.session(&scene.session).unwrap().title.clone()
}

async fn until_titled(scene: &mut Scene, title: &str) {
    let session = scene.session.clone();
    let has = |observer: &Observer| observer.session(&session).unwrap().title == title;
    scene.alice.until("the title", has).await.unwrap();
    scene.agree().await;
}

#[tokio::test]
async fn title_is_written_after_the_first_exchange_and_only_then() {
    let (mut scene, mut player, titles) = in_turn().await;
    assert!(titles.waiting().is_none(), "the turn is running");
    player.text("t1", "p1", &["Two ", "files."]).await.unwrap();
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    let query = titles.waiting().expect("a request");
    let asked = (query.conversation.message.as_str(), query.conversation.reply.as_str());
    assert_eq!(asked, ("list files", "Two files."));
    assert_eq!(title(&scene), "list files", "provisional until the answer");
    query.answer(Some("\"Listing two files.\"\n"));
    until_titled(&mut scene, "Listing two files").await;
    assert_eq!(scene.alice.rows[&scene.session].title, "Listing two files");

    scene.chat_accepts(started("t2")).await;
    player.prompt().await.unwrap();
    player.complete("t2").await.unwrap();
    scene.until_over("t2").await;
    assert!(titles.waiting().is_none());
}

#[tokio::test]
async fn failed_request_leaves_the_provisional_title() {
    let (mut scene, _player, query) = asked().await;
    query.answer(None);
    scene.agree().await;
    assert_eq!(title(&scene), "list files");
}

#[tokio::test]
async fn rename_while_the_title_is_written_is_kept() {
    for name in ["Mine", "list files", ""] {
        for on_chat in [false, true] {
            let (mut scene, _player, query) = asked().await;
            let session = scene.session.clone();
            let channel = if on_chat { scene.chat.clone() } else { session.clone() };
            let seq = scene.wire.dispatch(&channel, rename(name)).await;
            assert_eq!(scene.wire.envelope(seq).await.get("rejectionReason"), None);
            query.cancelled().await;
            assert_eq!(scene.wire.snapshot(&session).await["title"], name);
        }
    }
}

#[tokio::test]
async fn renamed_session_gets_no_title() {
    for name in ["Mine", "list files"] {
        let (mut scene, player, titles) = in_turn().await;
        scene.session_accepts(rename(name)).await;
        player.complete("t1").await.unwrap();
        scene.until_over("t1").await;
        assert!(titles.waiting().is_none());
        assert_eq!(title(&scene), name);
    }
}

#[tokio::test]
async fn failed_turn_and_titles_of_the_agent_cause_no_request() {
    let (mut scene, player, titles) = in_turn().await;
    let suggested = AgentEvent::TitleSuggested { title: "The agent's".to_owned() };
    player.send(suggested).await.unwrap();
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    assert!(titles.waiting().is_none());
    assert_eq!(title(&scene), "The agent's");

    let (mut scene, player, titles) = in_turn().await;
    player.end("t1", TurnOutcome::Cancelled).await.unwrap();
    scene.until_over("t1").await;
    assert!(titles.waiting().is_none());
}

#[tokio::test]
async fn disposed_session_cancels_the_request() {
    let (mut scene, player, query) = asked().await;
    let dispose = json!({"channel": scene.session.clone()});
    let id = scene.wire.send_request("disposeSession", dispose).await;
    player.leave_when_told().await.unwrap();
    scene.wire.answer(&id).await;
    query.cancelled().await;
}
