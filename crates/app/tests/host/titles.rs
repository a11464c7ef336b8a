//! Titles that a model writes after the first turn, with both pinned runtimes.

use anyhow::{Context as _, Result};
use innkeeper_testkit::fakes::{FakeCopilot, RecordedRequest, Reply, message};
use innkeeper_testkit::{Observer, TestHost, runtimes};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::upstreams::start_model;
use crate::{Opened, new_session, options};

/// The title that the fake writes.
const TITLE: &str = "Listing the files";

/// Whether a request asks for a title.
fn asks_for_title(request: &RecordedRequest) -> bool {
    request.json()["system"].to_string().contains("You write the title of a conversation")
}

fn has_title<'a>(session: &'a str, title: &'a str) -> impl Fn(&Observer) -> bool + 'a {
    move |client| client.session(session).is_ok_and(|state| state.title == title)
}

#[tokio::test]
async fn title_is_written_by_one_small_request_of_the_agent() -> Result<()> {
    for claude in runtimes()? {
        let model = start_model().await?;
        let relay = Reply::relay(model.base_url(), model.bearer_for("x").expose_secret());
        let service = FakeCopilot::with(move |request| {
            if asks_for_title(request) {
                Reply::json(200, &message("claude-haiku-4.5", &format!("\"{TITLE}.\"")))
            } else {
                relay.clone()
            }
        })
        .await?;
        let mut options = options(claude)
            .with_variable("INNKEEPER_GITHUB_TOKEN", "the-github-token")
            .with_variable("INNKEEPER_GITHUB_API_URL", &service.github.url());
        options.upstream = "copilot".to_owned();
        let host = TestHost::start(options).await?;
        let Opened { mut client, session, chat } = Opened::new(&host).await?;
        // A script for the demo model gets no title.
        client.say(&chat, "turn-1", "#demo\ntext hi").await?;
        client.until_turn_over(&chat, "turn-1").await?;

        let named = new_session();
        client.create_session(&named, &host.work_uri()).await?;
        let chat = client.open_session(&named).await?;
        client.say(&chat, "turn-1", "please list my files").await?;
        client.until_turn_over(&chat, "turn-1").await?;
        client.until("the title", has_title(&named, TITLE)).await?;
        client
            .until("the row", |client| client.rows.get(&named).is_some_and(|row| row.title == TITLE))
            .await?;
        client.say(&chat, "turn-2", "and now?").await?;
        client.until_turn_over(&chat, "turn-2").await?;
        assert_eq!(client.session(&named)?.title, TITLE);
        assert_eq!(client.session(&session)?.title, "#demo");

        let requests = service.messages();
        let asked: Vec<&RecordedRequest> =
            requests.iter().filter(|request| asks_for_title(request)).collect();
        let [asked] = &asked[..] else { anyhow::bail!("one request expected: {asked:?}") };
        assert_eq!(asked.header("x-initiator"), Some("agent"));
        let body = asked.json();
        assert!(body["max_tokens"].as_u64().is_some_and(|limit| limit <= 100), "{body:#}");
        assert!(body["messages"].to_string().contains("please list my files"), "{body:#}");
        let by_user = |request: &&RecordedRequest| request.header("x-initiator") == Some("user");
        assert_eq!(requests.iter().filter(by_user).count(), 3, "one for each turn");
        client.agrees_with_a_fresh_client(&host.address()?).await?;
    }
    Ok(())
}

#[tokio::test]
async fn demo_model_writes_no_title() -> Result<()> {
    for claude in runtimes()? {
        let host = TestHost::start(options(claude)).await?;
        let Opened { mut client, session, chat } = Opened::new(&host).await?;
        for turn in ["turn-1", "turn-2"] {
            client.say(&chat, turn, "hello").await?;
            client.until_turn_over(&chat, turn).await?;
        }
        assert_eq!(client.session(&session)?.title, "hello");
    }
    Ok(())
}

#[tokio::test]
async fn start_of_the_runtime_is_shown_until_the_first_output() -> Result<()> {
    for claude in runtimes()? {
        let host = TestHost::start(options(claude)).await?;
        let Opened { mut client, chat, .. } = Opened::new(&host).await?;
        client.say(&chat, "turn-1", "#demo\ntext here I am\nwait 60000").await?;
        let starting = |client: &Observer| {
            client.chat(&chat).is_ok_and(|chat| chat.activity.as_deref() == Some("Starting Claude"))
        };
        client.until("the activity", starting).await?;
        let answers =
            |client: &Observer| client.text_so_far(&chat).is_ok_and(|text| text.contains("here I am"));
        client.until("the first output", answers).await?;
        let shown = client.chat(&chat)?.activity.clone();
        assert_ne!(shown.as_deref(), Some("Starting Claude"));
        client
            .dispatch(&chat, json!({"type": "chat/turnCancelled", "turnId": "turn-1", "duration": 0}))
            .await?;
        client.until_turn_over(&chat, "turn-1").await?;
        let ended = client.chat(&chat)?;
        assert_eq!(ended.activity, None, "{:?}", ended.turns.last().context("no turn")?);
    }
    Ok(())
}
