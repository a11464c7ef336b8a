//! Schema migrations: numbered steps, each in its own transaction.
//!
//! Invariant: `user_version` is the number of the last completed step. A step is never
//! edited after a release.

use rusqlite::{Connection, TransactionBehavior};

/// The steps in order; the first is number 1.
const STEPS: [&str; 2] =
    [include_str!("../migrations/0001_initial.sql"), include_str!("../migrations/0002_agent_messages.sql")];

/// Why the schema could not be migrated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MigrateError {
    /// A newer version of this program created the database.
    #[error("schema version {found} is newer than {known}")]
    Newer {
        /// The schema version.
        found: i64,
        /// The newest version that this program supports.
        known: i64,
    },
    /// The schema version does not belong to any version of this program.
    #[error("unrecognised schema version {found}")]
    Foreign {
        /// The schema version.
        found: i64,
    },
    /// An SQLite error.
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
}

/// The newest schema version.
pub(crate) fn known() -> i64 {
    i64::try_from(STEPS.len()).unwrap_or(i64::MAX)
}

/// Reads the schema version and rejects an unrecognised or newer one. Does not write.
pub(crate) fn found(db: &Connection) -> Result<i64, MigrateError> {
    let found: i64 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    match found {
        ..0 => Err(MigrateError::Foreign { found }),
        found if found > known() => Err(MigrateError::Newer { found, known: known() }),
        found => Ok(found),
    }
}

/// Runs the missing steps.
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
