//! Crashes and shutdowns of runtimes and of the host leave no processes.

use std::time::Duration;

use ahp_types::state::{ResponsePart, TurnState};
use anyhow::{Context as _, Result};
use innkeeper_testkit::{Observer, TestHost, eventually, processes, runtimes};
use nix::sys::signal::Signal;

use crate::{Opened, options};

/// A response that does not finish during the test.
const ENDLESS: &str = "#demo\ntext it begins\nwait 60000\ntext it ends";

async fn streaming(host: &TestHost) -> Result<(Observer, String)> {
    let Opened { mut client, chat, .. } = Opened::new(host).await?;
    client.say(&chat, "turn-1", "#demo\ntext a finished answer").await?;
    client.until_turn_over(&chat, "turn-1").await?;
    client.say(&chat, "turn-2", ENDLESS).await?;
    let begun = |client: &Observer| client.text_so_far(&chat).is_ok_and(|text| text == "it begins");
    client.until("the answer has begun", begun).await?;
    Ok((client, chat))
}

#[tokio::test]
async fn killed_runtime_fails_its_turn_and_next_message_resumes_the_conversation() -> Result<()> {
    for claude in runtimes()? {
        let host = TestHost::start(options(claude)).await?;
        let (mut client, chat) = streaming(&host).await?;
        let pid = *host.runtimes().first().context("no runtime")?;
        processes::kill(pid)?;
        client.until_turn_over(&chat, "turn-2").await?;
        let turn = &client.chat(&chat)?.turns[1];
        assert_eq!(turn.state, TurnState::Error);
        let Some(ResponsePart::Error(error)) = turn.response_parts.last() else { panic!("{turn:?}") };
        assert!(error.error.message.contains("SIGKILL"), "the signal is missing: {error:?}");

        client.say(&chat, "turn-3", "#demo\necho").await?;
        client.until_turn_over(&chat, "turn-3").await?;
        let turn = &client.chat(&chat)?.turns[2];
        assert_eq!(turn.state, TurnState::Complete, "{turn:?}");
        let said = serde_json::to_string(&turn.response_parts)?;
        assert!(said.contains("a finished answer"), "the model does not see the earlier turns: {said}");
        assert!(!host.runtimes().contains(&pid));
        client.agrees_with_a_fresh_client(&host.address()?).await?;
    }
    Ok(())
}

#[tokio::test]
async fn runtime_that_dies_before_writing_a_transcript_is_started_again() -> Result<()> {
    for claude in runtimes()? {
        let host = TestHost::start(options(claude)).await?;
        let Opened { mut client, chat, .. } = Opened::new(&host).await?;
        client.say(&chat, "turn-1", ENDLESS).await?;
        eventually(Duration::from_secs(10), "the runtime starts", || !host.runtimes().is_empty()).await?;
        processes::kill(*host.runtimes().first().context("no runtime")?)?;
        client.until_turn_over(&chat, "turn-1").await?;
        assert_eq!(client.chat(&chat)?.turns[0].state, TurnState::Error);
        client.say(&chat, "turn-2", "hi").await?;
        client.until_turn_over(&chat, "turn-2").await?;
        assert_eq!(
            client.chat(&chat)?.turns[1].state,
            TurnState::Complete,
            "{:?}",
            client.chat(&chat)?.turns
        );
    }
    Ok(())
}

#[tokio::test]
async fn killed_host_leaves_no_processes() -> Result<()> {
    for claude in runtimes()? {
        let host = TestHost::start(options(claude)).await?;
        let (_client, _) = streaming(&host).await?;
        assert_eq!(host.runtimes().len(), 1);
        host.signal(Signal::SIGKILL)?;
        host.no_processes(Duration::from_secs(2)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn host_stopped_by_signal_leaves_no_processes_and_exits_with_0() -> Result<()> {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let [native, _] = runtimes()?;
        let mut host = TestHost::start(options(native)).await?;
        let (_client, _) = streaming(&host).await?;
        host.signal(signal)?;
        assert_eq!(host.exit_code(Duration::from_secs(10)).await?, Some(0));
        assert_eq!(host.processes(), []);
    }
    Ok(())
}

#[tokio::test]
async fn host_stopped_while_a_runtime_starts_leaves_no_processes() -> Result<()> {
    let [native, _] = runtimes()?;
    let mut host = TestHost::start(options(native)).await?;
    let Opened { client, chat, .. } = Opened::new(&host).await?;
    client.say(&chat, "turn-1", ENDLESS).await?;
    eventually(Duration::from_secs(10), "the runtime is starting", || !host.processes().is_empty()).await?;
    host.signal(Signal::SIGTERM)?;
    assert_eq!(host.exit_code(Duration::from_secs(10)).await?, Some(0));
    assert_eq!(host.processes(), []);
    Ok(())
}
