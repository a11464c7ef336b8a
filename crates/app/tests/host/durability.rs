//! Durability: everything that a client was sent survives a crash of the host.

use std::collections::BTreeMap;
use std::time::Duration;

use ahp_types::state::{ChatState, ResponsePart, SessionStatus, Turn, TurnState};
use anyhow::{Context as _, Result, ensure};
use innkeeper_testkit::{Observer, TestHost, runtimes};
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use tokio::time::Instant;

use crate::{Opened, new_session, options};

/// What a client knew of one chat when the host was killed.
#[derive(Debug, Default)]
struct KnownChat {
    session: String,
    turns: Vec<Turn>,
    active: Option<String>,
    /// Text of the running turn before the last acknowledged action.
    text: String,
    queued: Vec<String>,
    /// Whether the session was listed before an acknowledged action. It is listed from its
    /// first message on, and its row is written after the message.
    listed: bool,
    /// The title seen last, and one that was requested.
    titles: Vec<String>,
}

/// All chats of a run, by URI.
type Chats = BTreeMap<String, KnownChat>;

fn text_of(turn: &Turn) -> String {
    let text = |part: &ResponsePart| match part {
        ResponsePart::Markdown(part) => part.content.clone(),
        _ => String::new(),
    };
    turn.response_parts.iter().map(text).collect()
}

/// Checks that a chat contains everything that the client knew, without duplicates.
fn check(told: &KnownChat, now: &ChatState) -> Result<()> {
    ensure!(now.active_turn.is_none(), "a turn of the killed host is still active: {:?}", now.active_turn);
    let kept = now.turns.get(..told.turns.len()).context("finished turns are missing")?;
    ensure!(kept == told.turns, "finished turns changed: {:?} {kept:?}", told.turns);
    let mut ids: Vec<&str> = now.turns.iter().map(|turn| turn.id.as_str()).collect();
    ids.sort_unstable();
    let all = ids.len();
    ids.dedup();
    ensure!(ids.len() == all, "duplicate turn: {ids:?}");
    if let Some(active) = &told.active {
        let turn = now.turns.iter().find(|turn| turn.id == *active).context("a started turn is missing")?;
        let text = text_of(turn);
        ensure!(text.starts_with(&told.text), "text is missing: {:?} {text:?}", told.text);
        if turn.state == TurnState::Error {
            let resumable = matches!(turn.response_parts.last(), Some(ResponsePart::Error(error)) if error.resumable == Some(true));
            ensure!(resumable, "an interrupted turn cannot be resumed: {turn:?}");
        }
    }
    let waiting = now.queued_messages.clone().unwrap_or_default();
    for message in &told.queued {
        let queued = waiting.iter().filter(|waiting| waiting.id == *message).count();
        let started = now.turns.iter().filter(|turn| turn.id.starts_with(&format!("{message}-"))).count();
        ensure!(
            queued + started == 1,
            "message {message} is queued {queued} times and was started {started} times"
        );
    }
    Ok(())
}

/// Checks all chats against what the client knew before the kills.
async fn check_all(client: &mut Observer, chats: &Chats) -> Result<()> {
    for (chat, told) in chats {
        client.subscribe(&told.session).await?;
        client.subscribe(chat).await?;
        check(told, client.chat(chat)?).with_context(|| chat.clone())?;
        let title = client.session(&told.session)?.title.clone();
        ensure!(told.titles.is_empty() || told.titles.contains(&title), "{title:?} {:?}", told.titles);
    }
    let rows = client.list_sessions().await?;
    for told in chats.values() {
        if told.listed {
            let row = rows.iter().find(|row| row.resource == told.session).context("a row is missing")?;
            ensure!(row.status & SessionStatus::InProgress.0 == 0, "a session is in progress: {row:?}");
        }
    }
    Ok(())
}

/// Whether the host has accepted an action of the client of this cycle.
fn is_accepted(client: &Observer, cycle: usize, decision: i64) -> bool {
    let answers = client.answers(&client_id(cycle), decision);
    answers.first().is_some_and(|answer| answer.rejection_reason.is_none())
}

