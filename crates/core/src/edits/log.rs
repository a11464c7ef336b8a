//! The interface of the edit log for the rest of the host.

use std::fmt;
use std::sync::Arc;

use ahp_types::common::Uri;
use bytes::Bytes;

use super::{
    BlobDigest, ChangeList, ChangeOperation, ChangeScope, EditRecorder, EditScope, EditStorageError,
    NoRecorder, OperationReport, SessionChangeCounts,
};
use crate::agent::BoxFuture;
use crate::channel::ChannelUri;

/// Records edits, computes changesets and takes changes back.
pub trait EditLog: Send + Sync + fmt::Debug + 'static {
    /// Whether it records edits. Clients see changesets only then.
    fn records_edits(&self) -> bool {
        true
    }

    /// A recorder for a chat's agent.
    fn recorder(&self, scope: EditScope) -> Arc<dyn EditRecorder>;

    /// The net changes of a scope.
    fn changes(&self, scope: ChangeScope) -> BoxFuture<Result<ChangeList, EditError>>;

    /// The counts of a session.
    fn counts(&self, session: ChannelUri) -> BoxFuture<Result<SessionChangeCounts, EditError>>;

    /// Runs an operation. All files that it changes are changed, or none.
    fn operate(&self, operation: ChangeOperation) -> BoxFuture<Result<OperationReport, EditError>>;

    /// Sets whether the user reviewed files of a scope. An address that is not in the scope is
    /// an error.
    fn review(&self, scope: ChangeScope, files: Vec<Uri>, reviewed: bool)
    -> BoxFuture<Result<(), EditError>>;

    /// Reads a stored content; `None` if it does not exist.
    fn read_blob(&self, digest: BlobDigest) -> BoxFuture<Result<Option<Bytes>, EditError>>;

    /// The line diff of two stored contents as JSON, for the page; `None` for an absent file.
    fn diff(
        &self,
        before: Option<BlobDigest>,
        after: Option<BlobDigest>,
    ) -> BoxFuture<Result<Option<Bytes>, EditError>>;

    /// Waits until the log of a session changes, and returns all sessions whose log changed
    /// since the last call. One consumer.
    fn changed_sessions(&self) -> BoxFuture<Vec<ChannelUri>>;

    /// Copies the records of some turns to another chat, which was forked from them.
    fn fork(
        &self,
        from: ChannelUri,
        to: (ChannelUri, ChannelUri),
        turns: Vec<String>,
    ) -> BoxFuture<Result<(), EditError>>;

    /// Moves a chat's records to another session.
    fn move_chat(&self, chat: ChannelUri, to: ChannelUri) -> BoxFuture<Result<(), EditError>>;

    /// Deletes the records of a chat.
    fn remove_chat(&self, chat: ChannelUri) -> BoxFuture<Result<(), EditError>>;

    /// Deletes all data of a session.
    fn remove_session(&self, session: ChannelUri) -> BoxFuture<Result<(), EditError>>;
}

/// Why the edit log failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The request does not fit the changeset.
    #[error("{0}")]
    Invalid(String),
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] EditStorageError),
    /// A file could not be read or written; nothing was changed.
    #[error("cannot change {path}: {reason}; nothing was changed")]
    File {
        /// The file.
        path: String,
        /// The system's error text.
        reason: String,
    },
    /// The host stopped before the work was done.
    #[error("the host is shutting down")]
    Closed,
}

/// An edit log that records nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEdits;

fn ready<T: Send + 'static>(value: T) -> BoxFuture<Result<T, EditError>> {
    Box::pin(std::future::ready(Ok(value)))
}

impl EditLog for NoEdits {
    fn records_edits(&self) -> bool {
        false
    }

    fn recorder(&self, _: EditScope) -> Arc<dyn EditRecorder> {
        NoRecorder::shared()
    }

    fn changes(&self, _: ChangeScope) -> BoxFuture<Result<ChangeList, EditError>> {
        ready(ChangeList::default())
    }

    fn counts(&self, _: ChannelUri) -> BoxFuture<Result<SessionChangeCounts, EditError>> {
        ready(SessionChangeCounts::default())
    }

    fn operate(&self, _: ChangeOperation) -> BoxFuture<Result<OperationReport, EditError>> {
        ready(OperationReport::default())
    }

    fn review(&self, _: ChangeScope, _: Vec<Uri>, _: bool) -> BoxFuture<Result<(), EditError>> {
        ready(())
    }

    fn read_blob(&self, _: BlobDigest) -> BoxFuture<Result<Option<Bytes>, EditError>> {
        ready(None)
    }

    fn diff(
        &self,
        _: Option<BlobDigest>,
        _: Option<BlobDigest>,
    ) -> BoxFuture<Result<Option<Bytes>, EditError>> {
        ready(None)
    }

    fn changed_sessions(&self) -> BoxFuture<Vec<ChannelUri>> {
        Box::pin(std::future::pending())
    }

    fn fork(
        &self,
        _: ChannelUri,
        _: (ChannelUri, ChannelUri),
        _: Vec<String>,
    ) -> BoxFuture<Result<(), EditError>> {
        ready(())
    }

    fn move_chat(&self, _: ChannelUri, _: ChannelUri) -> BoxFuture<Result<(), EditError>> {
        ready(())
    }

    fn remove_chat(&self, _: ChannelUri) -> BoxFuture<Result<(), EditError>> {
        ready(())
    }

    fn remove_session(&self, _: ChannelUri) -> BoxFuture<Result<(), EditError>> {
        ready(())
    }
}
