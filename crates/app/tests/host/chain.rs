//! Complete turns, from the first message to the streamed response, with both pinned runtimes.

use std::path::PathBuf;
use std::time::Duration;

use ahp_types::state::{ResponsePart, SessionLifecycle, SessionSummary, TurnState};
use anyhow::{Context as _, Result};
use innkeeper_testkit::{Observer, Seen, TestHost, runtimes};

use crate::{Opened, new_session, options};

/// A response in eleven pieces, preceded by thinking.
const SCRIPT: &str =
    "#demo\nchunk 4\nthink let me see what there is\ntext The quick brown fox jumps over the lazy dog.";
const ANSWER: &str = "The quick brown fox jumps over the lazy dog.";

#[tokio::test]
async fn session_runs_from_creation_to_disposal_with_native_runtime() -> Result<()> {
    let [native, _] = runtimes()?;
    complete_session(native).await
}

#[tokio::test]
async fn session_runs_from_creation_to_disposal_with_node_runtime() -> Result<()> {
    let [_, node] = runtimes()?;
    complete_session(node).await
}

async fn complete_session(claude: PathBuf) -> Result<()> {
    let host = TestHost::start(options(claude)).await?;
    let (address, session) = (host.address()?, new_session());
    let mut first = host.observer("first").await?;
    let mut second = host.observer("second").await?;

    first.create_session(&session, &host.work_uri()).await?;
    let chat = first.open_session(&session).await?;
    assert_eq!(host.processes(), [], "creating a session started a process");
    assert!(second.list_sessions().await?.is_empty(), "a provisional session was listed");
    second.settle().await?;
    assert!(!second.seen.iter().any(|seen| matches!(seen, Seen::SessionAdded(_))), "{:?}", second.seen);
    first.agrees_with_a_fresh_client(&address).await?;

    first.say(&chat, "turn-1", SCRIPT).await?;
    first.until_turn_over(&chat, "turn-1").await?;
    first_turn_is_ordered(&first, &chat)?;
    assert_eq!(first.session(&session)?.lifecycle, SessionLifecycle::Ready);
    first.agrees_with_a_fresh_client(&address).await?;
    second.until("the session is announced", |second| second.rows.contains_key(&session)).await?;
    assert_eq!(second.list_sessions().await?.len(), 1);

    let pids = host.runtimes();
    assert_eq!(pids.len(), 1, "one runtime: {:?}", host.processes());
    first.say(&chat, "turn-2", "hi").await?;
    first.until_turn_over(&chat, "turn-2").await?;
    assert_eq!(host.runtimes(), pids, "the second turn ran in another process");
    assert_eq!(first.chat(&chat)?.turns[1].state, TurnState::Complete);
    assert!(!answer(&first, &chat, 1)?.is_empty());
    first.agrees_with_a_fresh_client(&address).await?;
    row_matches_session(&mut second, &session).await?;

    first.dispose_session(&session).await?;
    host.no_processes(Duration::ZERO).await.context("processes remained after disposal was confirmed")?;
    let removed = |second: &Observer| second.seen.iter().any(|seen| matches!(seen, Seen::SessionRemoved(_)));
    second.until("the session's removal is announced", removed).await?;
    assert!(second.list_sessions().await?.is_empty());
    Ok(())
}

fn first_turn_is_ordered(observer: &Observer, chat: &str) -> Result<()> {
    let actions = observer.actions(chat)?;
    let first =
        |name: &str| actions.iter().position(|action| action == name).with_context(|| format!("no {name}"));
    let last =
        |name: &str| actions.iter().rposition(|action| action == name).with_context(|| format!("no {name}"));
    assert_eq!(first("chat/turnStarted")?, 0, "the echo was not first: {actions:?}");
    assert!(first("chat/responsePart")? < first("chat/reasoning")?);
    assert!(last("chat/responsePart")? < first("chat/delta")?);
    assert!(last("chat/delta")? < first("chat/usage")?);
    assert_eq!(last("chat/usage")?, actions.len() - 2, "usage was not second to last: {actions:?}");
    assert_eq!(first("chat/turnComplete")?, actions.len() - 1);
    let deltas = actions.iter().filter(|action| *action == "chat/delta").count();
    assert!(deltas >= 5, "the response was not streamed: {deltas} deltas");

    let turn = &observer.chat(chat)?.turns[0];
    assert_eq!(turn.state, TurnState::Complete);
    assert!(matches!(turn.response_parts[0], ResponsePart::Reasoning(_)));
    assert_eq!(answer(observer, chat, 0)?, ANSWER);
    let usage = turn.usage.as_ref().context("no usage")?;
    assert!(usage.input_tokens > Some(0) && usage.output_tokens > Some(0), "{usage:?}");
    Ok(())
}

/// Checks that the listed row, the row folded from notifications and the session agree.
async fn row_matches_session(observer: &mut Observer, session: &str) -> Result<()> {
    let listed = observer.list_sessions().await?;
    let row = listed.first().context("no row")?;
    assert_eq!((row.resource.as_str(), row.title.as_str()), (session, "#demo"));
    let wanted = row.clone();
    assert_eq!(wanted.activity, None);
    // The official client cannot clear an activity in a row: its types do not distinguish null.
    let agrees = move |observer: &Observer| {
        let folded = observer.rows.get(&wanted.resource).cloned();
        folded.is_some_and(|folded| SessionSummary { activity: None, ..folded } == wanted)
    };
    observer.until("the row folded from notifications equals the listed one", agrees).await
}

