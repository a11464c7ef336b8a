//! Helpers shared by the store tests.

#![allow(dead_code, reason = "each test binary uses only some helpers")]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test helper that fails must fail the test"
)]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use innkeeper_core::agent::History;
use innkeeper_core::audit::{AuditDecision, AuditPage, AuditQuery, AuditRecord, input_digest};
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::output::{OutputId, StoredOutput};
use innkeeper_core::storage::{
    Change, Index, JournalEntry, Json, Storage, StoredConversation, StoredRow, StoredRule,
    StoredRuleBehavior, StoredRuleScope, StoredTurn,
};
use innkeeper_store::{BackupSchedule, Store, StoreConfig};
use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;
use serde_json::value::RawValue;
use uuid::Uuid;

/// Opens a store that does not take backups.
pub(crate) fn open(directory: &Path) -> Store {
    Store::open(without_backups(directory)).expect("the store opens")
}

pub(crate) fn without_backups(directory: &Path) -> StoreConfig {
    StoreConfig { backups: BackupSchedule::Never, ..StoreConfig::new(directory) }
}

pub(crate) fn database(directory: &Path) -> PathBuf {
    directory.join("innkeeper.db")
}

/// A direct connection to the database.
#[expect(clippy::disallowed_methods, reason = "the test bypasses the store")]
pub(crate) fn sql(directory: &Path) -> Connection {
    Connection::open(database(directory)).expect("the database opens")
}

/// The names of files in a directory with this prefix.
pub(crate) fn names(directory: &Path, start: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .expect("the directory exists")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(start))
        .collect();
    names.sort();
    names
}

/// The damaged databases that were set aside, without their log files.
pub(crate) fn damaged(directory: &Path) -> Vec<String> {
    let mut names = names(directory, "innkeeper.db.damaged-");
    names.retain(|name| !name.ends_with("-wal") && !name.ends_with("-shm"));
    names
}

pub(crate) fn json(text: &str) -> Json {
    Arc::from(RawValue::from_string(text.to_owned()).expect("valid JSON"))
}

pub(crate) fn session(number: usize) -> ChannelUri {
    ChannelUri::new(&format!("claude:/session-{number}"))
}

pub(crate) fn chat(number: usize) -> ChannelUri {
    ChannelUri::default_chat_of(&session(number))
}

