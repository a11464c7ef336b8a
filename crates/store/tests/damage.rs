//! Tests with damaged data: readable records are kept, unreadable ones are set aside and
//! reported, and nothing is deleted.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test helper that fails must fail the test"
)]

mod support;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use innkeeper_core::audit::AuditQuery;
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::ids::{ClientId, ServerSeq};
use innkeeper_core::storage::{Change, Storage, StorageError, StoredDispatch};
use innkeeper_store::{OpenStoreError, Store, StoreConfig};
use proptest::collection::vec;
use proptest::prelude::*;
use support::{
    PAGE, chat, damaged, database, destroy, fill, listed, names, open, overwrite, pages_of, put, session,
    sql, turn_numbers, turns,
};

fn is_whole(directory: &Path) {
    let answer: String =
        sql(directory).query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("the check runs");
    assert_eq!(answer, "ok");
}

#[tokio::test]
async fn invalid_database_file_is_set_aside_and_replaced() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let garbage: Vec<u8> = (0..100_000_u32).map(|number| (number * 7 % 251) as u8).collect();
    fs::write(database(directory.path()), &garbage).expect("the file is written");
    let store = open(directory.path());
    let index = store.load_index().await.expect("the index loads");
    assert!(index.rows.is_empty() && !index.clean);
    assert!(index.seq > ServerSeq(1_000_000_000), "above every used sequence number: {:?}", index.seq);
    let [problem] = &store.problems()[..] else { panic!("one problem: {:?}", store.problems()) };
    let aside = damaged(directory.path());
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert!(problem.contains(&aside[0]), "{problem}");
    assert_eq!(fs::read(directory.path().join(&aside[0])).expect("the file exists"), garbage);
    store.write(put(1)).await.expect("the write succeeds");
    drop(store);
    let store = open(directory.path());
    assert_eq!(listed(&store.load_index().await.expect("the index loads")).len(), 1);
    assert_eq!(store.problems(), Vec::<String>::new());
}

#[tokio::test]
async fn destroyed_first_page_loses_only_clean_shutdown_marker() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 5, 30).await;
    destroy(directory.path(), 1);
    let store = open(directory.path());
    let index = store.load_index().await.expect("the index loads");
    assert_eq!(listed(&index).len(), 5, "{:?}", store.problems());
    for number in 0..5 {
        assert_eq!(turn_numbers(&store, number).await, (0..30).collect::<Vec<_>>());
    }
    assert_eq!(store.problems().len(), 1);
    assert_eq!(damaged(directory.path()).len(), 1);
    assert_eq!(names(directory.path(), "innkeeper.db.salv"), Vec::<String>::new());
    drop(store);
    is_whole(directory.path());
}

#[tokio::test]
async fn truncated_database_keeps_readable_records() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 200, 4).await;
    let length = fs::metadata(database(directory.path())).expect("the file exists").len();
    let file = OpenOptions::new().write(true).open(database(directory.path())).expect("the file opens");
    file.set_len(length / 10 * 9 / PAGE * PAGE).expect("the file is truncated");
    let store = open(directory.path());
    let index = store.load_index().await.expect("the index loads");
    assert!(!index.rows.is_empty(), "{:?}", store.problems());
    let mut readable = 0;
    for number in 0..200 {
        match store.load_session(session(number)).await {
            Ok(Some(stored)) => readable += stored.chats[0].turns.len(),
            Ok(None) | Err(StorageError::Damaged { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!((400..800).contains(&readable), "{readable} of 800 turns: {:?}", store.problems());
    assert!(!store.problems().is_empty());
    store.write(put(500)).await.expect("the store still works");
    drop(store);
    is_whole(directory.path());
}

#[tokio::test]
async fn emptied_database_keeps_its_log() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let killed = tempfile::tempdir().expect("a temporary directory is created");
    let store = open(directory.path());
    store.write(put(1)).await.expect("the write succeeds");
    support::copy_running_store(directory.path(), killed.path());
    fs::write(database(killed.path()), b"").expect("the file is emptied");
    let store = open(killed.path());
    assert_eq!(store.problems().len(), 1);
    let aside = names(killed.path(), "innkeeper.db.damaged-");
    assert!(aside.iter().any(|name| name.ends_with("-wal")), "{aside:?}");
}

#[tokio::test]
async fn destroyed_list_page_is_rebuilt_from_sessions() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 200, 1).await;
    let pages = pages_of(directory.path(), "session_row");
    destroy(directory.path(), pages[pages.len() / 2]);
    let store = open(directory.path());
    let index = store.load_index().await.expect("the index loads");
    assert_eq!(listed(&index).len(), 200);
    assert!(store.problems()[0].contains("set aside"), "{:?}", store.problems());
    assert_eq!(damaged(directory.path()).len(), 1);
    assert_eq!(turn_numbers(&store, 77).await, [0]);
    drop(store);
    is_whole(directory.path());
}