/// Returns the text of a turn.
fn answer(observer: &Observer, chat: &str, turn: usize) -> Result<String> {
    let parts = &observer.chat(chat)?.turns[turn].response_parts;
    let words = parts.iter().filter_map(|part| match part {
        ResponsePart::Markdown(part) => Some(part.content.as_str()),
        _ => None,
    });
    Ok(words.collect())
}

#[tokio::test]
async fn client_that_joins_during_a_response_reaches_the_same_state() -> Result<()> {
    let [native, _] = runtimes()?;
    let mut options = options(native);
    options.user_settings = Some(serde_json::json!({"permissions": {"allow": ["Bash"]}}));
    let host = TestHost::start(options).await?;
    let Opened { client: mut first, chat, .. } = Opened::new(&host).await?;
    // The response continues once the second client is connected.
    let gate = r#"tool Bash {"command":"until [ -e go ]; do sleep 0.05; done","description":"x"}"#;
    let script =
        format!("#demo\nchunk 3\ntext one two three four five\n{gate}\ntext six seven eight nine ten");
    first.say(&chat, "turn-1", &script).await?;
    let streaming = |observer: &Observer| {
        observer.actions(&chat).is_ok_and(|seen| seen.contains(&"chat/delta".to_owned()))
    };
    first.until("the answer has begun", streaming).await?;

    let mut second = host.observer("second").await?;
    second.subscribe(&chat).await?;
    assert!(second.chat(&chat)?.active_turn.is_some(), "the turn ended before the client joined");
    std::fs::write(host.work_dir().join("go"), "")?;
    second.until_turn_over(&chat, "turn-1").await?;
    first.until_turn_over(&chat, "turn-1").await?;
    assert_eq!(first.chat(&chat)?, second.chat(&chat)?);
    assert!(second.actions(&chat)?.contains(&"chat/delta".to_owned()), "no delta arrived after joining");
    Ok(())
}

#[tokio::test]
async fn model_error_fails_the_turn_and_the_next_turn_works() -> Result<()> {
    for claude in runtimes()? {
        let host = TestHost::start(options(claude)).await?;
        let Opened { mut client, chat, .. } = Opened::new(&host).await?;
        client.say(&chat, "turn-1", "#demo\nerror 400 invalid_request_error always").await?;
        client.until_turn_over(&chat, "turn-1").await?;
        let turn = &client.chat(&chat)?.turns[0];
        assert_eq!(turn.state, TurnState::Error);
        let Some(ResponsePart::Error(error)) = turn.response_parts.last() else { panic!("{turn:?}") };
        assert!(error.error.message.contains("400"), "{error:?}");
        client.say(&chat, "turn-2", "hi").await?;
        client.until_turn_over(&chat, "turn-2").await?;
        assert_eq!(client.chat(&chat)?.turns[1].state, TurnState::Complete);
        client.agrees_with_a_fresh_client(&host.address()?).await?;
    }
    Ok(())
}

#[tokio::test]
async fn message_selects_its_model_and_unavailable_model_fails_the_turn() -> Result<()> {
    let [native, _] = runtimes()?;
    let host = TestHost::start(options(native)).await?;
    let Opened { mut client, chat, .. } = Opened::new(&host).await?;
    let models = [("turn-1", "default"), ("turn-2", "haiku"), ("turn-3", "gpt-99"), ("turn-4", "default")];
    for (turn, model) in models {
        let started = serde_json::json!({
            "type": "chat/turnStarted", "turnId": turn, "startedAt": "2025-11-15T09:00:05.000Z",
            "message": {"text": "hi", "origin": {"kind": "user"}, "model": {"id": model}},
        });
        client.dispatch(&chat, started).await?;
        client.until_turn_over(&chat, turn).await?;
    }
    let turns = &client.chat(&chat)?.turns;
    let states: Vec<TurnState> = turns.iter().map(|turn| turn.state).collect();
    assert_eq!(states, [TurnState::Complete, TurnState::Complete, TurnState::Error, TurnState::Complete]);
    let models: Vec<Option<&str>> =
        turns.iter().map(|turn| turn.usage.as_ref().and_then(|usage| usage.model.as_deref())).collect();
    assert!(models[1].is_some_and(|model| model.contains("haiku")), "{models:?}");
    assert_eq!(models[0], models[3], "the default model was not restored");
    Ok(())
}

#[tokio::test]
async fn cancelled_turn_stays_cancelled_and_the_next_message_is_answered() -> Result<()> {
    for claude in runtimes()? {
        let host = TestHost::start(options(claude)).await?;
        let Opened { mut client, chat, .. } = Opened::new(&host).await?;
        client
            .say(&chat, "turn-1", "#demo\ntext this was said before\nwait 60000\ntext this never comes")
            .await?;
        let begun =
            |client: &Observer| client.text_so_far(&chat).is_ok_and(|text| text == "this was said before");
        client.until("the answer has begun", begun).await?;
        let pids = host.runtimes();
        let cancel = serde_json::json!({"type": "chat/turnCancelled", "turnId": "turn-1", "duration": 10});
        client.dispatch(&chat, cancel).await?;
        client.say(&chat, "turn-2", "hi").await?;
        client.until_turn_over(&chat, "turn-2").await?;
        let states: Vec<TurnState> = client.chat(&chat)?.turns.iter().map(|turn| turn.state).collect();
        assert_eq!(states, [TurnState::Cancelled, TurnState::Complete]);
        assert_eq!(answer(&client, &chat, 0)?, "this was said before");
        assert!(!answer(&client, &chat, 1)?.contains("this never comes"));
        assert_eq!(host.runtimes(), pids, "the cancel restarted the process");
        client.agrees_with_a_fresh_client(&host.address()?).await?;
    }
    Ok(())
}
