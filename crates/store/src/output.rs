//! Stored output: large pieces of agent output, which documents refer to.

use innkeeper_core::channel::ChannelUri;
use innkeeper_core::output::{ATTACHMENTS, OutputId, StoredOutput};
use rusqlite::{Connection, params};

use crate::checksum;
use crate::failure::StoreFailure;
use crate::index::text;

/// Stores a piece of a turn's output.
pub(crate) fn put(
    db: &Connection,
    chat: i64,
    turn: &str,
    id: OutputId,
    output: &StoredOutput,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO output (chat, turn_id, name, content_type, body, checksum)
             VALUES (?1, ?2, ?3, ?4, ?5, record_checksum(?2, ?3, ?4, ?5))
         ON CONFLICT (chat, name) DO NOTHING",
    )?
    .execute(params![chat, turn, id.to_string(), output.content_type, output.body.as_ref()])?;
    Ok(())
}

/// Copies the output of turns to another chat.
pub(crate) fn copy(
    db: &Connection,
    from: &ChannelUri,
    to: &ChannelUri,
    turns: &[String],
) -> rusqlite::Result<()> {
    let mut insert = db.prepare_cached(
        "INSERT INTO output (chat, turn_id, name, content_type, body, checksum)
         SELECT target.id, output.turn_id, output.name, output.content_type, output.body, output.checksum
         FROM chat AS target, chat AS source JOIN output ON output.chat = source.id
         WHERE target.uri = ?2 AND source.uri = ?1 AND output.turn_id = ?3
         ON CONFLICT (chat, name) DO NOTHING",
    )?;
    for turn in turns {
        insert.execute(params![from.as_str(), to.as_str(), turn])?;
    }
    Ok(())
}

/// Deletes the output of turns that a chat no longer has, as a finished or as the running
/// turn. Both must be written before. Snapshots of attachments stay.
pub(crate) fn drop_of_removed_turns(db: &Connection, chat: i64) -> rusqlite::Result<()> {
    db.prepare_cached(
        "DELETE FROM output WHERE chat = ?1 AND turn_id <> ?2
         AND turn_id NOT IN (SELECT turn_id FROM turn WHERE chat = ?1)
         AND turn_id IS NOT (SELECT json_extract(state, '$.activeTurn.id') FROM chat WHERE id = ?1)",
    )?
    .execute(params![chat, ATTACHMENTS])?;
    Ok(())
}

/// Loads a piece. A damaged copy is skipped if a fork has an intact one.
pub(crate) fn load(db: &Connection, id: OutputId) -> Result<Option<StoredOutput>, StoreFailure> {
    let mut select =
        db.prepare_cached("SELECT turn_id, name, content_type, body, checksum FROM output WHERE name = ?1")?;
    let mut records = select.query([id.to_string()])?;
    let mut damage = None;
    while let Some(record) = records.next()? {
        let intact = checksum::check(record, 4, &[0, 1, 2, 3])?;
        match intact.and(text(record, 2)?) {
            Ok(content_type) => {
                let body: Vec<u8> = record.get(3)?;
                return Ok(Some(StoredOutput { content_type: content_type.to_owned(), body: body.into() }));
            }
            Err(reason) => damage = Some(reason),
        }
    }
    match damage {
        Some(reason) => Err(StoreFailure::Damaged { what: format!("the output {id}"), reason }),
        None => Ok(None),
    }
}
