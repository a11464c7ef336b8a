//! What turns and sessions used, compared with what the model service served.

use ahp_types::state::{ChatState, MessageKind, Turn};
use anyhow::{Context as _, Result, ensure};
use innkeeper_testkit::fakes::FakeCopilot;
use innkeeper_testkit::{HostOptions, Observer, TestHost, runtimes};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::asking::{AskingSession, CLIENT, text, tool};
use crate::background_work::{start, subagent, until_exists};
use crate::editing::unasked;
use crate::upstreams::start_model;

/// The counts of a published usage.
const COUNTS: [&str; 5] = ["requests", "inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"];

fn on_copilot(options: HostOptions, service: &FakeCopilot) -> HostOptions {
    let mut options = options
        .with_variable("INNKEEPER_GITHUB_TOKEN", "the-github-token")
        .with_variable("INNKEEPER_GITHUB_API_URL", &service.github.url());
    options.upstream = "copilot".to_owned();
    options
}

/// The totals of a turn.
fn totals(turn: &Turn) -> Value {
    let usage = turn.usage.as_ref().and_then(|usage| usage.meta.as_ref());
    json!(usage)["innkeeper.usage"].clone()
}

fn count(totals: &Value, key: &str) -> u64 {
    totals[key].as_u64().unwrap_or_default()
}

/// A cost in billionths of a dollar.
fn cost(totals: &Value) -> u64 {
    innkeeper_core::usage::nano_dollars(totals["costUsd"].as_f64().unwrap_or_default()).unwrap_or_default()
}

fn session_meta(client: &Observer, session: &str) -> Result<Value> {
    Ok(json!(client.session(session)?.meta))
}

/// Checks that the session's totals are the sums of its turns.
fn session_is_the_sum(client: &Observer, session: &str, chat: &ChatState) -> Result<()> {
    let meta = session_meta(client, session)?;
    let turns: Vec<Value> = chat.turns.iter().map(totals).collect();
    for key in COUNTS.into_iter().chain(["userRequests"]) {
        let sum: u64 = turns.iter().map(|turn| count(turn, key)).sum();
        ensure!(count(&meta["innkeeper.usage"], key) == sum, "{key}: {meta:#} {turns:#?}");
    }
    let sum: u64 = turns.iter().map(cost).sum();
    ensure!(sum > 0 && cost(&meta["innkeeper.usage"]) == sum, "cost: {meta:#} {turns:#?}");
    Ok(())
}

async fn metric(host: &TestHost, line: &str) -> Result<bool> {
    let address = host.socket()?.replace("ws://", "http://") + "metrics";
    let token = host.ready()["token"].as_str().context("no token")?;
    let http = reqwest::Client::builder().no_proxy().build()?;
    let text =
        http.get(&address).header("authorization", format!("Bearer {token}")).send().await?.text().await?;
    Ok(text.lines().any(|each| each == line))
}

/// Tool loops, subagents in the foreground and background, a compaction and a turn after it. Returns
/// the turns of users' messages, except the command.
async fn work(asking: &mut AskingSession) -> Result<Vec<&'static str>> {
    let step = tool("Bash", &json!({"command": "true", "description": "a step"}));
    asking.say("tools", &[step.clone(), step, text("done")]).await?;
    asking.finish("tools").await?;
    asking.say("subagent", &[subagent("true", "in the foreground", false), text("done")]).await?;
    asking.finish("subagent").await?;
    let background = [subagent(&until_exists("go"), "in the background", true), text("started")];
    asking.say("background", &background).await?;
    asking.finish("background").await?;
    std::fs::write(asking.host.work_dir().join("go"), "")?;
    let chat = asking.chat.clone();
    let follows = |client: &Observer| {
        client.chat(&chat).is_ok_and(|chat| {
            let is_own = |turn: &Turn| turn.message.origin.kind == MessageKind::SystemNotification;
            chat.active_turn.is_none() && chat.turns.iter().any(is_own)
        })
    };
    asking.client.until("the turn that follows the subagent", follows).await?;
    asking.client.say(&chat, "compaction", "/compact").await?;
    asking.finish("compaction").await?;
    asking.say("after", &[text("after the compaction")]).await?;
    asking.finish("after").await?;
    Ok(vec!["tools", "subagent", "background", "after"])
}

