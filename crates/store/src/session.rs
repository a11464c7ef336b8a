//! Loads one session with its chats, turns and journal.

use std::borrow::Cow;

use innkeeper_core::agent::{Branch, History, ResumeToken, TurnLink};
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::storage::{
    JournalEntry, Json, Rewind, StoredChat, StoredConversation, StoredSession, StoredTurn,
};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::checksum;
use crate::failure::StoreFailure;
use crate::index::{channel, json, text};

/// An unusable record and the reason. The writer sets it aside.
#[derive(Debug)]
pub(crate) enum Flaw {
    /// A chat other than the default chat.
    Chat {
        /// Record id.
        id: i64,
        /// Why it is unusable.
        reason: String,
    },
    /// A turn.
    Turn {
        /// Record id.
        id: i64,
        /// Why it is unusable.
        reason: String,
    },
    /// A journal entry.
    Entry {
        /// Record id.
        id: i64,
        /// Why it is unusable.
        reason: String,
    },
    /// A chat's turns are not numbered 0, 1, 2 and so on.
    Places {
        /// Record id of the chat.
        chat: i64,
    },
}

/// Loads a session and adds unusable records to `flaws`. The caller must have a
/// transaction open.
pub(crate) fn load(
    db: &Connection,
    session: &ChannelUri,
    flaws: &mut Vec<Flaw>,
) -> Result<Option<StoredSession>, StoreFailure> {
    let mut select = db.prepare_cached(
        "SELECT id, modified_at IS NOT NULL, created_at, state, checksum FROM session WHERE uri = ?1",
    )?;
    let found = select
        .query_row([session.as_str()], |row| {
            let created_at = text(row, 2)?.map(str::to_owned);
            let state = checksum::check(row, 4, &[2, 3])?.and(json(row, 3)?);
            Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?, created_at, state))
        })
        .optional()?;
    let Some((id, listed, created_at, state)) = found else {
        return without_document(db, session);
    };
    let damaged = |reason| StoreFailure::Damaged { what: format!("the session {session}"), reason };
    let state = state.map_err(damaged)?;
    let chats = chats(db, session, &default_chat(session, &state), flaws)?;
    Ok(Some(StoredSession {
        created_at: created_at.map_err(damaged)?,
        listed,
        state,
        chats,
        journal: journal(db, id, flaws)?,
    }))
}

/// A session that is in the list but does not have a document was lost, which is not the
/// same as unknown.
fn without_document(db: &Connection, session: &ChannelUri) -> Result<Option<StoredSession>, StoreFailure> {
    let mut select = db.prepare_cached("SELECT 1 FROM session_row WHERE uri = ?1")?;
    if !select.exists([session.as_str()])? {
        return Ok(None);
    }
    if was_lost(db, "session", session)? {
        return Err(StoreFailure::Damaged {
            what: format!("the session {session}"),
            reason: LOST.to_owned(),
        });
    }
    Err(StoreFailure::Index)
}

/// The reason for a record that a repair could not find.
const LOST: &str = "it was lost with a damaged part of the database, which was set aside";

/// The default chat named in the session's document. A session cannot be used without it.
fn default_chat(session: &ChannelUri, state: &Json) -> ChannelUri {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct DefaultChatField<'a> {
        #[serde(borrow)]
        default_chat: Option<Cow<'a, str>>,
    }
    let named =
        serde_json::from_str::<DefaultChatField<'_>>(state.get()).ok().and_then(|named| named.default_chat);
    named.map_or_else(|| ChannelUri::default_chat_of(session), |chat| ChannelUri::new(&chat))
}

fn chats(
    db: &Connection,
    session: &ChannelUri,
    default: &ChannelUri,
    flaws: &mut Vec<Flaw>,
) -> Result<Vec<StoredChat>, StoreFailure> {
    let derived = ChannelUri::default_chat_of(session);
    let damaged = |reason| StoreFailure::Damaged { what: format!("the chat {default}"), reason };
    let mut chats = Vec::new();
    let mut select = db.prepare_cached(
        "SELECT id, uri, resumes, conversation, state, derived, branch, rewind, checksum FROM chat
         WHERE session = ?1 ORDER BY derived DESC, id",
    )?;
    let mut records = select.query([session.as_str()])?;
    while let Some(record) = records.next()? {
        let id: i64 = record.get(0)?;
        let uri = channel(record, 1)?;
        if record.get::<_, bool>(5)? != (uri == derived) {
            return Err(StoreFailure::Index);
        }
        match chat(record, uri.clone())? {
            Ok(mut chat) => {
                chat.conversation.resume_token = resume_token(db, id)?;
                chats.push(StoredChat { turns: turns(db, id, flaws)?, links: links(db, id)?, ..chat });
            }
            Err(reason) if uri == *default => return Err(damaged(reason)),
            Err(reason) => flaws.push(Flaw::Chat { id, reason }),
        }
    }
    if chats.iter().all(|chat| chat.uri != *default) && was_lost(db, "chat", default)? {
        return Err(damaged(LOST.to_owned()));
    }
    Ok(chats)
}

