//! Runs the operations of clients on changesets, and records which files they reviewed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ahp_types::actions::{
    ChangesetFilesReviewChangedAction, ChangesetOperationStatusChangedAction, StateAction,
};
use ahp_types::state::{ChangesetFile, ChangesetOperationScope, ChangesetOperationStatus, ChangesetState};

use super::document::failed;
use super::offers::{id_of, kind_of};
use super::{ChangesetError, Changesets, OpenChangeset, lock};
use crate::channel::ChannelUri;
use crate::edits::{ChangeOperation, EditError, OperationKind, OperationReport, OperationTarget};
use crate::state::{Action, CommitError, Origin};

/// How long the result of an operation waits for the new state of the changeset.
const UPDATE_TIMEOUT: Duration = Duration::from_secs(10);

/// A client's request to run an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationRequest {
    /// The channel of the changeset.
    pub channel: ChannelUri,
    /// The id of the operation.
    pub operation: String,
    /// The files.
    pub target: OperationTarget,
    /// Whether later changes of the same lines are overwritten.
    pub force: bool,
}

/// What an operation did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationOutcome {
    /// The operation.
    pub kind: OperationKind,
    /// The files that it changed and refused.
    pub report: OperationReport,
}

impl Changesets {
    /// Runs an operation on an open changeset. Completes when the changeset shows the result.
    pub(crate) async fn operate(
        &self,
        request: OperationRequest,
    ) -> Result<OperationOutcome, ChangesetError> {
        let unknown = || ChangesetError::Unknown(request.channel.clone());
        let changeset = self.get(&request.channel).ok_or_else(unknown)?;
        // The files are not known before the first computation.
        changeset.until_computed(1).await;
        // The semaphore is never closed.
        let _alone = changeset.operating.acquire().await;
        let checked = self.read(&changeset, |state| check(state, &request));
        let (kind, target) = checked.ok_or_else(unknown)??;
        let scope = match kind {
            OperationKind::Restore => self.scope_from_turn(&changeset.address)?,
            OperationKind::Undo | OperationKind::Keep | OperationKind::Redo => self.current_scope(&changeset),
        };
        self.show(&changeset, kind, None);
        let operation = ChangeOperation { scope, kind, target, force: request.force };
        let result = self.log.operate(operation).await;
        self.show(&changeset, kind, Some(&result));
        self.session_changed(&changeset.address.session);
        let updated = changeset.until_computed(changeset.request_computation());
        if tokio::time::timeout(UPDATE_TIMEOUT, updated).await.is_err() {
            tracing::debug!(channel = %changeset.channel, "changeset is not computed yet after an operation");
        }
        Ok(OperationOutcome { kind, report: result? })
    }

    /// Shows that an operation runs, or how it ended.
    fn show(
        &self,
        changeset: &OpenChangeset,
        kind: OperationKind,
        result: Option<&Result<OperationReport, EditError>>,
    ) {
        let error = match result {
            None | Some(Ok(_)) => None,
            Some(Err(error)) => Some(error.to_string()),
        };
        let status = match (result, &error) {
            (None, _) => ChangesetOperationStatus::Running,
            (Some(_), None) => ChangesetOperationStatus::Idle,
            (Some(_), Some(_)) => ChangesetOperationStatus::Error,
        };
        let changed = ChangesetOperationStatusChangedAction {
            operation_id: id_of(kind).to_owned(),
            status,
            error: error.as_deref().map(failed),
        };
        let _alone = lock(&changeset.publishing);
        let mut runs = lock(&changeset.runs);
        if result.is_none() {
            runs.start(kind);
        } else {
            runs.end(error);
        }
        changeset.edition.fetch_add(1, Ordering::SeqCst);
        self.commit(changeset, StateAction::ChangesetOperationStatusChanged(changed));
    }

