//! Makes a database consistent after a repair filled it with the records that it found.
//!
//! Invariant: afterwards every record has its parent, and a session that lost a part is
//! reported as damaged instead of unknown or new.

use innkeeper_core::channel::ChannelUri;
use rusqlite::{Connection, params};

use crate::apply;
use crate::audit;
use crate::mend::{AsideRecord, Mender};

/// Makes the new database consistent: removes orphans, completes the session list, and
/// ensures that sequence numbers are not reused. Returns the number of orphans.
pub(crate) fn settle(db: &Connection, mender: &Mender) -> rusqlite::Result<usize> {
    let mut orphans = 0;
    for sql in [
        "DELETE FROM chat WHERE session NOT IN (SELECT uri FROM session)",
        "DELETE FROM resume_token WHERE chat NOT IN (SELECT id FROM chat)",
        "DELETE FROM turn WHERE chat NOT IN (SELECT id FROM chat)",
        "DELETE FROM turn_link WHERE chat NOT IN (SELECT id FROM chat)",
        "DELETE FROM output WHERE chat NOT IN (SELECT id FROM chat)",
        "DELETE FROM journal WHERE session NOT IN (SELECT id FROM session)",
        "DELETE FROM mark WHERE client NOT IN (SELECT id FROM client)",
    ] {
        orphans += db.execute(sql, [])?;
    }
    db.execute(
        "INSERT INTO session_row (uri, modified_at, summary, checksum)
         SELECT uri, modified_at, summary, record_checksum(modified_at, summary) FROM session
         WHERE summary IS NOT NULL AND modified_at IS NOT NULL AND uri NOT IN (SELECT uri FROM session_row)",
        [],
    )?;
    correct_addresses(db)?;
    note_lost(db, mender)?;
    // Clients must receive snapshots, because it is unknown which data is missing.
    apply::clear_clean_shutdown(db)?;
    if apply::host_value(db, "seq")?.is_none() {
        // Milliseconds since 1970 are larger than any sequence number in use.
        apply::put_host(db, "seq", &mender.now().to_string())?;
    }
    // The backup may contain records that were deleted because of their age.
    audit::delete_old(db, mender.now(), usize::MAX)?;
    Ok(orphans)
}

/// Restores the derived address of default chats.
fn correct_addresses(db: &Connection) -> rusqlite::Result<()> {
    let mut select = db.prepare("SELECT id, session, derived, uri FROM chat")?;
    let mut records = select.query([])?;
    while let Some(record) = records.next()? {
        let id: i64 = record.get(0)?;
        let default = ChannelUri::default_chat_of(&ChannelUri::new(&record.get::<_, String>(1)?));
        let (derived, uri): (bool, String) = (record.get(2)?, record.get(3)?);
        if derived && uri != default.as_str() {
            db.execute("UPDATE OR IGNORE chat SET uri = ?2 WHERE id = ?1", params![id, default.as_str()])?;
        } else if derived != (uri == default.as_str()) {
            db.execute("UPDATE chat SET derived = 1 WHERE id = ?1", [id])?;
        }
    }
    Ok(())
}

/// Records which sessions lost their document or default chat, so that they are reported
/// as damaged instead of unknown or new.
fn note_lost(db: &Connection, mender: &Mender) -> rusqlite::Result<()> {
    let mut select = db.prepare("SELECT uri FROM session_row WHERE uri NOT IN (SELECT uri FROM session)")?;
    for session in select.query_map([], |row| row.get::<_, String>(0))? {
        let session = session?;
        let record = AsideRecord { kind: "session", key: &session, session: Some(&session), body: &[] };
        mender.keep(db, &record, "it could not be read")?;
    }
    let mut select = db.prepare(
        "SELECT uri, CASE WHEN json_valid(state) THEN json_extract(state, '$.defaultChat') END FROM session",
    )?;
    let mut known = db.prepare("SELECT 1 FROM chat WHERE uri = ?1")?;
    let mut sessions = select.query([])?;
    while let Some(session) = sessions.next()? {
        let uri: String = session.get(0)?;
        let chat = match session.get::<_, Option<String>>(1)? {
            Some(named) => ChannelUri::new(&named),
            None => ChannelUri::default_chat_of(&ChannelUri::new(&uri)),
        };
        if !known.exists([chat.as_str()])? {
            let record = AsideRecord { kind: "chat", key: chat.as_str(), session: Some(&uri), body: &[] };
            mender.keep(db, &record, "it could not be read")?;
        }
    }
    Ok(())
}
