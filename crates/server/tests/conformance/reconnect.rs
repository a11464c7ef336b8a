//! Reconnects: replay, snapshots, and deduplication of repeated dispatches.

use innkeeper_testkit::Observer;
use serde_json::{Value, json};

use crate::scene::{Scene, message, pending, started};
use crate::wire::Wire;

const ROOT: &str = "ahp-root://";

fn last_seen(wire: &Wire) -> u64 {
    wire.envelopes().map(|envelope| envelope["serverSeq"].as_u64().unwrap()).max().unwrap_or(0)
}

async fn reconnect(scene: &Scene, name: &str, seen: u64, channels: &[&str]) -> (Wire, Value) {
    let mut wire = Wire::connect(&scene.host, name).await;
    let params =
        json!({"channel": ROOT, "clientId": name, "lastSeenServerSeq": seen, "subscriptions": channels});
    let result = wire.ask("reconnect", params).await;
    (wire, result)
}

/// A client that is subscribed to the session and the chat and has dispatched one action.
async fn guest(scene: &Scene) -> Wire {
    let mut guest = Wire::open(&scene.host, "guest", &["1.0.0"]).await;
    guest.snapshot(&scene.session).await;
    guest.snapshot(&scene.chat).await;
    guest.dispatch(&scene.chat, json!({"type": "chat/draftChanged", "draft": message("here")})).await;
    guest.envelope(1).await;
    guest
}

#[tokio::test]
async fn reconnected_client_receives_exactly_the_missed_actions() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    let guest = guest(&scene).await;
    let seen = last_seen(&guest);
    drop(guest);
    player.text("t1", "p1", &["while ", "away"]).await.unwrap();
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    let channels = [ROOT, &scene.session, &scene.chat, "ahp-chat:/gone"];
    let (mut guest, result) = reconnect(&scene, "guest", seen, &channels).await;
    assert_eq!((&result["type"], &result["missing"]), (&json!("replay"), &json!(["ahp-chat:/gone"])));
    let replayed: Vec<&Value> = result["actions"].as_array().unwrap().iter().collect();
    let of_wire: Vec<&Value> = scene
        .wire
        .envelopes()
        .filter(|envelope| {
            envelope["serverSeq"].as_u64().unwrap() > seen && envelope.get("rejectionReason").is_none()
        })
        .collect();
    assert_eq!(replayed, of_wire, "the replay differs from what a connected client received");
    scene.chat_accepts(started("t2")).await;
    guest.until(|message| message["params"]["action"]["turnId"] == "t2").await;
}

#[tokio::test]
async fn reconnect_of_an_unknown_client_is_rejected() {
    let scene = Scene::new().await;
    let mut stranger = Wire::connect(&scene.host, "stranger").await;
    let params = json!({"clientId": "stranger", "lastSeenServerSeq": 0, "subscriptions": [ROOT]});
    assert_eq!(stranger.refused("reconnect", params).await, -32008);
    let hello = json!({
        "clientId": "stranger", "protocolVersions": ["1.0.0"],
        "initialSubscriptions": [ROOT, scene.session, "scripted:/disposed"],
    });
    let result = stranger.ask("initialize", hello).await;
    assert_eq!(result["snapshots"].as_array().unwrap().len(), 2);
    for params in [json!({}), json!({"clientId": ""}), json!({"clientId": "x", "subscriptions": 7})] {
        let mut wire = Wire::connect(&scene.host, "x").await;
        assert_eq!(wire.refused("reconnect", params.clone()).await, -32602, "{params}");
    }
}

#[tokio::test]
async fn reconnect_with_a_future_sequence_number_returns_snapshots() {
    let scene = Scene::new().await;
    let guest = guest(&scene).await;
    drop(guest);
    let (_guest, result) =
        reconnect(&scene, "guest", 1_000_000, &[ROOT, &scene.chat, "ahp-chat:/gone"]).await;
    assert_eq!(result["type"], "snapshot");
    let snapshots = result["snapshots"].as_array().unwrap();
    let resources: Vec<&Value> = snapshots.iter().map(|snapshot| &snapshot["resource"]).collect();
    assert_eq!(resources, [ROOT, &scene.chat]);
}

#[tokio::test]
async fn replay_contains_own_rejections_but_not_those_of_other_clients() {
    let (mut scene, _player) = Scene::in_turn("t1").await;
    let mut guest = guest(&scene).await;
    let seen = last_seen(&guest);
    guest.dispatch(&scene.chat, pending("queued", "m1", "accepted")).await;
    guest.dispatch(&scene.chat, started("rejected")).await;
    guest.barrier(&scene.chat).await;
    drop(guest);
    scene.chat_rejects(started("another client's")).await;
    let (_guest, result) = reconnect(&scene, "guest", seen, &[&scene.chat]).await;
    let own: Vec<(&Value, bool)> = result["actions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|envelope| envelope["origin"]["clientId"] == "guest")
        .map(|envelope| (&envelope["origin"]["clientSeq"], envelope["rejectionReason"].is_string()))
        .collect();
    assert_eq!(own, [(&json!(2), false), (&json!(3), true), (&json!(4), true)]);
    assert!(!result.to_string().contains("another client's"));
}

#[tokio::test]
async fn repeated_dispatch_after_reconnect_is_not_applied_again() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    let mut guest = guest(&scene).await;
    let seen = last_seen(&guest);
    let queued = pending("queued", "m1", "once");
    guest.dispatch(&scene.chat, queued.clone()).await;
    guest.barrier(&scene.chat).await;
    drop(guest);
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    let (mut guest, _) = reconnect(&scene, "guest", seen, &[&scene.session, &scene.chat]).await;
    guest.dispatch_as(2, &scene.chat, queued).await;
    guest.dispatch_as(0, &scene.chat, json!({"type": "chat/draftChanged", "draft": message("zero")})).await;
    guest.dispatch_as(9, &scene.chat, json!({"type": "chat/draftChanged"})).await;
    assert_eq!(guest.envelope(9).await.get("rejectionReason"), None);
    scene.agree().await;
    assert_eq!(scene.wire.answers("guest", 2), 1);
    assert_eq!(scene.wire.answers("guest", 0), 1, "sequence number zero is never deduplicated");
    assert_eq!(
        scene.alice.chat(&scene.chat).unwrap().queued_messages,
        None,
        "the consumed message was queued again"
    );
}

