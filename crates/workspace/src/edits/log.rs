//! The edit log of this machine's files.

use std::path::PathBuf;
use std::sync::Arc;

use ahp_types::common::Uri;
use bytes::Bytes;
use innkeeper_core::agent::BoxFuture;
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::edits::{
    BlobDigest, ChangeList, ChangeOperation, ChangeScope, EditError, EditLog, EditRecorder, EditScope,
    EditStorage, EditStorageError, OperationKind, OperationReport, OperationTarget, SessionChangeCounts,
};

use super::changes;
use super::folding;
use super::housekeeping::Housekeeper;
use super::operate;
use super::recorder::LocalRecorder;
use super::reviews;
use super::shared::{EditLogConfig, LogParts, blocking};
use super::view;
use crate::text;

/// Records what agents change in the working directories, and takes changes back.
#[derive(Debug)]
pub struct LocalEditLog {
    parts: Arc<LogParts>,
    housekeeper: Arc<Housekeeper>,
}

impl LocalEditLog {
    /// Creates a log. Interrupted operations are repaired before the first operation, or
    /// earlier by [`Self::start`].
    pub fn new(storage: Arc<dyn EditStorage>, config: EditLogConfig) -> Self {
        Self::excluding(storage, config, Vec::new())
    }

    /// Creates a log that does not record the files in some directories as part of a directory
    /// around them, such as those of the log itself. The paths have their links resolved.
    pub fn excluding(storage: Arc<dyn EditStorage>, config: EditLogConfig, excluded: Vec<PathBuf>) -> Self {
        Self { parts: Arc::new(LogParts::new(storage, config, excluded)), housekeeper: Arc::default() }
    }

    /// Begins the background work: repairs interrupted operations, and removes contents that
    /// nothing needs now, after each removal of a session and every hour. It ends when the
    /// log is dropped.
    pub fn start(&self) {
        Housekeeper::start(&self.housekeeper, &self.parts);
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&LogParts) -> Result<T, EditError> + Send + 'static,
    ) -> BoxFuture<Result<T, EditError>> {
        let parts = Arc::clone(&self.parts);
        blocking(move || work(&parts))
    }

    /// Removes data, then requests the removal of unused contents.
    fn remove(
        &self,
        work: impl FnOnce(&LogParts) -> Result<(), EditError> + Send + 'static,
    ) -> BoxFuture<Result<(), EditError>> {
        let (parts, housekeeper) = (Arc::clone(&self.parts), Arc::clone(&self.housekeeper));
        blocking(move || {
            work(&parts)?;
            housekeeper.request();
            Ok(())
        })
    }
}

impl Drop for LocalEditLog {
    fn drop(&mut self) {
        self.housekeeper.stop();
    }
}

impl EditLog for LocalEditLog {
    fn recorder(&self, scope: EditScope) -> Arc<dyn EditRecorder> {
        Arc::new(LocalRecorder::new(Arc::clone(&self.parts), scope))
    }

    fn changes(&self, scope: ChangeScope) -> BoxFuture<Result<ChangeList, EditError>> {
        self.run(move |log| changes::list(log, &scope))
    }

    fn counts(&self, session: ChannelUri) -> BoxFuture<Result<SessionChangeCounts, EditError>> {
        self.run(move |log| changes::counts(log, &session))
    }

    fn operate(&self, operation: ChangeOperation) -> BoxFuture<Result<OperationReport, EditError>> {
        let (parts, housekeeper) = (Arc::clone(&self.parts), Arc::clone(&self.housekeeper));
        blocking(move || {
            check(&operation)?;
            if operation.kind == OperationKind::Keep {
                return keep(&parts, &operation);
            }
            housekeeper.repair(&parts)?;
            operate::operate(&parts, &operation)
        })
    }

    fn review(
        &self,
        scope: ChangeScope,
        files: Vec<Uri>,
        reviewed: bool,
    ) -> BoxFuture<Result<(), EditError>> {
        self.run(move |log| reviews::set(log, &scope, &files, reviewed))
    }

