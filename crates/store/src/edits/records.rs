//! Records of edits, and reviews.

use std::collections::HashSet;
use std::path::PathBuf;

use innkeeper_core::channel::ChannelUri;
use innkeeper_core::edits::{BlobDigest, EditRecord, EditSource, FileReview, FileVersion, UnknownContent};
use rusqlite::{Connection, Params, Row};
use uuid::Uuid;

use super::codec::{decode_version, encode_version, path_bytes, path_of};
use super::failure::EditFailure;
use crate::checksum;

/// The columns that a checksum covers.
const COVERED: &str = "chat, turn, tool_call, source, path, before, before_blob, after, after_blob, \
                       new_parents, overlaps, operation, recorded_at";

/// The positions of the covered columns in a selected row.
const COVERED_AT: [usize; 13] = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];

/// A record as it is stored, and which of its contents still are.
struct LoadedRecord {
    record: EditRecord,
    has_before: bool,
    has_after: bool,
}

/// Appends a record and returns its number.
pub(crate) fn insert(db: &Connection, record: &EditRecord) -> Result<u64, EditFailure> {
    let mut insert = db.prepare_cached(&format!(
        "INSERT INTO record (session, {COVERED}, checksum) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, \
         record_checksum(?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14))"
    ))?;
    let number = insert.insert(rusqlite::params![
        record.session.as_str(),
        record.chat.as_str(),
        record.turn,
        record.tool_call,
        record.source.as_str(),
        path_bytes(&record.path),
        encode_version(&record.before),
        digest_column(&record.before),
        encode_version(&record.after),
        digest_column(&record.after),
        record.new_parents,
        record.overlaps,
        record.operation.map(Uuid::into_bytes),
        record.recorded_at,
    ])?;
    Ok(number.cast_unsigned())
}

fn digest_column(version: &FileVersion) -> Option<[u8; 32]> {
    version.stored_blob().map(|digest| *digest.as_bytes())
}

/// The records of a session, in order.
pub(crate) fn of_session(db: &Connection, session: &ChannelUri) -> Result<Vec<EditRecord>, EditFailure> {
    let loaded = load(db, "session = ?1", [session.as_str()])?;
    Ok(loaded.into_iter().map(LoadedRecord::without_evicted).collect())
}

/// The records of all sessions for these files after a record number, in order.
pub(crate) fn of_paths(
    db: &Connection,
    paths: &[PathBuf],
    after: u64,
) -> Result<Vec<EditRecord>, EditFailure> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let mut found = Vec::new();
    for path in paths.iter().collect::<HashSet<_>>() {
        found.extend(load(db, "path = ?1 AND number > ?2", (path_bytes(path), after))?);
    }
    found.sort_by_key(|loaded| loaded.record.number);
    Ok(found.into_iter().map(LoadedRecord::without_evicted).collect())
}

fn load(db: &Connection, condition: &str, parameters: impl Params) -> Result<Vec<LoadedRecord>, EditFailure> {
    let mut select = db.prepare_cached(&format!(
        "SELECT number, session, {COVERED}, checksum, \
         EXISTS (SELECT 1 FROM blob WHERE digest = before_blob), \
         EXISTS (SELECT 1 FROM blob WHERE digest = after_blob) \
         FROM record WHERE {condition} ORDER BY number"
    ))?;
    let mut rows = select.query(parameters)?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        let number: i64 = row.get(0)?;
        let damaged = |reason| EditFailure::Damaged(format!("edit {number}: {reason}"));
        checksum::check(row, 15, &COVERED_AT)?.map_err(damaged)?;
        records.push(decode(row)?.map_err(damaged)?);
    }
    Ok(records)
}

fn decode(row: &Row<'_>) -> rusqlite::Result<Result<LoadedRecord, String>> {
    let source: String = row.get(5)?;
    let (before, after): (Vec<u8>, Vec<u8>) = (row.get(7)?, row.get(9)?);
    let operation: Option<[u8; 16]> = row.get(13)?;
    let decoded = || {
        Ok((
            EditSource::parse(&source).ok_or_else(|| format!("unknown source {source:?}"))?,
            decode_version(&before)?,
            decode_version(&after)?,
        ))
    };
    let (source, before, after) = match decoded() {
        Ok(decoded) => decoded,
        Err(reason) => return Ok(Err(reason)),
    };
    let record = EditRecord {
        number: row.get::<_, i64>(0)?.cast_unsigned(),
        session: ChannelUri::new(&row.get::<_, String>(1)?),
        chat: ChannelUri::new(&row.get::<_, String>(2)?),
        turn: row.get(3)?,
        tool_call: row.get(4)?,
        source,
        path: path_of(row.get(6)?),
        before,
        after,
        new_parents: row.get(11)?,
        overlaps: row.get(12)?,
        operation: operation.map(Uuid::from_bytes),
        recorded_at: row.get(14)?,
    };
    Ok(Ok(LoadedRecord { record, has_before: row.get(16)?, has_after: row.get(17)? }))
}

