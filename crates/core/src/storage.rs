//! The port to durable storage: what a host writes down, and what it finds again.
//!
//! A session is stored as documents (the session, its chats without turns), one
//! record a finished turn, and a journal of the actions that were published since
//! the documents were written. Documents, turns and journal together are the
//! published state; folding the journal is the reader's work, since only `core`
//! knows the reducers.

use std::sync::Arc;

use ahp_types::common::JsonObject;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::agent::{BoxFuture, History, ResumeToken, TurnLink};
use crate::channel::ChannelUri;
use crate::ids::{ClientId, ServerSeq};

/// A JSON document, encoded once and shared.
pub type Json = Arc<RawValue>;

/// Where a host keeps what must survive it.
pub trait Storage: Send + Sync + 'static {
    /// Everything that is needed before the first client, and nothing of a single
    /// session: it has to be fast with ten thousand of them. Called once, first.
    fn load_index(&self) -> BoxFuture<Result<Index, StorageError>>;

    /// A session with all that belongs to it; `None` if there is none. Sees every
    /// write whose future has resolved.
    fn load_session(&self, session: ChannelUri) -> BoxFuture<Result<Option<StoredSession>, StorageError>>;

    /// Writes all of the changes or none of them. Writes take effect in the order of
    /// the calls, whether or not their futures are polled: the call itself hands
    /// them over. Resolves when the changes survive the end of this process.
    fn write(&self, changes: Vec<Change>) -> BoxFuture<Result<(), StorageError>>;
}

/// A storage that keeps nothing, for hosts that shall not outlive themselves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nowhere;

impl Storage for Nowhere {
    fn load_index(&self) -> BoxFuture<Result<Index, StorageError>> {
        Box::pin(std::future::ready(Ok(Index::default())))
    }

    fn load_session(&self, _: ChannelUri) -> BoxFuture<Result<Option<StoredSession>, StorageError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn write(&self, _: Vec<Change>) -> BoxFuture<Result<(), StorageError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Why something could not be stored or found.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StorageError {
    /// There is no room for it.
    #[error("the disk is full; nothing was saved. Free some space and try again")]
    Full,
    /// More waits to be written than is reasonable.
    #[error("the host cannot write as fast as it is asked to; try again")]
    Busy,
    /// It did not answer in time.
    #[error("the storage does not answer; try again")]
    TimedOut,
    /// What is there cannot be read.
    #[error("{what} is damaged: {reason}")]
    Damaged {
        /// What cannot be read.
        what: String,
        /// How it shows.
        reason: String,
    },
    /// Anything else.
    #[error("the storage failed: {0}")]
    Failed(String),
}

/// What a host starts from.
#[derive(Debug, Default)]
pub struct Index {
    /// No published action had a number above this one.
    pub seq: ServerSeq,
    /// The rows of the session list.
    pub rows: Vec<StoredRow>,
    /// Sessions that are not in the list, because they were never used.
    pub unlisted: Vec<ChannelUri>,
    /// Sessions with a journal: the last host did not end in order while they changed.
    pub unfinished: Vec<ChannelUri>,
    /// Chats whose address does not follow from their session's, and their sessions.
    pub chats: Vec<(ChannelUri, ChannelUri)>,
    /// The host-wide configuration.
    pub root_config: Option<JsonObject>,
    /// The clients that may come back.
    pub clients: Vec<StoredClient>,
    /// The most recent actions in order, if the last host ended in order.
    pub replay: Vec<StoredEnvelope>,
    /// Whether it did.
    pub clean: bool,
}

/// A row of the session list.
#[derive(Clone, Debug)]
pub struct StoredRow {
    /// The session.
    pub session: ChannelUri,
    /// When it last changed, in milliseconds since 1970.
    pub modified_at: i64,
    /// The `SessionSummary`.
    pub summary: Json,
}

/// A client that the host knows.
#[derive(Clone, Debug)]
pub struct StoredClient {
    /// Its name.
    pub id: ClientId,
    /// Its dispatches that were handled last, oldest first.
    pub handled: Vec<StoredDispatch>,
    /// What it was told of which channel: numbers of the first and last snapshot.
    /// Only after an end in order.
    pub marks: Vec<(ChannelUri, ServerSeq, ServerSeq)>,
}

/// A dispatch of a client's that was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredDispatch {
    /// By which it is known again: a hash of all of it.
    pub mark: i64,
    /// The number of its answer; nothing if the host crashed before that was stored, so
    /// that nobody knows whether the client has it.
    pub answer: Option<ServerSeq>,
}

/// A published action.
#[derive(Clone, Debug)]
pub struct StoredEnvelope {
    /// Its number.
    pub seq: ServerSeq,
    /// Its channel.
    pub channel: ChannelUri,
    /// The one client that was told, if it was not everyone.
    pub only_for: Option<ClientId>,
    /// The encoded envelope.
    pub envelope: Bytes,
}

/// A session as it was stored.
#[derive(Debug)]
pub struct StoredSession {
    /// When it was created, as it goes over the wire.
    pub created_at: String,
    /// Whether it is in the list.
    pub listed: bool,
    /// The `SessionState`.
    pub state: Json,
    /// Its chats; the one whose address follows from the session's is first.
    pub chats: Vec<StoredChat>,
    /// What was published since the documents were written, in order.
    pub journal: Vec<JournalEntry>,
}

