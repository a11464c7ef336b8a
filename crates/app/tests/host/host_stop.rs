//! The host is stopped in the middle of turns.

use std::path::PathBuf;
use std::time::Duration;

use ahp_types::state::{ResponsePart, TurnState};
use anyhow::{Context as _, Result};
use innkeeper_testkit::{HostOptions, Observer, TestHost, runtimes};
use nix::sys::signal::Signal;

use crate::{Opened, options};

/// A response that does not finish during the test.
const ENDLESS: &str = "#demo\ntext it begins\nwait 60000\ntext it ends";

/// A response that ends after a second.
const SHORT: &str = "#demo\ntext it begins\nwait 1000\ntext it ends";

fn draining(claude: PathBuf) -> HostOptions {
    let mut options = options(claude);
    options.arguments = vec!["--drain".to_owned(), "20".to_owned()];
    options
}

/// A client in a turn whose answer has begun.
async fn streaming(host: &TestHost, text: &str) -> Result<(Observer, String)> {
    let Opened { mut client, chat, .. } = Opened::new(host).await?;
    client.say(&chat, "turn-1", text).await?;
    let begun = |client: &Observer| client.text_so_far(&chat).is_ok_and(|text| text.starts_with("it begins"));
    client.until("the answer has begun", begun).await?;
    Ok((client, chat))
}

/// Starts the host again and returns the state of its turn, with whether it can be resumed.
async fn after_restart(host: TestHost, options: HostOptions, chat: &str) -> Result<(TurnState, bool)> {
    let host = host.start_again(options).await?;
    let mut client = host.observer("later").await?;
    client.subscribe(chat).await?;
    let turn = client.chat(chat)?.turns.first().context("no turn")?;
    let resumable = matches!(turn.response_parts.last(), Some(ResponsePart::Error(error)) if error.resumable == Some(true));
    Ok((turn.state, resumable))
}

#[tokio::test]
async fn turn_is_stored_as_resumable_when_the_host_is_stopped() -> Result<()> {
    for claude in runtimes()? {
        let mut host = TestHost::start(options(claude.clone())).await?;
        let (_client, chat) = streaming(&host, ENDLESS).await?;
        host.signal(Signal::SIGTERM)?;
        assert_eq!(host.exit_code(Duration::from_secs(10)).await?, Some(0));
        assert_eq!(host.processes(), []);
        assert_eq!(after_restart(host, options(claude), &chat).await?, (TurnState::Error, true));
    }
    Ok(())
}

#[tokio::test]
async fn draining_host_lets_the_turn_end() -> Result<()> {
    for claude in runtimes()? {
        let mut host = TestHost::start(draining(claude.clone())).await?;
        let (mut client, chat) = streaming(&host, SHORT).await?;
        host.signal(Signal::SIGTERM)?;
        client.until_turn_over(&chat, "turn-1").await?;
        assert_eq!(client.chat(&chat)?.turns[0].state, TurnState::Complete);
        assert_eq!(host.exit_code(Duration::from_secs(10)).await?, Some(0));
        assert_eq!(host.processes(), []);
        assert_eq!(after_restart(host, options(claude), &chat).await?, (TurnState::Complete, false));
    }
    Ok(())
}

#[tokio::test]
async fn second_signal_ends_the_wait_for_turns() -> Result<()> {
    let [native, _] = runtimes()?;
    let mut host = TestHost::start(draining(native.clone())).await?;
    let (mut client, chat) = streaming(&host, ENDLESS).await?;
    host.signal(Signal::SIGTERM)?;
    // A second signal that arrives before the host has handled the first one is lost.
    loop {
        let rejected = client.say(&chat, "turn-2", "no").await?;
        client.until("an answer", |client| !client.answers("first", rejected).is_empty()).await?;
        let answers = client.answers("first", rejected);
        let reason = answers.first().and_then(|answer| answer.rejection_reason.as_deref());
        if reason.is_some_and(|reason| reason.starts_with("the host is stopping")) {
            break;
        }
    }
    let begun = tokio::time::Instant::now();
    host.signal(Signal::SIGTERM)?;
    assert_eq!(host.exit_code(Duration::from_secs(10)).await?, Some(0));
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(host.processes(), []);
    assert_eq!(after_restart(host, options(native), &chat).await?, (TurnState::Error, true));
    Ok(())
}

/// Scenario K: `kill -9` of the host leaves no runtime, and the turn can be resumed.
#[tokio::test]
async fn killed_host_leaves_no_runtime_and_a_resumable_turn() -> Result<()> {
    for claude in runtimes()? {
        let host = TestHost::start(options(claude.clone())).await?;
        let (_client, chat) = streaming(&host, ENDLESS).await?;
        host.signal(Signal::SIGKILL)?;
        host.no_processes(Duration::from_secs(2)).await?;
        assert_eq!(after_restart(host, options(claude), &chat).await?, (TurnState::Error, true));
    }
    Ok(())
}