fn client_id(cycle: usize) -> String {
    format!("client-{cycle}")
}

/// Uses a chat until the deadline.
async fn use_chat(
    client: &mut Observer,
    chat: &str,
    told: &mut KnownChat,
    random: &mut StdRng,
    number: usize,
) -> Result<()> {
    let words = random.random_range(20..400);
    client.say(chat, &format!("turn-{number}"), &format!("#demo\nchunk 6\nrepeat {words} word ")).await?;
    let end = Instant::now() + Duration::from_millis(random.random_range(50..2_500));
    // The running turn and its text: as seen last, before pending actions, and before acknowledged ones.
    let (mut seen, mut asked, mut stored) = (None, Vec::new(), None);
    let mut messages = 0;
    while Instant::now() < end {
        let decision = match random.random_range(0..20) {
            0 if messages < 3 => {
                messages += 1;
                let id = format!("m{number}-{messages}");
                let message = json!({"text": "#demo\ntext a queued answer", "origin": {"kind": "user"}});
                let action =
                    json!({"type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": message});
                Some(client.dispatch(chat, action).await?)
            }
            1 => {
                let title = format!("title {number} {messages}");
                told.titles.push(title.clone());
                let action = json!({"type": "session/titleChanged", "title": title});
                Some(client.dispatch(&told.session, action).await?)
            }
            _ => None,
        };
        let listed = client.rows.contains_key(&told.session);
        asked.extend(decision.map(|decision| (decision, seen.clone(), listed)));
        // Paces the client; nothing depends on the delay.
        tokio::time::sleep(Duration::from_millis(20)).await;
        client.settle().await?;
        // An action is acknowledged once it is in the journal, along with everything sent before it.
        let accepted = asked.extract_if(.., |(decision, ..)| is_accepted(client, number, *decision));
        for (_, before, listed) in accepted {
            stored = before;
            told.listed |= listed;
        }
        let active = client.chat(chat)?.active_turn.as_ref().map(|turn| turn.id.clone());
        seen = active.map(|turn| anyhow::Ok((turn, client.text_so_far(chat)?))).transpose()?;
    }
    let state = client.chat(chat)?;
    told.turns = state.turns.clone();
    told.queued = state.queued_messages.iter().flatten().map(|message| message.id.clone()).collect();
    told.active = state.active_turn.as_ref().map(|turn| turn.id.clone());
    let stored = stored.filter(|(turn, _)| Some(turn) == told.active.as_ref());
    told.text = stored.map(|(_, text)| text).unwrap_or_default();
    let title = client.session(&told.session)?.title.clone();
    let asked = told.titles.pop();
    told.titles = [title].into_iter().chain(asked).collect();
    Ok(())
}

/// Kills the host repeatedly at random moments. `INNKEEPER_CRASH_CYCLES` and
/// `INNKEEPER_CRASH_SEED` set the number of kills and the seed.
#[tokio::test]
async fn killed_host_neither_loses_nor_duplicates_acknowledged_state() -> Result<()> {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let cycles = usize::try_from(number("INNKEEPER_CRASH_CYCLES", 20))?;
    let mut random = StdRng::seed_from_u64(number("INNKEEPER_CRASH_SEED", 7));
    let [native, _] = runtimes()?;
    let mut host = TestHost::start(options(native.clone())).await?;
    let mut chats = Chats::new();
    for cycle in 0..cycles {
        let mut client = host.observer(&client_id(cycle)).await?;
        check_all(&mut client, &chats).await.with_context(|| format!("after kill {cycle}"))?;
        if chats.is_empty() || (chats.len() < 6 && random.random_ratio(1, 4)) {
            let session = new_session();
            client.create_session(&session, &host.work_uri()).await?;
            let chat = client.open_session(&session).await?;
            chats.insert(chat, KnownChat { session, ..KnownChat::default() });
        }
        let chat = chats.keys().nth(random.random_range(0..chats.len())).context("no chat")?.clone();
        let told = chats.get_mut(&chat).context("no chat")?;
        use_chat(&mut client, &chat, told, &mut random, cycle)
            .await
            .with_context(|| format!("cycle {cycle}"))?;
        host.signal(Signal::SIGKILL)?;
        host.exit_code(Duration::from_secs(10)).await?;
        host.no_processes(Duration::from_secs(5)).await.with_context(|| format!("after kill {cycle}"))?;
        host = host.start_again(options(native.clone())).await?;
    }
    let mut client = host.observer("the last").await?;
    check_all(&mut client, &chats).await.context("after the last kill")?;
    host.signal(Signal::SIGTERM)?;
    assert_eq!(host.exit_code(Duration::from_secs(10)).await?, Some(0));
    #[expect(clippy::disallowed_methods, reason = "the host has stopped, and this only reads")]
    let database = rusqlite::Connection::open(host.data_dir().join("innkeeper.db"))?;
    let verdict: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    assert_eq!(verdict, "ok");
    Ok(())
}

