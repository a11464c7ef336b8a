//! Answers that break off or are delayed by the model service, with both pinned runtimes.

use std::path::PathBuf;

use ahp_types::state::{ResponsePart, TurnState};
use anyhow::Result;
use innkeeper_testkit::{HostOptions, Observer, TestHost, runtimes};

use crate::{Opened, options};

/// Options for a runtime that repeats failed requests.
fn retrying(claude: PathBuf) -> HostOptions {
    options(claude).with_variable("CLAUDE_CODE_MAX_RETRIES", "2")
}

/// The texts of a turn, without those that a notification names as discarded.
fn texts(client: &Observer, chat: &str) -> Result<Vec<String>> {
    let parts = &client.chat(chat)?.turns[0].response_parts;
    let is_discarded = |id: &str| {
        parts.iter().any(|part| match part {
            ResponsePart::SystemNotification(notice) => {
                let named = notice.meta.as_ref().and_then(|meta| meta.get("innkeeper.discardedParts"));
                named.and_then(|ids| ids.as_array()).is_some_and(|ids| ids.iter().any(|each| each == id))
            }
            _ => false,
        })
    };
    let texts = parts.iter().filter_map(|part| match part {
        ResponsePart::Markdown(part) if !is_discarded(&part.id) => Some(part.content.clone()),
        _ => None,
    });
    Ok(texts.collect())
}

#[tokio::test]
async fn answer_that_breaks_off_is_marked_as_discarded() -> Result<()> {
    for claude in runtimes()? {
        let host = TestHost::start(retrying(claude)).await?;
        let Opened { mut client, chat, .. } = Opened::new(&host).await?;
        client.say(&chat, "turn-1", "#demo\nchunk 4\ntext Something first.\ndrop always").await?;
        client.until_turn_over(&chat, "turn-1").await?;
        let texts = texts(&client, &chat)?;
        assert!(texts.iter().filter(|text| !text.is_empty()).count() <= 1, "{texts:?}");
        assert_eq!(client.chat(&chat)?.turns[0].state, TurnState::Error);
        client.agrees_with_a_fresh_client(&host.address()?).await?;
    }
    Ok(())
}

#[tokio::test]
async fn retry_shows_cause_and_attempt_until_the_answer_continues() -> Result<()> {
    for claude in runtimes()? {
        let host = TestHost::start(retrying(claude)).await?;
        let Opened { mut client, chat, .. } = Opened::new(&host).await?;
        client.say(&chat, "turn-1", "#demo\nerror 529 overloaded_error\ntext fine").await?;
        let retries = |client: &Observer| {
            let activity = client.chat(&chat).ok().and_then(|chat| chat.activity.clone());
            activity.is_some_and(|text| text.starts_with("The model is overloaded (529). Retry 1 of "))
        };
        client.until("the retry is shown", retries).await?;
        client.until_turn_over(&chat, "turn-1").await?;
        assert_eq!(client.chat(&chat)?.activity, None);
        assert_eq!(texts(&client, &chat)?, ["fine"]);
        client.agrees_with_a_fresh_client(&host.address()?).await?;
    }
    Ok(())
}
