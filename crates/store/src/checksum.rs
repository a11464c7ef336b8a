//! Checksums of stored records, which detect changed bytes that SQLite does not notice.
//!
//! A record's checksum covers the columns listed here. SQL computes it with the function
//! `record_checksum`; readers compare it with the stored value.

use rusqlite::functions::FunctionFlags;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use crate::audit;

/// The tables with a checksum, their covered columns, and an expression for the session
/// that a record belongs to.
pub(crate) const COVERED: [(&str, &str, &str); 6] = [
    ("session", "created_at, state", "uri"),
    ("session_row", "modified_at, summary", "uri"),
    ("chat", "conversation, resumes, branch, rewind, state", "session"),
    ("turn", "turn_id, body", "(SELECT session FROM chat WHERE chat.id = turn.chat)"),
    ("output", "turn_id, name, content_type, body", "(SELECT session FROM chat WHERE chat.id = output.chat)"),
    (
        "journal",
        "number, channel, at, action",
        "(SELECT uri FROM session WHERE session.id = journal.session)",
    ),
];

/// Tables with a checksum whose records do not belong to a session's documents, and their
/// covered columns.
const INDEPENDENT: [(&str, &str); 2] =
    [("rule", "root, behavior, rule, created_at"), ("audit", audit::COLUMNS)];

/// The reason for a record whose checksum differs.
pub(crate) const CHANGED: &str = "its content does not match its checksum";

/// Adds the SQL function to a connection.
pub(crate) fn register(db: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    db.create_scalar_function("record_checksum", -1, flags, |context| {
        Ok(of((0..context.len()).map(|column| context.get_raw(column))))
    })
}

/// Checks a record against the checksum in a column. A record without a checksum is
/// accepted.
pub(crate) fn check(
    row: &Row<'_>,
    checksum: usize,
    columns: &[usize],
) -> rusqlite::Result<Result<(), String>> {
    let Some(stored) = row.get::<_, Option<i64>>(checksum)? else { return Ok(Ok(())) };
    let values = columns.iter().map(|column| row.get_ref(*column)).collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(if of(values) == stored { Ok(()) } else { Err(CHANGED.to_owned()) })
}

/// The session of a record whose checksum differs, if there is one. Reads the whole
/// database.
pub(crate) fn first_mismatch(db: &Connection) -> rusqlite::Result<Option<String>> {
    for (table, columns, session) in COVERED {
        let sql = format!(
            "SELECT coalesce({session}, '') FROM {table} WHERE checksum <> record_checksum({columns}) LIMIT 1"
        );
        let mut select = db.prepare(&sql)?;
        let mut records = select.query([])?;
        if let Some(record) = records.next()? {
            return record.get(0).map(Some);
        }
    }
    Ok(None)
}

/// Deletes changed records that no other record depends on from a copy of the database, so
/// that they do not prevent a backup.
pub(crate) fn leave_out_changed(copy: &Connection) -> rusqlite::Result<()> {
    for (table, columns) in INDEPENDENT {
        copy.execute(&format!("DELETE FROM {table} WHERE checksum <> record_checksum({columns})"), [])?;
    }
    Ok(())
}

/// The checksum of columns. It covers their types and lengths, so that moving bytes from
/// one column to another changes it.
fn of<'a>(columns: impl IntoIterator<Item = ValueRef<'a>>) -> i64 {
    let mut hasher = crc32fast::Hasher::new();
    for column in columns {
        match column {
            ValueRef::Null => hasher.update(b"n"),
            ValueRef::Integer(number) => {
                hasher.update(b"i");
                hasher.update(&number.to_le_bytes());
            }
            ValueRef::Real(number) => {
                hasher.update(b"r");
                hasher.update(&number.to_le_bytes());
            }
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                hasher.update(b"b");
                hasher.update(&(bytes.len() as u64).to_le_bytes());
                hasher.update(bytes);
            }
        }
    }
    i64::from(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_covers_bytes_and_column_borders() {
        let text = |text: &'static str| ValueRef::Text(text.as_bytes());
        let one = of([text("ab"), text("c")]);
        assert_eq!(one, of([text("ab"), text("c")]));
        for other in
            [vec![text("a"), text("bc")], vec![text("ab"), text("d")], vec![text("ab"), ValueRef::Null]]
        {
            assert_ne!(one, of(other));
        }
    }
}
