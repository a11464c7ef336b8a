//! Deletes sessions and chats, with every record that names them, and permission rules.
//!
//! Invariant: afterwards, no record of the database contains their content, except for
//! records that a repair set aside without knowing their session. Connections that delete
//! use `secure_delete`, so that free pages do not contain it either.

use innkeeper_core::channel::ChannelUri;
use innkeeper_core::storage::{Change, StoredRuleBehavior, StoredRuleScope};
use rusqlite::Connection;

use crate::audit;
use crate::rules;

/// A deletion after which the content must not remain in any file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RemovedScope<'a> {
    /// Deletes a session.
    Session(&'a ChannelUri),
    /// Deletes a chat.
    Chat(&'a ChannelUri),
    /// Deletes a permission rule. A repair must not restore it from a backup.
    Rule(&'a StoredRuleScope, StoredRuleBehavior, &'a str),
}

impl<'a> RemovedScope<'a> {
    /// The deletion that a change requests, if any.
    pub(crate) fn of(change: &'a Change) -> Option<Self> {
        if let Change::RemoveSession { session } = change {
            return Some(Self::Session(session));
        }
        if let Change::RemoveRule { scope, behavior, rule } = change {
            return Some(Self::Rule(scope, *behavior, rule));
        }
        if let Change::RemoveChat { chat } = change { Some(Self::Chat(chat)) } else { None }
    }

    /// Deletes the records. The caller must have a transaction open.
    pub(crate) fn apply(self, db: &Connection) -> rusqlite::Result<()> {
        match self {
            Self::Session(session) => remove_session(db, session),
            Self::Chat(chat) => remove_chat(db, chat),
            Self::Rule(scope, behavior, rule) if has_rules_and_audit(db)? => {
                rules::remove(db, scope, behavior, rule)
            }
            Self::Rule(..) => Ok(()),
        }
    }
}

/// Deletes a session with its chats, turns, journal and audit records.
fn remove_session(db: &Connection, session: &ChannelUri) -> rusqlite::Result<()> {
    let chats: Vec<String> = {
        let mut select = db.prepare_cached("SELECT uri FROM chat WHERE session = ?1")?;
        select.query_map([session.as_str()], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?
    };
    for chat in &chats {
        forget_set_aside(db, chat)?;
    }
    forget_set_aside(db, ChannelUri::default_chat_of(session).as_str())?;
    forget_set_aside(db, session.as_str())?;
    if has_owners(db)? {
        db.prepare_cached("DELETE FROM set_aside WHERE session = ?1")?.execute([session.as_str()])?;
    }
    if has_rules_and_audit(db)? {
        audit::remove_session(db, session.as_str())?;
        // A chat that was moved here has records of its former session.
        for chat in &chats {
            audit::remove_chat(db, chat)?;
        }
    }
    db.prepare_cached("DELETE FROM session_row WHERE uri = ?1")?.execute([session.as_str()])?;
    db.prepare_cached("DELETE FROM session WHERE uri = ?1")?.execute([session.as_str()])?;
    Ok(())
}

/// Deletes a chat with its turns, journal entries and audit records.
fn remove_chat(db: &Connection, chat: &ChannelUri) -> rusqlite::Result<()> {
    // Otherwise a later chat at the same address would inherit these actions.
    db.prepare_cached(
        "DELETE FROM journal WHERE channel = ?1
         AND session = (SELECT session.id FROM session JOIN chat ON chat.session = session.uri WHERE chat.uri = ?1)",
    )?
    .execute([chat.as_str()])?;
    forget_set_aside(db, chat.as_str())?;
    if has_rules_and_audit(db)? {
        audit::remove_chat(db, chat.as_str())?;
    }
    db.prepare_cached("DELETE FROM chat WHERE uri = ?1")?.execute([chat.as_str()])?;
    Ok(())
}

/// Whether a channel exists after a restart. Actions of other channels need not be
/// replayed: a client that reconnects is told that the channel is missing.
pub(crate) fn exists(db: &Connection, channel: &ChannelUri) -> rusqlite::Result<bool> {
    if channel.is_root() {
        return Ok(true);
    }
    let mut session = db.prepare_cached("SELECT 1 FROM session WHERE uri = ?1")?;
    let mut chat = db.prepare_cached("SELECT 1 FROM chat WHERE uri = ?1")?;
    Ok(session.exists([channel.as_str()])? || chat.exists([channel.as_str()])?)
}

/// Deletes the records set aside under an address, or under an address and a number.
fn forget_set_aside(db: &Connection, uri: &str) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM set_aside WHERE key = ?1 OR (key >= ?1 || ' ' AND key < ?1 || '!')")?
        .execute([uri])?;
    Ok(())
}

/// Whether `set_aside` names the sessions of its records. A backup may be older than that
/// column.
fn has_owners(db: &Connection) -> rusqlite::Result<bool> {
    db.prepare_cached("SELECT 1 FROM pragma_table_info('set_aside') WHERE name = 'session'")?.exists([])
}

/// Whether permission rules and audit records are stored. A backup may be older.
fn has_rules_and_audit(db: &Connection) -> rusqlite::Result<bool> {
    db.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'audit'")?.exists([])
}
