//! Loads the data that a host starts from, in one pass.
//!
//! Does not read the documents of sessions. The clean shutdown marker is removed in the
//! transaction that reads it, so that the next start detects a crash.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::ids::{ClientId, ServerSeq};
use innkeeper_core::storage::{Index, Json, MAX_KNOWN_CLIENTS, StoredClient, StoredEnvelope, StoredRow};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use serde_json::value::RawValue;

use crate::apply;
use crate::audit;
use crate::checksum;
use crate::failure::StoreFailure;
use crate::mend::{AsideRecord, Mender};
use crate::rules;

/// Loads the index. The caller must have a write transaction open.
pub(crate) fn load(db: &Connection, mender: &Mender) -> Result<Index, StoreFailure> {
    let clean = apply::host_value(db, "clean")?.is_some();
    let mut marks = marks(db)?;
    let index = Index {
        seq: seq(db, mender)?,
        rows: rows(db, mender)?,
        unlisted: unlisted(db)?,
        with_journal: with_journal(db)?,
        chats: further_chats(db)?,
        root_config: root_config(db, mender)?,
        rules: rules::load(db, mender)?,
        clients: clients(db, &mut marks)?,
        replay: if clean { replay(db)? } else { Vec::new() },
        clean,
    };
    audit::delete_old(db, mender.now(), audit::DELETIONS_AT_START)?;
    if clean {
        apply::clear_clean_shutdown(db)?;
    }
    Ok(index)
}

/// Reads a text column. Other types and invalid UTF-8 are damage that SQLite does not
/// detect.
pub(crate) fn text<'a>(row: &'a Row<'_>, column: usize) -> Result<Result<&'a str, String>, rusqlite::Error> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) => str::from_utf8(bytes).map_err(|error| error.to_string()),
        other @ (ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_)) => {
            Err(format!("{} instead of text", other.data_type()))
        }
    })
}

/// Reads a JSON column.
pub(crate) fn json(row: &Row<'_>, column: usize) -> Result<Result<Json, String>, rusqlite::Error> {
    Ok(text(row, column)?.and_then(parse))
}

fn parse(text: &str) -> Result<Json, String> {
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok(Arc::from(raw.to_owned()))
}

/// Reads a channel column. Channels are looked up by their bytes, so a damaged address is
/// only a channel that is never requested.
pub(crate) fn channel(row: &Row<'_>, column: usize) -> rusqlite::Result<ChannelUri> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) => ChannelUri::new(&String::from_utf8_lossy(bytes)),
        other @ (ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_)) => {
            ChannelUri::new(&format!("damaged:{}", other.data_type()))
        }
    })
}

fn seq(db: &Connection, mender: &Mender) -> Result<ServerSeq, StoreFailure> {
    let Some(value) = apply::host_value(db, "seq")? else {
        return Ok(ServerSeq(0));
    };
    let number = str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
    if let Some(number) = number {
        return Ok(ServerSeq(number));
    }
    // Milliseconds since 1970 are larger than any sequence number in use.
    let number = mender.now().unsigned_abs();
    let record = AsideRecord { kind: "host", key: "seq", session: None, body: &value };
    mender.set_aside(db, &record, "not a number")?;
    apply::put_host(db, "seq", &number.to_string())?;
    Ok(ServerSeq(number))
}

fn rows(db: &Connection, mender: &Mender) -> Result<Vec<StoredRow>, StoreFailure> {
    let mut found = Vec::new();
    let mut broken = Vec::new();
    {
        let mut select =
            db.prepare("SELECT id, modified_at, uri, summary, checksum FROM session_row ORDER BY id")?;
        let mut records = select.query([])?;
        while let Some(record) = records.next()? {
            match checksum::check(record, 4, &[1, 3])?.and(json(record, 3)?) {
                Ok(summary) => found.push(StoredRow {
                    session: channel(record, 2)?,
                    modified_at: record.get(1)?,
                    summary,
                }),
                Err(reason) => broken.push((record.get::<_, i64>(0)?, reason)),
            }
        }
    }
    for (id, reason) in broken {
        found.extend(mender.mend_row(db, id, &reason)?);
    }
    Ok(found)
}

