//! Interface for durable storage: the records that a host writes, and loads after a
//! restart.
//!
//! A session is stored as documents (the session, and its chats without turns), one
//! record for each finished turn, and a journal of the actions published since the
//! documents were written. Documents, turns and journal together are the published state.
//! The reader applies the journal, since only `core` has the reducers.

use std::sync::Arc;

use ahp_types::common::JsonObject;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::agent::{BoxFuture, History, ResumeToken, TurnLink};
use crate::audit::{AuditPage, AuditQuery, AuditRecord};
use crate::channel::ChannelUri;
use crate::ids::{ClientId, ServerSeq};
use crate::output::{OutputId, StoredOutput};

/// Dispatches that are remembered per client, in memory and in storage. Older ones are
/// forgotten: if a client repeats more than these after a reconnect, the rest are handled
/// twice.
pub const MAX_HANDLED_DISPATCHES: usize = 256;

/// Clients that are remembered, in memory and in storage. A forgotten client must
/// `initialize` again, which every client can do.
pub const MAX_KNOWN_CLIENTS: usize = 4_096;

/// Permission rules that can be stored, in all scopes together.
pub const MAX_STORED_RULES: usize = 10_000;

/// Longest permission rule that can be stored, in bytes, and longest workspace root.
pub const MAX_STORED_RULE_BYTES: usize = 8_192;

/// A JSON document, encoded once and shared.
pub type Json = Arc<RawValue>;

/// Durable storage for a host.
pub trait Storage: Send + Sync + 'static {
    /// Loads the data needed before the first client connects, without the content of
    /// single sessions: it must be fast with 10,000 sessions. Called once, before any
    /// other method.
    fn load_index(&self) -> BoxFuture<Result<Index, StorageError>>;

    /// Loads a complete session; `None` if it does not exist. Sees every write whose
    /// future has resolved.
    fn load_session(&self, session: ChannelUri) -> BoxFuture<Result<Option<StoredSession>, StorageError>>;

    /// Loads a piece of stored output; `None` if it does not exist. Sees every write whose
    /// future has resolved.
    fn load_output(&self, output: OutputId) -> BoxFuture<Result<Option<StoredOutput>, StorageError>>;

    /// Loads audit records, newest first. Sees every write whose future has resolved.
    fn load_audit(&self, query: AuditQuery) -> BoxFuture<Result<AuditPage, StorageError>>;

    /// Writes all of the changes or none of them. The call itself enqueues them, so
    /// writes take effect in call order, whether or not their futures are polled.
    /// Resolves when the changes are durable across a process exit.
    fn write(&self, changes: Vec<Change>) -> BoxFuture<Result<(), StorageError>>;
}

/// A storage that discards all writes, for hosts whose state need not survive a restart.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nowhere;

impl Storage for Nowhere {
    fn load_index(&self) -> BoxFuture<Result<Index, StorageError>> {
        Box::pin(std::future::ready(Ok(Index::default())))
    }

    fn load_session(&self, _: ChannelUri) -> BoxFuture<Result<Option<StoredSession>, StorageError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn load_output(&self, _: OutputId) -> BoxFuture<Result<Option<StoredOutput>, StorageError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn load_audit(&self, _: AuditQuery) -> BoxFuture<Result<AuditPage, StorageError>> {
        Box::pin(std::future::ready(Ok(AuditPage::default())))
    }

