//! Pending messages: the queue and the steering message.

use ahp_types::state::ChatState;
use innkeeper_core::agent::{AgentCommand, TurnMessage};
use serde_json::{Value, json};

use crate::scene::{Scene, cancelled, message, pending, started};

fn removed(kind: &str, id: &str) -> Value {
    json!({"type": "chat/pendingMessageRemoved", "kind": kind, "id": id})
}

fn reordered(order: &[&str]) -> Value {
    json!({"type": "chat/queuedMessagesReordered", "order": order})
}

fn waiting(chat: &ChatState) -> Vec<&str> {
    chat.queued_messages.iter().flatten().map(|message| message.id.as_str()).collect()
}

#[tokio::test]
async fn queued_messages_start_turns_in_order() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    scene.chat_accepts(pending("queued", "m1", "first")).await;
    scene.chat_accepts(pending("queued", "m2", "second")).await;
    assert_eq!(player.waiting_command(), None);
    player.complete("t1").await.unwrap();
    for text in ["first", "second"] {
        let (turn, said) = player.prompt().await.unwrap();
        assert_eq!(said, text);
        player.complete(&turn).await.unwrap();
        scene.until_over(&turn).await;
    }
    let chat = scene.alice.chat(&scene.chat).unwrap();
    assert_eq!((chat.turns.len(), waiting(chat).len()), (3, 0));
}

#[tokio::test]
async fn message_queued_in_an_idle_chat_starts_a_turn_immediately() {
    let mut scene = Scene::new().await;
    scene.chat_accepts(pending("queued", "m1", "now")).await;
    let mut player = scene.host.stage().player().await.unwrap();
    assert_eq!(player.prompt().await.unwrap().1, "now");
    let own = scene.wire.envelopes().find(|envelope| envelope["action"]["queuedMessageId"] == "m1").unwrap();
    assert_eq!((own.get("origin"), &own["action"]["type"]), (None, &json!("chat/turnStarted")));
    assert_eq!(scene.alice.session(&scene.session).unwrap().title, "now");
}

#[tokio::test]
async fn queued_message_is_replaced_by_one_with_the_same_id() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    scene.chat_accepts(pending("queued", "m1", "first")).await;
    scene.chat_accepts(pending("queued", "m2", "second")).await;
    scene.chat_accepts(pending("queued", "m1", "better")).await;
    assert_eq!(waiting(scene.alice.chat(&scene.chat).unwrap()), ["m1", "m2"]);
    player.complete("t1").await.unwrap();
    assert_eq!(player.prompt().await.unwrap().1, "better");
}

#[tokio::test]
async fn removed_queued_message_is_never_sent() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    scene.chat_accepts(pending("queued", "m1", "never sent")).await;
    scene.chat_accepts(pending("queued", "m2", "sent")).await;
    // A message that is removed before the turn ends is never sent.
    scene.chat_accepts(removed("queued", "m1")).await;
    player.complete("t1").await.unwrap();
    let (turn, text) = player.prompt().await.unwrap();
    assert_eq!(text, "sent");
    // A message that has started a turn cannot be removed.
    scene.chat_rejects(removed("queued", "m2")).await;
    player.complete(&turn).await.unwrap();
    scene.until_over(&turn).await;
    assert_eq!(player.waiting_command(), None);
}

/// "Send Immediately" in VS Code: the three actions arrive as one burst.
#[tokio::test]
async fn queued_message_that_is_sent_immediately_starts_the_next_turn() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    scene.chat_accepts(pending("queued", "m1", "later")).await;
    scene.chat_accepts(pending("queued", "m2", "now")).await;
    let chat = scene.chat.clone();
    scene.wire.dispatch(&chat, removed("queued", "m2")).await;
    scene.wire.dispatch(&chat, cancelled("t1")).await;
    let mut start = started("t2");
    start["message"] = message("now");
    let start = scene.wire.dispatch(&chat, start).await;
    assert_eq!(scene.wire.envelope(start).await.get("rejectionReason"), None);
    scene.agree().await;
    assert!(matches!(player.command().await.unwrap(), AgentCommand::Cancel { .. }));
    let now = player.prompt().await.unwrap();
    assert_eq!(now, ("t2".to_owned(), "now".to_owned()));
    player.complete("t2").await.unwrap();
    assert_eq!(player.prompt().await.unwrap().1, "later", "the queue continues after a completed turn");
}