/// Decodes a chat without its turns, or returns why it is unusable.
fn chat(record: &Row<'_>, uri: ChannelUri) -> rusqlite::Result<Result<StoredChat, String>> {
    let conversation =
        text(record, 3)?.and_then(|name| Uuid::parse_str(name).map_err(|error| error.to_string()));
    let (resumes, state) = (record.get(2)?, json(record, 4)?);
    let (branch, rewind) = (optional::<Branch>(record, 6)?, optional::<Rewind>(record, 7)?);
    let intact = checksum::check(record, 8, &[3, 2, 6, 7, 4])?;
    Ok((|| {
        intact?;
        let history = match branch? {
            Some(branch) => History::Branch(Box::new(branch)),
            None if resumes => History::Resume,
            None => History::Fresh,
        };
        Ok(StoredChat {
            uri,
            conversation: StoredConversation {
                id: conversation?,
                history,
                resume_token: None,
                rewind: rewind?,
            },
            links: Vec::new(),
            state: state?,
            turns: Vec::new(),
        })
    })())
}

/// Decodes an optional JSON column.
fn optional<T: DeserializeOwned>(
    record: &Row<'_>,
    column: usize,
) -> rusqlite::Result<Result<Option<T>, String>> {
    if matches!(record.get_ref(column)?, ValueRef::Null) {
        return Ok(Ok(None));
    }
    let decoded =
        text(record, column)?.and_then(|json| serde_json::from_str(json).map_err(|error| error.to_string()));
    Ok(decoded.map(Some))
}

/// Whether a repair could not find this record.
fn was_lost(db: &Connection, kind: &str, uri: &ChannelUri) -> rusqlite::Result<bool> {
    db.prepare_cached("SELECT 1 FROM set_aside WHERE key = ?1 AND kind = ?2")?.exists([uri.as_str(), kind])
}

fn resume_token(db: &Connection, chat: i64) -> Result<Option<ResumeToken>, StoreFailure> {
    let mut select = db.prepare_cached("SELECT token FROM resume_token WHERE chat = ?1")?;
    let mut records = select.query([chat])?;
    // If it is not readable, the agent's record is looked up by the host's id.
    Ok(match records.next()? {
        Some(record) => text(record, 0)?.ok().map(ResumeToken::new),
        None => None,
    })
}

/// The agent's message ids of a chat's turns. Unreadable ones are skipped; the turn is
/// then matched by order.
fn links(db: &Connection, chat: i64) -> Result<Vec<(String, TurnLink)>, StoreFailure> {
    let mut select = db.prepare_cached("SELECT turn_id, link FROM turn_link WHERE chat = ?1")?;
    let mut records = select.query([chat])?;
    let mut links = Vec::new();
    while let Some(record) = records.next()? {
        if let (Ok(turn), Ok(link)) = (text(record, 0)?, text(record, 1)?)
            && let Ok(link) = serde_json::from_str(link)
        {
            links.push((turn.to_owned(), link));
        }
    }
    Ok(links)
}

fn turns(db: &Connection, chat: i64, flaws: &mut Vec<Flaw>) -> Result<Vec<StoredTurn>, StoreFailure> {
    let mut turns = Vec::new();
    let mut in_order = true;
    let mut select = db.prepare_cached(
        "SELECT id, place, turn_id, body, checksum FROM turn WHERE chat = ?1 ORDER BY place",
    )?;
    let mut records = select.query([chat])?;
    let mut expected: i64 = 0;
    while let Some(record) = records.next()? {
        in_order &= record.get::<_, i64>(1)? == expected;
        expected += 1;
        let body = checksum::check(record, 4, &[2, 3])?.and(json(record, 3)?);
        match (text(record, 2)?, body) {
            (Ok(id), Ok(body)) => turns.push(StoredTurn { id: id.to_owned(), body }),
            (Err(reason), _) | (_, Err(reason)) => flaws.push(Flaw::Turn { id: record.get(0)?, reason }),
        }
    }
    if !in_order || turns.len() as u64 != expected.unsigned_abs() {
        flaws.push(Flaw::Places { chat });
    }
    Ok(turns)
}

fn journal(db: &Connection, session: i64, flaws: &mut Vec<Flaw>) -> Result<Vec<JournalEntry>, StoreFailure> {
    let mut entries = Vec::new();
    let mut select = db.prepare_cached(
        "SELECT id, number, channel, at, action, checksum FROM journal WHERE session = ?1 ORDER BY number",
    )?;
    let mut records = select.query(params![session])?;
    while let Some(record) = records.next()? {
        match checksum::check(record, 5, &[1, 2, 3, 4])?.and(json(record, 4)?) {
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
