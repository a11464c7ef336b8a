//! An edit log without files: the test sets what it contains and answers its operations.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahp_types::common::Uri;
use ahp_types::state::FileEdit;
use bytes::Bytes;
use innkeeper_core::ChannelUri;
use innkeeper_core::agent::BoxFuture;
use innkeeper_core::edits::{
    BlobDigest, ChangeList, ChangeOperation, ChangeScope, ChangeSelection, ChangedFile, EditError, EditLog,
    EditRecorder, EditScope, EditSource, NoRecorder, OperationReport, SessionChangeCounts,
};
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

/// An edit log that a test scripts. Clones share everything.
#[derive(Clone, Debug, Default)]
pub struct ScriptedEditLog {
    inner: Arc<Mutex<Script>>,
    changed: Arc<Notify>,
    /// Notified when an operation is added to those that wait.
    arrived: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Script {
    lists: HashMap<ChannelUri, ChangeList>,
    of_turns: HashMap<Vec<String>, ChangeList>,
    counts: HashMap<ChannelUri, SessionChangeCounts>,
    times_counted: usize,
    blobs: HashMap<BlobDigest, Bytes>,
    failure: Option<EditError>,
    scopes: Vec<ChangeScope>,
    changed: BTreeSet<ChannelUri>,
    housekeeping: Vec<EditHousekeeping>,
    operations: VecDeque<PendingOperation>,
}

/// An operation that waits for the test's answer.
#[derive(Debug)]
pub struct PendingOperation {
    /// The operation.
    pub operation: ChangeOperation,
    answer: oneshot::Sender<Result<OperationReport, EditError>>,
}

impl PendingOperation {
    /// Ends the operation.
    pub fn answer(self, result: Result<OperationReport, EditError>) {
        // The host may have stopped waiting.
        self.answer.send(result).ok();
    }
}

/// A change of the whole log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditHousekeeping {
    /// Turns of the first chat were copied to the second one.
    Forked(ChannelUri, ChannelUri, Vec<String>),
    /// A chat was moved to a session.
    Moved(ChannelUri, ChannelUri),
    /// A chat was removed.
    ChatRemoved(ChannelUri),
    /// A session was removed.
    SessionRemoved(ChannelUri),
}

impl ScriptedEditLog {
    /// Sets the changes of a session, for all of its changesets.
    pub fn show(&self, session: &str, list: ChangeList) {
        let session = ChannelUri::new(session);
        self.script().lists.insert(session.clone(), list);
        self.report(&session);
    }

    /// Sets the changes of these turns.
    pub fn show_turns(&self, turns: &[&str], list: ChangeList) {
        let turns = turns.iter().map(|turn| (*turn).to_owned()).collect();
        self.script().of_turns.insert(turns, list);
    }

    /// Sets the counts of a session.
    pub fn count(&self, session: &str, counts: SessionChangeCounts) {
        let session = ChannelUri::new(session);
        self.script().counts.insert(session.clone(), counts);
        self.report(&session);
    }

    /// Makes reading changesets fail, or work again.
    pub fn fail(&self, session: &str, failure: Option<EditError>) {
        self.script().failure = failure;
        self.report(&ChannelUri::new(session));
    }

    /// Stores a content.
    pub fn store(&self, content: &[u8]) -> BlobDigest {
        let digest = BlobDigest::of(content);
        self.script().blobs.insert(digest, Bytes::copy_from_slice(content));
        digest
    }

    /// How often counts were read so far.
    pub fn times_counted(&self) -> usize {
        self.script().times_counted
    }

    /// The scopes that were read so far.
    pub fn scopes(&self) -> Vec<ChangeScope> {
        self.script().scopes.clone()
    }

    /// The changes of the whole log so far.
    pub fn housekeeping(&self) -> Vec<EditHousekeeping> {
        self.script().housekeeping.clone()
    }

    /// Waits for the next operation of a client.
    pub async fn operation(&self) -> PendingOperation {
        loop {
            let next = self.script().operations.pop_front();
            if let Some(operation) = next {
                return operation;
            }
            self.arrived.notified().await;
        }
    }

    /// Reports that the log of a session changed.
    pub fn report(&self, session: &ChannelUri) {
        self.script().changed.insert(session.clone());
        self.changed.notify_one();
    }

