//! Stopping a turn, and single pieces of work, with both pinned runtimes.

use std::time::Duration;

use ahp_types::state::TurnState;
use anyhow::{Context as _, Result, ensure};
use innkeeper_testkit::fakes::{FakeAnthropic, Gate, Outcome, Reply};
use innkeeper_testkit::{Observer, eventually, runtimes};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::asking::{AskingSession, shell, text, tool};
use crate::background_work::{in_background, runs, start, subagent, until_exists, until_works};
use crate::editing::unasked;
use crate::upstreams::start_model;

/// How fast the request to the model service is closed after a cancel.
const CLOSED_WITHIN: Duration = Duration::from_millis(100);

/// How fast the processes of tools are gone after a cancel.
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// Attempts to measure a time; other programs use the machine, too.
const ATTEMPTS: usize = 4;

/// A session whose model requests are recorded.
struct CancelScene {
    asking: AskingSession,
    service: FakeAnthropic,
    turns: usize,
    /// The number of requests to the model at the last cancel.
    requests: usize,
}

impl CancelScene {
    fn open_requests(&self) -> usize {
        self.service.messages().iter().filter(|request| request.outcome == Outcome::Open).count()
    }

    /// Starts a turn.
    async fn begin(&mut self, message: &str) -> Result<String> {
        self.turns += 1;
        let turn = format!("turn-{}", self.turns);
        self.asking.client.say(&self.asking.chat, &turn, message).await?;
        Ok(turn)
    }

    /// Waits until the model is asked and has not answered completely.
    async fn until_asked(&self) -> Result<()> {
        let is_open = |service: &FakeAnthropic| {
            service.messages().last().is_some_and(|request| request.outcome == Outcome::Open)
        };
        eventually(Duration::from_secs(20), "a request to the model", || is_open(&self.service)).await
    }

    /// Cancels a turn. Returns when the last request to the model was closed, after the cancel.
    async fn cancel(&mut self, turn: &str) -> Result<Duration> {
        self.requests = self.service.messages().len();
        let cancelled = Instant::now();
        self.asking.cancel(turn).await?;
        let is_closed = || self.open_requests() == 0;
        eventually(Duration::from_secs(5), "the request is closed", is_closed).await?;
        Ok(cancelled.elapsed())
    }

    /// Checks that the same process answers the next message, and that the model got no other request
    /// since the cancel.
    async fn goes_on(&mut self, before: &[u32]) -> Result<()> {
        let marker = format!("marker-{}", self.turns);
        let turn = self.begin(&format!("#demo\ntext {marker}")).await?;
        self.asking.client.until_turn_over(&self.asking.chat, &turn).await?;
        assert_eq!(self.asking.text(&turn)?, marker);
        assert_eq!(self.asking.host.runtimes(), before, "the cancel restarted the process");
        for request in self.service.messages().iter().skip(self.requests) {
            ensure!(request.json().to_string().contains(&marker), "a request after the cancel");
        }
        Ok(())
    }
}

