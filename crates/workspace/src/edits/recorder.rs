//! Records the edits of one chat's agent.
//!
//! All work runs on threads that may block, and in the order in which the directories are
//! locked. A call that names its files claims them; any other call opens a window.
//! Invariant: when `before_call` completes, the content that the call may change is stored
//! or known to be unavailable.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use innkeeper_core::agent::BoxFuture;
use innkeeper_core::edits::{
    BlobDigest, CallOutcome, EditReach, EditRecord, EditRecorder, EditScope, PlannedEdit, RecordedEdit,
    TrackedCall,
};
use innkeeper_core::ids::TurnId;

use super::attribution::{Attributor, lock_all};
use super::claims;
use super::folding;
use super::paths;
use super::preview;
use super::registry::TrackedRoot;
use super::sessions::CachedSession;
use super::shared::LogParts;
use super::view;
use super::windows::{CallKey, CallWindow};

/// Records of a call that are kept for its result.
const MAX_CALL_RECORDS: usize = 10_000;

/// Edits in the result of a call. The changeset of the turn contains all of them.
const MAX_RESULT_EDITS: usize = 200;

/// Calls of a chat that are remembered. An agent runs few at the same time.
const MAX_CALLS: usize = 1_024;

/// The state of a recorder.
pub(crate) struct RecorderState {
    id: u64,
    /// What it works for.
    pub(crate) scope: EditScope,
    /// The records of its session.
    pub(crate) entry: Arc<CachedSession>,
    roots: Mutex<Vec<Arc<TrackedRoot>>>,
    calls: Mutex<HashMap<String, RunningCall>>,
    turn: Mutex<Option<String>>,
    /// Contents of previews, by turn.
    previews: Mutex<HashMap<String, HashSet<BlobDigest>>>,
}

/// A call that was announced.
#[derive(Clone, Debug)]
struct RunningCall {
    turn: String,
    reach: CallReach,
    in_background: bool,
    records: Vec<EditRecord>,
    /// Contents that its records will refer to.
    held: HashSet<BlobDigest>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum CallReach {
    Files(Vec<PathBuf>),
    Window,
}

impl fmt::Debug for RecorderState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RecorderState").field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl RecorderState {
    pub(crate) fn new(id: u64, scope: EditScope, entry: Arc<CachedSession>) -> Self {
        Self {
            id,
            scope,
            entry,
            roots: Mutex::default(),
            calls: Mutex::default(),
            turn: Mutex::default(),
            previews: Mutex::default(),
        }
    }

    /// Whether a directory is one of the chat's working directories.
    pub(crate) fn works_in(&self, root: &Path) -> bool {
        lock(&self.roots).iter().any(|tracked| tracked.path == root)
    }

    /// The turn that runs, if any.
    pub(crate) fn running_turn(&self) -> Option<String> {
        lock(&self.turn).clone()
    }

    /// Adds a record to the result of the call that made it.
    pub(crate) fn deliver(&self, tool_call: &str, record: &EditRecord) {
        if let Some(call) = lock(&self.calls).get_mut(tool_call)
            && !call.in_background
            && call.records.len() < MAX_CALL_RECORDS
        {
            call.records.push(record.clone());
        }
    }

    /// Contents of previews and of running calls, which no record refers to.
    pub(crate) fn held_blobs(&self) -> HashSet<BlobDigest> {
        let mut held: HashSet<BlobDigest> = lock(&self.previews).values().flatten().copied().collect();
        held.extend(lock(&self.calls).values().flat_map(|call| &call.held));
        held
    }

    /// Keeps contents until a call ends.
    pub(crate) fn hold_for_call(&self, tool_call: &str, contents: impl Iterator<Item = BlobDigest>) {
        if let Some(call) = lock(&self.calls).get_mut(tool_call) {
            call.held.extend(contents);
        }
    }

    /// Keeps the content of a preview until its turn ends.
    pub(crate) fn hold(&self, turn: &str, digest: BlobDigest) {
        lock(&self.previews).entry(turn.to_owned()).or_default().insert(digest);
    }

    /// Identifies a call of this recorder.
    pub(crate) fn key(&self, tool_call: &str) -> CallKey {
        CallKey { recorder: self.id, tool_call: tool_call.to_owned() }
    }

    /// The existing working directories. Blocks.
    pub(crate) fn roots(&self, log: &LogParts) -> Vec<Arc<TrackedRoot>> {
        let known = lock(&self.roots).clone();
        let resolved = paths::outermost(&self.scope.roots);
        let is_known = |path: &PathBuf| known.iter().any(|root| path.starts_with(&root.path));
        // The lock is not held meanwhile: the registry locks directories.
        let added: Vec<_> =
            resolved.iter().filter(|path| !is_known(path)).map(|path| log.registry.acquire(path)).collect();
        let mut roots = lock(&self.roots);
        for root in added {
            if !roots.iter().any(|known| known.path == root.path) {
                roots.push(root);
            }
        }
        roots.clone()
    }

