//! Translates each change to SQL. The caller must have a transaction open.

use innkeeper_core::agent::{History, ResumeToken, TurnLink};
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::ids::{ClientId, ServerSeq};
use innkeeper_core::storage::{
    Change, JournalEntry, MAX_HANDLED_DISPATCHES, MAX_KNOWN_CLIENTS, StoredClient, StoredConversation,
    StoredDispatch, StoredEnvelope, StoredRow, StoredTurn,
};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::audit;
use crate::failure::StoreFailure;
use crate::output;
use crate::removal::{self, RemovedScope};
use crate::rules;

/// Number of new clients between two prunings, since pruning has to count all clients.
const CLIENTS_BETWEEN_LOOKS: i64 = 64;

/// Size of one dispatch in `client.handled`: two numbers.
const DISPATCH: usize = 2 * size_of::<i64>();

/// Encodes a dispatch without a response. Not a valid sequence number: the first action
/// is 1.
const NO_ANSWER: u64 = 0;

/// Applies one change.
pub(crate) fn apply(db: &Connection, change: &Change) -> Result<(), StoreFailure> {
    match change {
        Change::PutSession { session, created_at, row, state } => {
            put_session(db, session, created_at, row.as_ref(), state.get())
        }
        Change::PutRow(row) => put_row(db, row),
        Change::PutChat { chat, session, conversation, state } => {
            let StoredConversation { id, history, resume_token, rewind } = conversation;
            let branch = match history {
                History::Branch(branch) => Some(serde_json::to_string(branch)?),
                History::Fresh | History::Resume | History::Rebuild(_) => None,
            };
            put_chat(
                db,
                &ChatRecord {
                    chat,
                    session,
                    conversation: id.to_string(),
                    // Rebuilt history is not stored: the next start looks for the agent's
                    // own record again.
                    resumes: matches!(history, History::Resume | History::Rebuild(_)),
                    resume_token: resume_token.as_ref().map(ResumeToken::as_str),
                    branch,
                    rewind: rewind.as_ref().map(serde_json::to_string).transpose()?,
                    state: state.get(),
                },
            )
        }
        Change::PutTurns { chat, keep, turns } => put_turns(db, chat, *keep, turns),
        Change::PutResumeToken { chat, token } => put_resume_token(db, chat, token),
        Change::PutTurnLink { chat, turn, link } => put_turn_link(db, chat, turn, link),
        Change::RemoveTurnLinks { chat, turns } => remove_turn_links(db, chat, turns),
        Change::PutOutput { chat, turn, id, output } => match chat_id(db, chat)? {
            Some(chat) => Ok(output::put(db, chat, turn, *id, output)?),
            None => Ok(()),
        },
        Change::CopyOutput { from, to, turns } => Ok(output::copy(db, from, to, turns)?),
        Change::Journal { session, entries } => journal(db, session, entries),
        Change::TrimJournal { session, through } => trim_journal(db, session, *through),
        Change::RemoveSession { session } => Ok(RemovedScope::Session(session).apply(db)?),
        Change::RemoveChat { chat } => Ok(RemovedScope::Chat(chat).apply(db)?),
        Change::PutClient { client, restarted } => put_client(db, client, *restarted),
        Change::Handled { client, mark } => handled(db, client, *mark),
        Change::Answered { client, mark, answer } => answered(db, client, *mark, *answer),
        Change::PutRootConfig { values } => Ok(put_host(db, "root_config", &serde_json::to_string(values)?)?),
        Change::PutRule(rule) => rules::put(db, rule),
        Change::RemoveRule { scope, behavior, rule } => {
            Ok(RemovedScope::Rule(scope, *behavior, rule).apply(db)?)
        }
        Change::Audit(record) => Ok(audit::add(db, record)?),
        Change::ReserveSeq { through } => reserve_seq(db, *through),
        Change::CleanShutdown { seq, replay, clients } => record_clean_shutdown(db, *seq, replay, clients),
    }
}