    fn read_blob(&self, digest: BlobDigest) -> BoxFuture<Result<Option<Bytes>, EditError>> {
        self.run(move |log| Ok(content_of(log, digest)?))
    }

    fn diff(
        &self,
        before: Option<BlobDigest>,
        after: Option<BlobDigest>,
    ) -> BoxFuture<Result<Option<Bytes>, EditError>> {
        self.run(move |log| {
            let mut sides = [None, None];
            for (side, digest) in sides.iter_mut().zip([before, after]) {
                let Some(digest) = digest else { continue };
                let Some(content) = content_of(log, digest)? else { return Ok(None) };
                *side = Some(content);
            }
            let [before, after] = &sides;
            let document = text::diff_document(before.as_deref(), after.as_deref());
            let json = serde_json::to_vec(&document).map_err(|error| {
                EditError::Storage(EditStorageError::Failed(format!("cannot write the diff: {error}")))
            })?;
            Ok(Some(json.into()))
        })
    }

    fn changed_sessions(&self) -> BoxFuture<Vec<ChannelUri>> {
        let parts = Arc::clone(&self.parts);
        Box::pin(async move { parts.changed.take().await })
    }

    fn fork(
        &self,
        from: ChannelUri,
        to: (ChannelUri, ChannelUri),
        turns: Vec<String>,
    ) -> BoxFuture<Result<(), EditError>> {
        self.run(move |log| {
            let (session, chat) = &to;
            let entry = log.sessions.entry(session);
            entry.changing(|| log.storage.copy_records(&from, (session, chat), &turns))?;
            log.changed.add([session.clone()]);
            Ok(())
        })
    }

    fn move_chat(&self, chat: ChannelUri, to: ChannelUri) -> BoxFuture<Result<(), EditError>> {
        self.run(move |log| {
            let entry = log.sessions.entry(&to);
            entry.changing(|| log.storage.move_records(&chat, &to))?;
            log.changed.add(log.sessions.forget_chat(&chat));
            log.changed.add([to]);
            Ok(())
        })
    }

    fn remove_chat(&self, chat: ChannelUri) -> BoxFuture<Result<(), EditError>> {
        self.remove(move |log| {
            log.storage.remove_chat(&chat)?;
            log.changed.add(log.sessions.forget_chat(&chat));
            Ok(())
        })
    }

    fn remove_session(&self, session: ChannelUri) -> BoxFuture<Result<(), EditError>> {
        self.remove(move |log| {
            let entry = log.sessions.entry(&session);
            entry.changing(|| log.storage.remove_session(&session))?;
            log.changed.add([session]);
            Ok(())
        })
    }
}

/// A stored content, or the notice that stands for one that is not available.
fn content_of(log: &LogParts, digest: BlobDigest) -> Result<Option<Bytes>, EditStorageError> {
    let stored = log.storage.read_blob(digest)?;
    Ok(stored.or_else(|| view::notice_with(digest)))
}

/// Rejects an operation whose target does not fit its kind.
fn check(operation: &ChangeOperation) -> Result<(), EditError> {
    let fits = match (operation.kind, &operation.target) {
        (OperationKind::Undo, _) | (_, OperationTarget::Changeset) => true,
        (OperationKind::Keep, target) => !matches!(target, OperationTarget::Lines { .. }),
        (OperationKind::Redo | OperationKind::Restore, _) => false,
    };
    if fits {
        Ok(())
    } else {
        Err(EditError::Invalid("the operation does not support this target".to_owned()))
    }
}

fn keep(log: &LogParts, operation: &ChangeOperation) -> Result<OperationReport, EditError> {
    let files = match &operation.target {
        OperationTarget::File(uri) | OperationTarget::Lines { uri, .. } => vec![uri.clone()],
        OperationTarget::Changeset => {
            let changes = changes::ScopeChanges::read(log, &operation.scope)?;
            let shown = folding::shown(changes.nets.values());
            shown.iter().map(|change| crate::uri_of(&change.main().path)).collect()
        }
    };
    reviews::set(log, &operation.scope, &files, true)?;
    Ok(OperationReport { changed: files, ..OperationReport::default() })
}
