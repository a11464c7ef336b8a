//! Questions to the user: shared draft answers, the first valid completion, and validation.

use ahp_types::state::{ChatInputAnswer, ChatInputResponseKind, ChatState};
use innkeeper_core::agent::{AgentCommand, InputAnswer};
use innkeeper_core_fakes::Player;
use serde_json::{Value, json};

use crate::scene::{Scene, cancelled};

fn questions() -> Value {
    json!([
        {"kind": "text", "id": "name", "message": "Name?", "required": true},
        {"kind": "number", "id": "size", "message": "Size?", "min": 1, "max": 9},
        {"kind": "integer", "id": "count", "message": "Count?"},
        {"kind": "boolean", "id": "sure", "message": "Sure?"},
        {"kind": "single-select", "id": "one", "message": "Which?", "options": [{"id": "a", "label": "A"}]},
        {"kind": "multi-select", "id": "many", "message": "Which ones?", "max": 2, "options": [
            {"id": "a", "label": "A"}, {"id": "b", "label": "B"}, {"id": "c", "label": "C"},
        ]},
    ])
}

async fn asked() -> (Scene, Player) {
    let (mut scene, player) = Scene::in_turn("t1").await;
    player.ask("q1", questions()).await.unwrap();
    scene.until("the question", |chat| chat.status == 24).await;
    (scene, player)
}

fn draft(question: &str, kind: &str, value: Value) -> Value {
    json!({
        "type": "chat/inputAnswerChanged", "requestId": "q1", "questionId": question,
        "answer": answer("draft", kind, value),
    })
}

fn answer(state: &str, kind: &str, value: Value) -> Value {
    json!({"state": state, "value": {"kind": kind, "value": value}})
}

fn completed(response: &str, answers: Value) -> Value {
    json!({"type": "chat/inputCompleted", "requestId": "q1", "response": response, "answers": answers})
}

async fn answer_of(player: &mut Player) -> InputAnswer {
    match player.command().await.unwrap() {
        AgentCommand::InputAnswer(answer) => answer,
        other => panic!("not an answer: {other:?}"),
    }
}

fn request(chat: &ChatState) -> Value {
    let active = json!(chat.active_turn);
    let parts = active["responseParts"].as_array().cloned().unwrap_or_default();
    parts.into_iter().find(|part| part["kind"] == "inputRequest").unwrap_or_default()
}

#[tokio::test]
async fn draft_answers_are_shared_and_fill_in_missing_answers() {
    let (mut scene, mut player) = asked().await;
    let chat = scene.chat.clone();
    assert_eq!(scene.alice_dispatches(&chat, draft("name", "text", json!("Al"))).await, None);
    scene.chat_accepts(draft("name", "text", json!("Alice"))).await;
    scene.chat_accepts(draft("count", "number", json!(3))).await;
    let shared = request(scene.bob.chat(&chat).unwrap());
    assert_eq!(shared["request"]["answers"]["name"]["value"]["value"], "Alice");
    let mut taken_back = draft("count", "number", json!(3));
    taken_back.as_object_mut().unwrap().remove("answer");
    scene.chat_accepts(taken_back).await;
    assert_eq!(player.waiting_command(), None, "a draft reached the agent");
    scene
        .chat_accepts(completed("accept", json!({"sure": answer("submitted", "boolean", json!(true))})))
        .await;
    let given = answer_of(&mut player).await;
    assert_eq!((given.request.as_str(), given.response), ("q1", ChatInputResponseKind::Accept));
    let mut ids: Vec<&str> = given.answers.keys().map(String::as_str).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["name", "sure"]);
    assert!(matches!(&given.answers["name"], ChatInputAnswer::Draft(_)));
    assert_eq!(scene.alice.chat(&chat).unwrap().status, 8);
}

