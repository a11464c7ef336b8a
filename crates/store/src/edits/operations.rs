//! Operations: those that are not finished, and the last finished one of each session.

use std::collections::HashSet;

use innkeeper_core::channel::ChannelUri;
use innkeeper_core::edits::{BlobDigest, FileVersion, OperationRecord, OperationStep};
use rusqlite::{Connection, OptionalExtension as _, Params};
use uuid::Uuid;

use super::codec::{decode_operation, encode_operation};
use super::failure::EditFailure;
use super::{blobs, records};
use crate::checksum;

/// Stores an operation that is about to change files.
pub(crate) fn begin(db: &Connection, operation: &OperationRecord) -> Result<(), EditFailure> {
    if number(db, operation.id)?.is_some() {
        return Err(EditFailure::Rejected(format!("operation {} exists already", operation.id)));
    }
    let mut insert = db.prepare_cached(
        "INSERT INTO operation (id, session, chat, label, can_redo, finished, body, checksum) \
         VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6, record_checksum(?1, ?3, ?4, ?5, ?6))",
    )?;
    let number = insert.insert((
        operation.id.as_bytes(),
        operation.session.as_str(),
        operation.chat.as_ref().map(ChannelUri::as_str),
        &operation.label,
        operation.can_redo,
        encode_operation(operation),
    ))?;
    let mut refer = db.prepare_cached("INSERT INTO operation_blob (blob, operation) VALUES (?1, ?2)")?;
    for digest in contents(&operation.steps) {
        refer.execute((digest.as_bytes(), number))?;
    }
    Ok(())
}

/// Marks an operation as done. A redo is deleted with the operation that it took back; any
/// other one replaces the last operation of its session.
pub(crate) fn finish(db: &Connection, id: Uuid, consumed: Option<Uuid>) -> Result<(), EditFailure> {
    let Some(number) = number(db, id)? else {
        return Err(EditFailure::Rejected(format!("unknown operation {id}")));
    };
    if let Some(consumed) = consumed {
        cancel(db, consumed)?;
    }
    db.prepare_cached("UPDATE operation SET finished = 1 WHERE number = ?1")?.execute([number])?;
    db.prepare_cached("DELETE FROM operation WHERE number = ?1 AND NOT can_redo")?.execute([number])?;
    db.prepare_cached(
        "DELETE FROM operation WHERE finished AND number <> ?1 \
         AND session = (SELECT session FROM operation WHERE number = ?1)",
    )?
    .execute([number])?;
    Ok(())
}

/// Deletes an operation.
pub(crate) fn cancel(db: &Connection, id: Uuid) -> Result<(), EditFailure> {
    db.prepare_cached("DELETE FROM operation WHERE id = ?1")?.execute([id.as_bytes()])?;
    Ok(())
}

/// Assigns a chat's operations to another session, of which only the last finished one is
/// kept.
pub(crate) fn move_chat(db: &Connection, chat: &ChannelUri, to: &ChannelUri) -> Result<(), EditFailure> {
    db.prepare_cached("UPDATE operation SET session = ?2 WHERE chat = ?1")?
        .execute((chat.as_str(), to.as_str()))?;
    db.prepare_cached(
        "DELETE FROM operation WHERE session = ?1 AND finished \
         AND number < (SELECT max(number) FROM operation WHERE session = ?1 AND finished)",
    )?
    .execute([to.as_str()])?;
    Ok(())
}

/// The operations that are not finished, in order.
pub(crate) fn unfinished(db: &Connection) -> Result<Vec<OperationRecord>, EditFailure> {
    load(db, "NOT finished", [])
}

/// The finished operation of a session.
pub(crate) fn last(db: &Connection, session: &ChannelUri) -> Result<Option<OperationRecord>, EditFailure> {
    Ok(load(db, "finished AND session = ?1", [session.as_str()])?.pop())
}

fn number(db: &Connection, id: Uuid) -> Result<Option<i64>, EditFailure> {
    let mut select = db.prepare_cached("SELECT number FROM operation WHERE id = ?1")?;
    Ok(select.query_row([id.as_bytes()], |row| row.get(0)).optional()?)
}

fn load(
    db: &Connection,
    condition: &str,
    parameters: impl Params,
) -> Result<Vec<OperationRecord>, EditFailure> {
    let mut select = db.prepare_cached(&format!(
        "SELECT id, session, chat, label, can_redo, body, checksum FROM operation \
         WHERE {condition} ORDER BY number"
    ))?;
    let mut rows = select.query(parameters)?;
    let mut operations = Vec::new();
    while let Some(row) = rows.next()? {
        let id = Uuid::from_bytes(row.get(0)?);
        let damaged = |reason| EditFailure::Damaged(format!("operation {id}: {reason}"));
        checksum::check(row, 6, &[0, 2, 3, 4, 5])?.map_err(damaged)?;
        let session = ChannelUri::new(&row.get::<_, String>(1)?);
        let (roots, mut steps) = decode_operation(&row.get::<_, Vec<u8>>(5)?, &session).map_err(damaged)?;
        mark_evicted(db, &mut steps)?;
        operations.push(OperationRecord {
            id,
            session,
            chat: row.get::<_, Option<String>>(2)?.map(|chat| ChannelUri::new(&chat)),
            label: row.get(3)?,
            can_redo: row.get(4)?,
            roots,
            steps,
        });
    }
    Ok(operations)
}

/// Replaces versions whose contents are no longer stored.
fn mark_evicted(db: &Connection, steps: &mut [OperationStep]) -> Result<(), EditFailure> {
    let stored = blobs::stored(db, contents(steps))?;
    let mark = |version: &mut FileVersion| {
        let is_stored = version.stored_blob().is_some_and(|digest| stored.contains(&digest));
        records::evict_unless(is_stored, version);
    };
    for step in steps {
        mark(&mut step.before);
        mark(&mut step.after);
        for record in &mut step.records {
            mark(&mut record.before);
            mark(&mut record.after);
        }
    }
    Ok(())
}

/// The contents that the steps refer to.
fn contents(steps: &[OperationStep]) -> HashSet<BlobDigest> {
    let versions = steps.iter().flat_map(|step| {
        let of_records = step.records.iter().flat_map(|record| [&record.before, &record.after]);
        [&step.before, &step.after].into_iter().chain(of_records)
    });
    versions.filter_map(FileVersion::stored_blob).collect()
}