#[tokio::test]
async fn destroyed_turn_page_loses_only_its_turns() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 3, 100).await;
    let pages = pages_of(directory.path(), "turn");
    destroy(directory.path(), pages[pages.len() / 2]);
    let store = open(directory.path());
    assert_eq!(store.load_index().await.expect("the index loads").rows.len(), 3);
    let mut lost = 0;
    for number in 0..3 {
        let found = turn_numbers(&store, number).await;
        lost += 100 - found.len();
        assert!(found.is_sorted());
        // Turn numbers count the loaded turns, not the original ones.
        let keep = found.len();
        let more = Change::PutTurns { chat: chat(number), keep, turns: vec![support::turn(100)] };
        store.write(vec![more]).await.expect("the write succeeds");
        let mut expected = found;
        expected.push(100);
        assert_eq!(turn_numbers(&store, number).await, expected);
    }
    assert!((1..20).contains(&lost), "{lost} turns were lost with one page");
    assert_eq!(store.problems().len(), 1, "{:?}", store.problems());
    drop(store);
    is_whole(directory.path());
}

#[tokio::test]
async fn destroyed_index_is_rebuilt_without_loss() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 3, 100).await;
    for page in pages_of(directory.path(), "sqlite_autoindex_turn_1") {
        destroy(directory.path(), page);
    }
    let store = open(directory.path());
    for number in 0..3 {
        assert_eq!(turn_numbers(&store, number).await, (0..100).collect::<Vec<_>>());
    }
    assert_eq!(store.problems().len(), 1, "{:?}", store.problems());
}

#[tokio::test]
async fn write_that_finds_damage_repairs_database_and_succeeds() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 3, 100).await;
    for page in pages_of(directory.path(), "sqlite_autoindex_turn_1") {
        destroy(directory.path(), page);
    }
    let store = open(directory.path());
    let writes: Vec<_> = (0..3).map(|number| store.write(vec![turns(number, 100..103)])).collect();
    for write in writes {
        write.await.expect("the write succeeds");
    }
    for number in 0..3 {
        assert_eq!(turn_numbers(&store, number).await, (0..103).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn session_with_lost_document_is_listed_as_damaged() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 60, 2).await;
    let pages = pages_of(directory.path(), "session");
    destroy(directory.path(), pages[pages.len() / 2]);
    let store = open(directory.path());
    let mut damaged = Vec::new();
    for number in 0..60 {
        match store.load_session(session(number)).await {
            Ok(Some(_)) => {}
            Err(StorageError::Damaged { .. }) => damaged.push(number),
            other => panic!("{other:?}"),
        }
    }
    assert!((1..20).contains(&damaged.len()), "{damaged:?}");
    assert_eq!(store.load_index().await.expect("the index loads").rows.len(), 60);
    store.write(put(damaged[0])).await.expect("the session can be written again");
    assert!(store.load_session(session(damaged[0])).await.expect("the session loads").is_some());
    store
        .write(vec![Change::RemoveSession { session: session(damaged[1]) }])
        .await
        .expect("the session can be deleted");
    assert!(store.load_session(session(damaged[1])).await.expect("the session loads").is_none());
}