    fn write(&self, _: Vec<Change>) -> BoxFuture<Result<(), StorageError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Why a storage operation failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StorageError {
    /// The disk is full.
    #[error("the disk is full and nothing was saved; free some space and try again")]
    Full,
    /// Too many writes are pending.
    #[error("too many writes are pending; try again")]
    Busy,
    /// The storage did not respond in time.
    #[error("the storage did not respond in time; try again")]
    TimedOut,
    /// A permission rule is above a limit.
    #[error("cannot store the rule: {0}")]
    RuleRejected(String),
    /// A record cannot be read.
    #[error("{what} is damaged: {reason}")]
    Damaged {
        /// The damaged record.
        what: String,
        /// The decoding error.
        reason: String,
    },
    /// Any other error.
    #[error("the storage failed: {0}")]
    Failed(String),
}

/// The data that a host starts from.
#[derive(Debug, Default)]
pub struct Index {
    /// An upper bound of all published sequence numbers.
    pub seq: ServerSeq,
    /// The rows of the session list.
    pub rows: Vec<StoredRow>,
    /// Sessions that are not in the list because they were never used.
    pub unlisted: Vec<ChannelUri>,
    /// Sessions with a journal: they changed, and the last host did not shut down
    /// cleanly.
    pub with_journal: Vec<ChannelUri>,
    /// Chats whose address cannot be derived from their session, with their sessions.
    pub chats: Vec<(ChannelUri, ChannelUri)>,
    /// The host-wide configuration.
    pub root_config: Option<JsonObject>,
    /// The permission rules, oldest first.
    pub rules: Vec<StoredRule>,
    /// The clients that may reconnect.
    pub clients: Vec<StoredClient>,
    /// The most recent actions in order, if the last host shut down cleanly.
    pub replay: Vec<StoredEnvelope>,
    /// Whether the last host shut down cleanly.
    pub clean: bool,
}

/// A row of the session list.
#[derive(Clone, Debug)]
pub struct StoredRow {
    /// The session.
    pub session: ChannelUri,
    /// Time of the last change, in milliseconds since 1970.
    pub modified_at: i64,
    /// The encoded `SessionSummary`.
    pub summary: Json,
}

/// A known client.
#[derive(Clone, Debug)]
pub struct StoredClient {
    /// The client's id.
    pub id: ClientId,
    /// The client's most recently handled dispatches, oldest first.
    pub handled: Vec<StoredDispatch>,
    /// For each subscribed channel, the sequence numbers of the first and last snapshot
    /// that the client received. Stored only on a clean shutdown.
    pub marks: Vec<(ChannelUri, ServerSeq, ServerSeq)>,
}

/// A client's dispatch that was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredDispatch {
    /// The hash that identifies the dispatch; it covers the whole dispatch.
    pub mark: i64,
    /// The sequence number of the response. `None` if the host crashed before it was
    /// stored; then it is unknown whether the client received the response.
    pub answer: Option<ServerSeq>,
}

/// A permission rule that applies beyond one session. Storage does not interpret its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRule {
    /// Where the rule applies.
    pub scope: StoredRuleScope,
    /// What the rule does.
    pub behavior: StoredRuleBehavior,
    /// The rule's text.
    pub rule: String,
    /// Time of creation, in milliseconds since 1970. Does not identify the rule.
    pub created_at: i64,
}

impl StoredRule {
    /// Checks the limits, if `stored` other rules are stored.
    pub fn check_limits(&self, stored: usize) -> Result<(), StorageError> {
        if self.rule.len() > MAX_STORED_RULE_BYTES || self.scope.root().len() > MAX_STORED_RULE_BYTES {
            let reason = format!("it is longer than {MAX_STORED_RULE_BYTES} bytes; use a shorter rule");
            return Err(StorageError::RuleRejected(reason));
        }
        if stored >= MAX_STORED_RULES {
            let reason =
                format!("{MAX_STORED_RULES} rules are stored, which is the limit; remove some first");
            return Err(StorageError::RuleRejected(reason));
        }
        Ok(())
    }
}

/// Where a stored rule applies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoredRuleScope {
    /// In all sessions.
    Always,
    /// In sessions with this workspace root, an absolute path.
    Workspace(String),
}

impl StoredRuleScope {
    /// The scope that [`Self::root`] describes.
    pub fn from_root(root: String) -> Self {
        if root.is_empty() { Self::Always } else { Self::Workspace(root) }
    }

    /// The workspace root; empty for [`Self::Always`].
    pub fn root(&self) -> &str {
        match self {
            Self::Always => "",
            Self::Workspace(root) => root,
        }
    }
}

/// What a stored rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoredRuleBehavior {
    /// Allows the call.
    Allow,
    /// Asks a client.
    Ask,
    /// Denies the call.
    Deny,
}