#[tokio::test]
async fn client_receives_only_missed_actions_after_graceful_restart_and_conversation_continues() -> Result<()>
{
    let [native, _] = runtimes()?;
    let mut host = TestHost::start(options(native.clone())).await?;
    let Opened { mut client, chat, session } = Opened::new(&host).await?;
    client.say(&chat, "turn-1", "#demo\ntext a finished answer").await?;
    client.until_turn_over(&chat, "turn-1").await?;
    client.dispatch(&session, json!({"type": "session/titleChanged", "title": "mine"})).await?;
    client.settle().await?;
    let before = client.last_seq();
    host.signal(Signal::SIGTERM)?;
    assert_eq!(host.exit_code(Duration::from_secs(10)).await?, Some(0));
    host = host.start_again(options(native)).await?;

    let mut raw = host.raw().await?;
    let params = json!({
        "clientId": "first", "lastSeenServerSeq": before,
        "subscriptions": ["ahp-root://", session, chat, "ahp-chat:/gone"],
    });
    let answer = raw.request("reconnect", params).await?;
    assert_eq!(answer["result"]["type"], "replay", "{answer}");
    assert_eq!(answer["result"]["missing"], json!(["ahp-chat:/gone"]));

    let mut again = host.observer("second").await?;
    again.subscribe(&session).await?;
    again.subscribe(&chat).await?;
    assert_eq!(again.chat(&chat)?.turns, client.chat(&chat)?.turns, "turns differ after the restart");
    assert_eq!(again.session(&session)?.title, "mine");
    again.say(&chat, "turn-2", "#demo\necho").await?;
    again.until_turn_over(&chat, "turn-2").await?;
    let said = serde_json::to_string(&again.chat(&chat)?.turns[1].response_parts)?;
    assert!(said.contains("a finished answer"), "the model does not see the earlier turns: {said}");
    again.agrees_with_a_fresh_client(&host.address()?).await
}

#[tokio::test]
async fn reconnecting_client_receives_snapshots_after_a_crash() -> Result<()> {
    let [native, _] = runtimes()?;
    let host = TestHost::start(options(native.clone())).await?;
    let Opened { mut client, chat, session } = Opened::new(&host).await?;
    client.say(&chat, "turn-1", "hi").await?;
    client.until_turn_over(&chat, "turn-1").await?;
    let seen = client.last_seq();
    let host = host.start_again(options(native)).await?;
    let mut raw = host.raw().await?;
    let params = json!({"clientId": "first", "lastSeenServerSeq": seen, "subscriptions": [session, chat]});
    let answer = raw.request("reconnect", params).await?;
    assert_eq!(answer["result"]["type"], "snapshot", "{answer}");
    assert_eq!(answer["result"]["snapshots"].as_array().map(Vec::len), Some(2));
    assert!(answer["result"]["snapshots"][0]["fromSeq"].as_u64() > Some(seen), "sequence numbers restarted");
    Ok(())
}