#[tokio::test]
async fn session_with_lost_default_chat_is_damaged() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 60, 2).await;
    let pages = pages_of(directory.path(), "chat");
    destroy(directory.path(), pages[pages.len() / 2]);
    let store = open(directory.path());
    let mut damaged = 0;
    for number in 0..60 {
        match store.load_session(session(number)).await {
            Ok(Some(stored)) => assert_eq!(stored.chats[0].turns.len(), 2),
            Err(StorageError::Damaged { what, .. }) => {
                assert!(what.contains(chat(number).as_str()), "{what}");
                damaged += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!((1..40).contains(&damaged), "{damaged}");
}

#[tokio::test]
async fn interrupted_repair_is_finished_by_next_start() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let repaired = tempfile::tempdir().expect("a temporary directory is created");
    fill(repaired.path(), 2, 2).await;
    fs::write(database(directory.path()), b"damaged").expect("the file is written");
    fs::write(directory.path().join("innkeeper.db-wal"), b"an old log").expect("the file is written");
    fs::copy(database(repaired.path()), directory.path().join("innkeeper.db.salvaged"))
        .expect("the file is copied");
    let store = open(directory.path());
    assert_eq!(store.load_index().await.expect("the index loads").rows.len(), 2);
    let aside = names(directory.path(), "innkeeper.db.damaged-");
    assert_eq!(aside.len(), 2, "{aside:?}");
}

#[tokio::test]
async fn invalid_turn_is_set_aside_and_others_are_renumbered() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 2, 5).await;
    sql(directory.path())
        .execute_batch(
            "UPDATE turn SET body = '{\"id\":' WHERE place = 1 AND chat = 1;
             UPDATE turn SET body = CAST(x'22ff22' AS TEXT) WHERE place = 3 AND chat = 1;",
        )
        .expect("the database is changed");
    let store = open(directory.path());
    assert_eq!(turn_numbers(&store, 0).await, [0, 2, 4]);
    assert_eq!(turn_numbers(&store, 1).await, [0, 1, 2, 3, 4]);
    assert_eq!(store.problems().len(), 2, "{:?}", store.problems());
    assert!(store.problems()[0].contains("set aside"), "{:?}", store.problems());
    store
        .write(vec![Change::PutTurns { chat: chat(0), keep: 2, turns: vec![support::turn(9)] }])
        .await
        .expect("the write succeeds");
    assert_eq!(turn_numbers(&store, 0).await, [0, 2, 9]);
    drop(store);
    let bodies: Vec<Vec<u8>> = sql(directory.path())
        .prepare("SELECT body FROM set_aside ORDER BY id")
        .expect("the table exists")
        .query_map([], |row| row.get(0))
        .expect("the rows are read")
        .collect::<Result<_, _>>()
        .expect("the rows are read");
    assert_eq!(bodies, [b"{\"id\":".to_vec(), b"\"\xff\"".to_vec()]);
}

#[tokio::test]
async fn invalid_action_row_or_configuration_is_set_aside() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 3, 1).await;
    sql(directory.path())
        .execute_batch(
            "UPDATE journal SET action = 'x' WHERE session = 1;
             UPDATE session_row SET summary = '' WHERE id IN (1, 2);
             UPDATE session SET summary = '' WHERE id = 2;
             INSERT INTO host (name, value) VALUES ('root_config', '[1]'), ('seq', 'many');",
        )
        .expect("the database is changed");
    let store = open(directory.path());
    let index = store.load_index().await.expect("the index loads");
    assert_eq!(listed(&index), ["claude:/session-0", "claude:/session-2"], "one row has a second copy");
    assert!(index.root_config.is_none());
    assert!(index.seq > ServerSeq(1_000_000_000));
    let stored =
        store.load_session(session(0)).await.expect("the session loads").expect("the session exists");
    assert!(stored.journal.is_empty());
    assert_eq!(store.problems().len(), 5, "{:#?}", store.problems());
    drop(store);
    let store = open(directory.path());
    assert_eq!(listed(&store.load_index().await.expect("the index loads")).len(), 2);
    assert_eq!(store.problems(), Vec::<String>::new(), "each problem is reported once");
}

#[tokio::test]
async fn invalid_document_damages_session_but_invalid_further_chat_is_set_aside() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 3, 1).await;
    let store = open(directory.path());
    let further = ChannelUri::new("ahp-chat://more/1");
    let [_, Change::PutChat { conversation, state, .. }] = &put(2)[..] else { panic!("a chat") };
    store
        .write(vec![
            Change::PutChat {
                chat: further.clone(),
                session: session(2),
                conversation: conversation.clone(),
                state: state.clone(),
            },
            Change::PutTurns { chat: further.clone(), keep: 0, turns: vec![support::turn(1)] },
        ])
        .await
        .expect("the write succeeds");
    drop(store);
    sql(directory.path())
        .execute_batch(
            "UPDATE session SET state = '{' WHERE id = 1;
             UPDATE chat SET state = '{' WHERE id = 2;
             UPDATE chat SET conversation = 'x' WHERE derived = 0;",
        )
        .expect("the database is changed");
    let store = open(directory.path());
    let broken = store.load_session(session(0)).await.expect_err("the document is invalid");
    assert!(matches!(&broken, StorageError::Damaged { what, .. } if what.contains("session-0")), "{broken}");
    let broken = store.load_session(session(1)).await.expect_err("the chat is invalid");
    assert!(matches!(&broken, StorageError::Damaged { .. }), "{broken}");
    let stored =
        store.load_session(session(2)).await.expect("the session loads").expect("the session exists");
    assert_eq!(stored.chats.len(), 1);
    let problems = store.problems();
    for what in ["session-0", "session-1", "ahp-chat://more/1"] {
        let reports = problems.iter().filter(|problem| problem.contains(what)).count();
        assert_eq!(reports, 1, "{what}: {problems:?}");
    }
    drop(store);
    let aside: i64 = sql(directory.path())
        .query_row("SELECT count(*) FROM set_aside", [], |row| row.get(0))
        .expect("the rows are read");
    assert_eq!(aside, 2, "the further chat and its turn");
}

