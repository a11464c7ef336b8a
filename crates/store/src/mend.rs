//! Sets unusable records aside so that the others can be used.
//!
//! Invariant: a record removed from a table is stored in `set_aside` in the same
//! transaction and reported to the user.

use std::fmt;
use std::sync::Arc;

use innkeeper_core::clock::Clock;
use innkeeper_core::storage::StoredRow;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::failure::StoreFailure;
use crate::index::{channel, json};
use crate::problems::Problems;
use crate::session::Flaw;

/// Sets records aside and reports them.
#[derive(Clone)]
pub(crate) struct Mender {
    clock: Arc<dyn Clock>,
    problems: Problems,
}

impl fmt::Debug for Mender {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Mender").field("problems", &self.problems).finish_non_exhaustive()
    }
}

impl Mender {
    /// Creates a mender that reports to `problems`.
    pub(crate) fn new(clock: Arc<dyn Clock>, problems: Problems) -> Self {
        Self { clock, problems }
    }

    /// Milliseconds since 1970.
    pub(crate) fn now(&self) -> i64 {
        self.clock.now().as_millisecond()
    }

    /// The time as part of a file name.
    pub(crate) fn stamp(&self) -> String {
        self.clock.now().strftime("%Y%m%dT%H%M%S%3fZ").to_string()
    }

    /// The report of problems.
    pub(crate) fn problems(&self) -> &Problems {
        &self.problems
    }

    /// Sets aside a record that is about to be removed from its table, and reports it.
    pub(crate) fn set_aside(
        &self,
        db: &Connection,
        kind: &str,
        key: &str,
        body: &[u8],
        reason: &str,
    ) -> rusqlite::Result<()> {
        self.keep(db, kind, key, body, reason)?;
        self.problems.report(format!(
            "A stored {kind} ({key}) cannot be used ({reason}). It was set aside inside the database; all other data is intact."
        ));
        Ok(())
    }

    /// Sets aside a record without reporting it.
    pub(crate) fn keep(
        &self,
        db: &Connection,
        kind: &str,
        key: &str,
        body: &[u8],
        reason: &str,
    ) -> rusqlite::Result<()> {
        db.prepare_cached("INSERT INTO set_aside (kind, key, body, reason, at) VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![kind, key, body, reason, self.now()])?;
        Ok(())
    }

    /// Replaces a row of the session list by its second copy, or removes it from the
    /// list.
    pub(crate) fn mend_row(
        &self,
        db: &Connection,
        id: i64,
        reason: &str,
    ) -> Result<Option<StoredRow>, StoreFailure> {
        let (session, body) =
            db.query_row("SELECT uri, CAST(summary AS BLOB) FROM session_row WHERE id = ?1", [id], |row| {
                Ok((channel(row, 0)?, row.get::<_, Vec<u8>>(1)?))
            })?;
        self.set_aside(db, "row of the session list", session.as_str(), &body, reason)?;
        let copy = db
            .query_row(
                "SELECT modified_at, summary FROM session WHERE uri = ?1 AND summary IS NOT NULL",
                [session.as_str()],
                |row| Ok((row.get::<_, i64>(0)?, json(row, 1)?)),
            )
            .optional()?;
        let Some((modified_at, Ok(summary))) = copy else {
            db.execute("DELETE FROM session_row WHERE id = ?1", [id])?;
            return Ok(None);
        };
        db.execute(
            "UPDATE session_row SET modified_at = ?2, summary = ?3 WHERE id = ?1",
            params![id, modified_at, summary.get()],
        )?;
        Ok(Some(StoredRow { session, modified_at, summary }))
    }

    /// Sets aside the unusable records of a session.
    pub(crate) fn mend_session(&self, db: &Connection, flaws: &[Flaw]) -> Result<(), StoreFailure> {
        for flaw in flaws {
            match flaw {
                Flaw::Chat { id, reason } => self.take_chat(db, *id, reason)?,
                Flaw::Turn { id, reason } => self.take_turn(db, *id, reason)?,
                Flaw::Entry { id, reason } => self.take_entry(db, *id, reason)?,
                Flaw::Places { .. } => {}
            }
        }
        // Renumber last, when the remaining turns are known.
        for flaw in flaws {
            if let Flaw::Places { chat } = flaw {
                renumber(db, *chat)?;
            }
        }
        Ok(())
    }

    fn take_chat(&self, db: &Connection, id: i64, reason: &str) -> Result<(), StoreFailure> {
        let (uri, body) =
            db.query_row("SELECT uri, CAST(state AS BLOB) FROM chat WHERE id = ?1", [id], |row| {
                Ok((channel(row, 0)?, row.get::<_, Vec<u8>>(1)?))
            })?;
        let turns: Vec<i64> = {
            let mut select = db.prepare("SELECT id FROM turn WHERE chat = ?1 ORDER BY place")?;
            select.query_map([id], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?
        };
        for turn in turns {
            let (key, body) = turn_record(db, turn)?;
            self.keep(db, "turn", &key, &body, "its chat cannot be used")?;
        }
        self.set_aside(db, "chat", uri.as_str(), &body, reason)?;
        db.execute("DELETE FROM chat WHERE id = ?1", [id])?;
        Ok(())
    }

    fn take_turn(&self, db: &Connection, id: i64, reason: &str) -> Result<(), StoreFailure> {
        let (key, body) = turn_record(db, id)?;
        self.set_aside(db, "turn", &key, &body, reason)?;
        db.execute("DELETE FROM turn WHERE id = ?1", [id])?;
        Ok(())
    }

    fn take_entry(&self, db: &Connection, id: i64, reason: &str) -> Result<(), StoreFailure> {
        let (uri, number, body) = db.query_row(
            "SELECT channel, number, CAST(action AS BLOB) FROM journal WHERE id = ?1",
            [id],
            |row| Ok((channel(row, 0)?, row.get::<_, i64>(1)?, row.get::<_, Vec<u8>>(2)?)),
        )?;
        self.set_aside(db, "action", &format!("{uri} {number}"), &body, reason)?;
        db.execute("DELETE FROM journal WHERE id = ?1", [id])?;
        Ok(())
    }
}

/// A turn's readable key, and its body.
fn turn_record(db: &Connection, id: i64) -> Result<(String, Vec<u8>), StoreFailure> {
    Ok(db.query_row(
        "SELECT chat.uri, turn.place, CAST(turn.body AS BLOB) FROM turn JOIN chat ON chat.id = turn.chat
         WHERE turn.id = ?1",
        [id],
        |row| Ok((format!("{} {}", channel(row, 0)?, row.get::<_, i64>(1)?), row.get(2)?)),
    )?)
}

/// Numbers a chat's turns 0, 1, 2 and so on.
fn renumber(db: &Connection, chat: i64) -> Result<(), StoreFailure> {
    let turns: Vec<i64> = {
        let mut select = db.prepare("SELECT id FROM turn WHERE chat = ?1 ORDER BY place")?;
        select.query_map([chat], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?
    };
    let last: Option<i64> =
        db.query_row("SELECT max(place) FROM turn WHERE chat = ?1", [chat], |row| row.get(0))?;
    let unused = last.unwrap_or(0).max(0).saturating_add(1);
    // Use unused numbers first, since numbers must be unique at every step.
    for first in [unused, 0] {
        let mut update = db.prepare("UPDATE turn SET place = ?2 WHERE id = ?1")?;
        for (place, id) in (first..).zip(&turns) {
            update.execute([*id, place])?;
        }
    }
    Ok(())
}