impl StoredRuleBehavior {
    /// The name in storage.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }

    /// Parses the name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Allow, Self::Ask, Self::Deny].into_iter().find(|behavior| behavior.as_str() == name)
    }
}

/// A published action.
#[derive(Clone, Debug)]
pub struct StoredEnvelope {
    /// The sequence number.
    pub seq: ServerSeq,
    /// The channel.
    pub channel: ChannelUri,
    /// The only recipient, if the action was not sent to all subscribers.
    pub only_for: Option<ClientId>,
    /// The encoded envelope.
    pub envelope: Bytes,
}

/// A stored session.
#[derive(Debug)]
pub struct StoredSession {
    /// Time of creation, in the protocol's format.
    pub created_at: String,
    /// Whether the session is in the session list.
    pub listed: bool,
    /// The encoded `SessionState`.
    pub state: Json,
    /// The chats; the default chat, whose address is derived from the session, is first.
    pub chats: Vec<StoredChat>,
    /// Actions published since the documents were written, in order.
    pub journal: Vec<JournalEntry>,
}

/// A stored chat.
#[derive(Debug)]
pub struct StoredChat {
    /// The chat's channel.
    pub uri: ChannelUri,
    /// The state that its agent needs to continue the conversation.
    pub conversation: StoredConversation,
    /// The agent's message ids, by turn id.
    pub links: Vec<(String, TurnLink)>,
    /// The encoded `ChatState`, with an empty list of turns.
    pub state: Json,
    /// The finished turns, oldest first.
    pub turns: Vec<StoredTurn>,
}

/// The state that a chat's agent needs to continue the conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredConversation {
    /// The host's id of the conversation.
    pub id: Uuid,
    /// Whether the agent has worked on the conversation, or where it starts.
    pub history: History,
    /// The agent's own id of the conversation, if it reported one.
    pub resume_token: Option<ResumeToken>,
    /// A pending rewind for the next agent.
    pub rewind: Option<Rewind>,
}

impl StoredConversation {
    /// A conversation that has not started.
    pub fn new(history: History) -> Self {
        Self { id: Uuid::now_v7(), history, resume_token: None, rewind: None }
    }
}

/// The turn that an agent must rewind to before it receives a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewind {
    /// The last turn to keep; `None` removes all turns.
    pub to: Option<String>,
}

/// A finished turn.
#[derive(Clone, Debug)]
pub struct StoredTurn {
    /// The turn's id, also contained in the body.
    pub id: String,
    /// The encoded `Turn`.
    pub body: Json,
}

/// An action that the documents do not contain yet. It is published already, or right after
/// the write.
#[derive(Clone, Debug)]
pub struct JournalEntry {
    /// The position in the session's journal. Starts at 1 after the journal was emptied and
    /// the session was loaded again.
    pub number: u64,
    /// The channel that the action changed.
    pub channel: ChannelUri,
    /// Time of publication, in milliseconds since 1970.
    pub at: i64,
    /// The encoded `StateAction`.
    pub action: Json,
}