#[tokio::test]
async fn database_without_expected_tables_is_damaged() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 3, 1).await;
    sql(directory.path()).execute_batch("DROP TABLE journal").expect("the table is dropped");
    let store = open(directory.path());
    assert_eq!(store.load_index().await.expect("the index loads").rows.len(), 3);
    assert!(store.problems()[0].contains("unexpected table definitions"), "{:?}", store.problems());
    assert_eq!(turn_numbers(&store, 1).await, [0]);
}

#[tokio::test]
async fn rejects_newer_schema_without_changes() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 1, 1).await;
    let newer = "CREATE TABLE newer (id INTEGER PRIMARY KEY); PRAGMA user_version = 99;";
    sql(directory.path()).execute_batch(newer).expect("the database is changed");
    let before = fs::read(database(directory.path())).expect("the file is read");
    let error = Store::open(StoreConfig::new(directory.path())).expect_err("the schema is newer");
    assert!(matches!(error, OpenStoreError::Newer { found: 99, known: 5, .. }), "{error:?}");
    assert!(error.to_string().contains("schema 99, this version supports 5"), "{error}");
    assert!(error.to_string().contains("--data-dir"), "{error}");
    assert_eq!(fs::read(database(directory.path())).expect("the file is read"), before);
}

#[tokio::test]
async fn rejects_unrecognised_schema_without_changes() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 1, 1).await;
    let other = "CREATE TABLE other (id INTEGER PRIMARY KEY); PRAGMA user_version = -3;";
    sql(directory.path()).execute_batch(other).expect("the database is changed");
    let before = fs::read(database(directory.path())).expect("the file is read");
    let error = Store::open(StoreConfig::new(directory.path())).expect_err("the schema is unrecognised");
    let message = error.to_string();
    assert!(
        message.contains("unrecognised schema version (-3)") && message.contains("--data-dir"),
        "{message}"
    );
    assert_eq!(fs::read(database(directory.path())).expect("the file is read"), before);
}

#[tokio::test]
async fn files_are_accessible_only_to_owner() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let inner = directory.path().join("deep").join("data");
    let store = open(&inner);
    store.write(put(1)).await.expect("the write succeeds");
    let mode =
        |name: &str| fs::metadata(inner.join(name)).expect("the file exists").permissions().mode() & 0o777;
    assert_eq!(fs::metadata(&inner).expect("the file exists").permissions().mode() & 0o777, 0o700);
    for name in ["innkeeper.db", "innkeeper.db-wal", "host.lock"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
}

/// A position in the file, and the bytes written there.
fn any_damage() -> impl Strategy<Value = (f64, Vec<u8>)> {
    let short = vec(any::<u8>(), 1..16);
    let long = (any::<u8>(), 100..6000_usize).prop_map(|(byte, length)| vec![byte; length]);
    (0.0..1.0, prop_oneof![3 => short, 1 => long])
}

