//! Measures the store: startup with many sessions and rules, loading a long chat, commits,
//! and audit records when their number is at the limit.

#![expect(clippy::print_stdout, reason = "prints the result")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use innkeeper_core::agent::History;
use innkeeper_core::audit::{
    AuditDecision, AuditQuery, AuditRecord, MAX_AUDIT_PAGE, MAX_AUDIT_RECORDS, input_digest,
};
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::storage::{
    Change, JournalEntry, Json, Storage, StoredConversation, StoredRow, StoredRule, StoredRuleBehavior,
    StoredRuleScope, StoredTurn,
};
use innkeeper_store::{Store, StoreConfig};
use serde_json::json;
use serde_json::value::to_raw_value;
use tokio::time::Instant;

/// Number of sessions in the list.
const SESSIONS: usize = 10_000;
/// Number of permission rules.
const RULES: usize = 1_000;
/// Number of turns in the long chat, and the size of each.
const TURNS: usize = 1_000;
const TURN_BYTES: usize = 4_096;
/// Number of rounds per measurement.
const ROUNDS: usize = 9;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let store = Store::open(StoreConfig::new(directory.path()))?;
    store.load_index().await?;
    fill(&store).await?;
    store.close();

    let mut opens = Vec::new();
    let mut indexes = Vec::new();
    let mut chats = Vec::new();
    let mut commits = Vec::new();
    let mut grouped = Vec::new();
    let mut audits = Vec::new();
    let mut pages = Vec::new();
    for round in 0..ROUNDS {
        let start = Instant::now();
        let store = Store::open(StoreConfig::new(directory.path()))?;
        opens.push(start.elapsed());
        let start = Instant::now();
        let index = store.load_index().await?;
        indexes.push(start.elapsed());
        assert_eq!(index.rows.len(), SESSIONS, "the sessions that were stored");
        let start = Instant::now();
        let session = store.load_session(session(0)).await?.ok_or("the long session is missing")?;
        chats.push(start.elapsed());
        assert_eq!(session.chats.iter().map(|chat| chat.turns.len()).sum::<usize>(), TURNS);
        let first = round as u64 * 2_000 + 1;
        let start = Instant::now();
        for number in 0..1_000 {
            store.write(vec![entry(first + number)?]).await?;
        }
        commits.push(start.elapsed() / 1_000);
        let start = Instant::now();
        let mut waiting = Vec::new();
        for number in 1_000..2_000 {
            waiting.push(store.write(vec![entry(first + number)?]));
        }
        for write in waiting {
            write.await?;
        }
        grouped.push(start.elapsed() / 1_000);
        let start = Instant::now();
        for _ in 0..1_000 {
            store.write(vec![audited()]).await?;
        }
        audits.push(start.elapsed() / 1_000);
        let start = Instant::now();
        let query = AuditQuery { session: Some(self::session(1)), before: None, limit: MAX_AUDIT_PAGE };
        let page = store.load_audit(query).await?;
        pages.push(start.elapsed());
        assert_eq!(page.records.len(), MAX_AUDIT_PAGE, "a full page");
        store.write(vec![Change::TrimJournal { session: self::session(1), through: first + 2_000 }]).await?;
        store.close();
    }
    let report = json!({
        "open_ms": millis(opens), "index_of_10000_ms": millis(indexes), "chat_of_1000_turns_ms": millis(chats),
        "commit_us": micros(commits), "grouped_commit_us": micros(grouped),
        "audit_commit_us": micros(audits), "audit_page_of_500_ms": millis(pages),
    });
    println!("{report:#}");
    Ok(())
}