#[tokio::test]
async fn queue_waits_after_a_cancel_until_a_client_continues() {
    for resume in [pending("queued", "m2", "more"), pending("queued", "m1", "edited"), reordered(&["m1"])] {
        let (mut scene, mut player) = Scene::in_turn("t1").await;
        scene.chat_accepts(pending("queued", "m1", "first")).await;
        scene.chat_accepts(pending("steering", "s1", "steers")).await;
        scene.chat_accepts(cancelled("t1")).await;
        assert_eq!(waiting(scene.alice.chat(&scene.chat).unwrap()), ["s1", "m1"]);
        // Reading, and removing a message, do not continue the queue.
        scene.session_accepts(json!({"type": "session/isReadChanged", "isRead": true})).await;
        scene.chat_accepts(removed("queued", "s1")).await;
        scene.agree().await;
        while let Some(command) = player.waiting_command() {
            assert!(!matches!(command, AgentCommand::Prompt { .. }), "{command:?}");
        }
        let chat = scene.chat.clone();
        scene.wire.dispatch(&chat, resume).await;
        let text = player.prompt().await.unwrap().1;
        assert!(["first", "edited"].contains(&text.as_str()), "{text}");
        scene.agree().await;
    }
}

#[tokio::test]
async fn rejects_removal_of_an_unknown_pending_message() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    scene.chat_accepts(pending("queued", "m1", "queued")).await;
    scene.chat_rejects(removed("queued", "unknown")).await;
    scene.chat_rejects(removed("steering", "m1")).await;
    scene.chat_accepts(removed("queued", "m1")).await;
    scene.chat_rejects(removed("queued", "m1")).await;
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test]
async fn queue_is_reordered() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    for id in ["m1", "m2", "m3"] {
        scene.chat_accepts(pending("queued", id, id)).await;
    }
    scene.chat_accepts(reordered(&["m3", "m1", "m2"])).await;
    assert_eq!(waiting(scene.alice.chat(&scene.chat).unwrap()), ["m3", "m1", "m2"]);
    player.complete("t1").await.unwrap();
    assert_eq!(player.prompt().await.unwrap().1, "m3");
}

#[tokio::test]
async fn outdated_queue_order_is_completed_in_the_echo() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    let chat = scene.chat.clone();
    for id in ["m1", "m2", "m3", "m4"] {
        scene.chat_accepts(pending("queued", id, id)).await;
    }
    player.complete("t1").await.unwrap();
    assert_eq!(player.prompt().await.unwrap().1, "m1");
    scene.until("the first message starts a turn", |chat| waiting(chat).len() == 3).await;
    for (sent, echoed) in [
        (&["m4", "m3", "m2", "m1"][..], ["m4", "m3", "m2"]),
        (&["m3"], ["m3", "m4", "m2"]),
        (&["m2", "m2", "unknown", "m3"], ["m2", "m3", "m4"]),
        (&[], ["m2", "m3", "m4"]),
    ] {
        scene.completed(&chat, reordered(sent), reordered(&echoed)).await;
        assert_eq!(waiting(scene.alice.chat(&chat).unwrap()), echoed);
    }
}

#[tokio::test]
async fn rejects_pending_message_of_non_user_origin() {
    let (mut scene, _player) = Scene::in_turn("t1").await;
    for kind in ["queued", "steering"] {
        let mut action = pending(kind, "m1", "x");
        action["message"]["origin"]["kind"] = json!("agent");
        scene.chat_rejects(action).await;
    }
}

#[tokio::test]
async fn rejects_second_pending_message_with_the_same_id() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    scene.chat_accepts(pending("queued", "m1", "queued")).await;
    scene.chat_rejects(pending("steering", "m1", "steering")).await;
    assert_eq!(player.waiting_command(), None);
    scene.chat_accepts(pending("steering", "s1", "steering")).await;
    scene.chat_rejects(pending("queued", "s1", "queued")).await;
}

#[tokio::test]
async fn queue_length_is_limited() {
    let (mut scene, _player) = Scene::in_turn("t1").await;
    let chat = scene.chat.clone();
    for number in 0..256 {
        scene.wire.dispatch(&chat, pending("queued", &format!("m{number}"), "x")).await;
    }
    scene.agree().await;
    let reason = scene.chat_rejects(pending("queued", "one more", "x")).await;
    assert!(reason.contains("too many"), "{reason}");
    scene.chat_accepts(pending("queued", "m7", "replaced text")).await;
}

