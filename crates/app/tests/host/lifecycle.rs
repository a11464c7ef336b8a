//! Edge cases in the lifecycle of a session.

use std::time::Duration;

use ahp_types::state::{ResponsePart, TurnState};
use anyhow::Result;
use innkeeper_testkit::{Observer, Seen, TestHost, eventually, in_time, processes, runtimes};

use crate::{Opened, new_session, options, without_runtime};

#[tokio::test]
async fn two_simultaneous_first_messages_start_one_turn_and_one_process() -> Result<()> {
    let [native, _] = runtimes()?;
    let host = TestHost::start(options(native)).await?;
    let session = new_session();
    let mut first = host.observer("first").await?;
    let second = host.observer("second").await?;
    first.create_session(&session, &host.work_uri()).await?;
    let chat = first.open_session(&session).await?;
    let (one, two) = tokio::join!(first.say(&chat, "turn-1", "hi"), second.say(&chat, "turn-2", "ho"));
    one.and(two)?;
    let settled = |first: &Observer| {
        first.chat(&chat).is_ok_and(|chat| chat.turns.len() == 1 && chat.active_turn.is_none())
    };
    first.until("one turn is over", settled).await?;
    assert_eq!(host.runtimes().len(), 1);
    first.settle().await?;
    let added = first.seen.iter().filter(|seen| matches!(seen, Seen::SessionAdded(_))).count();
    assert_eq!(added, 1);
    Ok(())
}

#[tokio::test]
async fn provisional_session_is_disposed_without_notification() -> Result<()> {
    let host = TestHost::start(without_runtime()).await?;
    let session = new_session();
    let mut client = host.observer("c1").await?;
    client.create_session(&session, &host.work_uri()).await?;
    client.dispose_session(&session).await?;
    assert!(client.subscribe(&session).await.is_err());
    assert!(client.dispose_session(&session).await.unwrap_err().to_string().contains("-32001"));
    client.create_session(&session, &host.work_uri()).await?;
    assert!(
        client.create_session(&session, &host.work_uri()).await.unwrap_err().to_string().contains("-32003")
    );
    client.settle().await?;
    assert!(client.seen.is_empty(), "unexpected notification: {:?}", client.seen);
    assert_eq!(host.processes(), []);
    Ok(())
}

#[tokio::test]
async fn session_disposed_while_its_runtime_starts_leaves_no_process() -> Result<()> {
    for claude in runtimes()? {
        let host = TestHost::start(options(claude)).await?;
        let Opened { client, session, chat } = Opened::new(&host).await?;
        client.say(&chat, "turn-1", "hi").await?;
        eventually(Duration::from_secs(10), "the runtime is starting", || !host.processes().is_empty())
            .await?;
        client.dispose_session(&session).await?;
        host.no_processes(Duration::ZERO).await?;
        let listed = client.list_sessions().await?;
        assert!(listed.is_empty(), "{listed:?}");
    }
    Ok(())
}

#[tokio::test]
async fn live_session_can_be_disposed_while_a_tool_runs() -> Result<()> {
    for claude in runtimes()? {
        let mut options = options(claude);
        // The tool is allowed in the user's settings, so the runtime does not ask.
        options.user_settings = Some(serde_json::json!({"permissions": {"allow": ["Bash"]}}));
        let host = TestHost::start(options).await?;
        let Opened { client, session, chat } = Opened::new(&host).await?;
        client
            .say(&chat, "turn-1", "#demo\ntool Bash {\"command\":\"tail -f /dev/null\"}\ntext done")
            .await?;
        let running =
            || host.processes().iter().any(|process| process.arguments == ["tail", "-f", "/dev/null"]);
        eventually(Duration::from_secs(30), "the tool runs", running).await?;
        client.dispose_session(&session).await?;
        host.no_processes(Duration::ZERO).await?;
    }
    Ok(())
}

#[tokio::test]
async fn hanging_runtime_is_disposed_within_the_deadlines() -> Result<()> {
    for claude in runtimes()? {
        let host = TestHost::start(options(claude)).await?;
        let Opened { mut client, session, chat } = Opened::new(&host).await?;
        client.say(&chat, "turn-1", "#demo\ntext it begins\nwait 60000\ntext it ends").await?;
        client
            .until("the answer has begun", |client| {
                client.text_so_far(&chat).is_ok_and(|text| !text.is_empty())
            })
            .await?;
        for pid in host.runtimes() {
            processes::stop(pid)?;
        }
        in_time(Duration::from_secs(9), "disposal", client.dispose_session(&session)).await??;
        host.no_processes(Duration::ZERO).await?;
    }
    Ok(())
}

#[tokio::test]
async fn turn_without_a_runtime_says_how_to_install_one_and_downloads_nothing() -> Result<()> {
    let host = TestHost::start(without_runtime()).await?;
    let Opened { mut client, chat, .. } = Opened::new(&host).await?;
    for turn in ["turn-1", "turn-2"] {
        client.say(&chat, turn, "hi").await?;
        client.until_turn_over(&chat, turn).await?;
    }
    let turns = &client.chat(&chat)?.turns;
    assert_eq!(turns.len(), 2, "the session is not usable");
    for turn in turns {
        assert_eq!(turn.state, TurnState::Error);
        let Some(ResponsePart::Error(error)) = turn.response_parts.last() else { panic!("{turn:?}") };
        assert!(error.error.message.contains("innkeeper runtime install"), "{error:?}");
    }
    assert!(!host.home().join("runtimes").exists());
    client.agrees_with_a_fresh_client(&host.address()?).await?;
    Ok(())
}

#[tokio::test]
async fn turn_continues_while_no_client_is_connected() -> Result<()> {
    let [native, _] = runtimes()?;
    let host = TestHost::start(options(native)).await?;
    let Opened { mut client, chat, .. } = Opened::new(&host).await?;
    client.say(&chat, "turn-1", "#demo\ntext one\nwait 500\ntext two").await?;
    let begun =
        |client: &Observer| client.actions(&chat).is_ok_and(|seen| seen.contains(&"chat/delta".to_owned()));
    client.until("the answer has begun", begun).await?;
    client.client.shutdown().await;
    drop(client);

    let mut later = host.observer("c2").await?;
    later.subscribe(&chat).await?;
    later.until_turn_over(&chat, "turn-1").await?;
    assert_eq!(later.chat(&chat)?.turns[0].state, TurnState::Complete);
    Ok(())
}
