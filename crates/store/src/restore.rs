//! Restores records from backups: those that a damaged database lost, and those whose
//! bytes changed.
//!
//! A backup does not contain deleted sessions, chats and permission rules, so a record that
//! is only in the backup was lost.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use innkeeper_core::channel::ChannelUri;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params, params_from_iter};

use crate::backup::taken_at;
use crate::database::{ConnectionPurpose, StoreFiles, connect, remove_database};
use crate::lock::private;
use crate::migrate::{self, MigrateError};

/// Attaches a migrated copy of the newest usable backup as `backup`. Returns its time in
/// milliseconds since 1970, or `None` without a usable backup. Not allowed in a
/// transaction.
pub(crate) fn attach(files: &StoreFiles, into: &Connection) -> io::Result<Option<i64>> {
    for backup in files.backups() {
        let Some(at) = taken_at(&backup) else { continue };
        let copy = files.restoring();
        remove_database(&copy)?;
        io::copy(&mut fs::File::open(&backup)?, &mut private().open(&copy)?)?;
        let attached = migrated(&copy).and_then(|()| {
            into.execute("ATTACH DATABASE CAST(?1 AS TEXT) AS backup", [copy.as_os_str().as_bytes()])?;
            Ok(())
        });
        match attached {
            Ok(()) => return Ok(Some(at)),
            Err(error) => tracing::warn!(%error, path = %backup.display(), "cannot use a backup"),
        }
    }
    Ok(None)
}

fn migrated(copy: &Path) -> Result<(), MigrateError> {
    let mut db = connect(copy, ConnectionPurpose::Fill)?;
    migrate::STORE.run(&mut db)?;
    let checked: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if checked == "ok" {
        Ok(())
    } else {
        Err(MigrateError::Sql(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT),
            Some(checked),
        )))
    }
}

/// Numbers of restored records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RestoredCounts {
    /// Sessions that were missing.
    pub(crate) sessions: usize,
    /// Chats that were missing.
    pub(crate) chats: usize,
    /// Turns that were missing.
    pub(crate) turns: usize,
}

/// Whether turns may be missing from chats that are not missing themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LostTurns {
    /// The table was read completely.
    None,
    /// Parts of the table were unreadable.
    Possible,
}

/// Adds the records that are only in the attached backup. Newer records are kept.
pub(crate) fn complete(into: &Connection, lost: LostTurns) -> rusqlite::Result<RestoredCounts> {
    into.execute_batch(
        "CREATE TEMP TABLE restored AS SELECT uri FROM backup.session WHERE uri NOT IN (SELECT uri FROM main.session);
         INSERT INTO restored SELECT uri FROM backup.chat WHERE uri NOT IN (SELECT uri FROM main.chat);",
    )?;
    let sessions = insert_missing(into, "session", "uri, created_at, modified_at, summary, state, checksum")?;
    into.execute_batch(
        // These entries belong to documents that are lost.
        "DELETE FROM main.journal WHERE session IN (SELECT id FROM main.session WHERE uri IN restored);
         INSERT INTO main.journal (session, number, channel, at, action, checksum)
         SELECT main.session.id, old.number, old.channel, old.at, old.action, old.checksum
         FROM backup.journal AS old JOIN backup.session AS owner ON owner.id = old.session
         JOIN main.session ON main.session.uri = owner.uri WHERE owner.uri IN restored;",
    )?;
    let chats = insert_missing(
        into,
        "chat",
        "uri, session, derived, conversation, resumes, branch, rewind, state, checksum",
    )?;
    let turns = into.execute(
        "INSERT INTO main.turn (chat, place, turn_id, body, checksum)
         SELECT main.chat.id, old.place, old.turn_id, old.body, old.checksum
         FROM backup.turn AS old JOIN backup.chat AS owner ON owner.id = old.chat
         JOIN main.chat ON main.chat.uri = owner.uri
         WHERE (?1 OR owner.uri IN restored) AND NOT EXISTS (
             SELECT 1 FROM main.turn WHERE main.turn.chat = main.chat.id AND main.turn.place = old.place)",
        [lost == LostTurns::Possible],
    )?;
    into.execute_batch(
        "INSERT OR IGNORE INTO main.resume_token (chat, token)
         SELECT main.chat.id, old.token FROM backup.resume_token AS old
         JOIN backup.chat AS owner ON owner.id = old.chat JOIN main.chat ON main.chat.uri = owner.uri
         WHERE owner.uri IN restored;
         INSERT OR IGNORE INTO main.turn_link (chat, turn_id, link)
         SELECT main.chat.id, old.turn_id, old.link FROM backup.turn_link AS old
         JOIN backup.chat AS owner ON owner.id = old.chat JOIN main.chat ON main.chat.uri = owner.uri
         WHERE owner.uri IN restored;
         INSERT OR IGNORE INTO main.output (chat, turn_id, name, content_type, body, checksum)
         SELECT main.chat.id, old.turn_id, old.name, old.content_type, old.body, old.checksum
         FROM backup.output AS old JOIN backup.chat AS owner ON owner.id = old.chat
         JOIN main.chat ON main.chat.uri = owner.uri
         JOIN main.turn ON main.turn.chat = main.chat.id AND main.turn.turn_id = old.turn_id;
         INSERT OR IGNORE INTO main.host SELECT name, value FROM backup.host WHERE name = 'root_config';
         INSERT OR IGNORE INTO main.rule (root, behavior, rule, created_at, checksum)
         SELECT root, behavior, rule, created_at, checksum FROM backup.rule ORDER BY id;
         INSERT OR IGNORE INTO main.audit SELECT * FROM backup.audit;
         INSERT INTO main.set_aside SELECT * FROM backup.set_aside WHERE NOT EXISTS (SELECT 1 FROM main.set_aside);
         DROP TABLE restored;",
    )?;
    Ok(RestoredCounts { sessions, chats, turns })
}

