//! Runtimes that stop responding in the middle of a turn, with both pinned versions.

use std::time::Duration;

use ahp_types::state::TurnState;
use anyhow::{Context as _, Result};
use innkeeper_testkit::{Observer, TestHost, eventually, processes, runtimes};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{Opened, options};

/// An answer that does not end during the test.
const ENDLESS: &str = "#demo\ntext it begins\nwait 60000\ntext it ends";

/// The interrupts of a cancelled turn take 5 s; then the runtime is ended.
const ENDED_WITHIN: Duration = Duration::from_secs(20);

/// A chat whose runtime was suspended in the middle of its second turn.
struct HangingChat {
    host: TestHost,
    client: Observer,
    chat: String,
    pid: u32,
}

impl HangingChat {
    async fn new(claude: std::path::PathBuf) -> Result<Self> {
        let host = TestHost::start(options(claude)).await?;
        let Opened { mut client, chat, .. } = Opened::new(&host).await?;
        client.say(&chat, "turn-1", "#demo\ntext a finished answer").await?;
        client.until_turn_over(&chat, "turn-1").await?;
        client.say(&chat, "turn-2", ENDLESS).await?;
        let begun = |client: &Observer| client.text_so_far(&chat).is_ok_and(|text| text == "it begins");
        client.until("the answer has begun", begun).await?;
        let pid = *host.runtimes().first().context("no runtime")?;
        processes::stop(pid)?;
        Ok(Self { host, client, chat, pid })
    }

    /// Checks that another process answers the next message with the same conversation.
    async fn goes_on(mut self) -> Result<()> {
        let Self { host, client, chat, pid } = &mut self;
        eventually(ENDED_WITHIN, "the end of the process", || !host.runtimes().contains(pid)).await?;
        client.say(chat, "turn-3", "#demo\necho").await?;
        client.until_turn_over(chat, "turn-3").await?;
        let turn = client.chat(chat)?.turns.last().context("no turn")?;
        assert_eq!(turn.state, TurnState::Complete, "{turn:?}");
        let said = serde_json::to_string(&turn.response_parts)?;
        assert!(said.contains("a finished answer"), "the conversation is lost: {said}");
        client.agrees_with_a_fresh_client(&host.address()?).await
    }
}

async fn cancel(mut hanging: HangingChat) -> Result<()> {
    let cancelled = json!({"type": "chat/turnCancelled", "turnId": "turn-2", "duration": 10});
    hanging.client.dispatch(&hanging.chat, cancelled).await?;
    hanging.client.until_turn_over(&hanging.chat, "turn-2").await?;
    assert_eq!(hanging.client.chat(&hanging.chat)?.turns[1].state, TurnState::Cancelled);
    assert!(hanging.host.runtimes().contains(&hanging.pid), "the cancel waited for the process");
    hanging.goes_on().await
}

async fn restart(mut hanging: HangingChat) -> Result<()> {
    let chat = hanging.chat.clone();
    let params = json!({"channel": chat});
    let restarted: Value = hanging.client.client.request("innkeeper/restartAgent", params).await?;
    assert_eq!(restarted, json!({}));
    hanging.client.until_turn_over(&chat, "turn-2").await?;
    let turn = serde_json::to_value(&hanging.client.chat(&chat)?.turns[1])?;
    let error = turn["responseParts"].as_array().and_then(|parts| parts.last()).context("no parts")?;
    assert_eq!((&turn["state"], &error["resumable"]), (&json!("error"), &json!(true)), "{turn:#}");
    hanging.goes_on().await
}

/// All at once, because the deadlines for the end of a process take most of the time.
#[tokio::test]
async fn cancel_and_restart_replace_a_hanging_process() -> Result<()> {
    let mut scenarios = JoinSet::new();
    for claude in runtimes()? {
        let [first, second] = [HangingChat::new(claude.clone()).await?, HangingChat::new(claude).await?];
        scenarios.spawn(cancel(first));
        scenarios.spawn(restart(second));
    }
    while let Some(result) = scenarios.join_next().await {
        result??;
    }
    Ok(())
}