/// A chat as it was stored.
#[derive(Debug)]
pub struct StoredChat {
    /// Its channel.
    pub uri: ChannelUri,
    /// How its agent continues the conversation.
    pub conversation: StoredConversation,
    /// The agent's messages of its turns, by turn id.
    pub links: Vec<(String, TurnLink)>,
    /// The `ChatState`, with an empty list of turns.
    pub state: Json,
    /// Its finished turns, oldest first.
    pub turns: Vec<StoredTurn>,
}

/// How the agent of a chat continues its conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredConversation {
    /// The host's id of the conversation.
    pub id: Uuid,
    /// Whether the agent has worked on it, or where it begins.
    pub history: History,
    /// The agent's own name of the conversation, if it reported one.
    pub resume_token: Option<ResumeToken>,
    /// How far back its next agent has to go.
    pub rewind: Option<Rewind>,
}

impl StoredConversation {
    /// A conversation that has not begun.
    pub fn new(history: History) -> Self {
        Self { id: Uuid::now_v7(), history, resume_token: None, rewind: None }
    }
}

/// How far back an agent has to go before it gets a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewind {
    /// The last turn to remember; without one, nothing.
    pub to: Option<String>,
}

/// A finished turn.
#[derive(Clone, Debug)]
pub struct StoredTurn {
    /// Its id, which is in the body too.
    pub id: String,
    /// The `Turn`.
    pub body: Json,
}

/// An action that was published and is not in the documents yet.
#[derive(Clone, Debug)]
pub struct JournalEntry {
    /// Its place in the session's journal.
    pub number: u64,
    /// The channel it changed.
    pub channel: ChannelUri,
    /// When, in milliseconds since 1970.
    pub at: i64,
    /// The `StateAction`.
    pub action: Json,
}

/// Something to be written.
#[derive(Clone, Debug)]
pub enum Change {
    /// A session is as this, from now on. Creates it if need be.
    PutSession {
        /// The session.
        session: ChannelUri,
        /// When it was created.
        created_at: String,
        /// Its row if it is in the list.
        row: Option<StoredRow>,
        /// The `SessionState`.
        state: Json,
    },
    /// A session's row is as this. The session exists.
    PutRow(StoredRow),
    /// A chat is as this. Creates it if need be, and gives it another session if it
    /// had one; its session exists.
    PutChat {
        /// The chat.
        chat: ChannelUri,
        /// Its session.
        session: ChannelUri,
        /// How its agent continues the conversation.
        conversation: StoredConversation,
        /// The `ChatState` with an empty list of turns.
        state: Json,
    },
    /// The chat's turns from this place on are these; later ones there were go.
    PutTurns {
        /// The chat.
        chat: ChannelUri,
        /// How many older turns stay.
        keep: usize,
        /// The turns behind them.
        turns: Vec<StoredTurn>,
    },
    /// The agent's own name of a chat's conversation. Nothing changes if the chat is
    /// unknown.
    PutResumeToken {
        /// The chat.
        chat: ChannelUri,
        /// The name.
        token: ResumeToken,
    },
    /// The agent's messages of a turn, replacing those stored before. Nothing changes if
    /// the chat is unknown.
    PutTurnLink {
        /// The chat.
        chat: ChannelUri,
        /// The turn, which may still be running.
        turn: String,
        /// The messages.
        link: TurnLink,
    },
    /// Turns that a chat no longer has lose their links.
    RemoveTurnLinks {
        /// The chat.
        chat: ChannelUri,
        /// The turns.
        turns: Vec<String>,
    },
    /// Adds to the journal of a session.
    Journal {
        /// The session.
        session: ChannelUri,
        /// What was published.
        entries: Vec<JournalEntry>,
    },
    /// The documents have everything up to this entry.
    TrimJournal {
        /// The session.
        session: ChannelUri,
        /// The last entry that is not needed any more.
        through: u64,
    },
    /// Deletes a session and all that belongs to it.
    RemoveSession {
        /// The session.
        session: ChannelUri,
    },
    /// Deletes a chat with its turns and what is in its session's journal about it.
    RemoveChat {
        /// The chat.
        chat: ChannelUri,
    },
    /// A client may come back.
    PutClient {
        /// The client.
        client: ClientId,
        /// Whether it begins anew, so that its numbers may repeat.
        anew: bool,
    },
    /// A dispatch of a client's is handled. It has no answer yet.
    Handled {
        /// The client.
        client: ClientId,
        /// By which it is known again.
        mark: i64,
    },
    /// The newest of a client's dispatches that is known by this and has no answer has got
    /// one. If there is none any more, nothing changes.
    Answered {
        /// The client.
        client: ClientId,
        /// By which it is known again.
        mark: i64,
        /// The number of its answer.
        answer: ServerSeq,
    },
    /// The host-wide configuration.
    PutRootConfig {
        /// All of its values.
        values: JsonObject,
    },
    /// Numbers up to this one may be used.
    ReserveSeq {
        /// The last of them.
        through: ServerSeq,
    },
    /// The host ends in order; nothing is written after this.
    EndInOrder {
        /// The last number that was used.
        seq: ServerSeq,
        /// What clients may have missed.
        replay: Vec<StoredEnvelope>,
        /// The clients and what they had.
        clients: Vec<StoredClient>,
    },
}
