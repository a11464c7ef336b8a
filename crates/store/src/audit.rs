//! Audit records: the decisions about tool calls.
//!
//! Invariant: the table is bounded, by the number of records and by their age. Some new
//! records delete a few old ones, so that no write takes long.

use innkeeper_core::audit::{
    AUDIT_DELETIONS, AUDIT_INTERVAL, AuditCursor, AuditDecision, AuditPage, AuditQuery, AuditRecord,
    MAX_AUDIT_AGE, MAX_AUDIT_RECORDS,
};
use innkeeper_core::ids::ClientId;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};

use crate::checksum;
use crate::failure::StoreFailure;
use crate::index::{channel, text};
use crate::mend::{AsideRecord, Mender};

/// Most records that a start deletes, so that it stays fast.
pub(crate) const DELETIONS_AT_START: usize = 1_000;

/// The columns that a checksum covers.
pub(crate) const COLUMNS: &str =
    "at, session, chat, turn_id, tool_call, tool, input_digest, decision, layer, rule, client";

/// Adds a record, if its session exists, and sometimes deletes a few old ones.
pub(crate) fn add(db: &Connection, record: &AuditRecord) -> rusqlite::Result<()> {
    let record = record.clone().shortened();
    let added = db
        .prepare_cached(&format!(
            "INSERT INTO audit ({COLUMNS}, checksum)
             SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11,
                 record_checksum(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
             WHERE EXISTS (SELECT 1 FROM session WHERE uri = ?2)"
        ))?
        .execute(params![
            record.at,
            record.session.as_str(),
            record.chat.as_str(),
            record.turn,
            record.tool_call,
            record.tool,
            record.input_digest,
            record.decision.as_str(),
            record.layer,
            record.rule,
            record.client.as_ref().map(ClientId::as_str),
        ])?;
    let deletes = added > 0 && db.last_insert_rowid().unsigned_abs().is_multiple_of(AUDIT_INTERVAL);
    if deletes { delete_old(db, record.at, AUDIT_DELETIONS) } else { Ok(()) }
}

/// Deletes records that are too old and records above the limit, at most `most` of each.
pub(crate) fn delete_old(db: &Connection, now: i64, most: usize) -> rusqlite::Result<()> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    db.prepare_cached(
        "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE at < ?1 ORDER BY at, id LIMIT ?2)",
    )?
    .execute([now.saturating_sub(MAX_AUDIT_AGE), most])?;
    db.prepare_cached(
        "DELETE FROM audit WHERE id IN (
             SELECT id FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?1 ORDER BY id LIMIT ?2)",
    )?
    .execute([i64::try_from(MAX_AUDIT_RECORDS - AUDIT_INTERVAL).unwrap_or(i64::MAX), most])?;
    Ok(())
}

/// A record that cannot be used, and why.
#[derive(Debug)]
pub(crate) struct AuditFlaw {
    id: i64,
    reason: String,
}

/// Loads records, newest first. Unusable ones are added to `flaws` and left out.
pub(crate) fn load(
    db: &Connection,
    query: &AuditQuery,
    flaws: &mut Vec<AuditFlaw>,
) -> Result<AuditPage, StoreFailure> {
    let before =
        query.before.map_or(i64::MAX, |AuditCursor(before)| i64::try_from(before).unwrap_or(i64::MAX));
    let session = query.session.as_ref().map(|session| session.as_str());
    let of_session = if session.is_some() { "session = ?2" } else { "?2 IS NULL" };
    let mut select = db.prepare_cached(&format!(
        "SELECT id, {COLUMNS}, checksum FROM audit WHERE id < ?1 AND {of_session} ORDER BY id DESC"
    ))?;
    let mut records = select.query(params![before, session])?;
    let mut page = AuditPage::default();
    let mut last = None;
    while let Some(record) = records.next()? {
        let id: i64 = record.get(0)?;
        match checksum::check(record, 12, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])?.and(read(record)?) {
            Err(reason) => flaws.push(AuditFlaw { id, reason }),
            Ok(_) if page.records.len() >= query.limit => {
                page.next = last;
                break;
            }
            Ok(record) => {
                page.records.push(record);
                last = Some(AuditCursor(id.unsigned_abs()));
            }
        }
    }
    Ok(page)
}

/// Decodes the columns that [`COLUMNS`] names, after an id.
fn read(record: &Row<'_>) -> rusqlite::Result<Result<AuditRecord, String>> {
    let (at, session, chat) = (record.get(1)?, channel(record, 2)?, channel(record, 3)?);
    let (turn, rule, client) =
        (optional_text(record, 4)?, optional_text(record, 10)?, optional_text(record, 11)?);
    let (tool_call, tool, input_digest) = (text(record, 5)?, text(record, 6)?, text(record, 7)?);
    let (decision, layer) = (text(record, 8)?, text(record, 9)?);
    let read = || {
        let decision = decision?;
        let decision =
            AuditDecision::parse(decision).ok_or_else(|| format!("unknown decision {decision:?}"))?;
        Ok(AuditRecord {
            at,
            session,
            chat,
            turn: turn?.map(str::to_owned),
            tool_call: tool_call?.to_owned(),
            tool: tool?.to_owned(),
            input_digest: input_digest?.to_owned(),
            decision,
            layer: layer?.to_owned(),
            rule: rule?.map(str::to_owned),
            client: client?.map(ClientId::new),
        })
    };
    Ok(read())
}

fn optional_text<'a>(
    record: &'a Row<'_>,
    column: usize,
) -> rusqlite::Result<Result<Option<&'a str>, String>> {
    if matches!(record.get_ref(column)?, ValueRef::Null) {
        return Ok(Ok(None));
    }
    Ok(text(record, column)?.map(Some))
}

/// Sets unusable records aside.
pub(crate) fn mend(db: &Connection, mender: &Mender, flaws: &[AuditFlaw]) -> Result<(), StoreFailure> {
    let mut select = db.prepare_cached(
        "SELECT session, CAST(concat_ws(' ', tool_call, tool, input_digest, decision, layer, rule) AS BLOB)
         FROM audit WHERE id = ?1",
    )?;
    for AuditFlaw { id, reason } in flaws {
        let (session, body) =
            select.query_row([id], |row| Ok((channel(row, 0)?, row.get::<_, Vec<u8>>(1)?)))?;
        let record = AsideRecord {
            kind: "audit record",
            key: &format!("{session} {id}"),
            session: Some(session.as_str()),
            body: &body,
        };
        mender.set_aside(db, &record, reason)?;
        db.execute("DELETE FROM audit WHERE id = ?1", [id])?;
    }
    Ok(())
}

/// Deletes the records of a session.
pub(crate) fn remove_session(db: &Connection, session: &str) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM audit WHERE session = ?1")?.execute([session])?;
    Ok(())
}

/// Deletes the records of a chat.
pub(crate) fn remove_chat(db: &Connection, chat: &str) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM audit WHERE chat = ?1")?.execute([chat])?;
    Ok(())
}
