//! Tests of the writer with a queue that was filled beforehand.

use std::sync::atomic::AtomicUsize;

use innkeeper_core::clock::SystemClock;
use innkeeper_core::storage::{Json, StoredTurn};
use serde_json::value::RawValue;
use tempfile::TempDir;

use super::*;
use crate::backup::BackupSchedule;
use crate::lock::private;
use crate::migrate;
use crate::problems::Problems;

struct Fixture {
    directory: TempDir,
    requests: mpsc::Sender<WriterRequest>,
    queue: mpsc::Receiver<WriterRequest>,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (requests, queue) = mpsc::channel(QUEUE);
        Self { directory, requests, queue }
    }

    fn send(&self, changes: Vec<Change>) -> oneshot::Receiver<Result<(), StorageError>> {
        let (reply, answer) = oneshot::channel();
        self.requests.try_send(WriterRequest::Write(WriteBatch { changes, bytes: 0, reply })).unwrap();
        answer
    }

    fn connection(&self) -> Connection {
        let files = StoreFiles::of(self.directory.path());
        private().open(files.database()).unwrap();
        let mut db = connect(&files.database(), ConnectionPurpose::Write).unwrap();
        migrate::STORE.run(&mut db).unwrap();
        db
    }

    /// Runs the writer on this thread until its queue is empty.
    fn run(self, db: Connection) -> TempDir {
        let mender = Mender::new(Arc::new(SystemClock), Problems::default());
        let read = Arc::new(Mutex::new(None));
        let files = StoreFiles::of(self.directory.path());
        let backups = Arc::new(Backups::new(files.clone(), mender.clone(), BackupSchedule::Never).unwrap());
        let (backup_requests, _) = mpsc::channel(1);
        let queued = Arc::new(AtomicUsize::new(0));
        let parts = WriterParts { files, read, queued, mender, backups, backup_requests };
        let writer = StoreWriter::new(parts, db);
        drop(self.requests);
        writer.run(self.queue);
        self.directory
    }
}

fn json(text: &str) -> Json {
    Arc::from(RawValue::from_string(text.to_owned()).unwrap())
}

fn uri(number: usize) -> ChannelUri {
    ChannelUri::new(&format!("claude:/{number}"))
}

fn put(number: usize, size: usize) -> Change {
    let state = json(&format!("\"{}\"", "x".repeat(size)));
    Change::PutSession { session: uri(number), created_at: String::new(), row: None, state }
}

fn stored(directory: &TempDir) -> Vec<String> {
    let db = connect(&StoreFiles::of(directory.path()).database(), ConnectionPurpose::Read).unwrap();
    let mut select = db.prepare("SELECT uri FROM session ORDER BY id").unwrap();
    select.query_map([], |row| row.get(0)).unwrap().collect::<rusqlite::Result<_>>().unwrap()
}

#[test]
fn queued_batches_are_written_in_order_and_acknowledged() {
    let fixture = Fixture::new();
    let db = fixture.connection();
    let answers: Vec<_> = (0..500).map(|number| fixture.send(vec![put(number, 1)])).collect();
    let removed = fixture.send(vec![Change::RemoveSession { session: uri(7) }]);
    let directory = fixture.run(db);
    for mut answer in answers {
        answer.try_recv().unwrap().unwrap();
    }
    { removed }.try_recv().unwrap().unwrap();
    let expected: Vec<String> =
        (0..500).filter(|number| *number != 7).map(|number| uri(number).to_string()).collect();
    assert_eq!(stored(&directory), expected);
}

#[test]
fn failed_batch_is_rolled_back_without_affecting_others() {
    let fixture = Fixture::new();
    let db = fixture.connection();
    let nowhere = Change::PutTurns {
        chat: ChannelUri::new("ahp-chat://nowhere"),
        keep: 0,
        turns: vec![StoredTurn { id: "t".to_owned(), body: json("{}") }],
    };
    let mut before = fixture.send(vec![put(1, 1)]);
    let mut bad = fixture.send(vec![put(2, 1), nowhere]);
    let mut after = fixture.send(vec![put(3, 1)]);
    let directory = fixture.run(db);
    before.try_recv().unwrap().unwrap();
    let error = bad.try_recv().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the storage failed: unknown chat ahp-chat://nowhere");
    after.try_recv().unwrap().unwrap();
    assert_eq!(stored(&directory), ["claude:/1", "claude:/3"]);
}

#[test]
fn batch_fails_on_full_disk_and_smaller_batch_after_it_succeeds() {
    let fixture = Fixture::new();
    let db = fixture.connection();
    let pages: i64 = db.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    db.pragma_update_and_check(None, "max_page_count", pages + 20, |_| Ok(())).unwrap();
    let mut small = fixture.send(vec![put(1, 100)]);
    let mut large = fixture.send(vec![put(2, 1_000_000)]);
    let mut later = fixture.send(vec![put(3, 100)]);
    let directory = fixture.run(db);
    small.try_recv().unwrap().unwrap();
    assert!(matches!(large.try_recv().unwrap(), Err(StorageError::Full)));
    later.try_recv().unwrap().unwrap();
    assert_eq!(stored(&directory), ["claude:/1", "claude:/3"]);
}

#[test]
fn rejects_numbers_too_large_for_sqlite() {
    let fixture = Fixture::new();
    let db = fixture.connection();
    let mut answer =
        fixture.send(vec![Change::ReserveSeq { through: innkeeper_core::ids::ServerSeq(u64::MAX) }]);
    fixture.run(db);
    assert!(answer.try_recv().unwrap().unwrap_err().to_string().contains("too large"));
}
