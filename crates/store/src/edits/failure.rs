//! Errors inside the storage of the edit log.

use innkeeper_core::edits::EditStorageError;
use rusqlite::ErrorCode;

use crate::failure::{explanation, is_damage, is_full};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EditFailure {
    /// An SQLite error.
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    /// A record is damaged.
    #[error("{0}")]
    Damaged(String),
    /// A content that the caller found in storage was deleted meanwhile.
    #[error("a content was deleted meanwhile")]
    Missing,
    /// The disk is full.
    #[error("the disk is full")]
    Full,
    /// The request does not fit the stored data.
    #[error("{0}")]
    Rejected(String),
}

impl EditFailure {
    /// Whether SQLite found damage in the file.
    pub(crate) fn is_damaged_file(&self) -> bool {
        let Self::Sql(error) = self else { return false };
        matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
    }

    /// Converts the error for the caller.
    pub(crate) fn to_storage_error(&self) -> EditStorageError {
        match self {
            Self::Full => EditStorageError::Full,
            Self::Sql(error) if is_full(error) => EditStorageError::Full,
            Self::Sql(error) if is_damage(error) => EditStorageError::Damaged(error.to_string()),
            Self::Sql(error) => EditStorageError::Failed(explanation(error)),
            Self::Damaged(reason) => EditStorageError::Damaged(reason.clone()),
            Self::Missing | Self::Rejected(_) => EditStorageError::Failed(self.to_string()),
        }
    }
}