impl LoadedRecord {
    /// The record, with contents that are no longer stored as unknown.
    fn without_evicted(self) -> EditRecord {
        let mut record = self.record;
        evict_unless(self.has_before, &mut record.before);
        evict_unless(self.has_after, &mut record.after);
        record
    }
}

/// Replaces a version whose content should be stored but is not.
pub(crate) fn evict_unless(is_stored: bool, version: &mut FileVersion) {
    if version.stored_blob().is_some() && !is_stored {
        *version = FileVersion::Unknown(UnknownContent::Evicted);
    }
}

/// Copies the records of some turns of a chat to a chat of a session.
pub(crate) fn copy(
    db: &Connection,
    from: &ChannelUri,
    (session, chat): (&ChannelUri, &ChannelUri),
    turns: &[String],
) -> Result<(), EditFailure> {
    let turns: HashSet<&str> = turns.iter().map(String::as_str).collect();
    let records = load(db, "chat = ?1", [from.as_str()])?;
    for loaded in records.into_iter().filter(|loaded| turns.contains(loaded.record.turn.as_str())) {
        let copied = EditRecord { session: session.clone(), chat: chat.clone(), ..loaded.record };
        insert(db, &copied)?;
    }
    Ok(())
}

/// Assigns a chat's records and reviews to another session.
pub(crate) fn move_chat(db: &Connection, chat: &ChannelUri, to: &ChannelUri) -> Result<(), EditFailure> {
    for table in ["record", "review"] {
        let sql = format!("UPDATE {table} SET session = ?2 WHERE chat = ?1");
        db.prepare_cached(&sql)?.execute((chat.as_str(), to.as_str()))?;
    }
    Ok(())
}

/// A session or a chat that is deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeletedEdits<'a> {
    /// A session with all its chats.
    Session(&'a ChannelUri),
    /// A chat.
    Chat(&'a ChannelUri),
}

impl DeletedEdits<'_> {
    /// Deletes all records, operations and reviews. Their contents are deleted by the next
    /// garbage collection, without a grace period.
    pub(crate) fn apply(self, db: &Connection) -> Result<(), EditFailure> {
        let (column, uri) = match self {
            Self::Session(session) => ("session", session.as_str()),
            Self::Chat(chat) => ("chat", chat.as_str()),
        };
        let contents: HashSet<BlobDigest> = {
            let mut select = db.prepare_cached(&format!(
                "SELECT before_blob FROM record WHERE {column} = ?1 AND before_blob IS NOT NULL \
                 UNION SELECT after_blob FROM record WHERE {column} = ?1 AND after_blob IS NOT NULL \
                 UNION SELECT blob FROM operation_blob JOIN operation ON number = operation WHERE {column} = ?1"
            ))?;
            let digests = select.query_map([uri], |row| row.get(0).map(BlobDigest::from_bytes))?;
            digests.collect::<rusqlite::Result<_>>()?
        };
        for table in ["record", "operation", "review"] {
            db.prepare_cached(&format!("DELETE FROM {table} WHERE {column} = ?1"))?.execute([uri])?;
        }
        super::garbage::release(db, &contents)
    }
}

/// Sets or clears reviews.
pub(crate) fn set_reviews(
    db: &Connection,
    session: &ChannelUri,
    reviews: &[FileReview],
    reviewed: bool,
) -> Result<(), EditFailure> {
    let mut clear = db.prepare_cached(
        "DELETE FROM review WHERE session = ?1 AND path = ?2 AND chat IS ?3 AND turn IS ?4",
    )?;
    let mut insert = db.prepare_cached(
        "INSERT INTO review (session, path, chat, turn, through) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for review in reviews {
        let chat = review.chat.as_ref().map(ChannelUri::as_str);
        let path = path_bytes(&review.path);
        clear.execute((session.as_str(), path, chat, &review.turn))?;
        if reviewed {
            let through = i64::try_from(review.through).unwrap_or(i64::MAX);
            insert.execute((session.as_str(), path, chat, &review.turn, through))?;
        }
    }
    Ok(())
}

/// The reviews of a session.
pub(crate) fn reviews(db: &Connection, session: &ChannelUri) -> Result<Vec<FileReview>, EditFailure> {
    let mut select =
        db.prepare_cached("SELECT chat, turn, path, through FROM review WHERE session = ?1 ORDER BY rowid")?;
    let reviews = select.query_map([session.as_str()], |row| {
        Ok(FileReview {
            chat: row.get::<_, Option<String>>(0)?.map(|chat| ChannelUri::new(&chat)),
            turn: row.get(1)?,
            path: path_of(row.get(2)?),
            through: row.get::<_, i64>(3)?.cast_unsigned(),
        })
    })?;
    Ok(reviews.collect::<rusqlite::Result<_>>()?)
}
