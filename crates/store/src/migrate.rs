//! Schema migrations: numbered steps, each in its own transaction.
//!
//! Invariant: `user_version` is the number of the last completed step. A step is never
//! edited after a release.

use rusqlite::{Connection, TransactionBehavior};

use crate::database::{definitions, in_memory};
use crate::failure::is_full;

/// The migrations of one kind of database.
#[derive(Debug)]
pub(crate) struct Migrations {
    /// The steps in order; the first is number 1.
    steps: &'static [&'static str],
}

/// The migrations of the host's database.
pub(crate) const STORE: Migrations = Migrations {
    steps: &[
        include_str!("../migrations/0001_initial.sql"),
        include_str!("../migrations/0002_agent_messages.sql"),
        include_str!("../migrations/0003_checksums.sql"),
        include_str!("../migrations/0004_output.sql"),
        include_str!("../migrations/0005_rules_and_audit.sql"),
    ],
};

/// The migrations of the edit log's database.
pub(crate) const EDITS: Migrations =
    Migrations { steps: &[include_str!("../migrations/edits/0001_initial.sql")] };

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

/// What the schema version and the tables of a database say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemaState {
    /// They agree.
    Known,
    /// The tables are those of a known version, but the number is another one.
    Renumbered {
        /// The number.
        found: i64,
        /// The version of the tables.
        version: i64,
    },
    /// The tables are not those of any version.
    Unexpected,
}

impl Migrations {
    /// The newest schema version.
    fn known(&self) -> i64 {
        i64::try_from(self.steps.len()).unwrap_or(i64::MAX)
    }

    /// Compares the schema version with the tables, and rejects an unrecognised or newer
    /// version. Does not write.
    pub(crate) fn inspect(&self, db: &Connection) -> Result<SchemaState, MigrateError> {
        let found = user_version(db)?;
        match self.version_of(&definitions(db)?)? {
            Some(version) if version == found => Ok(SchemaState::Known),
            Some(version @ 1..) => Ok(SchemaState::Renumbered { found, version }),
            _ if found < 0 => Err(MigrateError::Foreign { found }),
            _ if found > self.known() => Err(MigrateError::Newer { found, known: self.known() }),
            _ => Ok(SchemaState::Unexpected),
        }
    }

    /// The schema version that has these tables.
    fn version_of(&self, found: &[String]) -> rusqlite::Result<Option<i64>> {
        let db = in_memory()?;
        for (version, step) in (0..).zip([""].into_iter().chain(self.steps.iter().copied())) {
            db.execute_batch(step)?;
            if definitions(&db)? == found {
                return Ok(Some(version));
            }
        }
        Ok(None)
    }

    /// Runs the missing steps, then rebuilds the file: it removes content that earlier
    /// versions left in free space, and puts the same tables onto the same pages in every
    /// database, which a repair relies on.
    pub(crate) fn run(&self, db: &mut Connection) -> Result<(), MigrateError> {
        let found = user_version(db)?;
        for (number, step) in (1_i64..).zip(self.steps).filter(|(number, _)| *number > found) {
            let step_in = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            step_in.execute_batch(step)?;
            step_in.pragma_update(None, "user_version", number)?;
            step_in.commit()?;
        }
        if found < self.known() {
            match db.execute_batch("VACUUM") {
                Err(error) if is_full(&error) => {
                    tracing::warn!(
                        "not enough disk space to rebuild the database; it may contain deleted content"
                    );
                }
                rebuilt => rebuilt?,
            }
        }
        Ok(())
    }
}

fn user_version(db: &Connection) -> rusqlite::Result<i64> {
    db.query_row("PRAGMA user_version", [], |row| row.get(0))
}