#[tokio::test]
async fn every_request_is_in_a_turn_and_each_message_of_the_user_is_one_request() -> Result<()> {
    for claude in runtimes()? {
        let model = start_model().await?;
        let service =
            FakeCopilot::in_front_of(model.base_url(), model.bearer_for("x").expose_secret()).await?;
        let options = on_copilot(unasked(claude), &service);
        let mut asking = start(options.clone()).await?;
        let by_user = work(&mut asking).await?;

        let chat = asking.client.chat(&asking.chat)?.clone();
        let session = asking.session.clone();
        session_is_the_sum(&asking.client, &session, &chat)?;
        let served = model.usage("x").context("no requests")?;
        let used = session_meta(&asking.client, &session)?["innkeeper.usage"].clone();
        assert_eq!(
            COUNTS.map(|key| count(&used, key)),
            [served.requests, served.input_tokens, served.output_tokens, 0, 0],
            "{used:#}"
        );
        for turn in &chat.turns {
            let totals = totals(turn);
            let is_users = by_user.contains(&turn.id.as_str());
            assert_eq!(count(&totals, "userRequests"), u64::from(is_users), "{}: {totals:#}", turn.id);
            let initiator = if is_users || turn.id == "compaction" { "user" } else { "agent" };
            assert_eq!(totals["initiator"], initiator, "{}: {totals:#}", turn.id);
            // Older runtimes report the cost of a turn with the end of its background subagent.
            assert!(cost(&totals) > 0 || turn.id == "background", "{}: {totals:#}", turn.id);
        }
        let requests = service.messages();
        let sent = requests.iter().filter(|request| request.header("x-initiator") == Some("user")).count();
        assert_eq!(sent, by_user.len());
        for line in [
            format!("innkeeper_model_requests_total {}", served.requests),
            format!("innkeeper_model_user_requests_total {}", by_user.len()),
            format!("innkeeper_model_tokens_total{{kind=\"input\"}} {}", served.input_tokens),
            format!("innkeeper_model_tokens_total{{kind=\"output\"}} {}", served.output_tokens),
        ] {
            assert!(metric(&asking.host, &line).await?, "{line}");
        }
        // Of the three calls of the main conversation and the two of the subagent, only the last of
        // the main conversation is the context.
        let turn = chat.turns.iter().find(|turn| turn.id == "subagent").context("no turn")?;
        let context = turn.usage.as_ref().and_then(|usage| usage.input_tokens).context("no context")?;
        let input = i64::try_from(count(&totals(turn), "inputTokens"))?;
        assert!(count(&totals(turn), "requests") >= 4, "{turn:#?}");
        assert!(context > 0 && context * 2 < input, "{context} of {input}");
        asking.client.agrees_with_a_fresh_client(&asking.host.address()?).await?;

        // The cost of the resumed conversation is not that of the next turn.
        let AskingSession { host, session, .. } = asking;
        let host = host.start_again(options).await?;
        let mut client = host.observer(CLIENT).await?;
        let chat_uri = client.open_session(&session).await?;
        assert_eq!(client.chat(&chat_uri)?.turns, chat.turns, "the turns differ after a restart");
        let mut asking = AskingSession { host, client, session, chat: chat_uri };
        asking.say("resumed", &[text("again")]).await?;
        asking.finish("resumed").await?;
        let chat = asking.client.chat(&asking.chat)?.clone();
        session_is_the_sum(&asking.client, &asking.session, &chat)?;
        let costs: Vec<u64> = chat.turns.iter().map(|turn| cost(&totals(turn))).collect();
        let (last, before) = costs.split_last().context("no turns")?;
        assert!(*last > 0 && *last < before.iter().sum::<u64>() / 2, "{costs:?}");
    }
    Ok(())
}

#[tokio::test]
async fn usage_is_published_at_each_model_call() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = start(unasked(claude)).await?;
        let gate = tool("Bash", &json!({"command": until_exists("go"), "description": "wait"}));
        asking.say("turn-1", &[gate, text("done")]).await?;
        // While the tool runs, the first call is already counted.
        let chat = asking.chat.clone();
        let usage = |client: &Observer| {
            let active = client.chat(&chat).ok().and_then(|chat| chat.active_turn.clone());
            active.and_then(|active| active.usage).map(|usage| json!(usage))
        };
        let session = asking.session.clone();
        let is_counted = |client: &Observer| {
            session_meta(client, &session).is_ok_and(|meta| count(&meta["innkeeper.usage"], "requests") > 0)
        };
        asking.client.until("the usage of the first call", is_counted).await?;
        let first = usage(&asking.client).context("no usage")?;
        let session = session_meta(&asking.client, &session)?;
        assert!(first["inputTokens"].as_u64() > Some(0) && first["model"].is_string(), "{first:#}");
        assert!(first["_meta"]["innkeeper.usage"]["costUsd"].is_null(), "{first:#}");
        assert_eq!(count(&session["innkeeper.usage"], "requests"), 1, "{session:#}");
        std::fs::write(asking.host.work_dir().join("go"), "")?;
        asking.finish("turn-1").await?;
        let turn = asking.client.chat(&chat)?.turns.last().context("no turn")?.clone();
        // The demo model costs nothing, so the runtime's estimate is not published.
        assert_eq!((count(&totals(&turn), "requests"), &totals(&turn)["costUsd"]), (2, &Value::Null));
        let context = turn.usage.and_then(|usage| usage.input_tokens);
        assert!(context > first["inputTokens"].as_i64(), "{context:?}");
    }
    Ok(())
}

#[tokio::test]
async fn credits_and_cached_tokens_are_those_of_the_service() -> Result<()> {
    for claude in runtimes()? {
        let service = FakeCopilot::with_credits(1_500_000_000).await?;
        let mut asking = start(on_copilot(unasked(claude), &service)).await?;
        // A script gets no title, which would be another request.
        asking.client.say(&asking.chat, "turn-1", "#demo\nhello").await?;
        asking.finish("turn-1").await?;
        let turn = asking.client.chat(&asking.chat)?.turns.first().context("no turn")?.clone();
        let usage = json!(turn.usage);
        assert_eq!(COUNTS.map(|key| count(&totals(&turn), key)), [1, 11, 7, 3, 2], "{usage:#}");
        assert_eq!((&usage["inputTokens"], &usage["cacheReadTokens"]), (&json!(16), &json!(3)));
        assert_eq!(usage["_meta"]["copilotUsage"], json!({"totalNanoAiu": 1_500_000_000}));
        let session = session_meta(&asking.client, &asking.session)?;
        assert_eq!(session["copilotUsage"], usage["_meta"]["copilotUsage"]);
        assert!(metric(&asking.host, "innkeeper_model_copilot_nano_aiu_total 1500000000").await?);
    }
    Ok(())
}
