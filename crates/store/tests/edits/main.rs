//! Tests of the edit log's database, with a real SQLite file.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test helper that fails must fail the test"
)]

mod crash;
mod damage;
mod garbage;
mod model;
mod removal;
mod round_trip;
mod sizes;
mod threads;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use innkeeper_core::channel::ChannelUri;
use innkeeper_core::clock::Clock;
use innkeeper_core::edits::{
    BlobDigest, EditRecord, EditSource, EditStorage as _, FileVersion, OperationRecord, OperationStep,
    StoredBlob,
};
use innkeeper_store::{EditDatabase, EditDatabaseConfig};
use jiff::Timestamp;
use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;
use tempfile::TempDir;
use uuid::Uuid;

/// A quota that no test reaches.
const LARGE: u64 = 1 << 40;

/// A clock that the test moves.
#[derive(Clone, Debug)]
struct EditClock(Arc<AtomicI64>);

impl EditClock {
    fn new() -> Self {
        Self(Arc::new(AtomicI64::new(1_000_000_000)))
    }

    fn advance(&self, time: Duration) {
        self.0.fetch_add(time.as_millis().try_into().expect("a short time"), Ordering::Relaxed);
    }
}

impl Clock for EditClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.0.load(Ordering::Relaxed)).expect("a valid time")
    }
}

/// A database in a temporary directory.
struct EditFixture {
    directory: TempDir,
    clock: EditClock,
    database: EditDatabase,
}

impl EditFixture {
    /// A database with a grace period of ten minutes.
    fn new() -> Self {
        Self::with(LARGE, Duration::from_secs(600))
    }

    fn with(quota_bytes: u64, grace: Duration) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory is created");
        let clock = EditClock::new();
        let config = EditDatabaseConfig { quota_bytes, grace, clock: Arc::new(clock.clone()) };
        let database = EditDatabase::open(file(directory.path()), config).expect("the database opens");
        Self { directory, clock, database }
    }

    fn path(&self) -> PathBuf {
        file(self.directory.path())
    }

    /// Closes the database and opens it again.
    fn reopen(&mut self) {
        self.database.close();
        let config =
            EditDatabaseConfig { clock: Arc::new(self.clock.clone()), ..EditDatabaseConfig::new(LARGE) };
        self.database = EditDatabase::open(self.path(), config).expect("the database opens");
    }

    fn is_stored(&self, blob: &StoredBlob) -> bool {
        !self.database.stored_blobs(&[blob.digest]).expect("the database is read").is_empty()
    }
}

fn file(directory: &Path) -> PathBuf {
    directory.join("blobs.db")
}

/// A direct connection to the database.
#[expect(clippy::disallowed_methods, reason = "the test bypasses the store")]
fn sql(path: &Path) -> Connection {
    let db = Connection::open(path).expect("the database opens");
    db.create_scalar_function("record_checksum", -1, FunctionFlags::default(), |_| Ok(0))
        .expect("the function is added");
    db
}

fn nothing() -> HashSet<BlobDigest> {
    HashSet::new()
}

fn session(number: usize) -> ChannelUri {
    ChannelUri::new(&format!("claude:/session-{number}"))
}

fn chat(number: usize) -> ChannelUri {
    ChannelUri::default_chat_of(&session(number))
}

fn blob(content: impl AsRef<[u8]>) -> StoredBlob {
    StoredBlob::new(content.as_ref().to_vec())
}

/// The version of a file with a content.
fn version(blob: &StoredBlob) -> FileVersion {
    FileVersion::File { blob: blob.digest, size: blob.content.len() as u64, mode: 0o644, stored: true }
}

/// A change of `/w/a.rs` in the default chat of a session.
fn record(number: usize, turn: &str, before: FileVersion, after: FileVersion) -> EditRecord {
    EditRecord {
        number: 0,
        session: session(number),
        chat: chat(number),
        turn: turn.to_owned(),
        tool_call: Some("call-1".to_owned()),
        source: EditSource::Tool,
        path: PathBuf::from("/w/a.rs"),
        before,
        after,
        new_parents: 0,
        overlaps: false,
        operation: None,
        recorded_at: 5,
    }
}

/// A path that is not UTF-8.
fn odd_path() -> PathBuf {
    PathBuf::from(OsStr::from_bytes(b"/w/\xff\xfe \n.rs"))
}

/// An undo of a session that changes one file.
fn operation(number: usize, before: &StoredBlob, after: &StoredBlob) -> OperationRecord {
    let record = record(number, "turn-1", version(before), version(after));
    OperationRecord {
        id: Uuid::new_v4(),
        session: session(number),
        chat: Some(chat(number)),
        label: "Undo a.rs".to_owned(),
        can_redo: true,
        roots: vec![PathBuf::from("/w"), odd_path()],
        steps: vec![OperationStep {
            path: odd_path(),
            before: version(before),
            after: version(after),
            removed_parents: 2,
            records: vec![EditRecord { source: EditSource::Undo, ..record }],
        }],
    }
}
