//! Tests of deletion: the content of a deleted session is in no file of the data directory.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test helper that fails must fail the test"
)]

mod support;

use std::fs;
use std::path::Path;

use bytes::Bytes;
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::ids::ServerSeq;
use innkeeper_core::storage::{Change, Storage, StoredEnvelope, StoredTurn};
use innkeeper_store::{Store, StoreConfig};
use support::{chat, json, listed, open, put, session, sql};

/// Text that only the deleted session contains.
const MARKER: &str = "a-secret-that-must-vanish";

/// The files that contain the marker, or the address of session 1.
fn files_with_traces(directory: &Path) -> Vec<String> {
    let needles = [MARKER.as_bytes().to_vec(), session(1).as_str().as_bytes().to_vec()];
    let mut found: Vec<String> = fs::read_dir(directory)
        .expect("the directory exists")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            let bytes = fs::read(path).expect("the file is read");
            needles.iter().any(|needle| bytes.windows(needle.len()).any(|window| window == needle))
        })
        .map(|path| path.display().to_string())
        .collect();
    found.sort();
    found
}

/// A session with the marker in every kind of record, and another session.
fn marked() -> Vec<Change> {
    let turn = |number: usize| StoredTurn {
        id: format!("turn-{number}"),
        body: json(&format!("\"{MARKER} {}\"", "t".repeat(20_000))),
    };
    let mut changes = put(0);
    changes.extend(put(1));
    changes.push(Change::PutTurns { chat: chat(1), keep: 0, turns: (0..5).map(turn).collect() });
    changes.push(support::output(1, "turn-1", 1, format!("{MARKER} {}", "o".repeat(20_000)).as_bytes()));
    for number in 1..50 {
        let mut record = support::audited(1, number);
        record.rule = Some(format!("Bash({MARKER})"));
        changes.push(Change::Audit(record));
    }
    for number in 1..50 {
        changes.push(entry(number));
    }
    changes
}

fn entry(number: u64) -> Change {
    let Change::Journal { session, mut entries } = support::journal(1, number) else {
        return support::journal(1, number);
    };
    entries[0].action = json(&format!("\"{MARKER} {number}\""));
    Change::Journal { session, entries }
}

fn remove() -> Vec<Change> {
    vec![Change::RemoveSession { session: session(1) }]
}

fn envelope(seq: u64, channel: ChannelUri) -> StoredEnvelope {
    let envelope = Bytes::from(format!("{{\"text\":\"{MARKER}\"}}"));
    StoredEnvelope { seq: ServerSeq(seq), channel, only_for: None, envelope }
}

#[tokio::test]
async fn deleted_session_is_in_no_file_before_and_after_restart() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = open(directory.path());
    store.load_index().await.expect("the index loads");
    store.write(marked()).await.expect("the write succeeds");
    // Frees pages that contained the marker.
    store.write(vec![Change::TrimJournal { session: session(1), through: 30 }]).await.expect("stored");
    assert!(!files_with_traces(directory.path()).is_empty(), "the marker is stored");
    store.write(remove()).await.expect("the write succeeds");
    assert_eq!(files_with_traces(directory.path()), Vec::<String>::new(), "while the store is open");

    // The host still has the session's actions in memory when it shuts down.
    let mut kept = envelope(9, chat(0));
    kept.envelope = Bytes::from_static(b"{}");
    let replay = vec![envelope(7, session(1)), envelope(8, chat(1)), kept];
    store
        .write(vec![Change::CleanShutdown { seq: ServerSeq(9), replay, clients: Vec::new() }])
        .await
        .expect("the write succeeds");
    store.close();
    assert_eq!(files_with_traces(directory.path()), Vec::<String>::new(), "after a clean shutdown");
    let store = open(directory.path());
    let index = store.load_index().await.expect("the index loads");
    assert_eq!(listed(&index), [session(0).to_string()]);
    let replayed: Vec<u64> = index.replay.iter().map(|entry| entry.seq.0).collect();
    assert_eq!(replayed, [7, 9], "the first number, and the actions of other channels");
    assert!(index.replay[0].channel.as_str().is_empty() && index.replay[0].envelope.is_empty());
    assert_eq!(files_with_traces(directory.path()), Vec::<String>::new(), "after a restart");
}

#[tokio::test]
async fn crash_before_log_is_truncated_leaves_no_trace_after_restart() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let killed = tempfile::tempdir().expect("a temporary directory is created");
    let store = open(directory.path());
    store.write(marked()).await.expect("the write succeeds");
    // A reader keeps the log from being truncated, as in a process killed in between.
    let mut reader = sql(directory.path());
    let held = reader.transaction().expect("a transaction starts");
    held.query_row("SELECT count(*) FROM turn", [], |_| Ok(())).expect("the table is read");
    store.write(remove()).await.expect("the write succeeds");
    support::copy_running_store(directory.path(), killed.path());
    assert!(!files_with_traces(killed.path()).is_empty(), "the log still contains the marker");
    let store = open(killed.path());
    assert_eq!(files_with_traces(killed.path()), Vec::<String>::new());
    assert!(store.load_session(session(0)).await.expect("the session loads").is_some());
}

