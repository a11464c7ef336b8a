//! The demo model's tour with both pinned runtimes; every request is allowed.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use innkeeper_testkit::{Observer, TestHost, runtimes};
use serde_json::{Value, json};

use crate::{Opened, options};

/// Tool calls of the tour that need permission: two for the notes, the
/// command, the plan and its file.
const CONFIRMATIONS: usize = 5;

#[tokio::test]
async fn tour_succeeds_twice_in_same_folder_with_native_runtime() -> Result<()> {
    let [native, _] = runtimes()?;
    take_tours(native).await
}

#[tokio::test]
async fn tour_succeeds_twice_in_same_folder_with_node_runtime() -> Result<()> {
    let [_, node] = runtimes()?;
    take_tours(node).await
}

/// Takes the tour in two sessions: the runtime of the second one has not read
/// the files of the first.
async fn take_tours(claude: PathBuf) -> Result<()> {
    let host = TestHost::start(options(claude)).await?;
    for _ in 0..2 {
        let mut opened = Opened::new(&host).await?;
        let answered = take_tour(&mut opened).await?;
        assert_eq!(answered, CONFIRMATIONS);
        let chat = serde_json::to_value(opened.client.chat(&opened.chat)?)?;
        let turn = &chat["turns"][0];
        assert_eq!(turn["state"], "complete", "{turn}");
        let summary =
            turn["responseParts"].as_array().and_then(|parts| parts.last()).context("no summary")?;
        let summary = summary["content"].as_str().context("the last part is not text")?;
        assert!(summary.matches(": done").count() >= 8 && !summary.contains("not done"), "{summary}");
        let session = serde_json::to_value(opened.client.session(&opened.session)?)?;
        assert_eq!(session["config"]["values"]["permissionMode"], "default");
    }
    let folder = host.work_dir().join("innkeeper-tour");
    assert!(fs::read_to_string(folder.join("notes.md"))?.contains("and it changed this line"));
    assert_eq!(fs::read_to_string(folder.join("greeting.md"))?, "Hello from the plan.\n");
    assert!(folder.join("shell").is_dir());
    assert_eq!(fs::read_dir(host.work_dir())?.count(), 1, "the tour has its own folder");
    Ok(())
}

/// Sends `tour` and accepts every request. Returns how many tool calls were
/// confirmed.
async fn take_tour(opened: &mut Opened) -> Result<usize> {
    let Opened { client, chat, .. } = opened;
    client.say(chat, "tour", "tour").await?;
    let mut answered: Vec<String> = Vec::new();
    let mut confirmed = 0;
    loop {
        let over = |client: &Observer| client.chat(chat).is_ok_and(|chat| !chat.turns.is_empty());
        client
            .until("a request or the end", |client| over(client) || next(client, chat, &answered).is_some())
            .await?;
        let Some(request) = next(client, chat, &answered) else { return Ok(confirmed) };
        let action = match &request {
            TourRequest::Call(id, option) => {
                confirmed += 1;
                json!({
                    "type": "chat/toolCallConfirmed", "turnId": "tour", "toolCallId": id,
                    "approved": true, "confirmed": "user-action", "selectedOptionId": option,
                })
            }
            TourRequest::Question(id, answers) => {
                json!({"type": "chat/inputCompleted", "requestId": id, "response": "accept", "answers": answers})
            }
        };
        client.dispatch(chat, action).await?;
        let (TourRequest::Call(id, _) | TourRequest::Question(id, _)) = request;
        answered.push(id);
    }
}

/// A request that waits for the user.
enum TourRequest {
    /// Tool call and its first option.
    Call(String, Value),
    /// Input request, with the first option of each question as the answer.
    Question(String, Value),
}

/// The first request that was not answered.
fn next(client: &Observer, chat: &str, answered: &[String]) -> Option<TourRequest> {
    let chat = serde_json::to_value(client.chat(chat).ok()?).ok()?;
    let is_new = |id: &str| !answered.iter().any(|known| known == id);
    chat["activeTurn"]["responseParts"].as_array()?.iter().find_map(|part| {
        let (call, request) = (&part["toolCall"], &part["request"]);
        if let Some(id) = call["toolCallId"].as_str().filter(|id| is_new(id)) {
            let waits = call["status"] == "pending-confirmation";
            return waits.then(|| TourRequest::Call(id.to_owned(), call["options"][0]["id"].clone()));
        }
        let id = request["id"].as_str().filter(|id| is_new(id) && part["response"].is_null())?;
        let answer = |question: &Value| {
            let value = json!({"kind": "selected", "value": question["options"][0]["id"]});
            let key = question["id"].as_str().unwrap_or_default().to_owned();
            (key, json!({"state": "submitted", "value": value}))
        };
        let answers: serde_json::Map<String, Value> =
            request["questions"].as_array()?.iter().map(answer).collect();
        Some(TourRequest::Question(id.to_owned(), Value::Object(answers)))
    })
}
