//! Large answers with a real runtime: clients open them, and no page is lost when the host is
//! killed.

use anyhow::{Context as _, Result};
use innkeeper_testkit::{Observer, TestHost, runtimes};
use serde_json::{Value, json};

use crate::{Opened, options};

const WORDS: &str = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod";

/// An answer of 16 MB, about the longest that the demo model repeats.
const REPEATS: usize = 230_000;

/// The answer with the stored pages, read by a raw client.
async fn whole_text(host: &TestHost, turn: &Value) -> Result<String> {
    let mut raw = host.raw().await?;
    raw.initialize("reader", &[]).await?;
    let mut text = String::new();
    for part in turn["responseParts"].as_array().context("no parts")? {
        let is_end = part["id"].as_str().is_some_and(|id| id.starts_with("end-"));
        match part["kind"].as_str() {
            Some("markdown") if !is_end => text.push_str(part["content"].as_str().context("no text")?),
            Some("contentRef") => {
                let params = json!({"channel": "ahp-root://", "uri": part["uri"]});
                let answer = raw.request("resourceRead", params).await?;
                text.push_str(answer["result"]["data"].as_str().with_context(|| answer.to_string())?);
            }
            _ => {}
        }
    }
    Ok(text)
}

#[tokio::test]
async fn answer_of_16_mb_is_opened_and_survives_a_killed_host() -> Result<()> {
    let [native, _] = runtimes()?;
    let host = TestHost::start(options(native.clone())).await?;
    let Opened { mut client, chat, .. } = Opened::new(&host).await?;
    let script = format!("#demo\nchunk 65536\nrepeat {REPEATS} {WORDS}\nwait 60000");
    client.say(&chat, "turn-1", &script).await?;
    let pages = |client: &Observer| {
        let turn = client.chat(&chat).ok().and_then(|chat| chat.active_turn.as_ref());
        let kinds =
            turn.into_iter().flat_map(|turn| &turn.response_parts).map(|part| json!(part)["kind"].clone());
        kinds.filter(|kind| kind == "contentRef").count()
    };
    client.until("most of the answer", |client| pages(client) >= 14).await?;
    // Storing a client's action also stores all earlier actions.
    let message = json!({"text": "next", "origin": {"kind": "user"}});
    let queued = json!({"type": "chat/pendingMessageSet", "kind": "queued", "id": "m", "message": message});
    let seq = client.dispatch(&chat, queued).await?;
    client.until("the echo", |client| !client.answers("first", seq).is_empty()).await?;
    let seen = json!(client.chat(&chat)?.active_turn);
    let document = json!(client.chat(&chat)?).to_string().len();
    assert!(document < 1024 * 1024, "{document}");

    // Kills the host.
    let host = host.start_again(options(native)).await?;
    let mut again = host.observer("again").await?;
    again.subscribe(&chat).await?;
    let turn = json!(again.chat(&chat)?.turns[0]);
    let shown = turn["responseParts"].as_array().context("no parts")?.len();
    let before = seen["responseParts"].as_array().context("no parts")?.len();
    assert!(shown >= before, "{shown} of {before} parts survived");
    let text = whole_text(&host, &turn).await?;
    let expected = format!("{WORDS} ").repeat(REPEATS);
    assert!(text.len() > 14 * 1024 * 1024 && expected.starts_with(&text), "the text differs");
    Ok(())
}
