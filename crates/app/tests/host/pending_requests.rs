//! Requests that wait for the user when the host is killed, with both pinned runtimes.

use std::time::Duration;

use anyhow::{Context as _, Result};
use innkeeper_testkit::{Observer, runtimes};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::asking::{AskingSession, CLIENT, text, tool, write};
use crate::options;

#[tokio::test]
async fn request_of_killed_host_ends_in_resumable_turn_and_is_asked_again() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = AskingSession::start(options(claude.clone()), json!({})).await?;
        let file = asking.host.work_dir().join("made.txt");
        asking.say("turn-1", &[write(&file, "by the agent"), text("done")]).await?;
        asking.permission("turn-1").await?;
        asking.client.settle().await?;
        let row = waiting_since(&asking).await?;
        assert!(row.is_some_and(|since| !since.is_empty()), "the row does not say since when it waits");

        let AskingSession { mut host, session, chat, client } = asking;
        drop(client);
        host.signal(Signal::SIGKILL)?;
        host.exit_code(Duration::from_secs(10)).await?;
        host.no_processes(Duration::from_secs(5)).await?;
        assert!(!file.exists(), "the call ran when the host was killed");
        let host = host.start_again(options(claude)).await?;

        // Every client sees a turn that can be resumed and no request.
        let mut second = host.observer("second").await?;
        second.open_session(&session).await?;
        let mut client = host.observer(CLIENT).await?;
        client.open_session(&session).await?;
        for client in [&client, &second] {
            assert!(client.session(&session)?.input_needed.is_none());
            let turn = serde_json::to_value(client.chat(&chat)?.turns.last().context("no turn")?)?;
            let parts = turn["responseParts"].as_array().context("no parts")?;
            assert_eq!(turn["state"], "error", "{turn:#}");
            assert_eq!(parts.last().context("no parts")?["resumable"], true, "{turn:#}");
        }
        let mut asking = AskingSession { host, session, chat, client };
        assert_eq!(waiting_since(&asking).await?, None);

        let resume = json!({"type": "chat/turnResume", "turnId": "turn-1"});
        asking.client.dispatch(&asking.chat, resume).await?;
        asking.client.until("the request after the resume", is_asked_on(&asking.session)).await?;
        let call = asking.permission("turn-1").await?;
        assert!(!file.exists(), "the call ran without an answer");
        second.until("the request on the other client", is_asked_on(&asking.session)).await?;
        asking.approve("turn-1", &call, "allow-once").await?;
        asking.finish("turn-1").await?;
        assert_eq!(std::fs::read_to_string(&file)?, "by the agent");
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

fn is_asked_on(session: &str) -> impl Fn(&Observer) -> bool {
    move |client| client.session(session).is_ok_and(|session| session.input_needed.is_some())
}

/// Since when the session waits for the user, as the session list says.
async fn waiting_since(asking: &AskingSession) -> Result<Option<String>> {
    let rows = asking.client.list_sessions().await?;
    let row = rows.iter().find(|row| row.resource == asking.session).context("no row")?;
    let row = serde_json::to_value(row)?;
    Ok(row["_meta"]["innkeeper.waitingSince"].as_str().map(str::to_owned))
}

#[tokio::test]
async fn request_survives_reconnect_of_its_only_client() -> Result<()> {
    let [native, _] = runtimes()?;
    let mut asking = AskingSession::start(options(native), json!({})).await?;
    let file = asking.host.work_dir().join("made.txt");
    let question = json!({"questions": [{
        "question": "Which colour?", "header": "Colour", "multiSelect": false,
        "options": [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}],
    }]});
    let steps = [write(&file, "by the agent"), tool("AskUserQuestion", &question), text("done")];
    asking.say("turn-1", &steps).await?;
    let before = asking.permission("turn-1").await?;
    asking.client.client.shutdown().await;
    let address = asking.host.address()?;
    asking.client.reconnect(&address, CLIENT).await?;
    let call = asking.permission("turn-1").await?;
    assert_eq!(call, before, "the request differs after the reconnect");
    asking.approve("turn-1", &call, "allow-once").await?;
    let request = asking.question("turn-1").await?;
    asking.client.client.shutdown().await;
    asking.client.reconnect(&address, CLIENT).await?;
    assert_eq!(asking.question("turn-1").await?, request);
    let chosen = json!({"state": "submitted", "value": {"kind": "selected", "value": "Red"}});
    let id = request["questions"][0]["id"].as_str().context("no question")?;
    asking.answer(&request, "accept", json!({id: chosen})).await?;
    asking.finish("turn-1").await?;
    assert!(file.exists());
    asking.agrees_with_a_fresh_client().await
}
