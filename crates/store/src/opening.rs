//! Opens the files of a store: checks permissions, takes the lock, checks the database and
//! repairs it.
//!
//! Invariant: a database that this version does not recognise is not changed.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode};

use crate::database::{ConnectionPurpose, StoreFiles, beside, connect, truncate_log};
use crate::failure::{is_damage, is_full, is_rejection};
use crate::header;
use crate::lock::{HostLock, NotLocked, private};
use crate::mend::Mender;
use crate::migrate::{self, MigrateError, SchemaState};
use crate::salvage::{self, SalvageError};

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    /// Another process has the data directory open.
    #[error("another innkeeper host{} uses this data directory; stop it or choose another --data-dir", pid_text(.pid))]
    InUse {
        /// The other process, if known.
        pid: Option<u32>,
    },
    /// The lock file is a symbolic link, which could make the host overwrite another file.
    #[error("{} is a symbolic link; remove it or choose another --data-dir", path.display())]
    LockIsLink {
        /// The lock file.
        path: PathBuf,
    },
    /// A newer version of this program created the database.
    #[error(
        "the data in {} was written by a newer version (schema {found}, this version supports {known}); use that version or another --data-dir",
        path.display()
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// The schema version.
        found: i64,
        /// The newest schema version that this program supports.
        known: i64,
    },
    /// The schema version does not belong to any version of this program.
    #[error(
        "the database {} has an unrecognised schema version ({found}); move it away or choose another --data-dir",
        path.display()
    )]
    Foreign {
        /// The database.
        path: PathBuf,
        /// The schema version.
        found: i64,
    },
    /// The data directory or a file in it is read-only.
    #[error("{} is read-only; make it writable for this user or choose another --data-dir", path.display())]
    ReadOnly {
        /// The read-only path.
        path: PathBuf,
    },
    /// The disk is full.
    #[error("the disk with {} is full; free some space or choose another --data-dir", path.display())]
    Full {
        /// The database.
        path: PathBuf,
    },
    /// A file or the directory cannot be used.
    #[error("cannot use {}; fix it or choose another --data-dir", path.display())]
    Io {
        /// The unusable path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// SQLite cannot open the database.
    #[error("cannot open the database {}; fix it or choose another --data-dir", path.display())]
    Database {
        /// The database.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
}

fn pid_text(pid: &Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

/// Creates the data directory if needed, and locks it.
pub(crate) fn lock_directory(directory: &Path, files: &StoreFiles) -> Result<HostLock, OpenStoreError> {
    make_directory(directory)?;
    let path = files.lock();
    HostLock::take(&path).map_err(|error| match error {
        NotLocked::Taken(pid) => OpenStoreError::InUse { pid },
        NotLocked::Link => OpenStoreError::LockIsLink { path },
        NotLocked::Io(source) => io_error(&path, source),
    })
}

fn make_directory(directory: &Path) -> Result<(), OpenStoreError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    builder.mode(0o700);
    builder.create(directory).map_err(|source| io_error(directory, source))
}

/// Opens the database, repairing it first if it is damaged.
pub(crate) fn open_database(files: &StoreFiles, mender: &Mender) -> Result<Connection, OpenStoreError> {
    let path = files.database();
    salvage::finish(files, mender).map_err(|source| io_error(&path, source))?;
    let reason = match missing_content(files).map_err(|source| io_error(&path, source))? {
        Some(reason) => reason,
        None => match try_open(&path, mender)? {
            Opened::Ready(db) => return Ok(db),
            Opened::Damaged(reason) => reason,
        },
    };
    salvage::replace(files, mender, &reason).map_err(|error| salvage_error(&path, error))?;
    match try_open(&path, mender)? {
        Opened::Ready(db) => Ok(db),
        Opened::Damaged(reason) => Err(io_error(&path, io::Error::new(io::ErrorKind::InvalidData, reason))),
    }
}

/// Creates a missing database file. Returns why the file does not have content although a
/// database existed: SQLite would treat it as a new one and delete the log.
fn missing_content(files: &StoreFiles) -> io::Result<Option<String>> {
    let path = files.database();
    let existed = path.try_exists()?;
    let mut head = Vec::new();
    private().open(&path)?.take(header::LENGTH).read_to_end(&mut head)?;
    let has_log = fs::metadata(beside(&path, "-wal")).is_ok_and(|log| log.len() > 0);
    let has_backup = files.backups().iter().any(|backup| backup.exists());
    Ok(match head.as_slice() {
        [] if has_log => Some("the file is empty, but its log is not".to_owned()),
        [] if existed => Some("the file is empty".to_owned()),
        [] if has_backup => {
            Some("the file is missing; to start without sessions, remove the backups, too".to_owned())
        }
        [] => None,
        head => header::damage(head),
    })
}

/// The result of opening a database.
enum Opened {
    Ready(Connection),
    Damaged(String),
}

fn try_open(path: &Path, mender: &Mender) -> Result<Opened, OpenStoreError> {
    let inspected = connect(path, ConnectionPurpose::Write).map_err(MigrateError::from).and_then(|db| {
        let inspected = migrate::STORE.inspect(&db)?;
        Ok((db, inspected))
    });
    let (mut db, inspected) = match inspected {
        Ok(inspected) => inspected,
        // Only a damaged or foreign file makes SQLite reject these statements.
        Err(MigrateError::Sql(error)) if is_damage(&error) || is_rejection(&error) => {
            return Ok(Opened::Damaged(error.to_string()));
        }
        Err(error) => return Err(migrate_error(path, error)),
    };
    let prepared = match inspected {
        SchemaState::Known => Ok(()),
        SchemaState::Renumbered { found, version } => {
            mender.problems().report(format!(
                "The database had the schema version {found}, but the tables of version {version}. The number was \
                 damaged and was corrected; no data is lost."
            ));
            db.pragma_update(None, "user_version", version)
        }
        SchemaState::Unexpected => return Ok(Opened::Damaged("unexpected table definitions".to_owned())),
    };
    match prepared.map_err(MigrateError::from).and_then(|()| migrate::STORE.run(&mut db)) {
        Ok(()) => {
            // The log may contain content that was deleted just before a crash.
            if let Err(error) = truncate_log(&db) {
                tracing::warn!(%error, "could not truncate the database log");
            }
            Ok(Opened::Ready(db))
        }
        Err(MigrateError::Sql(error)) if is_damage(&error) => Ok(Opened::Damaged(error.to_string())),
        Err(error) => Err(migrate_error(path, error)),
    }
}

pub(crate) fn migrate_error(path: &Path, error: MigrateError) -> OpenStoreError {
    let path = path.to_owned();
    match error {
        MigrateError::Newer { found, known } => OpenStoreError::Newer { path, found, known },
        MigrateError::Foreign { found } => OpenStoreError::Foreign { path, found },
        MigrateError::Sql(error) if is_full(&error) => OpenStoreError::Full { path },
        MigrateError::Sql(error) if error.sqlite_error_code() == Some(ErrorCode::ReadOnly) => {
            OpenStoreError::ReadOnly { path }
        }
        MigrateError::Sql(source) => OpenStoreError::Database { path, source },
    }
}

fn salvage_error(path: &Path, error: SalvageError) -> OpenStoreError {
    let path = path.to_owned();
    match error {
        error if error.is_full() => OpenStoreError::Full { path },
        SalvageError::Io(source) => io_error(&path, source),
        SalvageError::Sql(source) => OpenStoreError::Database { path, source },
        SalvageError::Schema(error) => migrate_error(&path, error),
    }
}

pub(crate) fn io_error(path: &Path, source: io::Error) -> OpenStoreError {
    let path = path.to_owned();
    let read_only = [io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::PermissionDenied];
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    if read_only.contains(&source.kind()) {
        OpenStoreError::ReadOnly { path }
    } else if full.contains(&source.kind()) {
        OpenStoreError::Full { path }
    } else {
        OpenStoreError::Io { path, source }
    }
}
