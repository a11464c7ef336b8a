//! Pending messages: the queue and the steering message.

use ahp_types::state::ChatState;
use innkeeper_core::agent::{AgentCommand, TurnMessage};
use innkeeper_core_fakes::StageTraits;
use serde_json::{Value, json};

use crate::scene::{Scene, cancelled, confirmed, message, pending, started};
use crate::stored_host::StoredHost;

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
    player.steered("t1", "s1", "rather this").await.unwrap();
    scene.until("the steering message is consumed", |chat| chat.steering_message.is_none()).await;
    scene.chat_rejects(removed("steering", "s1")).await;
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    let chat = scene.alice.chat(&scene.chat).unwrap();
    assert_eq!(chat.turns.len(), 1, "the steering message started its own turn");
    assert_eq!(
        json!(chat.turns[0].response_parts),
        json!([{
            "kind": "systemNotification", "content": "rather this",
            "_meta": {"innkeeper.steering": {"id": "s1"}},
        }])
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
    player.steered("t1", "s2", "rather this").await.unwrap();
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
    player.steered("t1", "s1", "steering").await.unwrap();
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

#[tokio::test]
async fn messages_of_all_clients_share_one_queue() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    let chat = scene.chat.clone();
    assert_eq!(scene.alice_dispatches(&chat, pending("queued", "a1", "from alice")).await, None);
    let seq = scene.bob.dispatch(&chat, pending("queued", "b1", "from bob")).await.unwrap();
    scene.bob.until("the echo", |bob| !bob.answers("bob", seq).is_empty()).await.unwrap();
    scene.chat_accepts(pending("queued", "w1", "from wire")).await;
    for observer in [&scene.alice, &scene.bob] {
        assert_eq!(waiting(observer.chat(&chat).unwrap()), ["a1", "b1", "w1"]);
    }
    // Each client can edit, remove and move the messages of the others.
    scene.chat_accepts(pending("queued", "a1", "edited by wire")).await;
    assert_eq!(scene.alice_dispatches(&chat, removed("queued", "b1")).await, None);
    assert_eq!(scene.alice_dispatches(&chat, reordered(&["w1", "a1"])).await, None);
    player.complete("t1").await.unwrap();
    for text in ["from wire", "edited by wire"] {
        let (turn, said) = player.prompt().await.unwrap();
        assert_eq!(said, text);
        player.complete(&turn).await.unwrap();
        scene.until_over(&turn).await;
    }
}

/// Two windows use "Send Immediately" for different messages at the same time.
#[tokio::test]
async fn message_that_cannot_be_sent_immediately_is_rejected_and_starts_no_turn() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    let chat = scene.chat.clone();
    scene.chat_accepts(pending("queued", "m1", "one")).await;
    scene.chat_accepts(pending("queued", "m2", "two")).await;
    let start = |turn: &str, text: &str| {
        let mut start = started(turn);
        start["message"] = message(text);
        start
    };
    for action in [removed("queued", "m1"), cancelled("t1"), start("t2", "one")] {
        assert_eq!(scene.alice_dispatches(&chat, action).await, None);
    }
    // The turn that the second window wants to cancel is over, and another one runs.
    scene.chat_accepts(removed("queued", "m2")).await;
    let reason = scene.chat_rejects(cancelled("t1")).await;
    assert!(reason.contains("not running"), "{reason}");
    let reason = scene.chat_rejects(start("t3", "two")).await;
    assert!(reason.contains("already running"), "{reason}");
    assert!(matches!(player.command().await.unwrap(), AgentCommand::Cancel { .. }));
    assert_eq!(player.prompt().await.unwrap(), ("t2".to_owned(), "one".to_owned()));
    assert_eq!(player.waiting_command(), None);
}

/// The burst of a cancel, a late approval and a queued message.
#[tokio::test]
async fn message_queued_after_a_cancel_starts_the_next_turn_and_a_late_approval_is_rejected() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    let chat = scene.chat.clone();
    player.ask_to_run("t1", "k1", json!({})).await.unwrap();
    scene.until("the question", |chat| chat.status & 24 == 24).await;
    let mut answers = Vec::new();
    for action in [cancelled("t1"), confirmed("t1", "k1"), pending("queued", "m2", "next")] {
        answers.push(scene.wire.dispatch(&chat, action).await);
    }
    let mut rejected = Vec::new();
    for seq in answers {
        rejected.push(scene.wire.envelope(seq).await.get("rejectionReason").is_some());
    }
    assert_eq!(rejected, [false, true, false]);
    assert!(matches!(player.command().await.unwrap(), AgentCommand::Cancel { .. }));
    assert_eq!(player.prompt().await.unwrap().1, "next");
    scene.agree().await;
    assert_eq!(
        json!(scene.alice.chat(&chat).unwrap().turns[0].response_parts[0])["toolCall"]["status"],
        "cancelled"
    );
}

#[tokio::test]
async fn replaced_steering_message_stays_when_the_agent_has_taken_the_old_one() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    scene.chat_accepts(pending("steering", "s1", "one")).await;
    scene.chat_accepts(pending("steering", "s1", "two")).await;
    for _ in 0..3 {
        player.command().await.unwrap();
    }
    player.steered("t1", "s1", "one").await.unwrap();
    scene
        .until("the old message is in the turn", |chat| json!(chat.active_turn).to_string().contains("one"))
        .await;
    let chat = scene.alice.chat(&scene.chat).unwrap();
    assert_eq!(chat.steering_message.as_ref().map(|waiting| waiting.message.text.as_str()), Some("two"));
    player.steered("t1", "s1", "two").await.unwrap();
    scene.until("the steering message is consumed", |chat| chat.steering_message.is_none()).await;
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    let parts = json!(scene.alice.chat(&scene.chat).unwrap().turns[0].response_parts);
    assert_eq!((&parts[0]["content"], &parts[1]["content"]), (&json!("one"), &json!("two")));
}

#[tokio::test]
async fn removed_steering_message_that_the_agent_has_taken_is_shown_in_the_turn() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    scene.chat_accepts(pending("steering", "s1", "too late")).await;
    scene.chat_accepts(removed("steering", "s1")).await;
    player.steered("t1", "s1", "too late").await.unwrap();
    scene.until("the part", |chat| json!(chat.active_turn).to_string().contains("too late")).await;
}

#[tokio::test]
async fn steering_message_taken_before_a_cancel_is_shown_in_the_turn_that_follows() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    scene.chat_accepts(pending("steering", "s1", "do this instead")).await;
    scene.chat_accepts(cancelled("t1")).await;
    scene.chat_accepts(started("t2")).await;
    while player.prompt().await.is_err() {}
    player.steered("t1", "s1", "do this instead").await.unwrap();
    scene.until("the part", |chat| chat.queued_messages.is_none()).await;
    let active = json!(scene.alice.chat(&scene.chat).unwrap().active_turn);
    assert_eq!(active["responseParts"][0]["content"], "do this instead");
}

#[tokio::test]
async fn taken_steering_message_is_stored_and_restored() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let mut player = kept.begin("t1").await;
    let text = "rather this ".repeat(1_000);
    kept.alice.dispatch(&kept.chat, pending("steering", "s1", &text)).await.unwrap();
    player.command().await.unwrap();
    player.steered("t1", "s1", &text).await.unwrap();
    kept.finish(&player, "t1").await;
    let turn = kept.last_turn();
    assert_eq!(turn["responseParts"][0]["content"], json!(text), "the message is not complete");
    let kept = kept.restart_with(player).await;
    assert_eq!(kept.last_turn(), turn);
}
