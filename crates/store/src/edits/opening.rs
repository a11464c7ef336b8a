//! Opens the database of the edit log: creates it, checks it, and sets a damaged one aside.
//!
//! Invariant: a database that this version does not recognise is not changed.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::database::{ConnectionPurpose, beside, connect, damaged, truncate_log};
use crate::failure::{is_damage, is_rejection};
use crate::header;
use crate::lock::private;
use crate::migrate::{self, MigrateError, SchemaState};
use crate::opening::{OpenStoreError, io_error, migrate_error};
use crate::salvage::rename_if_there;

/// The memory for pages of each connection, in KiB. Contents are read once, so a larger cache
/// would not help.
const CACHE_KIB: i64 = 512;

/// Opens the database for writing. A damaged one is set aside and replaced by an empty one.
pub(crate) fn open_edits(path: &Path, stamp: &str) -> Result<Connection, OpenStoreError> {
    let reason = match file_damage(path).map_err(|source| io_error(path, source))? {
        Some(reason) => reason,
        None => match try_open(path)? {
            OpenedEdits::Ready(db) => return Ok(db),
            OpenedEdits::Damaged(reason) => reason,
        },
    };
    set_aside(path, stamp, &reason).map_err(|source| io_error(path, source))?;
    private().open(path).map_err(|source| io_error(path, source))?;
    match try_open(path)? {
        OpenedEdits::Ready(db) => Ok(db),
        OpenedEdits::Damaged(reason) => {
            Err(io_error(path, io::Error::new(io::ErrorKind::InvalidData, reason)))
        }
    }
}

/// Opens another connection to a database that is open.
pub(crate) fn connect_edits(path: &Path, purpose: ConnectionPurpose) -> rusqlite::Result<Connection> {
    let db = connect(path, purpose)?;
    db.pragma_update(None, "cache_size", -CACHE_KIB)?;
    Ok(db)
}

/// Renames a damaged database. All connections must be closed.
pub(crate) fn set_aside(path: &Path, stamp: &str, reason: &str) -> io::Result<PathBuf> {
    let aside = damaged(path, stamp);
    // The log first: SQLite would apply an old log to a new database.
    for suffix in ["-wal", "-shm", ""] {
        rename_if_there(&beside(path, suffix), &beside(&aside, suffix))?;
    }
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    tracing::warn!(
        reason,
        aside = %aside.display(),
        "the edit log was damaged and was set aside; earlier edits cannot be shown or undone"
    );
    Ok(aside)
}

/// Creates a missing file. Returns why an existing file cannot be a database.
fn file_damage(path: &Path) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    private().open(path)?.take(header::LENGTH).read_to_end(&mut head)?;
    let has_log = fs::metadata(beside(path, "-wal")).is_ok_and(|log| log.len() > 0);
    Ok(match head.as_slice() {
        [] if has_log => Some("the file is empty, but its log is not".to_owned()),
        [] => None,
        head => header::damage(head),
    })
}

/// The result of opening a database.
enum OpenedEdits {
    Ready(Connection),
    Damaged(String),
}

fn try_open(path: &Path) -> Result<OpenedEdits, OpenStoreError> {
    let inspected =
        connect_edits(path, ConnectionPurpose::Write).map_err(MigrateError::from).and_then(|db| {
            let inspected = migrate::EDITS.inspect(&db)?;
            Ok((db, inspected))
        });
    let (mut db, inspected) = match inspected {
        Ok(inspected) => inspected,
        // Only a damaged or foreign file makes SQLite reject these statements.
        Err(MigrateError::Sql(error)) if is_damage(&error) || is_rejection(&error) => {
            return Ok(OpenedEdits::Damaged(error.to_string()));
        }
        Err(error) => return Err(migrate_error(path, error)),
    };
    let numbered = match inspected {
        SchemaState::Known => Ok(()),
        SchemaState::Renumbered { found, version } => {
            tracing::warn!(found, version, "corrected the damaged schema version of the edit database");
            db.pragma_update(None, "user_version", version)
        }
        SchemaState::Unexpected => {
            return Ok(OpenedEdits::Damaged("unexpected table definitions".to_owned()));
        }
    };
    // Takes effect when the first migration rebuilds the file.
    let prepared = numbered.and_then(|()| db.pragma_update(None, "auto_vacuum", "INCREMENTAL"));
    match prepared.map_err(MigrateError::from).and_then(|()| migrate::EDITS.run(&mut db)) {
        Ok(()) => {
            // The log may contain content that was deleted just before a crash.
            if let Err(error) = truncate_log(&db) {
                tracing::warn!(%error, "could not truncate the log of the edit database");
            }
            Ok(OpenedEdits::Ready(db))
        }
        Err(MigrateError::Sql(error)) if is_damage(&error) => Ok(OpenedEdits::Damaged(error.to_string())),
        Err(error) => Err(migrate_error(path, error)),
    }
}
