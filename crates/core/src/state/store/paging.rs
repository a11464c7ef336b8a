//! Loads older turns for clients that have only the newest turns of a chat.

use serde::Serialize;

use super::super::chat::{Bodies, cursor_before, cursor_turn, page_start};
use super::super::frame::{EncodedEnvelope, raw_envelope};
use super::{StateStore, StoreInner};
use crate::channel::ChannelUri;
use crate::ids::{ConnectionId, ServerSeq};

/// Most turns in one page.
const TURNS_PER_PAGE: usize = 50;

/// Why older turns could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The chat does not exist.
    #[error("unknown chat {0}")]
    UnknownChat(ChannelUri),
    /// The cursor does not belong to this chat.
    #[error("invalid cursor for this chat; subscribe again")]
    BadCursor,
    /// The turns cannot be encoded.
    #[error("cannot encode the turns")]
    Encode(#[from] serde_json::Error),
}

impl StateStore {
    /// Sends older turns of a chat to one connection. Other clients have them already or
    /// did not ask for them.
    pub fn fetch_turns(
        &self,
        connection: ConnectionId,
        chat: &ChannelUri,
        cursor: Option<&str>,
    ) -> Result<(), FetchError> {
        self.lock().fetch_older(connection, chat, cursor)
    }
}

impl StoreInner {
    fn fetch_older(
        &mut self,
        connection: ConnectionId,
        uri: &ChannelUri,
        cursor: Option<&str>,
    ) -> Result<(), FetchError> {
        let chat = self.channels.get(uri).and_then(|channel| channel.state.chat_doc());
        let chat = chat.ok_or_else(|| FetchError::UnknownChat(uri.clone()))?;
        let window = self.connections.get(&connection).and_then(|attached| attached.windows.get(uri));
        let oldest = match cursor {
            Some(cursor) => cursor_turn(cursor).ok_or(FetchError::BadCursor)?,
            None => match window {
                Some(oldest) => oldest,
                // The client already has all turns.
                None => return Ok(()),
            },
        };
        let end = chat.position(oldest).ok_or(FetchError::BadCursor)?;
        let start = page_start(chat.turns().get(..end).unwrap_or_default(), TURNS_PER_PAGE);
        self.show_turns(connection, uri, start, end)?;
        Ok(())
    }

    /// Sends turns of a chat that are older than those the connection has.
    fn show_turns(
        &mut self,
        connection: ConnectionId,
        uri: &ChannelUri,
        from: usize,
        to: usize,
    ) -> Result<(), serde_json::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct TurnsLoaded<'a> {
            r#type: &'static str,
            turns: Bodies<'a>,
            #[serde(skip_serializing_if = "Option::is_none")]
            turns_next_cursor: Option<String>,
        }
        let Some(chat) = self.channels.get(uri).and_then(|channel| channel.state.chat_doc()) else {
            return Ok(());
        };
        let turns = chat.turns().get(from..to).unwrap_or_default();
        let oldest = turns.first().map(|turn| turn.id.clone()).filter(|_| from > 0);
        let action = TurnsLoaded {
            r#type: "chat/turnsLoaded",
            turns: Bodies(turns),
            turns_next_cursor: oldest.as_deref().map(cursor_before),
        };
        let seq = ServerSeq(self.seq.0 + 1);
        let frame = raw_envelope(uri, &action, seq, None, None)?;
        self.seq = seq;
        let Some(attached) = self.connections.get_mut(&connection) else { return Ok(()) };
        match oldest {
            Some(oldest) => attached.windows.insert(uri.clone(), oldest),
            None => attached.windows.remove(uri),
        };
        if let Some(client) = &attached.client {
            self.log.push(seq, uri, Some(client), EncodedEnvelope::of(&frame));
        }
        attached.outbox.push(frame);
        Ok(())
    }

    /// Sends the turn that becomes the last one to connections that have only newer
    /// turns, because their reducers could not find it.
    pub(super) fn show_before_truncating(
        &mut self,
        uri: &ChannelUri,
        turn: &str,
    ) -> Result<(), serde_json::Error> {
        let Some(chat) = self.channels.get(uri).and_then(|channel| channel.state.chat_doc()) else {
            return Ok(());
        };
        let Some(last) = chat.position(turn) else { return Ok(()) };
        let mut pages = Vec::new();
        for (id, attached) in &self.connections {
            let Some(mut end) = attached.windows.get(uri).and_then(|oldest| chat.position(oldest)) else {
                continue;
            };
            while end > last {
                let start = page_start(chat.turns().get(..end).unwrap_or_default(), usize::MAX).max(last);
                pages.push((*id, start, end));
                end = start;
            }
        }
        for (connection, start, end) in pages {
            self.show_turns(connection, uri, start, end)?;
        }
        Ok(())
    }
}