/// A change to write.
#[derive(Clone, Debug)]
pub enum Change {
    /// Creates or replaces a session.
    PutSession {
        /// The session.
        session: ChannelUri,
        /// Time of creation.
        created_at: String,
        /// The session's row, if it is in the list.
        row: Option<StoredRow>,
        /// The encoded `SessionState`.
        state: Json,
    },
    /// Replaces the row of an existing session.
    PutRow(StoredRow),
    /// Creates or replaces a chat. If the chat belongs to another session, it is moved.
    /// `session` must exist.
    PutChat {
        /// The chat.
        chat: ChannelUri,
        /// Its session.
        session: ChannelUri,
        /// The state that its agent needs to continue the conversation.
        conversation: StoredConversation,
        /// The encoded `ChatState`, with an empty list of turns.
        state: Json,
    },
    /// Keeps the first `keep` turns of a chat and replaces all later ones. The output of
    /// turns that the chat no longer has, as a finished or as the running turn, is deleted.
    PutTurns {
        /// The chat.
        chat: ChannelUri,
        /// How many of the oldest turns are kept.
        keep: usize,
        /// The turns that follow them.
        turns: Vec<StoredTurn>,
    },
    /// Sets the agent's own id of a chat's conversation. Ignored if the chat is unknown.
    PutResumeToken {
        /// The chat.
        chat: ChannelUri,
        /// The agent's id.
        token: ResumeToken,
    },
    /// Sets the agent's message ids of a turn, replacing those stored before. Ignored if
    /// the chat is unknown.
    PutTurnLink {
        /// The chat.
        chat: ChannelUri,
        /// The turn, which may still be running.
        turn: String,
        /// The message ids.
        link: TurnLink,
    },
    /// Removes the message ids of turns that a chat no longer has.
    RemoveTurnLinks {
        /// The chat.
        chat: ChannelUri,
        /// The turns.
        turns: Vec<String>,
    },
    /// Stores a piece of a turn's output, or a snapshot of an attachment as output of the turn
    /// [`ATTACHMENTS`](crate::output::ATTACHMENTS), which always exists. Ignored if the chat is unknown.
    PutOutput {
        /// The chat.
        chat: ChannelUri,
        /// The turn, which may still be running.
        turn: String,
        /// Identifies the piece.
        id: OutputId,
        /// The piece.
        output: StoredOutput,
    },
    /// Copies the output of turns to another chat, which has the same turns. It then exists
    /// until both chats are deleted.
    CopyOutput {
        /// The chat that has the output.
        from: ChannelUri,
        /// The chat that gets it.
        to: ChannelUri,
        /// The turns.
        turns: Vec<String>,
    },
    /// Appends to the journal of a session.
    Journal {
        /// The session.
        session: ChannelUri,
        /// The new entries.
        entries: Vec<JournalEntry>,
    },
    /// Removes journal entries that the documents already contain.
    TrimJournal {
        /// The session.
        session: ChannelUri,
        /// The last entry to remove.
        through: u64,
    },
    /// Deletes a session with its chats, turns, journal and audit records.
    RemoveSession {
        /// The session.
        session: ChannelUri,
    },
    /// Deletes a chat with its turns, journal entries and audit records.
    RemoveChat {
        /// The chat.
        chat: ChannelUri,
    },
    /// Adds a client that may reconnect.
    PutClient {
        /// The client.
        client: ClientId,
        /// Whether the client's sequence numbers restarted.
        restarted: bool,
    },
    /// Records that a client's dispatch was handled. It does not have a response yet.
    Handled {
        /// The client.
        client: ClientId,
        /// The hash that identifies the dispatch.
        mark: i64,
    },
    /// Records the response to the newest dispatch of the client that has this mark and
    /// no response. Ignored if it is no longer stored.
    Answered {
        /// The client.
        client: ClientId,
        /// The hash that identifies the dispatch.
        mark: i64,
        /// The sequence number of the response.
        answer: ServerSeq,
    },
    /// Replaces the host-wide configuration.
    PutRootConfig {
        /// All of the values.
        values: JsonObject,
    },
    /// Adds a permission rule. Ignored if it is stored already. Fails above a limit, so it
    /// must not be in one write with changes that have to succeed.
    PutRule(StoredRule),
    /// Removes a permission rule. Ignored if it is not stored.
    RemoveRule {
        /// Where the rule applies.
        scope: StoredRuleScope,
        /// What the rule does.
        behavior: StoredRuleBehavior,
        /// The rule's text.
        rule: String,
    },
    /// Adds an audit record. Ignored if the session is unknown. May delete a few old records.
    Audit(AuditRecord),
    /// Reserves sequence numbers.
    ReserveSeq {
        /// The last reserved number.
        through: ServerSeq,
    },
    /// Records a clean shutdown. The last write of a host.
    CleanShutdown {
        /// The last sequence number that was used.
        seq: ServerSeq,
        /// Recent actions that clients may have missed. Those of deleted channels are not
        /// stored, except for the number of the first action, from which the list is
        /// complete.
        replay: Vec<StoredEnvelope>,
        /// The clients and their snapshots.
        clients: Vec<StoredClient>,
    },
}
