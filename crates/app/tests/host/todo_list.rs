//! The agent's to-do list, with both pinned runtimes.

use anyhow::{Context as _, Result};
use innkeeper_testkit::{TestHost, runtimes};
use serde_json::{Value, json};

use crate::asking::{AskingSession, text, tool};
use crate::options;

/// The session's list for the test's chat.
fn items(asking: &AskingSession) -> Result<Value> {
    let session = serde_json::to_value(asking.client.session(&asking.session)?)?;
    Ok(session["_meta"]["innkeeper.todo"][&asking.chat]["items"].clone())
}

/// Checks the counts in the session list.
async fn row_counts(asking: &AskingSession, done: u64, total: u64) -> Result<()> {
    let rows = asking.client.list_sessions().await?;
    let row = rows.iter().find(|row| row.resource == asking.session).context("no row")?;
    let row = serde_json::to_value(row)?;
    assert_eq!(row["_meta"]["innkeeper.todo"], json!({"done": done, "total": total}), "{row:#}");
    Ok(())
}

/// A model to which both runtimes offer a to-do list; the native one does not for newer models.
const MODEL: &str = "claude-sonnet-4-5";

/// Runs two turns that change the list, and checks it after each.
async fn is_published(host: TestHost, [first, second]: [&[String]; 2]) -> Result<()> {
    let mut asking = AskingSession::on(host, json!({})).await?;
    asking.say_to(MODEL, "turn-1", first).await?;
    let calls = asking.finish("turn-1").await?;
    assert_eq!(
        items(&asking)?,
        json!([{"text": "Buy milk", "status": "pending"}, {"text": "Bake bread", "status": "pending"}])
    );
    row_counts(&asking, 0, 2).await?;
    let last = calls.last().context("no call")?;
    assert!(last["_meta"]["innkeeper.todo"].to_string().contains("Bake bread"), "{last:#}");

    asking.say_to(MODEL, "turn-2", second).await?;
    asking.finish("turn-2").await?;
    assert_eq!(
        items(&asking)?,
        json!([{"text": "Buy milk", "status": "completed"}, {"text": "Bake bread", "status": "in_progress"}])
    );
    row_counts(&asking, 1, 2).await?;
    assert_eq!(asking.times_asked()?, 0);
    asking.agrees_with_a_fresh_client().await
}

#[tokio::test]
async fn to_do_list_is_published_with_native_runtime() -> Result<()> {
    let [native, _] = runtimes()?;
    let create = |subject: &str| tool("TaskCreate", &json!({"subject": subject, "description": subject}));
    let update = |id: &str, status: &str| tool("TaskUpdate", &json!({"taskId": id, "status": status}));
    let host = TestHost::start(options(native)).await?;
    let first = [create("Buy milk"), create("Bake bread"), text("done")];
    let second = [update("1", "completed"), update("2", "in_progress"), text("done")];
    is_published(host, [&first, &second]).await
}

#[tokio::test]
async fn to_do_list_is_published_with_node_runtime() -> Result<()> {
    let [_, node] = runtimes()?;
    let list = |states: [&str; 2]| {
        let item = |text: &str, status: &str| json!({"content": text, "status": status, "activeForm": text});
        let todos = json!([item("Buy milk", states[0]), item("Bake bread", states[1])]);
        [tool("TodoWrite", &json!({"todos": todos})), text("done")]
    };
    let host = TestHost::start(options(node)).await?;
    is_published(host, [&list(["pending", "pending"]), &list(["completed", "in_progress"])]).await
}
