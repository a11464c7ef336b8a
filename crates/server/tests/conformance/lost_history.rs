//! Conversations whose record the agent has lost: the question to the user and its answers.

use innkeeper_core::agent::History;
use innkeeper_core_fakes::StageTraits;
use innkeeper_testkit::Observer;
use serde_json::{Value, json};

use crate::scene::{cancelled, pending};
use crate::stored_host::{SESSION, StoredHost};
use crate::wire::Wire;

/// A conversation with one completed turn whose record is lost, so that the next turn failed.
async fn with_lost_history() -> StoredHost {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    kept.finish(&player, "t1").await;
    player.crash().await.unwrap();
    kept.host.stage().lose_history("The transcript is gone.");
    kept.alice.say(&kept.chat, "t2", "more").await.unwrap();
    kept.alice.until_turn_over(&kept.chat, "t2").await.unwrap();
    kept
}

/// Resumes the failed turn while the record is still lost and answers the question.
async fn resume_and_answer(kept: &mut StoredHost, answer: Value) {
    kept.host.stage().lose_history("The transcript is gone.");
    kept.alice.dispatch(&kept.chat, json!({"type": "chat/turnResume", "turnId": "t2"})).await.unwrap();
    let chat = kept.chat.clone();
    let asked = |alice: &Observer| !json!(alice.session(SESSION).unwrap().input_needed).is_null();
    kept.alice.until("the question", asked).await.unwrap();
    let request = json!(kept.alice.session(SESSION).unwrap().input_needed)[0]["request"].clone();
    let question = &request["questions"][0];
    let options: Vec<&str> =
        question["options"].as_array().unwrap().iter().map(|option| option["id"].as_str().unwrap()).collect();
    assert_eq!(
        (question["kind"].as_str(), options),
        (Some("single-select"), vec!["rebuild", "fresh", "cancel"])
    );
    let answers = json!({"choice": {"state": "submitted", "value": {"kind": "selected", "value": answer}}});
    let completed = json!({
        "type": "chat/inputCompleted", "requestId": request["id"], "response": "accept", "answers": answers,
    });
    kept.alice.dispatch(&chat, completed).await.unwrap();
}

#[tokio::test]
async fn lost_history_fails_the_turn_with_the_choices_and_can_be_resumed() {
    let mut kept = with_lost_history().await;
    let part = kept.last_turn()["responseParts"][0].clone();
    assert_eq!(part["resumable"], true);
    let text = part["error"]["message"].as_str().unwrap();
    for choice in ["The transcript is gone.", "Resume", "rebuild", "start fresh", "cancel"] {
        assert!(text.contains(choice), "{text}");
    }
    assert_eq!(kept.host.stage().openings().len(), 2, "an agent was started without the history");
    // If the record is available again, the turn continues.
    kept.alice.dispatch(&kept.chat, json!({"type": "chat/turnResume", "turnId": "t2"})).await.unwrap();
    let mut player = kept.host.stage().player().await.unwrap();
    assert_eq!(player.prompt().await.unwrap(), ("t2".to_owned(), "more".to_owned()));
    assert_eq!(kept.host.stage().openings().pop().unwrap().history, History::Resume);
    kept.finish(&player, "t2").await;
}

#[tokio::test]
async fn lost_history_is_rebuilt_from_the_hosts_record_by_choice() {
    let mut kept = with_lost_history().await;
    resume_and_answer(&mut kept, json!("rebuild")).await;
    let mut player = kept.host.stage().player().await.unwrap();
    assert_eq!(player.prompt().await.unwrap(), ("t2".to_owned(), "more".to_owned()));
    let opening = kept.host.stage().openings().pop().unwrap();
    let History::Rebuild(record) = &opening.history else { panic!("{opening:?}") };
    assert!(record.contains("User: hello") && record.contains("Assistant: answer"), "{record}");
    assert_eq!(opening.resume_token, None);
    kept.finish(&player, "t2").await;
    // The agent has its own record again.
    player.crash().await.unwrap();
    let _player = kept.begin("t3").await;
    assert_eq!(kept.host.stage().openings().pop().unwrap().history, History::Resume);
}

