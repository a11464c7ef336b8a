//! Questions that the agent asks the user, with both pinned runtimes.

use anyhow::Result;
use innkeeper_testkit::{Observer, runtimes};
use serde_json::{Value, json};

use crate::asking::{AskingSession, completion, echo, needed, tool};
use crate::options;

/// A question of the agent.
fn question(text: &str, many: bool, options: &[&str]) -> Value {
    let options: Vec<Value> = options
        .iter()
        .map(|label| json!({"label": label, "description": format!("About {label}")}))
        .collect();
    json!({"question": text, "header": "Choice", "multiSelect": many, "options": options})
}

/// A step that asks questions.
fn ask(questions: &[Value]) -> String {
    tool("AskUserQuestion", &json!({"questions": questions}))
}

fn submitted(kind: &str, value: Value, freeform: &[&str]) -> Value {
    json!({"state": "submitted", "value": {"kind": kind, "value": value, "freeformValues": freeform}})
}

/// The id of a question.
fn id(request: &Value, at: usize) -> String {
    request["questions"][at]["id"].as_str().unwrap_or_default().to_owned()
}

/// What the model was told about its last tool call.
fn result_in(echo: &str) -> &str {
    echo.rsplit("[tool_result").next().unwrap_or_default()
}

#[tokio::test]
async fn choices_and_free_text_reach_the_model_and_empty_answer_is_rejected() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = AskingSession::start(options(claude), json!({})).await?;
        single_choice(&mut asking).await?;
        multiple_choice(&mut asking).await?;
        free_text(&mut asking).await?;
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

async fn single_choice(asking: &mut AskingSession) -> Result<()> {
    let mut second = asking.second_client().await?;
    asking.say("turn-1", &[ask(&[question("Which colour?", false, &["Red", "Blue"])]), echo()]).await?;
    let request = asking.question("turn-1").await?;
    let shown = &request["questions"][0];
    assert_eq!((&shown["kind"], &shown["message"]), (&json!("single-select"), &json!("Which colour?")));
    assert_eq!(shown["required"], true, "{request:#}");
    assert_eq!(shown["options"][1]["description"], "About Blue");
    needed(&mut second, &asking.session, &asking.chat, "turn-1", "chatInput").await?;

    let empty = completion(&request, "accept", json!({}));
    let empty = asking.client.dispatch(&asking.chat, empty).await?;
    assert!(asking.response(empty).await?.is_some(), "an accepted request has no answer");
    let answers = json!({id(&request, 0): submitted("selected", json!("Blue"), &[])});
    asking.answer(&request, "accept", answers).await?;
    asking.finish("turn-1").await?;
    let said = asking.text("turn-1")?;
    let result = result_in(&said);
    assert!(result.contains("Blue") && !result.contains("Red"), "{result}");
    second.until_turn_over(&asking.chat, "turn-1").await?;
    assert!(second.session(&asking.session)?.input_needed.is_none());
    Ok(())
}

async fn multiple_choice(asking: &mut AskingSession) -> Result<()> {
    let fruit = question("Which fruit?", true, &["Apple", "Pear", "Plum"]);
    asking.say("turn-2", &[ask(&[fruit]), echo()]).await?;
    let request = asking.question("turn-2").await?;
    assert_eq!(request["questions"][0]["kind"], "multi-select", "{request:#}");
    let chosen = submitted("selected-many", json!(["Apple", "Plum"]), &["a quince"]);
    asking.answer(&request, "accept", json!({id(&request, 0): chosen})).await?;
    asking.finish("turn-2").await?;
    let said = asking.text("turn-2")?;
    let result = result_in(&said);
    assert!(["Apple", "Plum", "a quince"].iter().all(|wanted| result.contains(wanted)), "{result}");
    assert!(!result.contains("Pear"), "{result}");
    Ok(())
}

async fn free_text(asking: &mut AskingSession) -> Result<()> {
    asking.say("turn-3", &[ask(&[question("Which colour?", false, &["Red", "Blue"])]), echo()]).await?;
    let request = asking.question("turn-3").await?;
    assert_eq!(request["questions"][0]["allowFreeformInput"], true, "{request:#}");
    let written = submitted("selected", json!(""), &["a warm green"]);
    asking.answer(&request, "accept", json!({id(&request, 0): written})).await?;
    asking.finish("turn-3").await?;
    let said = asking.text("turn-3")?;
    let result = result_in(&said);
    assert!(result.contains("a warm green") && !result.contains("Red"), "{result}");
    Ok(())
}

#[tokio::test]
async fn several_questions_are_answered_from_drafts_of_two_clients_and_one_is_skipped() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = AskingSession::start(options(claude), json!({})).await?;
        let second = asking.second_client().await?;
        let questions = [
            question("Which colour?", false, &["Red", "Blue"]),
            question("Which fruit?", true, &["Apple", "Pear"]),
            question("Which day?", false, &["Monday", "Friday"]),
        ];
        asking.say("turn-1", &[ask(&questions), echo()]).await?;
        let request = asking.question("turn-1").await?;
        assert_eq!(request["questions"].as_array().map(Vec::len), Some(3), "{request:#}");
        let draft = json!({
            "type": "chat/inputAnswerChanged", "requestId": request["id"], "questionId": id(&request, 0),
            "answer": {"state": "draft", "value": {"kind": "selected", "value": "Red"}},
        });
        second.dispatch(&asking.chat, draft).await?;
        let has_draft = |client: &Observer| {
            let chat = client.chat(&asking.chat).ok();
            serde_json::to_string(&chat).is_ok_and(|chat| chat.contains("\"draft\""))
        };
        asking.client.until("the draft of the other client", has_draft).await?;
        let answers = json!({
            id(&request, 1): submitted("selected-many", json!(["Pear"]), &[]),
            id(&request, 2): {"state": "skipped"},
        });
        asking.answer(&request, "accept", answers).await?;
        asking.finish("turn-1").await?;
        let said = asking.text("turn-1")?;
        let result = result_in(&said);
        assert!(result.contains("Red") && result.contains("Pear"), "{result}");
        assert!(!result.contains("Monday") && !result.contains("Friday"), "{result}");
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn declined_question_is_not_an_answer_and_the_turn_continues() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = AskingSession::start(options(claude), json!({})).await?;
        asking.say("turn-1", &[ask(&[question("Which colour?", false, &["Red", "Blue"])]), echo()]).await?;
        let request = asking.question("turn-1").await?;
        asking.answer(&request, "decline", json!({})).await?;
        asking.finish("turn-1").await?;
        let said = asking.text("turn-1")?;
        let result = result_in(&said);
        assert!(result.contains("did not answer"), "{result}");
        assert!(!result.contains("Red") && !result.contains("Blue"), "{result}");

        // A question of a cancelled turn is removed from all clients.
        asking.say("turn-2", &[ask(&[question("Which colour?", false, &["Red", "Blue"])]), echo()]).await?;
        asking.question("turn-2").await?;
        asking.cancel("turn-2").await?;
        asking.say("turn-3", &[echo()]).await?;
        asking.finish("turn-3").await?;
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}
