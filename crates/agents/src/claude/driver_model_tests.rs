//! The model of a message: unknown ones, and the replacement of the runtime's default.

use super::super::models::tests::FakeCatalogue;
use super::tests::Scene;
use super::*;

#[tokio::test(start_paused = true)]
async fn unknown_model_fails_the_message_before_the_runtime_receives_anything() {
    let mut scene = Scene::with_models(FakeCatalogue::of(&["claude-opus-5-5", "claude-haiku-4-5"])).await;
    scene.prompt("first", Some("claude-opus-9-9")).await;
    let (_, turn, outcome) = scene.ended().await;
    let TurnOutcome::Failed(error) = outcome else { panic!("{outcome:?}") };
    assert_eq!((turn.as_str(), error.error_type.as_str()), ("first", "model_not_found"));
    assert!(scene.runtime.is_silent(Duration::from_secs(1)).await);
    scene.prompt("second", None).await;
    let second = scene.runtime.prompt().await;
    scene.runtime.result(json!({"user_message_uuids": [second]})).await;
    assert_eq!(scene.ended().await.1, "second");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn model_that_is_removed_from_the_list_fails_the_next_message() {
    let catalogue = FakeCatalogue::of(&["claude-opus-5-5", "claude-haiku-4-5"]);
    let mut scene = Scene::with_models(Arc::clone(&catalogue)).await;
    scene.prompt("first", Some("claude-haiku-4-5")).await;
    let select = scene.runtime.request("set_model").await;
    assert_eq!(select["request"]["model"], "claude-haiku-4-5");
    scene.runtime.agree(&select).await;
    let first = scene.runtime.prompt().await;
    scene.runtime.result(json!({"user_message_uuids": [first]})).await;
    scene.ended().await;
    catalogue.0.send_modify(|catalogue| catalogue.models.truncate(1));
    scene.prompt("second", None).await;
    let (_, turn, outcome) = scene.ended().await;
    assert!(matches!(outcome, TurnOutcome::Failed(_)), "{turn}: {outcome:?}");
    scene.prompt("third", Some("default")).await;
    let select = scene.runtime.request("set_model").await;
    assert_eq!(select["request"].get("model"), None);
    scene.runtime.agree(&select).await;
    let third = scene.runtime.prompt().await;
    scene.runtime.result(json!({"user_message_uuids": [third]})).await;
    assert_eq!(scene.ended().await.1, "third");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unlisted_default_is_replaced_and_its_refusal_fails_the_message_once() {
    let mut scene = Scene::with_models(FakeCatalogue::of(&["claude-opus-4-7"])).await;
    scene.prompt("first", None).await;
    let select = scene.runtime.request("set_model").await;
    assert_eq!(select["request"]["model"], "claude-opus-4-7");
    let refusal = json!({"subtype": "error", "request_id": select["request_id"], "error": "not now"});
    scene.runtime.say(json!({"type": "control_response", "response": refusal})).await;
    let (_, turn, outcome) = scene.ended().await;
    let TurnOutcome::Failed(error) = outcome else { panic!("{outcome:?}") };
    assert!(turn == "first" && error.message.contains("claude-opus-4-7"), "{error:?}");
    scene.prompt("second", None).await;
    let select = scene.runtime.request("set_model").await;
    scene.runtime.agree(&select).await;
    let second = scene.runtime.prompt().await;
    scene.runtime.result(json!({"user_message_uuids": [second]})).await;
    assert_eq!(scene.ended().await.1, "second");
    scene.stop().await;
}
