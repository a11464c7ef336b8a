//! Tests of backups and checksums: lost and changed records are restored, and a wrong
//! backup never replaces a good one.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test helper that fails must fail the test"
)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use innkeeper_core::clock::Clock;
use innkeeper_core::storage::{Change, Storage, StorageError};
use innkeeper_store::{Store, StoreConfig};
use innkeeper_testkit::eventually;
use jiff::Timestamp;
use support::{
    chat, damaged, database, downgrade, fill, journal, listed, names, open, put, session, sql, turn_numbers,
    turns,
};

const DAY: i64 = 24 * 60 * 60 * 1000;

/// A clock that the test sets.
struct SetClock(AtomicI64);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.0.load(Ordering::Relaxed)).expect("a valid time")
    }
}

fn backup(directory: &Path, number: usize) -> PathBuf {
    directory.join(format!("innkeeper.db.backup-{number}"))
}

/// Fills a database, then reopens it until a backup of all of it exists.
async fn fill_and_back_up(directory: &Path, sessions: usize, turns_each: usize) {
    fill(directory, sessions, turns_each).await;
    let store = Store::open(StoreConfig::new(directory)).expect("the store opens");
    store.write(vec![journal(0, 2)]).await.expect("the write succeeds");
    support::backup_exists(directory, 1).await;
    store.close();
}

fn open_with(directory: &Path, clock: &Arc<SetClock>) -> Store {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    Store::open(StoreConfig { clock, ..StoreConfig::new(directory) }).expect("the store opens")
}

fn millis(path: &Path) -> Option<i64> {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified()).ok()?;
    i64::try_from(modified.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_millis()).ok()
}

/// Waits until a backup has this time.
async fn taken(path: &Path, at: i64) {
    let what = format!("{} is from {at}", path.display());
    eventually(Duration::from_secs(20), &what, || millis(path) == Some(at)).await.expect("a backup is taken");
}

#[tokio::test]
async fn two_private_backups_are_kept_and_replaced_daily() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let [newest, older] = [1, 2].map(|number| backup(directory.path(), number));
    let clock = Arc::new(SetClock(AtomicI64::new(DAY)));
    let store = open_with(directory.path(), &clock);
    store.write(put(0)).await.expect("the write succeeds");
    taken(&newest, DAY).await;
    assert_eq!(fs::metadata(&newest).expect("the file exists").permissions().mode() & 0o777, 0o600);
    for (day, older_day) in [(2, 1), (3, 2), (4, 3)] {
        clock.0.store(day * DAY, Ordering::Relaxed);
        store.write(vec![journal(0, day.unsigned_abs())]).await.expect("the write succeeds");
        taken(&newest, day * DAY).await;
        assert_eq!(millis(&older), Some(older_day * DAY));
    }
    // Much is written on one day: the newest is replaced, the older one is kept.
    store.write(put(1)).await.expect("the write succeeds");
    for moment in [4 * DAY + 1, 4 * DAY + 2, 4 * DAY + 3] {
        clock.0.store(moment, Ordering::Relaxed);
        store.write(vec![turns(1, 0..6000), turns(1, 0..6000)]).await.expect("the write succeeds");
        taken(&newest, moment).await;
        assert_eq!(millis(&older), Some(4 * DAY));
    }
    store.close();
    let files = ["innkeeper.db", "innkeeper.db.backup-1", "innkeeper.db.backup-2"];
    assert_eq!(names(directory.path(), "innkeeper.db"), files);
    assert_eq!(store.problems(), Vec::<String>::new());
}

#[tokio::test]
async fn restart_within_a_day_keeps_the_backup() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let newest = backup(directory.path(), 1);
    let clock = Arc::new(SetClock(AtomicI64::new(DAY)));
    let store = open_with(directory.path(), &clock);
    store.write(put(0)).await.expect("the write succeeds");
    taken(&newest, DAY).await;
    store.close();
    clock.0.store(2 * DAY - 1, Ordering::Relaxed);
    let store = open_with(directory.path(), &clock);
    store.write(put(1)).await.expect("the write succeeds");
    store.close();
    assert_eq!(millis(&newest), Some(DAY));
    clock.0.store(2 * DAY, Ordering::Relaxed);
    let store = open_with(directory.path(), &clock);
    store.write(put(2)).await.expect("the write succeeds");
    taken(&newest, 2 * DAY).await;
}