/// Approximate memory of a change while it waits in the queue.
pub(crate) fn size_of_change(change: &Change) -> usize {
    let body = match change {
        Change::PutSession { row, state, .. } => {
            state.get().len() + row.as_ref().map_or(0, |row| row.summary.get().len())
        }
        Change::PutRow(row) => row.summary.get().len(),
        Change::PutChat { state, .. } => state.get().len(),
        Change::PutTurns { turns, .. } => turns.iter().map(|turn| turn.body.get().len()).sum(),
        Change::PutOutput { output, .. } => output.body.len(),
        Change::Journal { entries, .. } => entries.iter().map(|entry| entry.action.get().len()).sum(),
        Change::CleanShutdown { replay, .. } => replay.iter().map(|entry| entry.envelope.len()).sum(),
        Change::PutRule(rule) => rule.rule.len() + rule.scope.root().len(),
        Change::Audit(record) => record.text_size(),
        Change::TrimJournal { .. }
        | Change::RemoveSession { .. }
        | Change::RemoveChat { .. }
        | Change::PutClient { .. }
        | Change::PutResumeToken { .. }
        | Change::PutTurnLink { .. }
        | Change::RemoveTurnLinks { .. }
        | Change::CopyOutput { .. }
        | Change::Handled { .. }
        | Change::Answered { .. }
        | Change::PutRootConfig { .. }
        | Change::RemoveRule { .. }
        | Change::ReserveSeq { .. } => 0,
    };
    body + size_of::<Change>()
}

/// Removes the clean shutdown marker and the data that the last host stored with it.
pub(crate) fn clear_clean_shutdown(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch("DELETE FROM host WHERE name = 'clean'; DELETE FROM replay; DELETE FROM mark;")
}

/// Removes clients above the limit, the least recently connected ones first.
pub(crate) fn prune_clients(db: &Connection) -> rusqlite::Result<()> {
    db.prepare_cached(
        "DELETE FROM client WHERE used <= (SELECT used FROM client ORDER BY used DESC LIMIT 1 OFFSET ?1)",
    )?
    .execute([i64::try_from(MAX_KNOWN_CLIENTS).unwrap_or(i64::MAX)])?;
    Ok(())
}

/// Sets a host-wide value.
pub(crate) fn put_host(db: &Connection, name: &str, value: &str) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO host (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    )?
    .execute(params![name, value])?;
    Ok(())
}

/// Reads a host-wide value.
pub(crate) fn host_value(db: &Connection, name: &str) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut select = db.prepare_cached("SELECT CAST(value AS BLOB) FROM host WHERE name = ?1")?;
    select.query_row([name], |row| row.get(0)).optional()
}

/// Decodes the column of handled dispatches. If its length is not a multiple of the
/// record size, the column is ignored, because the record boundaries are unknown.
pub(crate) fn decode_handled(column: &[u8]) -> Vec<StoredDispatch> {
    let (dispatches, []) = column.as_chunks::<DISPATCH>() else { return Vec::new() };
    let decode = |dispatch: &[u8; DISPATCH]| {
        let (numbers, _) = dispatch.as_chunks();
        let &[mark, answer] = numbers else { return None };
        let answer = Some(u64::from_le_bytes(answer)).filter(|answer| *answer != NO_ANSWER);
        Some(StoredDispatch { mark: i64::from_le_bytes(mark), answer: answer.map(ServerSeq) })
    };
    dispatches.iter().filter_map(decode).collect()
}

fn encode_handled(dispatch: &StoredDispatch) -> impl Iterator<Item = u8> + use<> {
    let answer = dispatch.answer.map_or(NO_ANSWER, |answer| answer.0);
    dispatch.mark.to_le_bytes().into_iter().chain(answer.to_le_bytes())
}

fn put_session(
    db: &Connection,
    session: &ChannelUri,
    created_at: &str,
    row: Option<&StoredRow>,
    state: &str,
) -> Result<(), StoreFailure> {
    let modified_at = row.map(|row| row.modified_at);
    let summary = row.map(|row| row.summary.get());
    db.prepare_cached(
        "INSERT INTO session (uri, created_at, modified_at, summary, state, checksum)
             VALUES (?1, ?2, ?3, ?4, ?5, record_checksum(?2, ?5))
         ON CONFLICT (uri) DO UPDATE SET created_at = excluded.created_at, modified_at = excluded.modified_at,
             summary = excluded.summary, state = excluded.state, checksum = excluded.checksum",
    )?
    .execute(params![session.as_str(), created_at, modified_at, summary, state])?;
    match row {
        Some(row) => put_list_row(db, row)?,
        None => {
            db.prepare_cached("DELETE FROM session_row WHERE uri = ?1")?.execute([session.as_str()])?;
        }
    }
    Ok(())
}

