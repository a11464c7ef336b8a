//! Tests with external faults: a full disk, missing permissions, a second host, a killed
//! process.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test helper that fails must fail the test"
)]

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::task::{Context, Poll, Waker};

use innkeeper_core::agent::BoxFuture;
use innkeeper_core::storage::{Change, Storage, StorageError, StoredTurn};
use innkeeper_store::{OpenStoreError, Store, StoreConfig};
use support::{open, put, session, sql, turn_numbers, turns};

#[tokio::test]
async fn second_store_is_rejected_until_first_is_closed() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = open(directory.path());
    let error = Store::open(StoreConfig::new(directory.path())).expect_err("the directory is in use");
    assert!(matches!(error, OpenStoreError::InUse { pid } if pid == Some(std::process::id())), "{error:?}");
    assert_eq!(
        error.to_string(),
        format!(
            "another innkeeper host (pid {}) uses this data directory; stop it or choose another --data-dir",
            std::process::id()
        )
    );
    store.write(put(1)).await.expect("the first store still works");
    store.close();
    open(directory.path());
}

/// Writes until a write is rejected, while another connection blocks the database.
async fn rejected_while_disk_stalls(directory: &Path, change: impl Fn(usize) -> Vec<Change>) -> usize {
    let store = open(directory);
    store.write(put(0)).await.expect("the write succeeds");
    let other = sql(directory);
    other.execute_batch("BEGIN IMMEDIATE").expect("the database is locked");
    let mut accepted = Vec::new();
    let rejected = loop {
        let mut write = store.write(change(accepted.len()));
        match poll_once(&mut write) {
            Some(answer) => break answer.expect_err("the database is locked"),
            None => accepted.push(write),
        }
        assert!(accepted.len() < 10_000, "the queue is unbounded");
    };
    assert!(matches!(rejected, StorageError::Busy), "{rejected:?}");
    other.execute_batch("COMMIT").expect("the database is unlocked");
    let count = accepted.len();
    for write in accepted {
        write.await.expect("an accepted write is stored");
    }
    store.write(put(1)).await.expect("the write succeeds");
    count
}

/// Polls a future once.
fn poll_once<T>(future: &mut BoxFuture<T>) -> Option<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn batch_is_rejected_when_queue_is_full() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let accepted =
        rejected_while_disk_stalls(directory.path(), |number| vec![support::journal(0, number as u64)]);
    let accepted = accepted.await;
    assert!((4096..=4096 + 128).contains(&accepted), "{accepted}");
    let store = open(directory.path());
    let stored =
        store.load_session(session(0)).await.expect("the session loads").expect("the session exists");
    let numbers: Vec<u64> = stored.journal.iter().map(|entry| entry.number).collect();
    assert_eq!(numbers, (0..accepted as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn batch_is_rejected_when_queued_bytes_exceed_limit() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let body = support::json(&format!("\"{}\"", "x".repeat(4 * 1024 * 1024)));
    let accepted = rejected_while_disk_stalls(directory.path(), |number| {
        let turns = vec![StoredTurn { id: number.to_string(), body: body.clone() }];
        vec![Change::PutTurns { chat: support::chat(0), keep: 0, turns }]
    });
    let accepted = accepted.await;
    assert!((14..=16).contains(&accepted), "{accepted}");
}

#[test]
fn rejects_data_directory_that_is_a_file() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let file = directory.path().join("file");
    fs::write(&file, b"").expect("the file is written");
    let error = Store::open(StoreConfig::new(&file)).expect_err("the path is not a directory");
    assert!(error.to_string().contains("choose another --data-dir"), "{error}");
}

/// The directory that the child process of the next test writes to; set only by its
/// parent.
const CHILD: &str = "INNKEEPER_STORE_TEST_CHILD";

#[tokio::test]
#[ignore = "runs as the child process of the next test"]
async fn child_process_writes_until_killed() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let store = open(Path::new(&directory));
    store.load_index().await.expect("the index loads");
    let written = match store.load_session(session(1)).await.expect("the session loads") {
        Some(stored) => stored.chats[0].turns.len(),
        None => {
            store.write(put(1)).await.expect("the write succeeds");
            0
        }
    };
    let mut out = std::io::stdout();
    for number in written.. {
        let last = store.write(vec![turns(1, number..number + 1)]);
        // One more write in flight, which may or may not be stored.
        let unanswered =
            store.write(vec![Change::TrimJournal { session: session(1), through: number as u64 }]);
        last.await.expect("the write succeeds");
        writeln!(out, "\nwritten {number}").expect("the parent reads the line");
        drop(unanswered);
    }
}

#[expect(clippy::disallowed_methods, reason = "the test needs a process that it can kill")]
fn start_child(directory: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "child_process_writes_until_killed", "--ignored", "--nocapture"])
        .env(CHILD, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the child starts")
}