#[tokio::test]
async fn steering_message_joins_the_running_turn() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    scene.chat_accepts(pending("steering", "s1", "rather this")).await;
    let AgentCommand::Steer { id, turn, message } = player.command().await.unwrap() else {
        panic!("not a steering message")
    };
    assert_eq!((id.as_str(), turn.as_str(), message.text.as_str()), ("s1", "t1", "rather this"));
    player.steered("s1").await.unwrap();
    scene.until("the steering message is consumed", |chat| chat.steering_message.is_none()).await;
    scene.chat_rejects(removed("steering", "s1")).await;
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    assert_eq!(
        scene.alice.chat(&scene.chat).unwrap().turns.len(),
        1,
        "the steering message started its own turn"
    );
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test]
async fn steering_message_waits_until_the_agent_is_open() {
    let mut scene = Scene::new().await;
    scene.host.stage().hold_openings();
    scene.chat_accepts(started("t1")).await;
    scene.chat_accepts(pending("steering", "s1", "not this")).await;
    scene.chat_accepts(pending("steering", "s2", "rather this")).await;
    scene.host.stage().release_openings();
    let mut player = scene.host.stage().player().await.unwrap();
    // If the agent ends before it reads the prompt, the next agent receives both messages.
    for last in [false, true] {
        let AgentCommand::Prompt { turn, message } = player.command().await.unwrap() else {
            panic!("not a prompt")
        };
        assert!(matches!(player.command().await.unwrap(), AgentCommand::Steer { id, .. } if id == "s2"));
        assert_eq!(player.waiting_command(), None);
        if !last {
            player.crash_before(TurnMessage { turn, message }).await.unwrap();
            player = scene.host.stage().player().await.unwrap();
        }
    }
    player.steered("s2").await.unwrap();
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    assert_eq!(player.waiting_command(), None, "the steering message started its own turn");
}

#[tokio::test]
async fn unused_steering_message_starts_its_own_turn_before_the_queue() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    scene.chat_accepts(pending("queued", "m1", "queued")).await;
    scene.chat_accepts(pending("steering", "s1", "steering")).await;
    assert!(matches!(player.command().await.unwrap(), AgentCommand::Steer { .. }));
    player.complete("t1").await.unwrap();
    assert_eq!(player.prompt().await.unwrap().1, "steering");
    scene.until("the steering message is consumed", |chat| chat.steering_message.is_none()).await;
    // A late report that the agent consumed the message changes nothing.
    player.steered("s1").await.unwrap();
    scene.agree().await;
    assert_eq!(waiting(scene.alice.chat(&scene.chat).unwrap()), ["m1"]);
}

#[tokio::test]
async fn steering_message_can_be_replaced_and_removed() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    scene.chat_accepts(pending("steering", "s1", "one")).await;
    assert!(matches!(player.command().await.unwrap(), AgentCommand::Steer { .. }));
    scene.chat_accepts(pending("steering", "s2", "two")).await;
    assert_eq!(player.command().await.unwrap(), AgentCommand::Unsteer { id: "s1".to_owned() });
    assert!(matches!(player.command().await.unwrap(), AgentCommand::Steer { id, .. } if id == "s2"));
    scene.chat_accepts(removed("steering", "s2")).await;
    assert_eq!(player.command().await.unwrap(), AgentCommand::Unsteer { id: "s2".to_owned() });
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test]
async fn queue_waits_for_a_client_after_an_agent_crash() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    scene.chat_accepts(pending("queued", "m1", "later")).await;
    player.crash().await.unwrap();
    scene.until_over("t1").await;
    assert_eq!(waiting(scene.alice.chat(&scene.chat).unwrap()), ["m1"]);
    assert_eq!(scene.host.stage().openings().len(), 1, "the agent was opened without a request");
    // Reading, typing and renaming do not continue the queue.
    scene.chat_accepts(json!({"type": "chat/draftChanged", "draft": message("typing")})).await;
    scene.chat_accepts(json!({"type": "chat/isReadChanged", "isRead": true})).await;
    scene.session_accepts(json!({"type": "session/titleChanged", "title": "mine"})).await;
    assert_eq!(scene.host.stage().asked(), 1);
    assert_eq!(waiting(scene.alice.chat(&scene.chat).unwrap()), ["m1"]);
    scene.chat_accepts(pending("queued", "m2", "more")).await;
    let mut player = scene.host.stage().player().await.unwrap();
    assert_eq!(player.prompt().await.unwrap().1, "later");
}

#[tokio::test]
async fn host_turn_never_reuses_a_client_turn_id() {
    let mut scene = Scene::new().await;
    let mut player = scene.begin("m1-1").await;
    player.complete("m1-1").await.unwrap();
    scene.until_over("m1-1").await;
    scene.chat_accepts(pending("queued", "m1", "x")).await;
    let (turn, _) = player.prompt().await.unwrap();
    assert_ne!(turn, "m1-1");
    player.complete(&turn).await.unwrap();
    scene.until_over(&turn).await;
    scene.chat_accepts(started("another")).await;
}