#[tokio::test]
async fn client_with_two_connections_receives_actions_on_both() {
    let mut scene = Scene::new().await;
    let mut old = guest(&scene).await;
    let (mut new, result) = reconnect(&scene, "guest", last_seen(&old), &[&scene.session, &scene.chat]).await;
    assert_eq!(result["type"], "replay");
    scene.session_accepts(json!({"type": "session/titleChanged", "title": "both"})).await;
    for wire in [&mut old, &mut new] {
        wire.until(|message| message["params"]["action"]["title"] == "both").await;
    }
    drop(old);
    scene.session_accepts(json!({"type": "session/titleChanged", "title": "one"})).await;
    new.until(|message| message["params"]["action"]["title"] == "one").await;
}

#[tokio::test]
async fn official_client_has_the_current_state_after_reconnect() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    let seen = scene.alice.last_seq();
    scene.alice.client.shutdown().await;
    player.text("t1", "p1", &["unseen"]).await.unwrap();
    let chat = scene.chat.clone();
    let heard = |observer: &Observer| observer.text_so_far(&chat).is_ok_and(|text| text == "unseen");
    scene.bob.until("bob has the text", heard).await.unwrap();
    scene.alice.reconnect(scene.host.address(), "alice").await.unwrap();
    assert!(scene.alice.last_seq() > seen);
    scene.agree().await;
    assert_eq!(scene.alice.text_so_far(&chat).unwrap(), "unseen");
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
}

/// The official client restarts its sequence numbers with every connection.
#[tokio::test]
async fn reused_sequence_number_with_another_action_is_not_a_repetition() {
    let mut scene = Scene::new().await;
    let session = scene.session.clone();
    let rename = |title: &str| json!({"type": "session/titleChanged", "title": title});
    for title in ["one", "two", "three"] {
        scene.alice.dispatch(&session, rename(title)).await.unwrap();
    }
    let named = |title: &'static str, session: String| {
        move |observer: &Observer| observer.session(&session).is_ok_and(|state| state.title == title)
    };
    scene.alice.until("the last name", named("three", session.clone())).await.unwrap();
    for title in ["four", "five"] {
        scene.alice.client.shutdown().await;
        scene.alice.reconnect(scene.host.address(), "alice").await.unwrap();
        assert_eq!(scene.alice.dispatch(&session, rename(title)).await.unwrap(), 1);
        scene.bob.until("the new name", named(title, session.clone())).await.unwrap();
        scene.agree().await;
    }
}

#[tokio::test]
async fn repeated_dispatch_is_applied_if_its_answer_was_received() {
    let mut scene = Scene::new().await;
    let guest = guest(&scene).await;
    let seen = last_seen(&guest);
    drop(guest);
    scene.chat_accepts(json!({"type": "chat/draftChanged"})).await;
    let (mut guest, _) = reconnect(&scene, "guest", seen, &[&scene.session, &scene.chat]).await;
    let here = json!({"type": "chat/draftChanged", "draft": message("here")});
    guest.dispatch_as(1, &scene.chat, here).await;
    assert_eq!(guest.envelope(1).await.get("rejectionReason"), None);
    scene.agree().await;
    assert!(scene.alice.chat(&scene.chat).unwrap().draft.is_some());
}

/// The host ignores an old connection that stays open, although it is subscribed to more
/// channels than the newest connection of the client.
#[tokio::test]
async fn replay_starts_after_what_the_newest_connection_received() {
    let mut scene = Scene::new().await;
    let mut old = guest(&scene).await;
    let seen = last_seen(&old);
    let (mut new, _) = reconnect(&scene, "guest", seen, &[ROOT, &scene.session]).await;
    scene.chat_accepts(json!({"type": "chat/draftChanged", "draft": message("missed")})).await;
    let subscribed = new.ask("subscribe", json!({"channel": scene.chat})).await;
    let from = subscribed["snapshot"]["fromSeq"].as_u64().unwrap();
    for closed in [Some(new), None] {
        let connections = scene.host.host().store().counts().connections;
        if let Some(closed) = closed {
            drop(closed);
            while scene.host.host().store().counts().connections == connections {
                tokio::task::yield_now().await;
            }
        }
        let (_newest, result) = reconnect(&scene, "guest", seen, &[ROOT, &scene.session, &scene.chat]).await;
        let told = result["actions"].as_array().unwrap().iter();
        let again = told.filter(|envelope| envelope["channel"] == scene.chat.as_str());
        let again: Vec<u64> = again.map(|envelope| envelope["serverSeq"].as_u64().unwrap()).collect();
        assert!(again.iter().all(|seq| *seq > from), "{again:?} are already in the snapshot at {from}");
    }
    old.settle().await;
}
