//! The end of a host that has sessions in every state.

use std::time::Duration;

use anyhow::Result;
use innkeeper_testkit::{Observer, TestHost, eventually, runtimes};
use nix::sys::signal::Signal;

use crate::{Opened, new_session, options};

/// A turn that is in the middle of its answer.
const HANGS: &str = "#demo\ntext it begins\nwait 60000\ntext it ends";

/// A host with a provisional session, an idle one, one in a turn and one whose runtime starts.
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
    eventually(Duration::from_secs(10), "the third runtime is being started", || wardens() == 3).await?;
    Ok((host, opened))
}

#[tokio::test]
async fn host_with_provisional_and_live_sessions_ends_in_order_and_leaves_no_process() -> Result<()> {
    for claude in runtimes()? {
        let (mut host, _opened) = busy_host(claude).await?;
        host.signal(Signal::SIGTERM)?;
        assert_eq!(host.exit_code(Duration::from_secs(20)).await?, Some(0));
        host.no_processes(Duration::ZERO).await?;
    }
    Ok(())
}

#[tokio::test]
async fn host_that_is_told_to_end_twice_leaves_no_process() -> Result<()> {
    for claude in runtimes()? {
        let (mut host, _opened) = busy_host(claude).await?;
        // The second signal may come before the first is handled; then both count as one.
        host.signal(Signal::SIGTERM)?;
        host.signal(Signal::SIGINT)?;
        let code = host.exit_code(Duration::from_secs(20)).await?;
        assert!(matches!(code, Some(0 | 130)), "{code:?}");
        host.no_processes(Duration::from_secs(10)).await?;
    }
    Ok(())
}