fn put_row(db: &Connection, row: &StoredRow) -> Result<(), StoreFailure> {
    let known = db
        .prepare_cached("UPDATE session SET modified_at = ?2, summary = ?3 WHERE uri = ?1")?
        .execute(params![row.session.as_str(), row.modified_at, row.summary.get()])?;
    // A session that was disposed since does not have a row.
    if known > 0 {
        put_list_row(db, row)?;
    }
    Ok(())
}

/// Adds or replaces a row of the session list.
pub(crate) fn put_list_row(db: &Connection, row: &StoredRow) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO session_row (uri, modified_at, summary, checksum)
             VALUES (?1, ?2, ?3, record_checksum(?2, ?3))
         ON CONFLICT (uri) DO UPDATE SET modified_at = excluded.modified_at, summary = excluded.summary,
             checksum = excluded.checksum",
    )?
    .execute(params![row.session.as_str(), row.modified_at, row.summary.get()])?;
    Ok(())
}

/// A row of the `chat` table.
struct ChatRecord<'a> {
    chat: &'a ChannelUri,
    session: &'a ChannelUri,
    conversation: String,
    resumes: bool,
    resume_token: Option<&'a str>,
    branch: Option<String>,
    rewind: Option<String>,
    state: &'a str,
}

fn put_chat(db: &Connection, record: &ChatRecord<'_>) -> Result<(), StoreFailure> {
    session_id(db, record.session)?;
    let derived = *record.chat == ChannelUri::default_chat_of(record.session);
    db.prepare_cached(
        "INSERT INTO chat (uri, session, derived, conversation, resumes, branch, rewind, state, checksum)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, record_checksum(?4, ?5, ?6, ?7, ?8))
         ON CONFLICT (uri) DO UPDATE SET session = excluded.session, derived = excluded.derived,
             conversation = excluded.conversation, resumes = excluded.resumes, branch = excluded.branch,
             rewind = excluded.rewind, state = excluded.state, checksum = excluded.checksum",
    )?
    .execute(params![
        record.chat.as_str(),
        record.session.as_str(),
        derived,
        record.conversation,
        record.resumes,
        record.branch,
        record.rewind,
        record.state
    ])?;
    let id = chat_id(db, record.chat)?.ok_or(StoreFailure::Index)?;
    match record.resume_token {
        Some(token) => put_token(db, id, token)?,
        None => {
            db.prepare_cached("DELETE FROM resume_token WHERE chat = ?1")?.execute([id])?;
        }
    }
    Ok(())
}

fn put_token(db: &Connection, chat: i64, token: &str) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO resume_token (chat, token) VALUES (?1, ?2)
         ON CONFLICT (chat) DO UPDATE SET token = excluded.token",
    )?
    .execute(params![chat, token])?;
    Ok(())
}

/// Stores an agent's id of a conversation. Ignored if the chat was removed since.
fn put_resume_token(db: &Connection, chat: &ChannelUri, token: &ResumeToken) -> Result<(), StoreFailure> {
    match chat_id(db, chat)? {
        Some(id) => Ok(put_token(db, id, token.as_str())?),
        None => Ok(()),
    }
}

fn put_turn_link(
    db: &Connection,
    chat: &ChannelUri,
    turn: &str,
    link: &TurnLink,
) -> Result<(), StoreFailure> {
    let Some(id) = chat_id(db, chat)? else { return Ok(()) };
    db.prepare_cached(
        "INSERT INTO turn_link (chat, turn_id, link) VALUES (?1, ?2, ?3)
         ON CONFLICT (chat, turn_id) DO UPDATE SET link = excluded.link",
    )?
    .execute(params![id, turn, serde_json::to_string(link)?])?;
    Ok(())
}

fn remove_turn_links(db: &Connection, chat: &ChannelUri, turns: &[String]) -> Result<(), StoreFailure> {
    let Some(id) = chat_id(db, chat)? else { return Ok(()) };
    let mut delete = db.prepare_cached("DELETE FROM turn_link WHERE chat = ?1 AND turn_id = ?2")?;
    for turn in turns {
        delete.execute(params![id, turn])?;
    }
    Ok(())
}