#[tokio::test]
async fn deleted_session_is_removed_from_backups() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = Store::open(StoreConfig::new(directory.path())).expect("the store opens");
    store.write(marked()).await.expect("the write succeeds");
    support::backup_exists(directory.path(), 1).await;
    let newest = directory.path().join("innkeeper.db.backup-1");
    fs::copy(&newest, directory.path().join("innkeeper.db.backup-2")).expect("the file is copied");
    assert!(files_with_traces(directory.path()).len() >= 2, "the backups contain the marker");
    store.write(remove()).await.expect("the write succeeds");
    assert_eq!(files_with_traces(directory.path()), Vec::<String>::new());
    store.close();
    assert_eq!(files_with_traces(directory.path()), Vec::<String>::new());
    // The backup still restores the other session.
    fs::write(support::database(directory.path()), b"").expect("the file is emptied");
    let store = open(directory.path());
    assert_eq!(listed(&store.load_index().await.expect("the index loads")), [session(0).to_string()]);
}

#[tokio::test]
async fn backup_that_cannot_be_changed_is_removed_with_deleted_session() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = open(directory.path());
    store.write(marked()).await.expect("the write succeeds");
    let backup = directory.path().join("innkeeper.db.backup-1");
    fs::write(&backup, MARKER).expect("the file is written");
    store.write(remove()).await.expect("the write succeeds");
    assert!(!backup.exists());
    assert_eq!(files_with_traces(directory.path()), Vec::<String>::new());
}

#[tokio::test]
async fn records_set_aside_are_deleted_with_their_session() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let further = ChannelUri::new("ahp-chat://more/1");
    let store = open(directory.path());
    store.write(marked()).await.expect("the write succeeds");
    let mut more = put(1);
    if let Some(Change::PutChat { chat, .. }) = more.last_mut() {
        *chat = further.clone();
    }
    more.push(Change::PutTurns { chat: further, keep: 0, turns: vec![support::turn(1)] });
    store.write(more).await.expect("the write succeeds");
    store.close();
    sql(directory.path())
        .execute_batch(&format!(
            "UPDATE turn SET body = '{MARKER}' WHERE place = 1;
             UPDATE journal SET action = '{MARKER}' WHERE number = 3;
             UPDATE chat SET state = '{MARKER}' WHERE derived = 0;"
        ))
        .expect("the database is changed");
    let store = open(directory.path());
    store.load_session(session(1)).await.expect("the session loads");
    assert_eq!(store.problems().len(), 3, "{:?}", store.problems());
    store.write(remove()).await.expect("the write succeeds");
    assert_eq!(files_with_traces(directory.path()), Vec::<String>::new());
}

#[tokio::test]
async fn deleted_chat_is_in_no_file() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = open(directory.path());
    store.write(marked()).await.expect("the write succeeds");
    let trim = Change::TrimJournal { session: session(1), through: 10 };
    store.write(vec![trim, Change::RemoveChat { chat: chat(1) }]).await.expect("the write succeeds");
    let bytes = fs::read(support::database(directory.path())).expect("the file is read");
    assert!(!bytes.windows(MARKER.len()).any(|window| window == MARKER.as_bytes()));
    assert_eq!(
        fs::metadata(directory.path().join("innkeeper.db-wal")).expect("the log exists").len(),
        0,
        "the log is truncated"
    );
}

#[tokio::test]
async fn migration_overwrites_free_pages_of_earlier_version() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = open(directory.path());
    store.write(marked()).await.expect("the write succeeds");
    store.close();
    support::downgrade(directory.path(), 2);
    // As an earlier version deleted sessions.
    let db = sql(directory.path());
    db.execute_batch(&format!(
        "PRAGMA secure_delete = 0; PRAGMA foreign_keys = 1;
         DELETE FROM session_row WHERE uri = '{0}'; DELETE FROM session WHERE uri = '{0}';",
        session(1)
    ))
    .expect("the session is deleted");
    drop(db);
    assert!(!files_with_traces(directory.path()).is_empty(), "free pages contain the marker");
    let store = open(directory.path());
    let bytes = fs::read(support::database(directory.path())).expect("the file is read");
    assert!(!bytes.windows(MARKER.len()).any(|window| window == MARKER.as_bytes()));
    assert!(store.load_session(session(0)).await.expect("the session loads").is_some());
}