fn unlisted(db: &Connection) -> rusqlite::Result<Vec<ChannelUri>> {
    let mut select = db.prepare("SELECT uri FROM session WHERE modified_at IS NULL ORDER BY uri")?;
    select.query_map([], |row| channel(row, 0))?.collect()
}

fn with_journal(db: &Connection) -> rusqlite::Result<Vec<ChannelUri>> {
    let mut select = db
        .prepare("SELECT uri FROM session WHERE id IN (SELECT DISTINCT session FROM journal) ORDER BY uri")?;
    select.query_map([], |row| channel(row, 0))?.collect()
}

fn further_chats(db: &Connection) -> rusqlite::Result<Vec<(ChannelUri, ChannelUri)>> {
    let mut select = db.prepare("SELECT uri, session FROM chat WHERE derived = 0 ORDER BY uri")?;
    select.query_map([], |row| Ok((channel(row, 0)?, channel(row, 1)?)))?.collect()
}

fn root_config(
    db: &Connection,
    mender: &Mender,
) -> Result<Option<serde_json::Map<String, serde_json::Value>>, StoreFailure> {
    let Some(value) = apply::host_value(db, "root_config")? else {
        return Ok(None);
    };
    match serde_json::from_slice(&value) {
        Ok(values) => Ok(Some(values)),
        Err(error) => {
            let record = AsideRecord { kind: "host", key: "root_config", session: None, body: &value };
            mender.set_aside(db, &record, &error.to_string())?;
            db.execute("DELETE FROM host WHERE name = 'root_config'", [])?;
            Ok(None)
        }
    }
}

/// The snapshots that clients received, by client record id.
type StoredMarks = HashMap<i64, Vec<(ChannelUri, ServerSeq, ServerSeq)>>;

fn marks(db: &Connection) -> rusqlite::Result<StoredMarks> {
    let mut marks = StoredMarks::new();
    let mut select = db.prepare("SELECT client, channel, first, last FROM mark ORDER BY id")?;
    let mut records = select.query([])?;
    while let Some(record) = records.next()? {
        let mark = (channel(record, 1)?, server_seq(record, 2)?, server_seq(record, 3)?);
        marks.entry(record.get(0)?).or_default().push(mark);
    }
    Ok(marks)
}

fn clients(db: &Connection, marks: &mut StoredMarks) -> rusqlite::Result<Vec<StoredClient>> {
    apply::prune_clients(db)?;
    let mut clients = Vec::new();
    let mut select = db.prepare("SELECT id, name, handled FROM client ORDER BY used DESC LIMIT ?1")?;
    let mut records = select.query([i64::try_from(MAX_KNOWN_CLIENTS).unwrap_or(i64::MAX)])?;
    while let Some(record) = records.next()? {
        clients.push(StoredClient {
            id: ClientId::new(channel(record, 1)?.as_str()),
            handled: record.get_ref(2)?.as_blob().map(apply::decode_handled).unwrap_or_default(),
            marks: marks.remove(&record.get(0)?).unwrap_or_default(),
        });
    }
    clients.reverse();
    Ok(clients)
}

fn replay(db: &Connection) -> rusqlite::Result<Vec<StoredEnvelope>> {
    let mut select = db.prepare("SELECT seq, channel, only_for, envelope FROM replay ORDER BY id")?;
    let envelopes = select.query_map([], |record| {
        let only_for: Option<String> = record.get(2)?;
        Ok(StoredEnvelope {
            seq: server_seq(record, 0)?,
            channel: channel(record, 1)?,
            only_for: only_for.map(|name| ClientId::new(&name)),
            envelope: Bytes::from(record.get::<_, Vec<u8>>(3)?),
        })
    })?;
    envelopes.collect()
}

fn server_seq(row: &Row<'_>, column: usize) -> rusqlite::Result<ServerSeq> {
    Ok(ServerSeq(row.get::<_, i64>(column)?.unsigned_abs()))
}
