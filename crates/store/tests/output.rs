//! Tests of stored output: when it exists, and how damage to it is handled.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test helper that fails must fail the test"
)]

mod support;

use std::fs;
use std::path::Path;

use innkeeper_core::output::{ATTACHMENTS, OutputId};
use innkeeper_core::storage::{Change, Storage, StorageError};
use innkeeper_store::{Store, StoreConfig};
use support::{chat, database, downgrade, json, open, output, put, session, sql, turn, turns};

/// The body of a piece of output.
async fn body(store: &Store, id: u128) -> Option<Vec<u8>> {
    let loaded = store.load_output(OutputId::from_number(id)).await.expect("the output loads");
    loaded.map(|output| output.body.to_vec())
}

async fn filled(directory: &Path) -> Store {
    let store = Store::open(StoreConfig::new(directory)).expect("the store opens");
    store.load_index().await.expect("the index loads");
    let mut changes = put(1);
    changes.push(turns(1, 0..3));
    for number in 0..3 {
        changes.push(output(1, &format!("turn-{number}"), number, format!("output {number}").as_bytes()));
    }
    store.write(changes).await.expect("the write succeeds");
    store
}

#[tokio::test]
async fn output_exists_as_long_as_its_turn() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = filled(directory.path()).await;
    store.write(vec![output(1, "turn-2", 2, b"output 2")]).await.expect("it can be written again");
    store.write(vec![output(9, "turn-0", 9, b"x")]).await.expect("an unknown chat is ignored");
    assert_eq!(body(&store, 9).await, None);
    // The chat has a running turn, which is not in the list of turns yet.
    let mut running = put(1);
    if let Change::PutChat { state, .. } = &mut running[1] {
        *state = json(r#"{"activeTurn":{"id":"turn-9"}}"#);
    }
    running.push(output(1, "turn-9", 3, b"output 3"));
    running.push(Change::PutTurns { chat: chat(1), keep: 1, turns: vec![turn(2)] });
    store.write(running).await.expect("the write succeeds");
    drop(store);
    let store = open(directory.path());
    let found = [body(&store, 0).await, body(&store, 1).await, body(&store, 2).await, body(&store, 3).await];
    let text = |number: u8| Some(format!("output {number}").into_bytes());
    assert_eq!(found, [text(0), None, text(2), text(3)], "only turn-1 is gone");
}

#[tokio::test]
async fn snapshot_of_an_attachment_exists_as_long_as_its_chat() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = filled(directory.path()).await;
    store.write(vec![output(1, ATTACHMENTS, 7, b"attached")]).await.expect("the write succeeds");
    store
        .write(vec![Change::PutTurns { chat: chat(1), keep: 0, turns: Vec::new() }])
        .await
        .expect("the write succeeds");
    assert_eq!(body(&store, 0).await, None);
    assert_eq!(body(&store, 7).await.as_deref(), Some(&b"attached"[..]));
    let mut fork = put(2);
    fork.push(Change::CopyOutput { from: chat(1), to: chat(2), turns: vec![ATTACHMENTS.to_owned()] });
    store.write(fork).await.expect("the write succeeds");
    store.write(vec![Change::RemoveSession { session: session(1) }]).await.expect("the write succeeds");
    assert_eq!(body(&store, 7).await.as_deref(), Some(&b"attached"[..]), "the fork has it");
    store.write(vec![Change::RemoveChat { chat: chat(2) }]).await.expect("the write succeeds");
    assert_eq!(body(&store, 7).await, None);
}

#[tokio::test]
async fn fork_keeps_output_of_a_deleted_chat() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = filled(directory.path()).await;
    let mut fork = put(2);
    fork.push(turns(2, 0..2));
    let copied = vec!["turn-0".to_owned(), "turn-1".to_owned()];
    fork.push(Change::CopyOutput { from: chat(1), to: chat(2), turns: copied });
    store.write(fork).await.expect("the write succeeds");
    store.write(vec![Change::RemoveSession { session: session(1) }]).await.expect("the write succeeds");
    assert_eq!(body(&store, 0).await.as_deref(), Some(&b"output 0"[..]));
    assert_eq!(body(&store, 2).await, None, "the fork does not have this turn");
    store.write(vec![Change::RemoveChat { chat: chat(2) }]).await.expect("the write succeeds");
    assert_eq!(body(&store, 0).await, None);
}

#[tokio::test]
async fn changed_bytes_of_output_are_noticed() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = filled(directory.path()).await;
    sql(directory.path())
        .execute_batch("UPDATE output SET body = CAST('output X' AS BLOB) WHERE turn_id = 'turn-1'")
        .expect("the database is changed");
    let error = store.load_output(OutputId::from_number(1)).await.expect_err("the bytes have changed");
    assert!(matches!(&error, StorageError::Damaged { what, .. } if what.contains("output")), "{error}");
    assert!(body(&store, 2).await.is_some());
}

#[tokio::test]
async fn output_is_in_backups_and_restored_from_them() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = filled(directory.path()).await;
    support::backup_exists(directory.path(), 1).await;
    store.close();
    fs::write(database(directory.path()), b"").expect("the file is emptied");
    let store = open(directory.path());
    assert_eq!(body(&store, 1).await.as_deref(), Some(&b"output 1"[..]), "{:?}", store.problems());
}

#[tokio::test]
async fn output_survives_a_repair_of_other_records() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = filled(directory.path()).await;
    store.close();
    let pages = support::pages_of(directory.path(), "client_used");
    support::destroy(directory.path(), pages[0]);
    let pages = support::pages_of(directory.path(), "turn");
    support::destroy(directory.path(), pages[0]);
    let store = open(directory.path());
    store.load_session(session(1)).await.expect("the session loads");
    assert!(!store.problems().is_empty(), "the database was repaired");
    assert_eq!(body(&store, 1).await.as_deref(), Some(&b"output 1"[..]), "{:?}", store.problems());
}

#[tokio::test]
async fn database_without_output_is_migrated() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    filled(directory.path()).await.close();
    downgrade(directory.path(), 2);
    let store = open(directory.path());
    assert_eq!(store.problems(), Vec::<String>::new());
    assert_eq!(body(&store, 0).await, None);
    store.write(vec![output(1, "turn-0", 0, b"again")]).await.expect("the write succeeds");
    assert_eq!(body(&store, 0).await.as_deref(), Some(&b"again"[..]));
}