/// A listed session with its default chat.
pub(crate) fn put(number: usize) -> Vec<Change> {
    let row = StoredRow {
        session: session(number),
        modified_at: 1000,
        summary: json(&format!(r#"{{"title":"session {number}"}}"#)),
    };
    vec![
        Change::PutSession {
            session: session(number),
            created_at: "2026-01-01T00:00:00.000Z".to_owned(),
            row: Some(row),
            state: json(&format!(r#"{{"session":{number},"filler":"{}"}}"#, "s".repeat(500))),
        },
        Change::PutChat {
            chat: chat(number),
            session: session(number),
            conversation: StoredConversation {
                id: Uuid::nil(),
                history: History::Resume,
                resume_token: None,
                rewind: None,
            },
            state: json(r#"{"turns":[]}"#),
        },
    ]
}

pub(crate) fn turn(number: usize) -> StoredTurn {
    StoredTurn {
        id: format!("turn-{number}"),
        body: json(&format!(r#"{{"id":"turn-{number}","text":"{}"}}"#, "t".repeat(400))),
    }
}

pub(crate) fn turns(number: usize, turns: std::ops::Range<usize>) -> Change {
    Change::PutTurns { chat: chat(number), keep: turns.start, turns: turns.map(turn).collect() }
}

/// A piece of output of a turn.
pub(crate) fn output(number: usize, turn: &str, id: u128, body: &[u8]) -> Change {
    let output = StoredOutput { content_type: "text/plain".to_owned(), body: body.to_vec().into() };
    Change::PutOutput { chat: chat(number), turn: turn.to_owned(), id: OutputId::from_number(id), output }
}

/// An audit record of a session.
pub(crate) fn audited(number: usize, at: i64) -> AuditRecord {
    AuditRecord {
        at,
        session: session(number),
        chat: chat(number),
        turn: Some("turn-1".to_owned()),
        tool_call: format!("call-{at}"),
        tool: "Bash".to_owned(),
        input_digest: input_digest(b"{}"),
        decision: AuditDecision::Allow,
        layer: "session".to_owned(),
        rule: Some("Bash(npm test:*)".to_owned()),
        client: None,
    }
}

/// A page of audit records.
pub(crate) async fn audit_page(store: &Store, number: Option<usize>, limit: usize) -> AuditPage {
    let query = AuditQuery { session: number.map(session), before: None, limit };
    store.load_audit(query).await.expect("the audit records load")
}

/// The times of all audit records, newest first.
pub(crate) async fn audit_times(store: &Store, number: Option<usize>) -> Vec<i64> {
    audit_page(store, number, usize::MAX).await.records.iter().map(|record| record.at).collect()
}

/// A rule for a workspace.
pub(crate) fn rule(root: &str, rule: &str) -> StoredRule {
    StoredRule {
        scope: StoredRuleScope::from_root(root.to_owned()),
        behavior: StoredRuleBehavior::Allow,
        rule: rule.to_owned(),
        created_at: 7,
    }
}

pub(crate) fn journal(number: usize, entry: u64) -> Change {
    Change::Journal {
        session: session(number),
        entries: vec![JournalEntry {
            number: entry,
            channel: chat(number),
            at: 5,
            action: json(&format!(r#"{{"entry":{entry}}}"#)),
        }],
    }
}

/// The time of the audit records of [`fill`]: in the future, so that they are not deleted.
pub(crate) const FILLED_AT: i64 = 4_000_000_000_000;

/// Stores some sessions with some turns, an audit record and a rule each, then closes the
/// store.
pub(crate) async fn fill(directory: &Path, sessions: usize, turns_each: usize) {
    let store = open(directory);
    store.load_index().await.expect("the index loads");
    for number in 0..sessions {
        let mut changes = put(number);
        changes.push(turns(number, 0..turns_each));
        changes.push(journal(number, 1));
        changes.push(Change::Audit(audited(number, FILLED_AT)));
        changes.push(Change::PutRule(rule("/w", &format!("Bash({number})"))));
        store.write(changes).await.expect("the write succeeds");
    }
    store.close();
}

/// The turn ids of a session's default chat.
pub(crate) async fn turn_ids(store: &Store, number: usize) -> Vec<String> {
    let stored =
        store.load_session(session(number)).await.expect("the session loads").expect("the session exists");
    stored.chats[0].turns.iter().map(|turn| turn.id.clone()).collect()
}

/// The turn numbers of a session's default chat.
pub(crate) async fn turn_numbers(store: &Store, number: usize) -> Vec<usize> {
    let ids = turn_ids(store, number).await;
    ids.iter().map(|id| id.trim_start_matches("turn-").parse().expect("a number")).collect()
}

pub(crate) fn listed(index: &Index) -> Vec<String> {
    let mut listed: Vec<String> = index.rows.iter().map(|row| row.session.to_string()).collect();
    listed.sort();
    listed
}

/// Copies the files of an open store, as a killed process would leave them.
pub(crate) fn copy_running_store(from: &Path, to: &Path) {
    for name in ["innkeeper.db", "innkeeper.db-wal"] {
        if from.join(name).exists() {
            fs::copy(from.join(name), to.join(name)).expect("the file is copied");
        }
    }
}

/// Waits until a backup exists.
pub(crate) async fn backup_exists(directory: &Path, number: usize) {
    let backup = directory.join(format!("innkeeper.db.backup-{number}"));
    innkeeper_testkit::eventually(Duration::from_secs(20), "a backup is taken", || backup.exists())
        .await
        .expect("a backup is taken");
}

/// The migrations in order.
const STEPS: [&str; 4] = [
    include_str!("../../migrations/0001_initial.sql"),
    include_str!("../../migrations/0002_agent_messages.sql"),
    include_str!("../../migrations/0003_checksums.sql"),
    include_str!("../../migrations/0004_output.sql"),
];

/// Replaces a closed database by one that an earlier version created, with the same
/// records.
pub(crate) fn downgrade(directory: &Path, version: usize) {
    let current = directory.join("current");
    fs::rename(database(directory), &current).expect("the file is renamed");
    let db = sql(directory);
    db.execute_batch("PRAGMA journal_mode = WAL").expect("the mode is set");
    // The tables are empty, so the result does not matter.
    db.create_scalar_function("record_checksum", -1, FunctionFlags::default(), |_| Ok(0))
        .expect("the function is added");
    for step in &STEPS[..version] {
        db.execute_batch(step).expect("the tables are created");
    }
    db.pragma_update(None, "user_version", version as i64).expect("the version is set");
    let attached = db.execute("ATTACH DATABASE ?1 AS current", [current.to_str()]);
    attached.expect("the database is attached");
    let tables: Vec<String> = texts(&db, "SELECT name FROM main.sqlite_schema WHERE type = 'table'");
    for table in tables {
        let columns =
            texts(&db, &format!("SELECT name FROM pragma_table_info('{table}', 'main')")).join(", ");
        db.execute_batch(&format!(
            "INSERT INTO main.{table} ({columns}) SELECT {columns} FROM current.{table}"
        ))
        .expect("the records are copied");
    }
    drop(db);
    fs::remove_file(&current).expect("the file is removed");
}

fn texts(db: &Connection, select: &str) -> Vec<String> {
    let mut select = db.prepare(select).expect("a valid statement");
    let rows = select.query_map([], |row| row.get(0)).expect("the rows are read");
    rows.collect::<rusqlite::Result<_>>().expect("the rows are read")
}

pub(crate) const PAGE: u64 = 4096;

pub(crate) fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).expect("the file opens");
    file.write_all_at(bytes, offset).expect("the file is written");
}

/// The pages of a table or index, root page first.
pub(crate) fn pages_of(directory: &Path, name: &str) -> Vec<u64> {
    let db = sql(directory);
    let root: i64 = db
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = ?1", [name], |row| row.get(0))
        .expect("the table exists");
    let bytes = fs::read(database(directory)).expect("the file is read");
    let mut pages = vec![root.unsigned_abs()];
    let mut at = 0;
    while let Some(page) = pages.get(at).copied() {
        at += 1;
        let start = ((page - 1) * PAGE) as usize;
        let content = &bytes[start..start + PAGE as usize];
        // An interior page: child pages are in its cells, the last one in its header.
        if content[0] == 5 || content[0] == 2 {
            let cells = usize::from(u16::from_be_bytes([content[3], content[4]]));
            for cell in 0..cells {
                let pointer = 12 + 2 * cell;
                let offset = usize::from(u16::from_be_bytes([content[pointer], content[pointer + 1]]));
                let child = content[offset..offset + 4].try_into().expect("four bytes");
                pages.push(u64::from(u32::from_be_bytes(child)));
            }
            pages.push(u64::from(u32::from_be_bytes(content[8..12].try_into().expect("four bytes"))));
        }
    }
    pages
}

/// Overwrites a page.
pub(crate) fn destroy(directory: &Path, page: u64) {
    overwrite(&database(directory), (page - 1) * PAGE, &[0x5a; PAGE as usize]);
}