fn chat_id(db: &Connection, chat: &ChannelUri) -> rusqlite::Result<Option<i64>> {
    db.prepare_cached("SELECT id FROM chat WHERE uri = ?1")?
        .query_row([chat.as_str()], |row| row.get(0))
        .optional()
}

fn put_turns(
    db: &Connection,
    chat: &ChannelUri,
    keep: usize,
    turns: &[StoredTurn],
) -> Result<(), StoreFailure> {
    let Some(id) = chat_id(db, chat)? else {
        return Err(if is_in_table(db, "chat", chat)? {
            StoreFailure::Index
        } else {
            StoreFailure::NoChat(chat.clone())
        });
    };
    // If turns were lost that the host still counts, append after the last one without a
    // gap.
    let mut select = db.prepare_cached("SELECT coalesce(max(place) + 1, 0) FROM turn WHERE chat = ?1")?;
    let behind: i64 = select.query_row([id], |row| row.get(0))?;
    let keep = column(keep as u64)?.min(behind);
    db.prepare_cached("DELETE FROM turn WHERE chat = ?1 AND place >= ?2")?.execute([id, keep])?;
    let mut insert = db.prepare_cached(
        "INSERT INTO turn (chat, place, turn_id, body, checksum) VALUES (?1, ?2, ?3, ?4, record_checksum(?3, ?4))",
    )?;
    for (place, turn) in (keep..).zip(turns) {
        insert.execute(params![id, place, turn.id, turn.body.get()])?;
    }
    output::drop_of_removed_turns(db, id)?;
    Ok(())
}

fn journal(db: &Connection, session: &ChannelUri, entries: &[JournalEntry]) -> Result<(), StoreFailure> {
    let id = session_id(db, session)?;
    let mut insert = db.prepare_cached(
        "INSERT INTO journal (session, number, channel, at, action, checksum)
             VALUES (?1, ?2, ?3, ?4, ?5, record_checksum(?2, ?3, ?4, ?5))",
    )?;
    for entry in entries {
        let number = column(entry.number)?;
        insert.execute(params![id, number, entry.channel.as_str(), entry.at, entry.action.get()])?;
    }
    Ok(())
}

fn trim_journal(db: &Connection, session: &ChannelUri, through: u64) -> Result<(), StoreFailure> {
    db.prepare_cached(
        "DELETE FROM journal WHERE session = (SELECT id FROM session WHERE uri = ?1) AND number <= ?2",
    )?
    .execute(params![session.as_str(), column(through)?])?;
    Ok(())
}

fn put_client(db: &Connection, client: &ClientId, restarted: bool) -> Result<(), StoreFailure> {
    let (id, known) = client_record(db, client)?;
    let kept = if restarted { &[] } else { known.as_slice() };
    db.prepare_cached(
        "UPDATE client SET used = (SELECT max(used) + 1 FROM client), handled = ?2 WHERE id = ?1",
    )?
    .execute(params![id, kept])?;
    Ok(())
}

fn handled(db: &Connection, client: &ClientId, mark: i64) -> Result<(), StoreFailure> {
    let (id, mut column) = client_record(db, client)?;
    if column.len() % DISPATCH != 0 {
        column.clear();
    }
    column.extend(encode_handled(&StoredDispatch { mark, answer: None }));
    put_handled(db, id, &column)
}

