//! Errors inside the store, and their conversion to the host's error type.

use innkeeper_core::channel::ChannelUri;
use innkeeper_core::storage::StorageError;
use rusqlite::ErrorCode;

/// `SQLITE_IOERR_SHMSIZE`: the index of the write-ahead log could not grow, caused by a
/// full disk.
const LOG_INDEX_DID_NOT_GROW: i32 = rusqlite::ffi::SQLITE_IOERR_SHMSIZE;

/// Why a change could not be applied or a record could not be loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreFailure {
    /// An SQLite error.
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    /// A change refers to a chat that does not exist.
    #[error("unknown chat {0}")]
    NoChat(ChannelUri),
    /// A change refers to a session that does not exist.
    #[error("unknown session {0}")]
    NoSession(ChannelUri),
    /// A table and its index contain different records.
    #[error("an index does not match its table")]
    Index,
    /// A number does not fit into a column.
    #[error("{0} is too large to store")]
    TooLarge(u64),
    /// A change is not accepted.
    #[error(transparent)]
    Rejected(StorageError),
    /// A value cannot be encoded as JSON.
    #[error("cannot encode a value as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A record that a session cannot be loaded without is damaged.
    #[error("{what} is damaged: {reason}")]
    Damaged {
        /// The damaged record.
        what: String,
        /// The decoding error.
        reason: String,
    },
}

impl StoreFailure {
    /// Whether the database file is damaged, as opposed to a record in it.
    pub(crate) fn is_damaged_file(&self) -> bool {
        match self {
            Self::Sql(error) => is_damage(error),
            Self::Index => true,
            Self::NoChat(_)
            | Self::NoSession(_)
            | Self::TooLarge(_)
            | Self::Rejected(_)
            | Self::Json(_)
            | Self::Damaged { .. } => false,
        }
    }

    /// Converts the error for the host.
    pub(crate) fn to_storage_error(&self) -> StorageError {
        match self {
            Self::Sql(error) => sql_error(error),
            Self::Damaged { what, reason } => {
                StorageError::Damaged { what: what.clone(), reason: reason.clone() }
            }
            Self::Index => {
                StorageError::Damaged { what: "the database".to_owned(), reason: self.to_string() }
            }
            Self::Rejected(error) => error.clone(),
            Self::NoChat(_) | Self::NoSession(_) | Self::TooLarge(_) | Self::Json(_) => {
                StorageError::Failed(self.to_string())
            }
        }
    }
}

/// Whether an error means that the file is damaged: SQLite reports it, a strict column
/// has a value of another type, or a record that was just found is missing.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    let reported =
        matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase));
    let unreadable = matches!(
        error,
        rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::Utf8Error(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::QueryReturnedNoRows
    );
    // The referenced record was looked up just before.
    let dangling = error
        .sqlite_error()
        .is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY);
    reported || unreadable || dangling
}

/// Whether SQLite rejected a statement.
pub(crate) fn is_rejection(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_ERROR)
}

/// Whether SQLite reports a full disk.
pub(crate) fn is_full(error: &rusqlite::Error) -> bool {
    let extended = error.sqlite_error().map(|error| error.extended_code);
    error.sqlite_error_code() == Some(ErrorCode::DiskFull) || extended == Some(LOG_INDEX_DID_NOT_GROW)
}

fn sql_error(error: &rusqlite::Error) -> StorageError {
    if is_full(error) {
        return StorageError::Full;
    }
    if is_damage(error) {
        return StorageError::Damaged { what: "the database".to_owned(), reason: error.to_string() };
    }
    StorageError::Failed(explanation(error))
}

/// An SQLite error as text, with what to do if that is known.
pub(crate) fn explanation(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another program has locked the database; close it and try again".to_owned()
        }
        Some(ErrorCode::ReadOnly) => "the database is read-only; make the data directory writable".to_owned(),
        _ => error.to_string(),
    }
}
