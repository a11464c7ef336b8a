//! Shutdown of a host that has sessions in every state.

use std::time::Duration;

use anyhow::Result;
use innkeeper_testkit::{Observer, TestHost, eventually, runtimes};
use nix::sys::signal::Signal;

use crate::{Opened, new_session, options};

/// A response that does not finish during the test.
const HANGS: &str = "#demo\ntext it begins\nwait 60000\ntext it ends";

/// Starts a host with four sessions: provisional, idle, in a turn, and with a starting runtime.
async fn busy_host(claude: std::path::PathBuf) -> Result<(TestHost, Opened)> {
    let host = TestHost::start(options(claude)).await?;
    let mut opened = Opened::new(&host).await?;
    opened.client.create_session(&new_session(), &host.work_uri()).await?;
    let mut chats = Vec::new();
    for _ in 0..2 {
        let session = new_session();
        opened.client.create_session(&session, &host.work_uri()).await?;
        chats.push(opened.client.open_session(&session).await?);
    }
    let Opened { client, chat, .. } = &mut opened;
    client.say(&chats[0], "turn-1", "#demo\ntext done").await?;
    client.until_turn_over(&chats[0], "turn-1").await?;
    client.say(chat, "turn-1", HANGS).await?;
    let begun = |client: &Observer| client.text_so_far(chat).is_ok_and(|text| !text.is_empty());
    client.until("the answer has begun", begun).await?;
    assert_eq!(host.runtimes().len(), 2);
    client.say(&chats[1], "turn-1", HANGS).await?;
    let wardens = || host.processes().iter().filter(|process| process.is_warden()).count();
    eventually(Duration::from_secs(10), "the third runtime is starting", || wardens() == 3).await?;
    Ok((host, opened))
}

#[tokio::test]
async fn graceful_shutdown_with_provisional_and_live_sessions_leaves_no_process() -> Result<()> {
    for claude in runtimes()? {
        let (mut host, _opened) = busy_host(claude).await?;
        host.signal(Signal::SIGTERM)?;
        assert_eq!(host.exit_code(Duration::from_secs(20)).await?, Some(0));
        host.no_processes(Duration::ZERO).await?;
    }
    Ok(())
}

#[tokio::test]
async fn second_signal_during_shutdown_leaves_no_process() -> Result<()> {
    for claude in runtimes()? {
        let (mut host, _opened) = busy_host(claude).await?;
        // The second signal may arrive before the first is handled; then they count as one.
        host.signal(Signal::SIGTERM)?;
        host.signal(Signal::SIGINT)?;
        let code = host.exit_code(Duration::from_secs(20)).await?;
        assert!(matches!(code, Some(0 | 130)), "{code:?}");
        host.no_processes(Duration::from_secs(10)).await?;
    }
    Ok(())
}