/// Inserts the missing records of a table. They keep their ids if these are unused, since
/// other records may refer to them.
fn insert_missing(into: &Connection, table: &str, columns: &str) -> rusqlite::Result<usize> {
    let missing =
        format!("FROM backup.{table} WHERE uri IN restored AND uri NOT IN (SELECT uri FROM main.{table})");
    let kept = format!(
        "INSERT INTO main.{table} (id, {columns}) SELECT id, {columns} {missing}
         AND id NOT IN (SELECT id FROM main.{table})"
    );
    let renumbered = format!("INSERT INTO main.{table} ({columns}) SELECT {columns} {missing}");
    Ok(into.execute(&kept, [])? + into.execute(&renumbered, [])?)
}

/// How to find a session's changed records, find a copy in a backup, and replace them.
struct RecordRepair {
    /// Selects id, checksum and address of the changed records.
    changed: &'static str,
    /// Selects the covered columns of a record with this address and checksum.
    copy: &'static str,
    /// Sets the covered columns.
    update: &'static str,
}

const REPLACEMENTS: [RecordRepair; 3] = [
    RecordRepair {
        changed: "SELECT id, checksum, uri FROM session
                  WHERE uri = ?1 AND checksum <> record_checksum(created_at, state)",
        copy: "SELECT created_at, state FROM session WHERE uri = ?1 AND checksum = ?2
               AND checksum = record_checksum(created_at, state)",
        update: "UPDATE session SET created_at = ?2, state = ?3 WHERE id = ?1",
    },
    RecordRepair {
        changed: "SELECT id, checksum, uri FROM chat WHERE session = ?1
                  AND checksum <> record_checksum(conversation, resumes, branch, rewind, state)",
        copy: "SELECT conversation, resumes, branch, rewind, state FROM chat WHERE uri = ?1 AND checksum = ?2
               AND checksum = record_checksum(conversation, resumes, branch, rewind, state)",
        update: "UPDATE chat SET conversation = ?2, resumes = ?3, branch = ?4, rewind = ?5, state = ?6 WHERE id = ?1",
    },
    RecordRepair {
        changed: "SELECT turn.id, turn.checksum, chat.uri FROM turn JOIN chat ON chat.id = turn.chat
                  WHERE chat.session = ?1 AND turn.checksum <> record_checksum(turn.turn_id, turn.body)",
        copy: "SELECT turn.turn_id, turn.body FROM turn JOIN chat ON chat.id = turn.chat
               WHERE chat.uri = ?1 AND turn.checksum = ?2
               AND turn.checksum = record_checksum(turn.turn_id, turn.body)",
        update: "UPDATE turn SET turn_id = ?2, body = ?3 WHERE id = ?1",
    },
];

/// Replaces a session's changed records by copies from a backup that have the checksum of
/// the original. Returns their number.
pub(crate) fn replace_changed(
    db: &Connection,
    backup: &Path,
    session: &ChannelUri,
) -> rusqlite::Result<usize> {
    let backup = connect(backup, ConnectionPurpose::Copy)?;
    let mut replaced = 0;
    for RecordRepair { changed, copy, update } in REPLACEMENTS {
        let mut select = db.prepare(changed)?;
        let found = select.query_map([session.as_str()], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?))
        })?;
        for (id, checksum, uri) in found.collect::<rusqlite::Result<Vec<_>>>()? {
            let mut values = vec![Value::Integer(id)];
            let copied = backup.prepare(copy)?.query_row(params![uri, checksum], |row| {
                for column in 0..row.as_ref().column_count() {
                    values.push(row.get(column)?);
                }
                Ok(())
            });
            if copied.optional()?.is_some() {
                replaced += db.execute(update, params_from_iter(&values))?;
            }
        }
    }
    Ok(replaced)
}