/// Opens a damaged database, reads all of it and writes to it. Every result must be a
/// value or a damage error.
async fn use_damaged(directory: &Path) {
    let store = match Store::open(support::without_backups(directory)) {
        Ok(store) => store,
        // The schema version was overwritten.
        Err(OpenStoreError::Newer { .. } | OpenStoreError::Foreign { .. }) => return,
        Err(error) => panic!("{error:?}"),
    };
    let must_be_damage = |error: StorageError| {
        assert!(matches!(error, StorageError::Damaged { .. }), "{error:?} after {:?}", store.problems());
    };
    let index = store.load_index().await.map_err(must_be_damage).unwrap_or_default();
    assert!(index.rows.len() <= 31);
    for number in 0..30 {
        let loaded = store.load_session(session(number)).await.map_err(must_be_damage);
        let Ok(Some(stored)) = loaded else { continue };
        let Some(chat) = stored.chats.first() else { continue };
        let more = Change::PutTurns {
            chat: chat.uri.clone(),
            keep: chat.turns.len(),
            turns: vec![support::turn(77)],
        };
        store.write(vec![more]).await.map_err(must_be_damage).ok();
    }
    let query = AuditQuery { session: None, before: None, limit: 500 };
    store.load_audit(query).await.map_err(must_be_damage).ok();
    let audited = Change::Audit(support::audited(0, support::FILLED_AT));
    store.write(vec![audited]).await.map_err(must_be_damage).ok();
    store.write(vec![Change::PutRule(support::rule("/w", "Read"))]).await.map_err(must_be_damage).ok();
    store.write(put(100)).await.map_err(must_be_damage).ok();
    drop(store);
    let store = open(directory);
    store.load_index().await.expect("the repaired database loads");
    for number in 0..30 {
        store
            .load_session(session(number))
            .await
            .map_err(|error| {
                assert!(matches!(error, StorageError::Damaged { .. }), "{error:?}");
            })
            .ok();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_damage_does_not_panic(damages in vec(any_damage(), 1..4)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime is created");
        runtime.block_on(async {
            let directory = tempfile::tempdir().expect("a temporary directory is created");
            fill(directory.path(), 30, 8).await;
            let length = fs::metadata(database(directory.path())).expect("the file exists").len();
            for (place, bytes) in damages {
                overwrite(&database(directory.path()), (place * length as f64) as u64, &bytes);
            }
            use_damaged(directory.path()).await;
        });
    }
}

#[tokio::test]
async fn truncated_dispatch_records_are_ignored() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let (client, handled) = (ClientId::new("c"), |mark| Change::Handled { client: ClientId::new("c"), mark });
    let store = open(directory.path());
    store.write(vec![handled(1), handled(2)]).await.expect("the write succeeds");
    store.close();
    drop(store);
    let cut = "UPDATE client SET handled = substr(handled, 1, length(handled) - 8)";
    sql(directory.path()).execute(cut, []).expect("the column is truncated");
    let store = open(directory.path());
    let index = store.load_index().await.expect("the index loads");
    assert_eq!((&index.clients[0].id, index.clients[0].handled.as_slice()), (&client, [].as_slice()));
    let answered = Change::Answered { client, mark: 1, answer: ServerSeq(7) };
    store.write(vec![answered, handled(3)]).await.expect("the store still works");
    let index = store.load_index().await.expect("the index loads");
    assert_eq!(index.clients[0].handled, [StoredDispatch { mark: 3, answer: None }]);
}

#[tokio::test]
async fn every_flipped_header_byte_loses_no_data() {
    let original = tempfile::tempdir().expect("a temporary directory is created");
    fill(original.path(), 3, 2).await;
    let bytes = fs::read(database(original.path())).expect("the file is read");
    for offset in 0..100 {
        let directory = tempfile::tempdir().expect("a temporary directory is created");
        let mut flipped = bytes.clone();
        flipped[offset] ^= 1 << (offset % 8);
        fs::write(database(directory.path()), &flipped).expect("the file is written");
        let store = Store::open(support::without_backups(directory.path()));
        let store = store.unwrap_or_else(|error| panic!("byte {offset}: {error}"));
        let index = store.load_index().await.expect("the index loads");
        assert_eq!(index.rows.len(), 3, "byte {offset}: {:?}", store.problems());
        for number in 0..3 {
            assert_eq!(turn_numbers(&store, number).await, [0, 1], "byte {offset}: {:?}", store.problems());
        }
    }
}

#[tokio::test]
async fn damaged_header_is_named_in_the_report() {
    for (offset, value, expected) in [
        (18, 9, "wrong write version at byte 18"),
        (0, b'X', "wrong file type at byte 0"),
        (63, 99, "schema version 99, but the tables of version 5"),
        (63, 1, "schema version 1, but the tables of version 5"),
    ] {
        let directory = tempfile::tempdir().expect("a temporary directory is created");
        fill(directory.path(), 1, 1).await;
        overwrite(&database(directory.path()), offset, &[value]);
        let store = open(directory.path());
        let [problem] = &store.problems()[..] else { panic!("one problem: {:?}", store.problems()) };
        assert!(problem.contains(expected), "{problem}");
        assert_eq!(turn_numbers(&store, 0).await, [0]);
    }
}
