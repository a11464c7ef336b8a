//! The schema's history: numbered steps, each in a transaction of its own.
//!
//! Invariant: `user_version` is the number of the last step that was taken whole.
//! A step is never edited after a release.

use rusqlite::{Connection, TransactionBehavior};

/// The steps in order; the first one is number 1.
const STEPS: [&str; 2] =
    [include_str!("../migrations/0001_initial.sql"), include_str!("../migrations/0002_agent_messages.sql")];

/// Why the schema could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MigrateError {
    /// A later version of this program made it.
    #[error("schema {found} is newer than {known}")]
    Newer {
        /// The schema's number.
        found: i64,
        /// The newest number that this program knows.
        known: i64,
    },
    /// No version of this program made it.
    #[error("schema {found} is none of this program's")]
    Foreign {
        /// The schema's number.
        found: i64,
    },
    /// SQLite said so.
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
}

/// The newest schema.
pub(crate) fn known() -> i64 {
    i64::try_from(STEPS.len()).unwrap_or(i64::MAX)
}

/// The schema's number; refuses one that is not ours, or newer. Writes nothing.
pub(crate) fn found(db: &Connection) -> Result<i64, MigrateError> {
    let found: i64 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    match found {
        ..0 => Err(MigrateError::Foreign { found }),
        found if found > known() => Err(MigrateError::Newer { found, known: known() }),
        found => Ok(found),
    }
}

/// Takes the steps that are missing.
pub(crate) fn run(db: &mut Connection) -> Result<(), MigrateError> {
    let found = found(db)?;
    for (number, step) in (1_i64..).zip(STEPS).filter(|(number, _)| *number > found) {
        let step_in = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        step_in.execute_batch(step)?;
        step_in.pragma_update(None, "user_version", number)?;
        step_in.commit()?;
    }
    Ok(())
}
