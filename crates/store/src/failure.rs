//! What goes wrong inside the store, and what the host is told of it.

use innkeeper_core::channel::ChannelUri;
use innkeeper_core::storage::StorageError;
use rusqlite::ErrorCode;

/// `SQLITE_IOERR_SHMSIZE`: the index of the write-ahead log could not grow, which a full disk causes.
const LOG_INDEX_DID_NOT_GROW: i32 = rusqlite::ffi::SQLITE_IOERR_SHMSIZE;

/// Why a change could not be applied or a record not be loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// SQLite said so.
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    /// A change names a chat that does not exist.
    #[error("there is no chat {0}")]
    NoChat(ChannelUri),
    /// A change names a session that does not exist.
    #[error("there is no session {0}")]
    NoSession(ChannelUri),
    /// A record is in its table and not in the table's index, or the other way round.
    #[error("an index does not match its table")]
    Index,
    /// A number does not fit into a column.
    #[error("{0} is too large to be stored")]
    TooLarge(u64),
    /// A value has no JSON form.
    #[error("cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A record that everything else of a session hangs on cannot be used.
    #[error("{what} is damaged: {reason}")]
    Damaged {
        /// What cannot be used.
        what: String,
        /// How it shows.
        reason: String,
    },
}

impl Failure {
    /// Whether the file itself is damaged, as opposed to a record in it.
    pub(crate) fn is_damaged_file(&self) -> bool {
        match self {
            Self::Sql(error) => is_damage(error),
            Self::Index => true,
            Self::NoChat(_)
            | Self::NoSession(_)
            | Self::TooLarge(_)
            | Self::Json(_)
            | Self::Damaged { .. } => false,
        }
    }

    /// The same for the host.
    pub(crate) fn told(&self) -> StorageError {
        match self {
            Self::Sql(error) => told(error),
            Self::Damaged { what, reason } => {
                StorageError::Damaged { what: what.clone(), reason: reason.clone() }
            }
            Self::Index => {
                StorageError::Damaged { what: "the database".to_owned(), reason: self.to_string() }
            }
            Self::NoChat(_) | Self::NoSession(_) | Self::TooLarge(_) | Self::Json(_) => {
                StorageError::Failed(self.to_string())
            }
        }
    }
}

/// Whether the file is damaged: SQLite says so, a strict column has something in it
/// that it never accepted, or a record that was just seen is not found.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    let said =
        matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase));
    let seen = matches!(
        error,
        rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::Utf8Error(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::QueryReturnedNoRows
    );
    // What a change refers to was looked up just before.
    let dangling = error
        .sqlite_error()
        .is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY);
    said || seen || dangling
}

/// Whether SQLite does not know what to make of a question.
pub(crate) fn is_rejection(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_ERROR)
}

/// Whether SQLite says that there is no room.
pub(crate) fn is_full(error: &rusqlite::Error) -> bool {
    let extended = error.sqlite_error().map(|error| error.extended_code);
    error.sqlite_error_code() == Some(ErrorCode::DiskFull) || extended == Some(LOG_INDEX_DID_NOT_GROW)
}

fn told(error: &rusqlite::Error) -> StorageError {
    if is_full(error) {
        return StorageError::Full;
    }
    if is_damage(error) {
        return StorageError::Damaged { what: "the database".to_owned(), reason: error.to_string() };
    }
    StorageError::Failed(match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another program has locked the database; close it and try again".to_owned()
        }
        Some(ErrorCode::ReadOnly) => {
            "the database cannot be written; make the data directory writable".to_owned()
        }
        _ => error.to_string(),
    })
}