#[tokio::test]
async fn backup_with_changed_record_does_not_replace_good_one() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let newest = backup(directory.path(), 1);
    fill_and_back_up(directory.path(), 2, 2).await;
    let good = fs::read(&newest).expect("the backup is read");
    let change = "UPDATE turn SET body = replace(body, 'ttt', 'txt') WHERE id = 1";
    sql(directory.path()).execute(change, []).expect("a record is changed");
    let later = Timestamp::now().as_millisecond() + 2 * DAY;
    let store = open_with(directory.path(), &Arc::new(SetClock(AtomicI64::new(later))));
    store.write(put(3)).await.expect("the write succeeds");
    eventually(Duration::from_secs(20), "the problem is reported", || !store.problems().is_empty())
        .await
        .expect("the problem is reported");
    let problems = store.problems();
    assert!(problems[0].contains("No backup") && problems[0].contains(session(0).as_str()), "{problems:?}");
    store.close();
    assert_eq!(fs::read(&newest).expect("the backup is read"), good);
    assert_eq!(names(directory.path(), "innkeeper.db.backup"), ["innkeeper.db.backup-1"]);
}

#[tokio::test]
async fn emptied_or_missing_database_is_restored_from_backup() {
    for missing in [false, true] {
        let directory = tempfile::tempdir().expect("a temporary directory is created");
        fill_and_back_up(directory.path(), 3, 4).await;
        if missing {
            fs::remove_file(database(directory.path())).expect("the file is removed");
        } else {
            fs::write(database(directory.path()), b"").expect("the file is emptied");
        }
        let store = open(directory.path());
        let index = store.load_index().await.expect("the index loads");
        assert_eq!(listed(&index).len(), 3);
        assert!(!index.clean);
        assert!(index.seq.0 > 1_000_000_000, "above every used sequence number: {:?}", index.seq);
        for number in 0..3 {
            assert_eq!(turn_numbers(&store, number).await, [0, 1, 2, 3]);
        }
        let [problem] = &store.problems()[..] else { panic!("one problem: {:?}", store.problems()) };
        let reason = if missing { "is missing" } else { "is empty" };
        assert!(problem.contains(reason), "{problem}");
        assert!(
            problem.contains("3 sessions, 3 chats and 12 turns were restored from the backup of 20"),
            "{problem}"
        );
        assert!(problem.contains(&damaged(directory.path())[0]), "{problem}");
    }
}

#[tokio::test]
async fn emptied_database_without_backup_is_reported() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 3, 4).await;
    fs::write(database(directory.path()), b"").expect("the file is emptied");
    let store = open(directory.path());
    assert!(store.load_index().await.expect("the index loads").rows.is_empty());
    let [problem] = &store.problems()[..] else { panic!("one problem: {:?}", store.problems()) };
    assert!(problem.contains("is empty") && problem.contains("no backup exists"), "{problem}");
    drop(store);
    let store = open(directory.path());
    assert_eq!(store.problems(), Vec::<String>::new(), "reported once");
}

#[tokio::test]
async fn repair_keeps_newer_records_and_restores_lost_ones() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill_and_back_up(directory.path(), 40, 3).await;
    let store = open(directory.path());
    store.write(vec![turns(5, 3..4)]).await.expect("a newer turn is written");
    store.write(put(40)).await.expect("a newer session is written");
    store.close();
    // Destroy a page of documents and a page of turns.
    for table in ["session", "turn"] {
        let pages = support::pages_of(directory.path(), table);
        support::destroy(directory.path(), pages[pages.len() / 2]);
    }
    let store = open(directory.path());
    let index = store.load_index().await.expect("the index loads");
    assert_eq!(listed(&index).len(), 41);
    for number in (0..40).filter(|number| *number != 5) {
        assert_eq!(turn_numbers(&store, number).await, [0, 1, 2], "session {number}: {:?}", store.problems());
    }
    assert_eq!(turn_numbers(&store, 5).await, [0, 1, 2, 3]);
    assert!(store.problems()[0].contains("were restored from the backup"), "{:?}", store.problems());
}

#[tokio::test]
async fn damaged_newest_backup_is_skipped() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill_and_back_up(directory.path(), 3, 1).await;
    fs::rename(backup(directory.path(), 1), backup(directory.path(), 2)).expect("the file is renamed");
    fs::write(backup(directory.path(), 1), b"not a database").expect("the file is written");
    fs::write(database(directory.path()), b"").expect("the file is emptied");
    let store = open(directory.path());
    assert_eq!(listed(&store.load_index().await.expect("the index loads")).len(), 3);
}

#[tokio::test]
async fn backup_of_earlier_schema_is_restored() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 3, 2).await;
    downgrade(directory.path(), 1);
    sql(directory.path()).execute_batch("PRAGMA journal_mode = DELETE").expect("the mode is set");
    fs::rename(database(directory.path()), backup(directory.path(), 1)).expect("the file is renamed");
    let store = open(directory.path());
    assert_eq!(listed(&store.load_index().await.expect("the index loads")).len(), 3);
    assert_eq!(turn_numbers(&store, 2).await, [0, 1]);
    store.write(vec![Change::RemoveSession { session: session(1) }]).await.expect("the session is deleted");
    assert!(backup(directory.path(), 1).exists(), "the session is deleted from the backup, too");
}

