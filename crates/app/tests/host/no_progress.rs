//! A turn without progress says what it waits for, with both pinned versions.

use anyhow::{Context as _, Result};
use innkeeper_testkit::{HostOptions, runtimes};
use serde_json::json;
use tokio::task::JoinSet;

use crate::asking::{AskingSession, shell, text};
use crate::background_work::until_exists;
use crate::editing::unasked;
use crate::options;

/// A session whose turn waits, and the activity that clients are shown after 20 s.
async fn waits(options: HostOptions, mode: &str, (step, expected): (String, &str)) -> Result<()> {
    let mut asking = AskingSession::start(options, json!({"permissionMode": mode})).await?;
    let chat = asking.chat.clone();
    asking.say("turn-1", &[text("it begins"), step, text("it ends")]).await?;
    let activity = |client: &innkeeper_testkit::Observer| client.chat(&chat).ok()?.activity.clone();
    let is_told = |client: &innkeeper_testkit::Observer| {
        activity(client).is_some_and(|activity| activity.starts_with(expected))
    };
    asking
        .client
        .until(expected, is_told)
        .await
        .with_context(|| format!("{:?}", activity(&asking.client)))?;
    // The end of the turn clears it.
    asking.cancel("turn-1").await?;
    asking.client.until("no activity", |client| activity(client).is_none()).await?;
    asking.agrees_with_a_fresh_client().await
}

#[tokio::test]
async fn silent_turn_names_the_model_the_tool_or_the_user() -> Result<()> {
    let mut waiting = JoinSet::new();
    for claude in runtimes()? {
        let [unasked, asking] = [unasked(claude.clone()), options(claude)];
        let model = ("wait 60000".to_owned(), "Waiting for the model for 20 s");
        let tool = (shell(&until_exists("never")), "Running Bash for 20 s");
        let user = (shell("touch file"), "Waiting for your answer");
        waiting.spawn(waits(unasked.clone(), "bypassPermissions", model));
        waiting.spawn(waits(unasked, "bypassPermissions", tool));
        waiting.spawn(waits(asking, "default", user));
    }
    while let Some(waited) = waiting.join_next().await {
        waited??;
    }
    Ok(())
}
