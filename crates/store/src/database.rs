//! The files of a store, and the only place that opens connections to them.
//!
//! Invariant: every connection has the same settings, and the database is never renamed
//! while a connection to it is open.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::checksum;

/// How long a statement waits for another program that has locked the database, such as a
/// backup.
const BUSY: Duration = Duration::from_secs(5);

/// The write-ahead log is truncated to this size after a checkpoint; a burst may exceed
/// it.
const LOG_SIZE: i64 = 16 * 1024 * 1024;

/// The paths of a store's files.
#[derive(Clone, Debug)]
pub(crate) struct StoreFiles {
    directory: PathBuf,
}

impl StoreFiles {
    /// The files in a data directory.
    pub(crate) fn of(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// The database file.
    pub(crate) fn database(&self) -> PathBuf {
        self.directory.join("innkeeper.db")
    }

    /// The lock file that a running host holds.
    pub(crate) fn lock(&self) -> PathBuf {
        self.directory.join("host.lock")
    }

    /// A new database while it is filled from a damaged one.
    pub(crate) fn salvaging(&self) -> PathBuf {
        self.directory.join("innkeeper.db.salvaging")
    }

    /// A copy of a damaged database that receives a new first page.
    pub(crate) fn headed(&self) -> PathBuf {
        self.directory.join("innkeeper.db.salvaging-source")
    }

    /// A complete new database that has to be renamed to the database path.
    pub(crate) fn salvaged(&self) -> PathBuf {
        self.directory.join("innkeeper.db.salvaged")
    }

    /// A copy of a backup from which a repair restores records.
    pub(crate) fn restoring(&self) -> PathBuf {
        self.directory.join("innkeeper.db.restoring")
    }

    /// The backups, newest first.
    pub(crate) fn backups(&self) -> [PathBuf; 2] {
        [self.directory.join("innkeeper.db.backup-1"), self.directory.join("innkeeper.db.backup-2")]
    }

    /// A backup that is being written.
    pub(crate) fn new_backup(&self) -> PathBuf {
        self.directory.join("innkeeper.db.backup-new")
    }

    /// An unused path for a damaged database.
    pub(crate) fn damaged(&self, stamp: &str) -> PathBuf {
        damaged(&self.database(), stamp)
    }
}

/// An unused path for a damaged database, even if the clock was set back.
pub(crate) fn damaged(database: &Path, stamp: &str) -> PathBuf {
    let first = beside(database, &format!(".damaged-{stamp}"));
    let others = (2_u32..).map(|number| beside(&first, &format!("-{number}")));
    std::iter::once(first.clone()).chain(others).find(|path| !path.exists()).unwrap_or(first)
}

/// The time as a part of a file name.
pub(crate) fn file_stamp(time: Timestamp) -> String {
    time.strftime("%Y%m%dT%H%M%S%3fZ").to_string()
}

/// The path of a file that SQLite keeps next to a database.
pub(crate) fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Removes a database with the files that SQLite keeps next to it, if they exist.
pub(crate) fn remove_database(database: &Path) -> io::Result<()> {
    for suffix in ["", "-journal", "-wal", "-shm"] {
        match fs::remove_file(beside(database, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionPurpose {
    /// The only connection that writes.
    Write,
    /// Reads concurrently with the writer.
    Read,
    /// Reads a damaged file without changing it.
    Salvage,
    /// Fills a new file that is not in use yet.
    Fill,
    /// Copies from a database or a backup.
    Copy,
    /// Deletes records from a backup.
    Remove,
}

/// Opens an existing database.
#[expect(clippy::disallowed_methods, reason = "the only place that opens connections")]
pub(crate) fn connect(database: &Path, purpose: ConnectionPurpose) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(database, flags)?;
    db.busy_timeout(BUSY)?;
    checksum::register(&db)?;
    match purpose {
        ConnectionPurpose::Write | ConnectionPurpose::Read => {
            db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
            db.pragma_update(None, "synchronous", "NORMAL")?;
            db.pragma_update(None, "journal_size_limit", LOG_SIZE)?;
            db.pragma_update(None, "foreign_keys", true)?;
            overwrite_deleted(&db)?;
            db.pragma_update(None, "cell_size_check", true)?;
            db.pragma_update(None, "query_only", purpose == ConnectionPurpose::Read)?;
        }
        ConnectionPurpose::Salvage => {
            db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            db.pragma_update(None, "cell_size_check", true)?;
            db.pragma_update(None, "query_only", true)?;
            // Without this, SQLite refuses a file that is shorter than its header says.
            db.pragma_update(None, "writable_schema", true)?;
        }
        ConnectionPurpose::Fill => {
            db.pragma_update(None, "synchronous", "OFF")?;
            db.pragma_update(None, "foreign_keys", false)?;
            overwrite_deleted(&db)?;
        }
        // The file that a copy is written to has the same setting.
        ConnectionPurpose::Copy => overwrite_deleted(&db)?,
        ConnectionPurpose::Remove => {
            db.pragma_update(None, "foreign_keys", true)?;
            overwrite_deleted(&db)?;
        }
    }
    Ok(db)
}

/// The state of the log after an attempt to empty it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalState {
    /// All of it is in the database, and the file is empty.
    Empty,
    /// Another connection reads from it.
    InUse,
}

/// Copies the log to the database and empties it. Does not wait for other connections.
pub(crate) fn truncate_log(db: &Connection) -> rusqlite::Result<WalState> {
    db.busy_timeout(Duration::ZERO)?;
    let busy = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
    db.busy_timeout(BUSY)?;
    Ok(if busy? { WalState::InUse } else { WalState::Empty })
}

/// Makes SQLite overwrite deleted content with zeros.
fn overwrite_deleted(db: &Connection) -> rusqlite::Result<()> {
    db.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))
}

/// The definitions of all tables and indexes. A file with the right version but other
/// definitions is damaged.
pub(crate) fn definitions(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut select = db.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")?;
    select.query_map([], |row| row.get(0))?.collect()
}

/// Opens an empty in-memory database.
#[expect(clippy::disallowed_methods, reason = "the only place that opens connections")]
pub(crate) fn in_memory() -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(":memory:", OpenFlags::default())?;
    checksum::register(&db)?;
    Ok(db)
}

/// All tables, referenced tables first.
pub(crate) const TABLES: [&str; 15] = [
    "host",
    "session",
    "session_row",
    "chat",
    "resume_token",
    "turn",
    "turn_link",
    "output",
    "journal",
    "client",
    "mark",
    "replay",
    "set_aside",
    "rule",
    "audit",
];