#[tokio::test]
async fn first_completion_of_a_request_wins() {
    let (mut scene, mut player) = asked().await;
    let chat = scene.chat.clone();
    assert_eq!(scene.alice_dispatches(&chat, completed("decline", json!({}))).await, None);
    let name = json!({"name": answer("submitted", "text", json!("late"))});
    scene.chat_rejects(completed("accept", name)).await;
    scene.chat_rejects(draft("name", "text", json!("late"))).await;
    assert_eq!(answer_of(&mut player).await.response, ChatInputResponseKind::Decline);
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test]
async fn rejects_acceptance_without_the_required_answers() {
    let (mut scene, mut player) = asked().await;
    scene.chat_rejects(completed("accept", json!({}))).await;
    scene.chat_rejects(json!({"type": "chat/inputCompleted", "requestId": "q1", "response": "accept"})).await;
    scene.chat_rejects(completed("accept", json!({"name": {"state": "skipped"}}))).await;
    assert_eq!(player.waiting_command(), None);
    let name = json!({"name": answer("submitted", "text", json!("Alice")), "sure": {"state": "skipped"}});
    scene.chat_accepts(completed("accept", name)).await;
    assert_eq!(answer_of(&mut player).await.answers.len(), 2);
}

#[tokio::test]
async fn request_is_declined_or_cancelled_without_answers() {
    for (response, kind) in
        [("decline", ChatInputResponseKind::Decline), ("cancel", ChatInputResponseKind::Cancel)]
    {
        let (mut scene, mut player) = asked().await;
        let action = json!({"type": "chat/inputCompleted", "requestId": "q1", "response": response});
        scene.chat_accepts(action).await;
        assert_eq!(answer_of(&mut player).await.response, kind);
    }
}

#[tokio::test]
async fn rejects_answer_of_another_kind_than_its_question() {
    let (mut scene, mut player) = asked().await;
    let wrong = [
        ("name", "number", json!(7)),
        ("size", "text", json!("7")),
        ("count", "number", json!(2.5)),
        ("sure", "text", json!("yes")),
        ("one", "selected", json!("unknown")),
        ("one", "selected-many", json!(["a"])),
        ("many", "selected-many", json!(["a", "unknown"])),
        ("many", "selected", json!("a")),
    ];
    for (question, kind, value) in wrong {
        scene.chat_rejects(draft(question, kind, value.clone())).await;
        let answers = json!({
            "name": answer("submitted", "text", json!("Alice")), question: answer("submitted", kind, value),
        });
        scene.chat_rejects(completed("accept", answers)).await;
    }
    let right = [
        ("name", "text", json!("Alice")),
        ("size", "number", json!(7.5)),
        ("count", "number", json!(2)),
        ("sure", "boolean", json!(false)),
        ("one", "selected", json!("a")),
        ("many", "selected-many", json!(["a", "b"])),
    ];
    for (question, kind, value) in right {
        scene.chat_accepts(draft(question, kind, value)).await;
    }
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test]
async fn rejects_submitted_answer_outside_the_limits_of_its_question() {
    let (mut scene, mut player) = asked().await;
    for (question, kind, value) in [
        ("size", "number", json!(10)),
        ("size", "number", json!(0.5)),
        ("many", "selected-many", json!(["a", "b", "c"])),
    ] {
        // A draft may be outside the limits.
        scene.chat_accepts(draft(question, kind, value.clone())).await;
        let answers = json!({
            "name": answer("submitted", "text", json!("Alice")), question: answer("submitted", kind, value),
        });
        scene.chat_rejects(completed("accept", answers)).await;
        let mut taken_back = draft(question, kind, Value::Null);
        taken_back.as_object_mut().unwrap().remove("answer");
        scene.chat_accepts(taken_back).await;
    }
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test]
async fn rejects_answer_to_an_unknown_request_or_question() {
    let (mut scene, player) = asked().await;
    scene.chat_rejects(draft("unknown", "text", json!("x"))).await;
    let unknown = json!({"unknown": answer("submitted", "text", json!("x"))});
    scene.chat_rejects(completed("decline", unknown)).await;
    for action in [draft("name", "text", json!("x")), completed("decline", json!({}))] {
        let mut elsewhere = action;
        elsewhere["requestId"] = json!("unknown");
        scene.chat_rejects(elsewhere).await;
    }
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    scene.chat_rejects(completed("decline", json!({}))).await;
}

#[tokio::test]
async fn cancelled_turn_removes_its_question() {
    let (mut scene, _player) = asked().await;
    scene.chat_accepts(cancelled("t1")).await;
    assert_eq!(scene.alice.session(&scene.session).unwrap().input_needed, None);
    scene.chat_rejects(completed("decline", json!({}))).await;
}