#[tokio::test]
async fn acknowledged_writes_survive_kill() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let mut acknowledged = 0;
    for cycle in 1..=8_usize {
        let mut child = start_child(directory.path());
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let mut seen = 0;
        while seen < cycle * 7 {
            let line = lines.next().expect("the child is still writing").expect("a line is read");
            if let Some(number) = line.strip_prefix("written ") {
                acknowledged = number.parse::<usize>().expect("a number") + 1;
                seen += 1;
            }
        }
        child.kill().expect("the child is killed");
        for line in lines.map_while(Result::ok) {
            if let Some(number) = line.strip_prefix("written ") {
                acknowledged = number.parse::<usize>().expect("a number") + 1;
            }
        }
        child.wait().expect("the child exits");
        let store = open(directory.path());
        let found = turn_numbers(&store, 1).await;
        assert!(found.len() >= acknowledged, "{} of {acknowledged} turns were found", found.len());
        assert_eq!(found, (0..found.len()).collect::<Vec<_>>(), "no missing or duplicate turns");
        assert_eq!(store.problems(), Vec::<String>::new());
        drop(store);
        let whole: String = sql(directory.path())
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .expect("the check runs");
        assert_eq!(whole, "ok");
    }
}

#[cfg(target_os = "linux")]
mod mounted {
    use innkeeper_testkit::leave_out;
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};
    use tempfile::TempDir;

    use super::*;

    /// Creates a directory in a private mount namespace, which threads started from here
    /// share. Returns `None` where mounting is not permitted; the test is then skipped.
    fn private_mounts() -> Option<TempDir> {
        let private = unshare(CloneFlags::CLONE_NEWNS).and_then(|()| {
            mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        });
        if let Err(error) = private {
            leave_out(&format!("mounting is not permitted ({error}); run this test as root"))
                .expect("mounting is permitted");
            return None;
        }
        Some(tempfile::tempdir().expect("a temporary directory is created"))
    }

    fn mount_small_disk(at: &Path, size: &str) {
        mount(
            Some("none"),
            at,
            Some("tmpfs"),
            MsFlags::empty(),
            Some(format!("size={size},mode=0700").as_str()),
        )
        .expect("a small disk is mounted");
    }

    #[tokio::test]
    async fn full_disk_fails_write_without_losing_data() {
        let Some(directory) = private_mounts() else { return };
        mount_small_disk(directory.path(), "2m");
        let store = open(directory.path());
        store.write(put(1)).await.expect("the write succeeds");
        let ballast = directory.path().join("ballast");
        fs::write(&ballast, vec![0; 256 * 1024]).expect("the file is written");
        let mut stored = 0;
        let error = loop {
            match store.write(vec![turns(1, stored..stored + 20)]).await {
                Ok(()) => stored += 20,
                Err(error) => break error,
            }
            assert!(stored < 10_000, "the disk never fills");
        };
        assert!(matches!(error, StorageError::Full), "{error:?}");
        assert_eq!(turn_numbers(&store, 1).await.len(), stored, "all acknowledged turns");
        fs::remove_file(&ballast).expect("the file is removed");
        store.write(vec![turns(1, stored..stored + 5)]).await.expect("the store still works");
        drop(store);
        let store = open(directory.path());
        assert_eq!(turn_numbers(&store, 1).await.len(), stored + 5);
        assert_eq!(store.problems(), Vec::<String>::new());
    }

    #[test]
    fn open_reports_full_disk() {
        let Some(directory) = private_mounts() else { return };
        mount_small_disk(directory.path(), "16k");
        let error = Store::open(StoreConfig::new(directory.path())).expect_err("the disk is full");
        assert!(matches!(error, OpenStoreError::Full { .. }), "{error:?}");
        assert!(error.to_string().contains("free some space"), "{error}");
    }

    #[tokio::test]
    async fn open_reports_read_only_directory() {
        let Some(directory) = private_mounts() else { return };
        mount_small_disk(directory.path(), "2m");
        support::fill(directory.path(), 1, 1).await;
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(None::<&str>, directory.path(), None::<&str>, flags, None::<&str>)
            .expect("the disk is remounted");
        let error = Store::open(StoreConfig::new(directory.path())).expect_err("the directory is read-only");
        assert!(matches!(error, OpenStoreError::ReadOnly { .. }), "{error:?}");
        assert!(error.to_string().contains("make it writable"), "{error}");
        let inside = directory.path().join("new");
        let error = Store::open(StoreConfig::new(&inside)).expect_err("the directory cannot be created");
        assert!(matches!(error, OpenStoreError::ReadOnly { .. }), "{error:?}");
    }

    #[tokio::test]
    async fn full_disk_allows_reads() {
        let Some(directory) = private_mounts() else { return };
        mount_small_disk(directory.path(), "2m");
        let store = open(directory.path());
        store.write(put(1)).await.expect("the write succeeds");
        assert!(store.load_session(session(1)).await.expect("the session loads").is_some());
        let ballast = directory.path().join("ballast");
        fs::write(&ballast, vec![0; 4 * 1024 * 1024]).expect_err("the disk is full");
        let error = store.write(vec![turns(1, 0..500)]).await.expect_err("the disk is full");
        assert!(matches!(error, StorageError::Full), "{error:?}");
        assert!(store.load_session(session(1)).await.expect("the session loads").is_some());
    }
}
