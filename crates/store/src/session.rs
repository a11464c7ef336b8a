//! One session with all that belongs to it.

use innkeeper_core::agent::History;
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::storage::{JournalEntry, StoredChat, StoredSession, StoredTurn};
use rusqlite::{Connection, OptionalExtension as _, params};
use uuid::Uuid;

use crate::failure::Failure;
use crate::index::{channel, json, text};

/// A record that cannot be used, and why. Taking it out of the way is the writer's work.
#[derive(Debug)]
pub(crate) enum Flaw {
    /// A chat other than the default one.
    Chat {
        /// Its record.
        id: i64,
        /// What is wrong with it.
        reason: String,
    },
    /// A turn.
    Turn {
        /// Its record.
        id: i64,
        /// What is wrong with it.
        reason: String,
    },
    /// An entry of the journal.
    Entry {
        /// Its record.
        id: i64,
        /// What is wrong with it.
        reason: String,
    },
    /// A chat's turns do not have the places 0, 1, 2 and so on.
    Places {
        /// The chat's record.
        chat: i64,
    },
}

/// Reads a session; what is in the way of using all of it is added to `flaws`.
/// Whoever calls has a transaction open.
pub(crate) fn load(
    db: &Connection,
    session: &ChannelUri,
    flaws: &mut Vec<Flaw>,
) -> Result<Option<StoredSession>, Failure> {
    let mut select = db.prepare_cached(
        "SELECT id, modified_at IS NOT NULL, created_at, state FROM session WHERE uri = ?1",
    )?;
    let found = select
        .query_row([session.as_str()], |row| {
            let created_at = text(row, 2)?.map(str::to_owned);
            Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?, created_at, json(row, 3)?))
        })
        .optional()?;
    let Some((id, listed, created_at, state)) = found else {
        return without_document(db, session);
    };
    let damaged = |reason| Failure::Damaged { what: format!("the session {session}"), reason };
    let chats = chats(db, session, flaws)?;
    Ok(Some(StoredSession {
        created_at: created_at.map_err(damaged)?,
        listed,
        state: state.map_err(damaged)?,
        chats,
        journal: journal(db, id, flaws)?,
    }))
}

/// A session that is in the list and has no document was lost, and is not the same as none.
fn without_document(db: &Connection, session: &ChannelUri) -> Result<Option<StoredSession>, Failure> {
    let mut select = db.prepare_cached("SELECT 1 FROM session_row WHERE uri = ?1")?;
    if !select.exists([session.as_str()])? {
        return Ok(None);
    }
    if was_lost(db, "session", session)? {
        return Err(Failure::Damaged { what: format!("the session {session}"), reason: LOST.to_owned() });
    }
    Err(Failure::Index)
}

/// What is said of something that a repair did not find.
const LOST: &str = "it was lost with a damaged part of the database, which was set aside";

fn chats(db: &Connection, session: &ChannelUri, flaws: &mut Vec<Flaw>) -> Result<Vec<StoredChat>, Failure> {
    let default = ChannelUri::default_chat_of(session);
    let damaged = |reason| Failure::Damaged { what: format!("the chat {default}"), reason };
    let mut chats = Vec::new();
    let mut select = db.prepare_cached(
        "SELECT id, uri, resumes, conversation, state, is_default FROM chat WHERE session = ?1 ORDER BY is_default DESC, id",
    )?;
    let mut records = select.query([session.as_str()])?;
    while let Some(record) = records.next()? {
        let id: i64 = record.get(0)?;
        let uri = channel(record, 1)?;
        if record.get::<_, bool>(5)? != (uri == default) {
            return Err(Failure::Index);
        }
        let conversation =
            text(record, 3)?.and_then(|name| Uuid::parse_str(name).map_err(|error| error.to_string()));
        let (conversation, state) = match (conversation, json(record, 4)?) {
            (Ok(conversation), Ok(state)) => (conversation, state),
            (Err(reason), _) | (_, Err(reason)) if uri == default => return Err(damaged(reason)),
            (Err(reason), _) | (_, Err(reason)) => {
                flaws.push(Flaw::Chat { id, reason });
                continue;
            }
        };
        let history = if record.get(2)? { History::Resume } else { History::Fresh };
        chats.push(StoredChat { uri, conversation, history, state, turns: turns(db, id, flaws)? });
    }
    if chats.first().is_none_or(|chat| chat.uri != default) && was_lost(db, "chat", &default)? {
        return Err(damaged(LOST.to_owned()));
    }
    Ok(chats)
}

/// Whether a repair did not find it.
fn was_lost(db: &Connection, kind: &str, uri: &ChannelUri) -> rusqlite::Result<bool> {
    db.prepare_cached("SELECT 1 FROM set_aside WHERE key = ?1 AND kind = ?2")?.exists([uri.as_str(), kind])
}

fn turns(db: &Connection, chat: i64, flaws: &mut Vec<Flaw>) -> Result<Vec<StoredTurn>, Failure> {
    let mut turns = Vec::new();
    let mut in_order = true;
    let mut select =
        db.prepare_cached("SELECT id, place, turn_id, body FROM turn WHERE chat = ?1 ORDER BY place")?;
    let mut records = select.query([chat])?;
    let mut expected: i64 = 0;
    while let Some(record) = records.next()? {
        in_order &= record.get::<_, i64>(1)? == expected;
        expected += 1;
        match (text(record, 2)?, json(record, 3)?) {
            (Ok(id), Ok(body)) => turns.push(StoredTurn { id: id.to_owned(), body }),
            (Err(reason), _) | (_, Err(reason)) => flaws.push(Flaw::Turn { id: record.get(0)?, reason }),
        }
    }
    if !in_order || turns.len() as u64 != expected.unsigned_abs() {
        flaws.push(Flaw::Places { chat });
    }
    Ok(turns)
}

fn journal(db: &Connection, session: i64, flaws: &mut Vec<Flaw>) -> Result<Vec<JournalEntry>, Failure> {
    let mut entries = Vec::new();
    let mut select = db.prepare_cached(
        "SELECT id, number, channel, at, action FROM journal WHERE session = ?1 ORDER BY number",
    )?;
    let mut records = select.query(params![session])?;
    while let Some(record) = records.next()? {
        match json(record, 4)? {
            Ok(action) => entries.push(JournalEntry {
                number: record.get::<_, i64>(1)?.unsigned_abs(),
                channel: channel(record, 2)?,
                at: record.get(3)?,
                action,
            }),
            Err(reason) => flaws.push(Flaw::Entry { id: record.get(0)?, reason }),
        }
    }
    Ok(entries)
}