    fn begin_turn(&self, log: &LogParts) {
        for root in self.roots(log) {
            root.tracker.start_baseline();
        }
        // Later the records are needed while directories are locked.
        if let Err(error) = self.entry.records() {
            tracing::warn!(%error, "cannot read the edit log");
        }
        self.observe_all(log, |_, _| {}, |_, _| {});
    }

    /// Observes all directories of the chat. Windows are changed before or after that.
    fn observe_all(
        &self,
        log: &LogParts,
        before: impl Fn(&Self, &mut super::windows::WindowSet),
        after: impl Fn(&Self, &mut super::windows::WindowSet),
    ) {
        let own: Vec<PathBuf> = self.roots(log).iter().map(|root| root.path.clone()).collect();
        let involved = log.registry.involved(&own);
        let mut locked = lock_all(log, &involved);
        for (_, windows) in &mut locked {
            before(self, windows);
        }
        let mut attributor = Attributor::new(log);
        attributor.observe_all(&mut locked);
        drop(attributor.finish());
        for (_, windows) in &mut locked {
            after(self, windows);
        }
    }

    fn begin_call(&self, log: &LogParts, call: TrackedCall) {
        let turn = call.turn.as_str().to_owned();
        let already = call.reach == EditReach::AnyFileAlready;
        let reach = match call.reach {
            EditReach::Files(named) => CallReach::Files(paths::targets(&named, &self.roots(log))),
            EditReach::AnyFile | EditReach::AnyFileAlready => CallReach::Window,
        };
        let running = RunningCall {
            turn: turn.clone(),
            reach: reach.clone(),
            in_background: false,
            records: Vec::new(),
            held: HashSet::new(),
        };
        let replaced = {
            let mut calls = lock(&self.calls);
            if calls.len() >= MAX_CALLS && !calls.contains_key(&call.tool_call) {
                tracing::warn!(call = %call.tool_call, "too many running calls; its edits are not recorded");
                return;
            }
            calls.insert(call.tool_call.clone(), running)
        };
        let key = self.key(&call.tool_call);
        if let Some(replaced) = replaced.filter(|replaced| replaced.reach != reach) {
            self.withdraw(log, &key, &replaced.reach);
        }
        match reach {
            CallReach::Files(files) => claims::begin(log, self, &key, &files),
            CallReach::Window => self.open_window(log, &key, turn, already),
        }
    }

    /// Ends what an earlier announcement of a call began. Nothing that changed is its work.
    fn withdraw(&self, log: &LogParts, key: &CallKey, reach: &CallReach) {
        match reach {
            CallReach::Files(files) => claims::withdraw(log, key, files),
            CallReach::Window => self.observe_all(log, |_, windows| drop(windows.close(key)), |_, _| {}),
        }
    }

    fn open_window(&self, log: &LogParts, key: &CallKey, turn: String, already: bool) {
        let roots = self.roots(log);
        for root in &roots {
            root.tracker.start_baseline();
            if !already && !root.wait_ready(log.config.baseline_wait) {
                let status = root.tracker.status();
                tracing::info!(root = %root.path.display(), ?status, "a command runs before all contents are recorded");
            }
        }
        let window = CallWindow {
            key: key.clone(),
            session: self.scope.session.clone(),
            chat: self.scope.chat.clone(),
            turn,
            roots: roots.iter().map(|root| root.path.clone()).collect(),
            in_background: false,
        };
        // Without a window of this call, changes since it was announced first are not its own.
        self.observe_all(
            log,
            |_, windows| if already { windows.open(window.clone()) } else { drop(windows.close(key)) },
            |_, windows| windows.open(window.clone()),
        );
    }

    fn end_call(&self, log: &LogParts, tool_call: &str, outcome: &CallOutcome) -> Vec<RecordedEdit> {
        let key = self.key(tool_call);
        let known = lock(&self.calls).get(tool_call).map(|call| (call.turn.clone(), call.reach.clone()));
        let records = match known {
            Some((turn, CallReach::Files(files))) => {
                let records = claims::end(log, self, &turn, &key, &files, outcome);
                lock(&self.calls).remove(tool_call);
                records
            }
            Some((_, CallReach::Window)) if outcome.in_background => {
                self.observe_all(log, |_, _| {}, |_, windows| windows.continue_in_background(&key));
                let mut calls = lock(&self.calls);
                let call = calls.get_mut(tool_call);
                call.map_or_else(Vec::new, |call| {
                    call.in_background = true;
                    std::mem::take(&mut call.records)
                })
            }
            Some((_, CallReach::Window)) => self.close_window(log, tool_call),
            None => self.end_unannounced(log, &key, outcome),
        };
        recorded_edits(log, &records)
    }