#[tokio::test]
async fn lost_history_is_discarded_or_the_turn_cancelled_by_choice() {
    let mut kept = with_lost_history().await;
    resume_and_answer(&mut kept, json!("cancel")).await;
    kept.alice.until_turn_over(&kept.chat, "t2").await.unwrap();
    assert_eq!(kept.last_turn()["state"], "cancelled");
    assert_eq!(kept.host.stage().asked(), 3);
    let mut kept = with_lost_history().await;
    resume_and_answer(&mut kept, json!("fresh")).await;
    let mut player = kept.host.stage().player().await.unwrap();
    player.prompt().await.unwrap();
    assert_eq!(kept.host.stage().openings().pop().unwrap().history, History::Fresh);
    kept.finish(&player, "t2").await;
    assert_eq!(json!(kept.alice.session(SESSION).unwrap().input_needed), Value::Null);
}

#[tokio::test]
async fn conversation_that_never_answered_starts_fresh_without_a_question() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    player.crash().await.unwrap();
    kept.alice.until_turn_over(&kept.chat, "t1").await.unwrap();
    kept.host.stage().lose_history("The transcript is gone.");
    let player = kept.begin("t2").await;
    let histories: Vec<History> =
        kept.host.stage().openings().into_iter().map(|opening| opening.history).collect();
    assert_eq!(histories, [History::Fresh, History::Resume, History::Fresh]);
    kept.finish(&player, "t2").await;
}

#[tokio::test]
async fn question_about_lost_history_is_dropped_by_cancel_and_repeated_after_a_restart() {
    let mut kept = with_lost_history().await;
    kept.host.stage().lose_history("The transcript is gone.");
    let resume = json!({"type": "chat/turnResume", "turnId": "t2"});
    kept.alice.dispatch(&kept.chat, resume.clone()).await.unwrap();
    let asked = |alice: &Observer| !json!(alice.session(SESSION).unwrap().input_needed).is_null();
    kept.alice.until("the question", asked).await.unwrap();
    let mut kept = kept.restart().await;
    assert_eq!(kept.last_turn()["responseParts"].as_array().unwrap().last().unwrap()["resumable"], true);
    resume_and_answer(&mut kept, json!("fresh")).await;
    let mut player = kept.host.stage().player().await.unwrap();
    player.prompt().await.unwrap();
    kept.finish(&player, "t2").await;
    let mut kept = with_lost_history().await;
    kept.host.stage().lose_history("The transcript is gone.");
    kept.alice.dispatch(&kept.chat, resume).await.unwrap();
    kept.alice.until("the question", asked).await.unwrap();
    kept.alice.dispatch(&kept.chat, cancelled("t2")).await.unwrap();
    kept.alice.until_turn_over(&kept.chat, "t2").await.unwrap();
    let player = kept.begin("t3").await;
    kept.finish(&player, "t3").await;
}

#[tokio::test]
async fn first_of_two_answers_about_lost_history_wins() {
    let mut kept = with_lost_history().await;
    kept.host.stage().lose_history("The transcript is gone.");
    kept.alice.dispatch(&kept.chat, pending("queued", "m1", "later")).await.unwrap();
    let queued = |alice: &Observer| {
        alice.chat(&kept.chat).is_ok_and(|chat| chat.turns.len() > 2 || chat.active_turn.is_some())
    };
    // A queued message continues the queue; its turn fails for the same reason.
    kept.alice.until("the queue continues", queued).await.unwrap();
    kept.alice
        .until("the turn fails", |alice| alice.chat(&kept.chat).unwrap().turns.len() == 3)
        .await
        .unwrap();
    let turn = kept.alice.chat(&kept.chat).unwrap().turns[2].id.clone();
    kept.host.stage().lose_history("The transcript is gone.");
    kept.alice.dispatch(&kept.chat, json!({"type": "chat/turnResume", "turnId": turn})).await.unwrap();
    let asked = |alice: &Observer| !json!(alice.session(SESSION).unwrap().input_needed).is_null();
    kept.alice.until("the question", asked).await.unwrap();
    let request = json!(kept.alice.session(SESSION).unwrap().input_needed)[0]["request"]["id"].clone();
    let mut wire = Wire::open(&kept.host, "wire", &["1.0.0"]).await;
    let mut verdicts = Vec::new();
    for choice in ["fresh", "rebuild"] {
        let answers =
            json!({"choice": {"state": "submitted", "value": {"kind": "selected", "value": choice}}});
        let completed = json!({
            "type": "chat/inputCompleted", "requestId": request, "response": "accept", "answers": answers,
        });
        let seq = wire.dispatch(&kept.chat, completed).await;
        verdicts.push(wire.envelope(seq).await.get("rejectionReason").is_none());
    }
    assert_eq!(verdicts, [true, false]);
    let mut player = kept.host.stage().player().await.unwrap();
    player.prompt().await.unwrap();
    assert_eq!(kept.host.stage().openings().pop().unwrap().history, History::Fresh);
}