#[tokio::test]
async fn cancel_closes_the_model_request_and_ends_the_tools() -> Result<()> {
    for claude in runtimes()? {
        let model = start_model().await?;
        let service =
            FakeAnthropic::in_front_of(model.base_url(), model.bearer_for("x").expose_secret()).await?;
        let mut options = unasked(claude)
            .with_variable("ANTHROPIC_API_KEY", "the-hosts-key")
            .with_variable("INNKEEPER_ANTHROPIC_URL", &service.url());
        options.upstream = "anthropic".to_owned();
        let mut scene = CancelScene { asking: start(options).await?, service, turns: 0, requests: 0 };
        let first = scene.begin("#demo\ntext first").await?;
        scene.asking.finish(&first).await?;
        let pids = scene.asking.host.runtimes();

        // During text.
        let mut fastest = Duration::MAX;
        for _ in 0..ATTEMPTS {
            let turn = scene.begin("#demo\ntext something\nwait 60000\ntext never").await?;
            let has_text = |client: &Observer| {
                client.text_so_far(&scene.asking.chat).is_ok_and(|text| text == "something")
            };
            scene.asking.client.until("the text", has_text).await?;
            fastest = fastest.min(scene.cancel(&turn).await?);
            if fastest <= CLOSED_WITHIN {
                break;
            }
        }
        ensure!(fastest <= CLOSED_WITHIN, "text: closed after {fastest:?}");
        scene.goes_on(&pids).await?;

        // During a tool.
        let turn = scene.begin(&format!("#demo\n{}\ntext never", shell(&until_exists("tool-go")))).await?;
        eventually(Duration::from_secs(20), "the tool", || runs(&scene.asking.host, "tool-go")).await?;
        scene.cancel(&turn).await?;
        eventually(GONE_WITHIN, "the end of the tool", || !runs(&scene.asking.host, "tool-go")).await?;
        scene.goes_on(&pids).await?;

        // During a subagent, which waits for the model.
        let input = json!({
            "description": "d", "prompt": "#demo\ntext early\nwait 60000\ntext late",
            "subagent_type": "general-purpose", "run_in_background": false,
        });
        let mut fastest = Duration::MAX;
        for _ in 0..ATTEMPTS {
            let turn = scene.begin(&format!("#demo\n{}\ntext never", tool("Agent", &input))).await?;
            let is_asked = || {
                let requests = scene.service.messages();
                let asks = |request: &Value| request["messages"].to_string().starts_with("[{\"content\":");
                requests.last().is_some_and(|request| {
                    request.outcome == Outcome::Open
                        && asks(&request.json())
                        && !request.json().to_string().contains("text never")
                })
            };
            eventually(Duration::from_secs(20), "the subagent's request", is_asked).await?;
            fastest = fastest.min(scene.cancel(&turn).await?);
            if fastest <= CLOSED_WITHIN {
                break;
            }
        }
        ensure!(fastest <= CLOSED_WITHIN, "subagent: closed after {fastest:?}");
        scene.goes_on(&pids).await?;

        // During a compaction.
        let mut fastest = Duration::MAX;
        for _ in 0..ATTEMPTS {
            scene.service.script_messages(Reply::text(200, "text/event-stream", "").gated(&Gate::new()));
            let turn = scene.begin("/compact").await?;
            scene.until_asked().await?;
            fastest = fastest.min(scene.cancel(&turn).await?);
            if fastest <= CLOSED_WITHIN {
                break;
            }
        }
        ensure!(fastest <= CLOSED_WITHIN, "compaction: closed after {fastest:?}");
        scene.goes_on(&pids).await?;
        scene.asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

/// Asks the host to stop something.
async fn stop(asking: &AskingSession, what: Value) -> Result<Value> {
    let params = json!({"channel": asking.chat, "what": what});
    let answer: Value = asking.client.client.request("innkeeper/stop", params).await?;
    Ok(answer["stopped"].clone())
}

/// Waits until the running turn has a call of a tool that runs. Returns its id.
async fn running_call(asking: &mut AskingSession) -> Result<String> {
    let chat = asking.chat.clone();
    let call = |client: &Observer| {
        let turn = serde_json::to_value(client.chat(&chat).ok()?.active_turn.as_ref()?).ok()?;
        let parts = turn["responseParts"].as_array()?;
        let calls = parts.iter().map(|part| &part["toolCall"]);
        let mut running = calls.filter(|call| call["status"] == "running");
        running.next()?["toolCallId"].as_str().map(str::to_owned)
    };
    asking.client.until("a running call", |client| call(client).is_some()).await?;
    call(&asking.client).context("no call")
}

#[tokio::test]
async fn command_and_subagent_are_stopped_without_their_turn() -> Result<()> {
    let [native, node] = runtimes()?;
    for (claude, is_older) in [(native, false), (node, true)] {
        let mut asking = start(unasked(claude)).await?;
        let chat = asking.chat.clone();
        asking.say("turn-1", &[shell(&until_exists("one-go")), text("goes on")]).await?;
        let call = running_call(&mut asking).await?;
        eventually(Duration::from_secs(20), "the command", || runs(&asking.host, "one-go")).await?;
        let stopped = stop(&asking, json!({"toolCallId": call})).await?;
        assert_eq!(stopped, json!([{"kind": "command", "label": "a step of the test"}]));
        let calls = asking.finish("turn-1").await?;
        assert_eq!(asking.text("turn-1")?, "goes on");
        assert_eq!(calls[0]["success"], false, "{:#}", calls[0]);
        assert_eq!(calls[0]["error"]["code"], "cancelled", "{:#}", calls[0]);
        eventually(GONE_WITHIN, "the end of the command", || !runs(&asking.host, "one-go")).await?;
        let error = stop(&asking, json!({"toolCallId": call})).await.unwrap_err().to_string();
        assert!(error.contains("running"), "{error}");

        // One of two commands in the background, then a subagent.
        let steps = [
            in_background(&until_exists("two-go"), "second"),
            in_background(&until_exists("three-go"), "third"),
            subagent(&until_exists("four-go"), "fourth", true),
            text("started"),
        ];
        asking.say("turn-2", &steps).await?;
        asking.finish("turn-2").await?;
        let listed = until_works(&mut asking.client, &chat, 3).await?;
        let id = |label: &str| {
            let found = listed.iter().find(|(_, each)| each == label).context("not listed");
            found.map(|(id, _)| json!({"workId": id}))
        };
        assert_eq!(stop(&asking, id("second")?).await?, json!([{"kind": "command", "label": "second"}]));
        until_works(&mut asking.client, &chat, 2).await?;
        eventually(GONE_WITHIN, "the end of the second", || !runs(&asking.host, "two-go")).await?;
        assert!(runs(&asking.host, "three-go"), "another command ended, too");
        assert_eq!(stop(&asking, id("fourth")?).await?, json!([{"kind": "subagent", "label": "fourth"}]));
        until_works(&mut asking.client, &chat, 1).await?;
        eventually(GONE_WITHIN, "the end of the fourth", || !runs(&asking.host, "four-go")).await?;
        assert!(runs(&asking.host, "three-go"), "another command ended, too");
        let error = stop(&asking, id("fourth")?).await.unwrap_err().to_string();
        assert!(error.contains("running"), "{error}");
        // The runtime tells the model that the subagent was stopped.
        let is_idle = |client: &Observer| {
            client.chat(&chat).is_ok_and(|chat| chat.active_turn.is_none() && chat.turns.len() == 3)
        };
        asking.client.until("the turn about the stopped subagent", is_idle).await?;

        // A subagent that the turn waits for.
        asking.say("turn-3", &[subagent(&until_exists("five-go"), "fifth", false), text("goes on")]).await?;
        let call = running_call(&mut asking).await?;
        eventually(Duration::from_secs(20), "the subagent", || runs(&asking.host, "five-go")).await?;
        let stopped = stop(&asking, json!({"toolCallId": call})).await;
        if is_older {
            // That runtime would let the subagent go on.
            let error = stopped.unwrap_err().to_string();
            assert!(error.contains("Stop the turn instead"), "{error}");
            asking.cancel("turn-3").await?;
        } else {
            assert_eq!(stopped?, json!([{"kind": "subagent", "label": "fifth"}]));
            asking.finish("turn-3").await?;
            assert_eq!(asking.text("turn-3")?, "goes on");
        }
        eventually(GONE_WITHIN, "the end of the fifth", || !runs(&asking.host, "five-go")).await?;
        assert!(runs(&asking.host, "three-go"), "another command ended, too");
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn everything_is_stopped_and_the_process_answers_the_next_message() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = start(unasked(claude)).await?;
        let chat = asking.chat.clone();
        let steps = [
            in_background(&until_exists("one-go"), "first"),
            subagent(&until_exists("two-go"), "second", true),
            text("both started"),
            "wait 60000".to_owned(),
            text("never"),
        ];
        asking.say("turn-1", &steps).await?;
        let has_text =
            |client: &Observer| client.text_so_far(&chat).is_ok_and(|text| text.contains("both started"));
        asking.client.until("the text", has_text).await?;
        until_works(&mut asking.client, &chat, 2).await?;
        eventually(Duration::from_secs(20), "the subagent", || runs(&asking.host, "two-go")).await?;
        let pids = asking.host.runtimes();
        let stopped = stop(&asking, json!("all")).await?;
        let mut kinds: Vec<&str> =
            stopped.as_array().context("no list")?.iter().filter_map(|work| work["kind"].as_str()).collect();
        kinds.sort_unstable();
        assert_eq!(kinds, ["command", "subagent", "turn"], "{stopped}");
        until_works(&mut asking.client, &chat, 0).await?;
        let is_gone = || !runs(&asking.host, "one-go") && !runs(&asking.host, "two-go");
        eventually(GONE_WITHIN, "the end of the work", is_gone).await?;

        asking.say("turn-2", &[text("the next answer")]).await?;
        asking.client.until_turn_over(&chat, "turn-2").await?;
        assert_eq!(asking.text("turn-2")?, "the next answer");
        assert_eq!(asking.host.runtimes(), pids, "the stop restarted the process");
        // No turn reports that the subagent was stopped.
        let turns = &asking.client.chat(&chat)?.turns;
        let states: Vec<_> = turns.iter().map(|turn| (turn.id.as_str(), turn.state)).collect();
        assert_eq!(states, [("turn-1", TurnState::Cancelled), ("turn-2", TurnState::Complete)]);
        assert_eq!(stop(&asking, json!("all")).await?, json!([]));
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}