/// Sets the response of the client's newest dispatch that has this mark and no response.
fn answered(db: &Connection, client: &ClientId, mark: i64, answer: ServerSeq) -> Result<(), StoreFailure> {
    let mut select = db.prepare_cached("SELECT id, handled FROM client WHERE name = ?1")?;
    let found = select.query_row([client.as_str()], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((id, column)): Option<(i64, Vec<u8>)> = found else { return Ok(()) };
    let mut dispatches = decode_handled(&column);
    let open = StoredDispatch { mark, answer: None };
    let Some(dispatch) = dispatches.iter_mut().rfind(|dispatch| **dispatch == open) else { return Ok(()) };
    dispatch.answer = Some(answer);
    put_handled(db, id, &dispatches.iter().flat_map(encode_handled).collect::<Vec<u8>>())
}

/// Stores a client's dispatches, dropping the oldest above the limit.
fn put_handled(db: &Connection, id: i64, column: &[u8]) -> Result<(), StoreFailure> {
    let superfluous = column.len().saturating_sub(MAX_HANDLED_DISPATCHES * DISPATCH);
    let kept = column.get(superfluous..).unwrap_or_default();
    db.prepare_cached("UPDATE client SET handled = ?2 WHERE id = ?1")?.execute(params![id, kept])?;
    Ok(())
}

/// Returns a client's record, creating it if needed: an evicted client may still be
/// connected.
fn client_record(db: &Connection, client: &ClientId) -> Result<(i64, Vec<u8>), StoreFailure> {
    let mut select = db.prepare_cached("SELECT id, handled FROM client WHERE name = ?1")?;
    let found = select.query_row([client.as_str()], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    if let Some(found) = found {
        return Ok(found);
    }
    db.prepare_cached(
        "INSERT INTO client (name, used, handled) VALUES (?1, (SELECT coalesce(max(used), 0) + 1 FROM client), x'')",
    )?
    .execute([client.as_str()])?;
    let id = db.last_insert_rowid();
    if id % CLIENTS_BETWEEN_LOOKS == 0 {
        prune_clients(db)?;
    }
    Ok((id, Vec::new()))
}

fn reserve_seq(db: &Connection, through: ServerSeq) -> Result<(), StoreFailure> {
    // Never lower the bound: a number that may have been used must not be used again.
    db.prepare_cached(
        "INSERT INTO host (name, value) VALUES ('seq', ?1) ON CONFLICT (name) DO UPDATE
         SET value = excluded.value WHERE CAST(excluded.value AS INTEGER) > CAST(value AS INTEGER)",
    )?
    .execute([column(through.0)?.to_string()])?;
    Ok(())
}

fn record_clean_shutdown(
    db: &Connection,
    seq: ServerSeq,
    replay: &[StoredEnvelope],
    clients: &[StoredClient],
) -> Result<(), StoreFailure> {
    clear_clean_shutdown(db)?;
    put_host(db, "seq", &column(seq.0)?.to_string())?;
    put_host(db, "clean", "1")?;
    let mut insert =
        db.prepare_cached("INSERT INTO replay (seq, channel, only_for, envelope) VALUES (?1, ?2, ?3, ?4)")?;
    for (position, entry) in replay.iter().enumerate() {
        let seq = column(entry.seq.0)?;
        if removal::exists(db, &entry.channel)? {
            let only_for = entry.only_for.as_ref().map(ClientId::as_str);
            insert.execute(params![seq, entry.channel.as_str(), only_for, entry.envelope.as_ref()])?;
        } else if position == 0 {
            insert.execute(params![seq, "", None::<&str>, [0_u8; 0]])?;
        }
    }
    let mut insert =
        db.prepare_cached("INSERT INTO mark (client, channel, first, last) VALUES (?1, ?2, ?3, ?4)")?;
    for client in clients {
        let (id, _) = client_record(db, &client.id)?;
        let handled: Vec<u8> = client.handled.iter().flat_map(encode_handled).collect();
        put_handled(db, id, &handled)?;
        for (channel, first, last) in &client.marks {
            insert.execute(params![id, channel.as_str(), column(first.0)?, column(last.0)?])?;
        }
    }
    Ok(())
}

fn session_id(db: &Connection, session: &ChannelUri) -> Result<i64, StoreFailure> {
    let mut select = db.prepare_cached("SELECT id FROM session WHERE uri = ?1")?;
    let id: Option<i64> = select.query_row([session.as_str()], |row| row.get(0)).optional()?;
    match id {
        Some(id) => Ok(id),
        None if is_in_table(db, "session", session)? => Err(StoreFailure::Index),
        None => Err(StoreFailure::NoSession(session.clone())),
    }
}

/// Searches a table without its index. Slow, and only used to distinguish a damaged index
/// from a missing record.
fn is_in_table(db: &Connection, table: &str, uri: &ChannelUri) -> rusqlite::Result<bool> {
    db.prepare(&format!("SELECT 1 FROM {table} NOT INDEXED WHERE uri = ?1"))?.exists([uri.as_str()])
}

/// Converts a number to an SQL integer.
fn column(number: u64) -> Result<i64, StoreFailure> {
    i64::try_from(number).map_err(|_| StoreFailure::TooLarge(number))
}