    /// A changed file, in memory only.
    pub fn file(uri: &str, added: i64) -> ChangedFile {
        let side = |content: &str| {
            let digest = BlobDigest::of(content.as_bytes());
            json!({"uri": uri, "content": {"uri": format!("innkeeper-blob:/{digest}/file")}})
        };
        let edit: Value = json!({
            "before": side("before"), "after": side(&added.to_string()), "diff": {"added": added, "removed": 0},
        });
        let edit: FileEdit = serde_json::from_value(edit).unwrap_or_default();
        ChangedFile {
            uri: uri.to_owned(),
            edit,
            sources: vec![EditSource::Tool],
            reviewed: false,
            overlaps: false,
            mixed: false,
            not_undoable: None,
        }
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, note: EditHousekeeping) -> BoxFuture<Result<(), EditError>> {
        self.script().housekeeping.push(note);
        ready(Ok(()))
    }
}

fn ready<T: Send + 'static>(value: T) -> BoxFuture<T> {
    Box::pin(std::future::ready(value))
}

impl EditLog for ScriptedEditLog {
    fn recorder(&self, _: EditScope) -> Arc<dyn EditRecorder> {
        NoRecorder::shared()
    }

    fn changes(&self, scope: ChangeScope) -> BoxFuture<Result<ChangeList, EditError>> {
        let mut script = self.script();
        let of_turns = match &scope.selection {
            ChangeSelection::Turns(turns) => script.of_turns.get(turns),
            ChangeSelection::All | ChangeSelection::Uncommitted => None,
        };
        let list = of_turns.or_else(|| script.lists.get(&scope.session)).cloned().unwrap_or_default();
        script.scopes.push(scope);
        ready(script.failure.clone().map_or(Ok(list), Err))
    }

    fn counts(&self, session: ChannelUri) -> BoxFuture<Result<SessionChangeCounts, EditError>> {
        let mut script = self.script();
        script.times_counted += 1;
        ready(Ok(script.counts.get(&session).cloned().unwrap_or_default()))
    }

    fn operate(&self, operation: ChangeOperation) -> BoxFuture<Result<OperationReport, EditError>> {
        let (answer, answered) = oneshot::channel();
        self.script().operations.push_back(PendingOperation { operation, answer });
        self.arrived.notify_one();
        Box::pin(async move { answered.await.unwrap_or(Err(EditError::Closed)) })
    }

    fn review(
        &self,
        scope: ChangeScope,
        files: Vec<Uri>,
        reviewed: bool,
    ) -> BoxFuture<Result<(), EditError>> {
        let mut script = self.script();
        if let Some(failure) = script.failure.clone() {
            return ready(Err(failure));
        }
        let list = script.lists.entry(scope.session.clone()).or_default();
        for file in list.files.iter_mut().filter(|file| files.contains(&file.uri)) {
            file.reviewed = reviewed;
        }
        drop(script);
        self.report(&scope.session);
        ready(Ok(()))
    }

    fn read_blob(&self, digest: BlobDigest) -> BoxFuture<Result<Option<Bytes>, EditError>> {
        ready(Ok(self.script().blobs.get(&digest).cloned()))
    }

    fn diff(
        &self,
        before: Option<BlobDigest>,
        after: Option<BlobDigest>,
    ) -> BoxFuture<Result<Option<Bytes>, EditError>> {
        let script = self.script();
        let text = |digest: BlobDigest| {
            script.blobs.get(&digest).map(|content| String::from_utf8_lossy(content).into_owned())
        };
        let is_known = |digest: Option<BlobDigest>| digest.is_none_or(|digest| text(digest).is_some());
        let found = is_known(before) && is_known(after);
        let diff = json!({"before": before.and_then(text), "after": after.and_then(text)});
        ready(Ok(found.then(|| diff.to_string().into())))
    }

    fn changed_sessions(&self) -> BoxFuture<Vec<ChannelUri>> {
        let log = self.clone();
        Box::pin(async move {
            loop {
                let changed = std::mem::take(&mut log.script().changed);
                if !changed.is_empty() {
                    return changed.into_iter().collect();
                }
                log.changed.notified().await;
            }
        })
    }

    fn fork(
        &self,
        from: ChannelUri,
        to: (ChannelUri, ChannelUri),
        turns: Vec<String>,
    ) -> BoxFuture<Result<(), EditError>> {
        self.note(EditHousekeeping::Forked(from, to.1, turns))
    }

    fn move_chat(&self, chat: ChannelUri, to: ChannelUri) -> BoxFuture<Result<(), EditError>> {
        self.note(EditHousekeeping::Moved(chat, to))
    }

    fn remove_chat(&self, chat: ChannelUri) -> BoxFuture<Result<(), EditError>> {
        self.note(EditHousekeeping::ChatRemoved(chat))
    }

    fn remove_session(&self, session: ChannelUri) -> BoxFuture<Result<(), EditError>> {
        self.note(EditHousekeeping::SessionRemoved(session))
    }
}