    fn end_unannounced(&self, log: &LogParts, key: &CallKey, outcome: &CallOutcome) -> Vec<EditRecord> {
        let (Some((path, _)), Some(turn)) = (&outcome.original, self.running_turn()) else {
            return Vec::new();
        };
        let files = paths::targets(std::slice::from_ref(path), &self.roots(log));
        claims::end(log, self, &turn, key, &files, outcome)
    }

    /// Observes the directories, then closes the window of a call.
    fn close_window(&self, log: &LogParts, tool_call: &str) -> Vec<EditRecord> {
        let key = self.key(tool_call);
        self.observe_all(log, |_, _| {}, |_, windows| drop(windows.close(&key)));
        lock(&self.calls).remove(tool_call).map(|call| call.records).unwrap_or_default()
    }

    fn end_background(&self, log: &LogParts, tool_call: &str) {
        let is_window = lock(&self.calls).get(tool_call).is_some_and(|call| call.reach == CallReach::Window);
        if is_window {
            drop(self.close_window(log, tool_call));
        }
    }

    fn end_turn(&self, log: &LogParts, turn: &str, continuing: &HashSet<String>) {
        let ended: Vec<String> = lock(&self.calls)
            .iter()
            .filter(|(id, call)| call.turn == turn && !call.in_background && !continuing.contains(*id))
            .map(|(id, _)| id.clone())
            .collect();
        for tool_call in &ended {
            drop(self.end_call(log, tool_call, &CallOutcome::default()));
        }
        lock(&self.previews).remove(turn);
        let mut running = lock(&self.turn);
        if running.as_deref() == Some(turn) {
            *running = None;
        }
    }
}

/// The edits of a call: one per file, whatever the number of its records.
fn recorded_edits(log: &LogParts, records: &[EditRecord]) -> Vec<RecordedEdit> {
    let edits = || {
        let files = folding::fold(records, log)?;
        view::store_links(log.storage.as_ref(), files.values())?;
        let mut edits = Vec::new();
        for change in folding::shown(files.values()).into_iter().take(MAX_RESULT_EDITS) {
            let (before, after) = view::versions_of(&change);
            let counts = log.line_counts.counts(before, after, log)?;
            let source = change.main().sources.first().copied();
            edits
                .extend(source.map(|source| RecordedEdit { edit: view::file_edit(&change, counts), source }));
        }
        Ok::<_, innkeeper_core::edits::EditStorageError>(edits)
    };
    edits().unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read the edits of a call");
        Vec::new()
    })
}

/// The recorder of a chat's agent.
#[derive(Debug)]
pub(crate) struct LocalRecorder {
    log: Arc<LogParts>,
    state: Arc<RecorderState>,
}

impl LocalRecorder {
    pub(crate) fn new(log: Arc<LogParts>, scope: EditScope) -> Self {
        let entry = log.sessions.entry(&scope.session);
        let state = log.registry.add(|id| RecorderState::new(id, scope, entry));
        Self { log, state }
    }

    /// Runs work that blocks. Work that the end of the host cancels has no result.
    fn run<T: Default + Send + 'static>(
        &self,
        work: impl FnOnce(&LogParts, &RecorderState) -> T + Send + 'static,
    ) -> BoxFuture<T> {
        let (log, state) = (Arc::clone(&self.log), Arc::clone(&self.state));
        Box::pin(async move {
            let result = tokio::task::spawn_blocking(move || work(&log, &state)).await;
            result.unwrap_or_else(|error| {
                tracing::warn!(%error, "recording edits failed");
                T::default()
            })
        })
    }
}

impl EditRecorder for LocalRecorder {
    fn begin_turn(&self, turn: &TurnId) {
        *lock(&self.state.turn) = Some(turn.as_str().to_owned());
        let (log, state) = (Arc::clone(&self.log), Arc::clone(&self.state));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn_blocking(move || state.begin_turn(&log)));
        }
    }

    fn before_call(&self, call: TrackedCall) -> BoxFuture<()> {
        self.run(move |log, state| state.begin_call(log, call))
    }

    fn after_call(&self, tool_call: String, outcome: CallOutcome) -> BoxFuture<Vec<RecordedEdit>> {
        self.run(move |log, state| state.end_call(log, &tool_call, &outcome))
    }

    fn background_ended(&self, tool_call: String) -> BoxFuture<()> {
        self.run(move |log, state| state.end_background(log, &tool_call))
    }

    fn preview(&self, turn: TurnId, planned: Vec<PlannedEdit>) -> BoxFuture<Vec<RecordedEdit>> {
        self.run(move |log, state| preview::preview(log, state, turn.as_str(), planned))
    }

    fn end_turn(&self, turn: TurnId, continuing: HashSet<String>) -> BoxFuture<()> {
        self.run(move |log, state| state.end_turn(log, turn.as_str(), &continuing))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
