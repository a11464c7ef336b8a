//! Sets unusable records aside so that the others can be used.
//!
//! Invariant: a record removed from a table is stored in `set_aside` in the same
//! transaction and reported to the user.

use std::fmt;
use std::sync::Arc;

use innkeeper_core::channel::ChannelUri;
use innkeeper_core::clock::Clock;
use innkeeper_core::storage::StoredRow;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::apply;
use crate::database::file_stamp;
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
        file_stamp(self.clock.now())
    }

    /// The report of problems.
    pub(crate) fn problems(&self) -> &Problems {
        &self.problems
    }

    /// Sets aside a record that is about to be removed from its table, and reports it.
    pub(crate) fn set_aside(
        &self,
        db: &Connection,
        record: &AsideRecord<'_>,
        reason: &str,
    ) -> rusqlite::Result<()> {
        self.keep(db, record, reason)?;
        let AsideRecord { kind, key, .. } = record;
        self.problems.report(format!(
            "A stored {kind} ({key}) cannot be used ({reason}). It was set aside inside the database; all other data is intact."
        ));
        Ok(())
    }

    /// Sets aside a record without reporting it.
    pub(crate) fn keep(
        &self,
        db: &Connection,
        record: &AsideRecord<'_>,
        reason: &str,
    ) -> rusqlite::Result<()> {
        let AsideRecord { kind, key, session, body } = record;
        db.prepare_cached(
            "INSERT INTO set_aside (kind, key, body, reason, at, session) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![kind, key, body, reason, self.now(), session])?;
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
        let record = AsideRecord {
            kind: "row of the session list",
            key: session.as_str(),
            session: Some(session.as_str()),
            body: &body,
        };
        self.set_aside(db, &record, reason)?;
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
        let row = StoredRow { session, modified_at, summary };
        apply::put_list_row(db, &row)?;
        Ok(Some(row))
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
        let turns: Vec<i64> = {
            let mut select = db.prepare("SELECT id FROM turn WHERE chat = ?1 ORDER BY place")?;
            select.query_map([id], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?
        };
        for turn in turns {
            self.keep(db, &TakenRecord::read(db, TURN, turn)?.aside("turn"), "its chat cannot be used")?;
        }
        self.set_aside(db, &TakenRecord::read(db, CHAT, id)?.aside("chat"), reason)?;
        db.execute("DELETE FROM chat WHERE id = ?1", [id])?;
        Ok(())
    }

    fn take_turn(&self, db: &Connection, id: i64, reason: &str) -> Result<(), StoreFailure> {
        self.set_aside(db, &TakenRecord::read(db, TURN, id)?.aside("turn"), reason)?;
        db.execute("DELETE FROM turn WHERE id = ?1", [id])?;
        Ok(())
    }

    fn take_entry(&self, db: &Connection, id: i64, reason: &str) -> Result<(), StoreFailure> {
        self.set_aside(db, &TakenRecord::read(db, ENTRY, id)?.aside("action"), reason)?;
        db.execute("DELETE FROM journal WHERE id = ?1", [id])?;
        Ok(())
    }
}

/// A record to set aside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AsideRecord<'a> {
    /// What it is, for the user.
    pub(crate) kind: &'a str,
    /// Its address, and its number if it has one.
    pub(crate) key: &'a str,
    /// Its session, if known.
    pub(crate) session: Option<&'a str>,
    /// Its content.
    pub(crate) body: &'a [u8],
}

/// Selects address, number, session and content of a record.
const CHAT: &str = "SELECT uri, NULL, session, CAST(state AS BLOB) FROM chat WHERE id = ?1";
const TURN: &str = "SELECT chat.uri, turn.place, chat.session, CAST(turn.body AS BLOB)
    FROM turn JOIN chat ON chat.id = turn.chat WHERE turn.id = ?1";
const ENTRY: &str = "SELECT channel, number, session.uri, CAST(action AS BLOB)
    FROM journal JOIN session ON session.id = journal.session WHERE journal.id = ?1";

/// A record that is removed from its table.
struct TakenRecord {
    key: String,
    session: ChannelUri,
    body: Vec<u8>,
}

impl TakenRecord {
    fn read(db: &Connection, select: &str, id: i64) -> rusqlite::Result<Self> {
        db.query_row(select, [id], |row| {
            let uri = channel(row, 0)?;
            let key = match row.get::<_, Option<i64>>(1)? {
                Some(number) => format!("{uri} {number}"),
                None => uri.to_string(),
            };
            Ok(Self { key, session: channel(row, 2)?, body: row.get(3)? })
        })
    }

    fn aside<'a>(&'a self, kind: &'a str) -> AsideRecord<'a> {
        AsideRecord { kind, key: &self.key, session: Some(self.session.as_str()), body: &self.body }
    }
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