#[tokio::test]
async fn changed_bytes_are_noticed_and_set_aside() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 4, 3).await;
    sql(directory.path())
        .execute_batch(
            "UPDATE turn SET body = replace(body, 'ttt', 'txt') WHERE chat = 1 AND place = 1;
             UPDATE journal SET action = '{\"entry\":2}' WHERE session = 1;
             UPDATE session SET state = replace(state, 'sss', 'sxs') WHERE id = 2;
             UPDATE chat SET conversation = replace(conversation, '0', '1') WHERE id = 3;
             UPDATE session_row SET summary = replace(summary, 'session', 'sexsion') WHERE id = 4;",
        )
        .expect("bytes are changed; the JSON stays valid");
    let store = open(directory.path());
    let index = store.load_index().await.expect("the index loads");
    assert_eq!(index.rows.len(), 4);
    let row = index.rows.iter().find(|row| row.session == session(3)).expect("the row is listed");
    assert_eq!(row.summary.get(), r#"{"title":"session 3"}"#, "the second copy is used");
    let stored =
        store.load_session(session(0)).await.expect("the session loads").expect("the session exists");
    assert_eq!(stored.chats[0].turns.len(), 2);
    assert!(stored.journal.is_empty());
    for number in [1, 2] {
        let error = store.load_session(session(number)).await.expect_err("the document was changed");
        assert!(
            matches!(&error, StorageError::Damaged { reason, .. } if reason.contains("checksum")),
            "{error:?}"
        );
    }
    assert_eq!(turn_numbers(&store, 3).await, [0, 1, 2]);
    assert_eq!(store.problems().len(), 5, "{:#?}", store.problems());
}

#[tokio::test]
async fn changed_records_are_restored_from_identical_copies() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill_and_back_up(directory.path(), 3, 3).await;
    let before = open(directory.path()).load_session(session(1)).await.expect("the session loads");
    sql(directory.path())
        .execute_batch(
            "UPDATE turn SET body = replace(body, 'ttt', 'txt') WHERE chat = 2;
             UPDATE session SET state = replace(state, 'sss', 'sxs') WHERE id = 2;
             UPDATE chat SET conversation = replace(conversation, '0', '1') WHERE id = 2;",
        )
        .expect("bytes are changed; the JSON stays valid");
    let store = open(directory.path());
    let after = store.load_session(session(1)).await.expect("the session loads");
    assert_eq!(format!("{after:?}"), format!("{before:?}"));
    let [problem] = &store.problems()[..] else { panic!("one problem: {:?}", store.problems()) };
    assert!(problem.contains("restored from a backup"), "{problem}");
    drop(store);
    let store = open(directory.path());
    store.load_session(session(1)).await.expect("the session loads");
    assert_eq!(store.problems(), Vec::<String>::new(), "the database is corrected");
}

#[tokio::test]
async fn backup_does_not_delay_writes() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 20, 400).await;
    let store = Store::open(StoreConfig::new(directory.path())).expect("the store opens");
    let newest = backup(directory.path(), 1);
    let mut before = 0;
    for number in 2_u64.. {
        store.write(vec![journal(0, number)]).await.expect("the write succeeds");
        if newest.exists() {
            break;
        }
        before += 1;
    }
    assert!(before > 3, "{before} writes were acknowledged while the backup was taken");
    assert_eq!(store.problems(), Vec::<String>::new());
    assert_eq!(turn_numbers(&store, 0).await.len(), 400);
    let chat = chat(0);
    store
        .write(vec![Change::PutTurns { chat, keep: 1, turns: Vec::new() }])
        .await
        .expect("the write succeeds");
}

#[tokio::test]
async fn every_earlier_schema_is_migrated_with_its_sessions() {
    for version in [1, 2, 3, 4] {
        let directory = tempfile::tempdir().expect("a temporary directory is created");
        fill(directory.path(), 3, 3).await;
        let store = open(directory.path());
        let mut before = Vec::new();
        for number in 0..3 {
            before.push(store.load_session(session(number)).await.expect("the session loads"));
        }
        store.close();
        downgrade(directory.path(), version);
        let store = open(directory.path());
        let index = store.load_index().await.expect("the index loads");
        assert_eq!(listed(&index).len(), 3, "schema {version}");
        for (number, before) in before.iter().enumerate() {
            let after = store.load_session(session(number)).await.expect("the session loads");
            assert_eq!(format!("{after:?}"), format!("{before:?}"), "schema {version}");
        }
        assert_eq!((index.rules, support::audit_times(&store, None).await), (Vec::new(), Vec::new()));
        store.write(vec![Change::Audit(support::audited(1, 9))]).await.expect("the write succeeds");
        assert_eq!(support::audit_times(&store, Some(1)).await, [9]);
        assert_eq!(store.problems(), Vec::<String>::new());
        store.close();
        let unknown: i64 = sql(directory.path())
            .query_row("SELECT count(*) FROM turn WHERE checksum IS NULL", [], |row| row.get(0))
            .expect("the rows are read");
        assert_eq!(unknown, 0, "migrated records have checksums");
    }
}
