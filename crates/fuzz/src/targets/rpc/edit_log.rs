//! An edit log with one changed file, for which every operation succeeds without an effect.

use std::sync::Arc;

use ahp_types::common::Uri;
use ahp_types::state::FileEdit;
use bytes::Bytes;
use innkeeper_core::ChannelUri;
use innkeeper_core::agent::BoxFuture;
use innkeeper_core::edits::{
    BlobDigest, ChangeList, ChangeOperation, ChangeScope, ChangedFile, EditError, EditLog, EditRecorder,
    EditScope, NoEdits, OperationReport, SessionChangeCounts,
};

/// The changed file.
const FILE: &str = "file:///a";

/// An edit log with one changed file.
#[derive(Debug)]
pub(super) struct OneFileLog;

impl EditLog for OneFileLog {
    fn recorder(&self, scope: EditScope) -> Arc<dyn EditRecorder> {
        NoEdits.recorder(scope)
    }

    fn changes(&self, _: ChangeScope) -> BoxFuture<Result<ChangeList, EditError>> {
        let file = ChangedFile {
            uri: FILE.to_owned(),
            edit: FileEdit::default(),
            sources: Vec::new(),
            reviewed: false,
            overlaps: false,
            mixed: false,
            not_undoable: None,
        };
        let list =
            ChangeList { files: vec![file], omitted: 1, limits: Vec::new(), redo: Some("undo".to_owned()) };
        Box::pin(std::future::ready(Ok(list)))
    }

    fn counts(&self, session: ChannelUri) -> BoxFuture<Result<SessionChangeCounts, EditError>> {
        NoEdits.counts(session)
    }

    fn operate(&self, operation: ChangeOperation) -> BoxFuture<Result<OperationReport, EditError>> {
        NoEdits.operate(operation)
    }

    fn review(
        &self,
        scope: ChangeScope,
        files: Vec<Uri>,
        reviewed: bool,
    ) -> BoxFuture<Result<(), EditError>> {
        NoEdits.review(scope, files, reviewed)
    }

    fn read_blob(&self, digest: BlobDigest) -> BoxFuture<Result<Option<Bytes>, EditError>> {
        NoEdits.read_blob(digest)
    }

    fn diff(
        &self,
        before: Option<BlobDigest>,
        after: Option<BlobDigest>,
    ) -> BoxFuture<Result<Option<Bytes>, EditError>> {
        NoEdits.diff(before, after)
    }

    fn changed_sessions(&self) -> BoxFuture<Vec<ChannelUri>> {
        NoEdits.changed_sessions()
    }

    fn fork(
        &self,
        from: ChannelUri,
        to: (ChannelUri, ChannelUri),
        turns: Vec<String>,
    ) -> BoxFuture<Result<(), EditError>> {
        NoEdits.fork(from, to, turns)
    }

    fn move_chat(&self, chat: ChannelUri, to: ChannelUri) -> BoxFuture<Result<(), EditError>> {
        NoEdits.move_chat(chat, to)
    }

    fn remove_chat(&self, chat: ChannelUri) -> BoxFuture<Result<(), EditError>> {
        NoEdits.remove_chat(chat)
    }

    fn remove_session(&self, session: ChannelUri) -> BoxFuture<Result<(), EditError>> {
        NoEdits.remove_session(session)
    }
}