async fn fill(store: &Store) -> Result<(), Box<dyn Error>> {
    for number in 0..SESSIONS {
        let session = session(number);
        let row =
            StoredRow { session: session.clone(), modified_at: number as i64, summary: summary(number)? };
        store
            .write(vec![
                Change::PutSession {
                    session: session.clone(),
                    created_at: "2026-01-01T00:00:00.000Z".to_owned(),
                    row: Some(row),
                    state: raw(&json!({"text": "x".repeat(3_000)}))?,
                },
                Change::PutChat {
                    chat: ChannelUri::default_chat_of(&session),
                    session,
                    conversation: StoredConversation::new(History::Fresh),
                    state: raw(&json!({"text": "x".repeat(1_000)}))?,
                },
            ])
            .await?;
    }
    let turns = (0..TURNS).map(|number| {
        let body = raw(&json!({"id": number, "parts": [{"text": "word ".repeat(TURN_BYTES / 5)}]}))?;
        Ok::<_, serde_json::Error>(StoredTurn { id: number.to_string(), body })
    });
    let turns = turns.collect::<Result<_, _>>()?;
    let chat = ChannelUri::default_chat_of(&session(0));
    store.write(vec![Change::PutTurns { chat, keep: 0, turns }]).await?;
    for _ in 0..MAX_AUDIT_RECORDS / 1_000 {
        store.write((0..1_000).map(|_| audited()).collect()).await?;
    }
    let rule = |number: usize| {
        Change::PutRule(StoredRule {
            scope: StoredRuleScope::Workspace("/home/user/projects/something".to_owned()),
            behavior: StoredRuleBehavior::Allow,
            rule: format!("Bash(npm run script-{number}:*)"),
            created_at: 0,
        })
    };
    store.write((0..RULES).map(rule).collect()).await?;
    Ok(())
}

fn session(number: usize) -> ChannelUri {
    ChannelUri::new(&format!("claude:/{:08x}-3b1c-4f0e-9d0a-1c2d3e4f5a6b", number))
}

/// A summary of about 600 bytes, similar to a real one.
fn summary(number: usize) -> Result<Json, serde_json::Error> {
    raw(&json!({
        "resource": session(number).as_str(), "provider": "claude", "title": format!("Rework the parser of module {number}"),
        "status": 8, "createdAt": "2026-01-01T00:00:00.000Z", "modifiedAt": "2026-01-01T00:00:00.000Z",
        "workingDirectory": "file:///home/user/projects/something/with/a/long/path",
        "model": {"id": "claude-sonnet-4-5-20250929"}, "project": {"uri": "file:///home/user/projects/something", "displayName": "something"},
        "changes": {"files": 3, "insertions": 120, "deletions": 44}, "_meta": {"note": "n".repeat(80)},
    }))
}

fn entry(number: u64) -> Result<Change, serde_json::Error> {
    let session = session(1);
    let action =
        raw(&json!({"type": "chat/delta", "turnId": "t", "partId": "p", "content": "some words more"}))?;
    let channel = ChannelUri::default_chat_of(&session);
    Ok(Change::Journal { session, entries: vec![JournalEntry { number, channel, at: 0, action }] })
}

fn audited() -> Change {
    let session = session(1);
    Change::Audit(AuditRecord {
        at: jiff::Timestamp::now().as_millisecond(),
        chat: ChannelUri::default_chat_of(&session),
        session,
        turn: Some("0199a1b2-3c4d-7e5f-8a6b-7c8d9e0f1a2b".to_owned()),
        tool_call: "toolu_01A2b3C4d5E6f7G8h9J0k1L2".to_owned(),
        tool: "Bash".to_owned(),
        input_digest: input_digest(b"{}"),
        decision: AuditDecision::Allow,
        layer: "workspace".to_owned(),
        rule: Some("Bash(npm test:*)".to_owned()),
        client: None,
    })
}

fn raw(value: &serde_json::Value) -> Result<Json, serde_json::Error> {
    Ok(Arc::from(to_raw_value(value)?))
}

fn millis(rounds: Vec<Duration>) -> f64 {
    median(rounds).as_secs_f64() * 1e3
}

fn micros(rounds: Vec<Duration>) -> f64 {
    median(rounds).as_secs_f64() * 1e6
}

fn median(mut rounds: Vec<Duration>) -> Duration {
    rounds.sort();
    rounds.get(rounds.len() / 2).copied().unwrap_or_default()
}
