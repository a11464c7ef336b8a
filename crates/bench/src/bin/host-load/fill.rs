//! Fills a data directory with many sessions: one created by a host, and copies of it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use innkeeper_bench::load::{LoadDriver, LoadHost, PROVIDER};
use innkeeper_core::ChannelUri;
use innkeeper_core::storage::{
    Change, Json, Storage, StoredConversation, StoredRow, StoredSession, StoredTurn,
};
use innkeeper_store::{Store, StoreConfig};
use serde_json::value::RawValue;

/// Sessions per write.
const BATCH: u64 = 500;

/// Bytes of text in each session's only turn.
const TURN: usize = 2_000;

/// Milliseconds between the modification times of two sessions.
const APART: i64 = 60_000;

/// Writes `sessions` sessions into an empty data directory.
pub(crate) async fn fill(data: &Path, sessions: u64) -> Result<()> {
    let pattern = tempfile::tempdir().context("cannot create a temporary directory")?;
    let (row, session) = created_by_host(pattern.path()).await?;
    let store = Store::open(StoreConfig::new(data))?;
    for first in (0..sessions).step_by(usize::try_from(BATCH)?) {
        let mut changes = Vec::new();
        for number in first..sessions.min(first + BATCH) {
            changes.extend(copy(&row, &session, number)?);
        }
        store.write(changes).await?;
    }
    store.close();
    Ok(())
}

/// Creates a session with one turn and reads it from the store.
async fn created_by_host(data: &Path) -> Result<(StoredRow, StoredSession)> {
    let store = Arc::new(Store::open(StoreConfig::new(data))?);
    let host = LoadHost::start_with(Arc::clone(&store) as Arc<dyn Storage>).await?;
    let mut driver = LoadDriver::new(host.address()?).await?;
    driver.say(&format!("reply {TURN}")).await?;
    driver.finish().await?;
    host.stop().await;
    store.close();
    let store = Store::open(StoreConfig::new(data))?;
    let row = store.load_index().await?.rows.pop().context("the session is not in the list")?;
    let session = store.load_session(row.session.clone()).await?.context("the session was not stored")?;
    store.close();
    Ok((row, session))
}

/// The changes that store one copy.
fn copy(row: &StoredRow, session: &StoredSession, number: u64) -> Result<Vec<Change>> {
    let uri = ChannelUri::new(&format!("claude:/5f0c7f66-2d3b-4b8e-9d2c-{number:012}"));
    let chat = session.chats.first().context("the session has no chat")?;
    let chat_uri = ChannelUri::default_chat_of(&uri);
    let renamed = |json: &Json| -> Result<Json> {
        let text = json
            .get()
            .replace(chat.uri.as_str(), chat_uri.as_str())
            .replace(row.session.as_str(), uri.as_str())
            .replace(&format!(r#""provider":"{PROVIDER}""#), r#""provider":"claude""#)
            .replace(&format!("reply {TURN}"), &format!("Question number {number}"));
        Ok(RawValue::from_string(text)?.into())
    };
    let modified_at = row.modified_at - APART * i64::try_from(number)?;
    let summary = renamed(&row.summary)?;
    let turns = chat
        .turns
        .iter()
        .map(|turn| Ok(StoredTurn { id: turn.id.clone(), body: renamed(&turn.body)? }))
        .collect::<Result<_>>()?;
    Ok(vec![
        Change::PutSession {
            session: uri.clone(),
            created_at: session.created_at.clone(),
            row: Some(StoredRow { session: uri.clone(), modified_at, summary }),
            state: renamed(&session.state)?,
        },
        Change::PutChat {
            chat: chat_uri.clone(),
            session: uri.clone(),
            conversation: StoredConversation { rewind: None, ..chat.conversation.clone() },
            state: renamed(&chat.state)?,
        },
        Change::PutTurns { chat: chat_uri.clone(), keep: 0, turns },
    ])
}
