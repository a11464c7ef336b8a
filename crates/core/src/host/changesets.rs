//! Changesets of the host's sessions: routes clients to them, and keeps the counts of changed
//! files and lines in the sessions up to date.

use std::sync::Arc;
use std::time::Duration;

use super::{Host, lock};
use crate::action::{Dispatched, meaning};
pub use crate::changesets::{ChangesetError, OperationOutcome, OperationRequest};
use crate::channel::ChannelUri;
use crate::edits::{EditError, EditLog};
use crate::session::ClientDispatch;
use crate::storage::StorageError;

/// The time between two updates of the counts. A turn can edit many files in a short time.
const COUNT_INTERVAL: Duration = Duration::from_millis(100);

impl Host {
    /// The edit log.
    pub fn edit_log(&self) -> &Arc<dyn EditLog> {
        &self.edits.log
    }

    /// Runs a client's operation on a changeset, which is opened if necessary. The operation
    /// continues if the caller stops waiting.
    pub async fn operate_on_changeset(
        &self,
        request: OperationRequest,
    ) -> Result<OperationOutcome, OperateError> {
        let channel = &request.channel;
        if self.changesets.address_of(channel).is_none() || !self.load(channel).await? {
            return Err(ChangesetError::Unknown(channel.clone()).into());
        }
        Ok(self.changesets.start_operation(request).await?)
    }

    /// Handles a client's action on a changeset.
    pub(super) async fn dispatch_to_changeset(&self, dispatch: &ClientDispatch, session: &ChannelUri) {
        let ClientDispatch { channel, action, ticket, .. } = dispatch;
        if !self.store.has(channel) && self.stored_session_of(session).is_none() && !self.store.has(session) {
            tracing::debug!(%channel, "ignoring action for unknown channel");
            return;
        }
        let handled = match meaning(action.typed()).dispatched() {
            Some(Dispatched::ChangesetFilesReviewChanged(changed)) => {
                self.changesets.review(channel, (action, changed), ticket.origin()).await
            }
            Some(_) | None => Err("clients may not dispatch this action on a changeset".to_owned()),
        };
        if let Err(reason) = handled
            && let Err(error) = self.store.reject(channel, action, ticket.origin(), &reason)
        {
            tracing::error!(%channel, %error, "cannot send rejection");
        }
    }

    /// Updates changesets and counts when the edit log changes.
    pub(super) async fn watch_edits(self: Arc<Self>) {
        let mut changed = self.edits.log.changed_sessions();
        loop {
            let sessions: Vec<ChannelUri> = tokio::select! {
                () = self.ending.cancelled() => return,
                sessions = &mut changed => {
                    changed = self.edits.log.changed_sessions();
                    sessions
                }
                sessions = self.changesets.counts_requested() => sessions.into_iter().collect(),
            };
            for session in &sessions {
                self.changesets.session_changed(session);
            }
            for session in sessions {
                tokio::select! {
                    () = self.ending.cancelled() => return,
                    () = self.update_counts(&session) => {}
                }
            }
            tokio::select! {
                () = self.ending.cancelled() => return,
                () = tokio::time::sleep(COUNT_INTERVAL) => {}
            }
        }
    }

    /// Sends the counts of a session's changes to the session.
    async fn update_counts(&self, session: &ChannelUri) {
        let counts = match self.edits.log.counts(session.clone()).await {
            Ok(counts) => counts,
            Err(error) => {
                tracing::warn!(%session, %error, "cannot count changes");
                return;
            }
        };
        // The session may have been deleted in the meantime.
        self.load_or_log(std::slice::from_ref(session)).await;
        let handle = lock(&self.sessions).by_uri.get(session).cloned();
        if let Some(handle) = handle {
            handle.counted(counts).await;
        }
    }
}

/// Deletes the edits of a session that is deleted. Before the session itself, so that nothing
/// is left if the host is killed in between.
pub(super) async fn remove_edits(log: &dyn EditLog, session: &ChannelUri) -> Result<(), StorageError> {
    match log.remove_session(session.clone()).await {
        Ok(()) => Ok(()),
        Err(EditError::Closed) => Err(StorageError::Busy),
        Err(error) => Err(StorageError::Failed(error.to_string())),
    }
}

/// Why an operation on a changeset failed.
#[derive(Debug, thiserror::Error)]
pub enum OperateError {
    /// The changeset or the operation does not exist, or the operation failed.
    #[error(transparent)]
    Changeset(#[from] ChangesetError),
    /// The session could not be loaded.
    #[error(transparent)]
    Load(#[from] super::LoadError),
}