    /// Records and publishes which files a client has reviewed. The error is the rejection
    /// reason.
    pub(crate) async fn review(
        &self,
        channel: &ChannelUri,
        (action, changed): (&Action, &ChangesetFilesReviewChangedAction),
        origin: &Origin,
    ) -> Result<(), String> {
        let changeset = self.get(channel).ok_or("the changeset is not open; subscribe to it first")?;
        changeset.until_computed(1).await;
        let _alone = changeset.operating.acquire().await;
        let unknown = |state: &ChangesetState| {
            let is_known = |id: &&String| state.files.iter().any(|file| file.id == **id);
            changed.files.iter().find(|id| !is_known(id)).cloned()
        };
        match self.read(&changeset, unknown) {
            None => return Err("the changeset was removed".to_owned()),
            Some(Some(file)) => return Err(format!("{file:?} is not a file of this changeset")),
            Some(None) => {}
        }
        let scope = self.current_scope(&changeset);
        let reviewed = self.log.review(scope, changed.files.clone(), changed.reviewed).await;
        reviewed.map_err(|error| error.to_string())?;
        let published = self.publish_review(&changeset, action, origin);
        published.map_err(|error| error.to_string())?;
        self.session_changed(&changeset.address.session);
        Ok(())
    }

    fn publish_review(
        &self,
        changeset: &OpenChangeset,
        action: &Action,
        origin: &Origin,
    ) -> Result<(), CommitError> {
        let _alone = lock(&changeset.publishing);
        changeset.edition.fetch_add(1, Ordering::SeqCst);
        self.store.commit(&changeset.channel, action, Some(origin)).map(drop)
    }

    /// Runs an operation to its end, even if the caller stops waiting.
    pub(crate) fn start_operation(
        self: &Arc<Self>,
        request: OperationRequest,
    ) -> impl Future<Output = Result<OperationOutcome, ChangesetError>> + Send + use<> {
        let changesets = Arc::clone(self);
        let running = self.tasks.spawn(async move { changesets.operate(request).await });
        async { running.await.unwrap_or(Err(ChangesetError::Edit(EditError::Closed))) }
    }
}

/// Checks a request against the changeset's document. Returns the operation and its target.
fn check(
    state: &ChangesetState,
    request: &OperationRequest,
) -> Result<(OperationKind, OperationTarget), ChangesetError> {
    let refused = |reason: String| Err(ChangesetError::Refused(reason));
    let id = &request.operation;
    let offered = state.operations.iter().flatten().find(|operation| operation.id == *id);
    let (Some(offered), Some(kind)) = (offered, kind_of(id)) else {
        return refused(format!("the changeset has no operation {id:?}"));
    };
    if offered.status == ChangesetOperationStatus::Disabled {
        return refused(format!("there is nothing to {id}"));
    }
    let (scope, target) = match &request.target {
        OperationTarget::Changeset => (ChangesetOperationScope::Changeset, "the whole changeset"),
        OperationTarget::File(_) => (ChangesetOperationScope::Resource, "a file"),
        OperationTarget::Lines { .. } => (ChangesetOperationScope::Range, "a range"),
    };
    if !offered.scopes.contains(&scope) {
        return refused(format!("the operation {id:?} does not apply to {target}"));
    }
    let target = match &request.target {
        OperationTarget::Changeset => OperationTarget::Changeset,
        OperationTarget::File(uri) => OperationTarget::File(file_of(state, uri)?),
        OperationTarget::Lines { start, end, .. } if start >= end => {
            return refused("the range is empty".to_owned());
        }
        OperationTarget::Lines { uri, start, end } => {
            OperationTarget::Lines { uri: file_of(state, uri)?, start: *start, end: *end }
        }
    };
    Ok((kind, target))
}

/// The id of the file that an address names. A renamed file has two addresses.
fn file_of(state: &ChangesetState, uri: &str) -> Result<String, ChangesetError> {
    let named = |file: &&ChangesetFile| {
        let sides = [&file.edit.before, &file.edit.after];
        file.id == uri || sides.into_iter().flatten().any(|side| side.uri == uri)
    };
    let file = state.files.iter().find(named).map(|file| file.id.clone());
    file.ok_or_else(|| ChangesetError::Refused(format!("{uri:?} is not a file of this changeset")))
}
