//! Changesets: what clients see of the edit log, as channels of the protocol.
//!
//! A channel exists while clients subscribe to it, and for a short time after that. Each has
//! one task that computes its files when it opens and again when the log changes. This module
//! owns the channels and their documents. It does not know how changes are recorded or taken
//! back; `edits` declares that. Reading a changeset starts no agent.

mod address;
mod catalogue;
mod channel_task;
mod document;
mod offers;
mod operating;
mod scope;

pub(crate) use address::ChangesetUri;
pub use operating::{OperationOutcome, OperationRequest};
pub use scope::ChangesetError;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahp_types::actions::{ChangesetClearedAction, StateAction};
use ahp_types::state::{Changeset, ChangesetState};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::channel::ChannelUri;
use crate::edits::{ChangeScope, EditLog};
use crate::state::{Action, ChannelState, CommitError, StateStore};
use offers::OperationRuns;

/// Most channels of changesets at once, for all clients together. A client that needs more
/// gets an error.
const MAX_OPEN: usize = 512;

/// Most changesets that are computed at once. The others wait.
const MAX_COMPUTING: usize = 4;

/// How long a channel stays without subscribers. A client that reconnects within this time
/// gets only what it missed.
const GRACE: Duration = Duration::from_secs(15);

/// All changesets that clients look at.
#[derive(Debug)]
pub(crate) struct Changesets {
    store: Arc<StateStore>,
    log: Arc<dyn EditLog>,
    /// Where the agents of sessions without a directory work.
    default_directory: Option<PathBuf>,
    /// The open channels. Held while a channel is created or removed.
    open: Mutex<HashMap<ChannelUri, Arc<OpenChangeset>>>,
    /// Sessions whose counts have to be computed again.
    uncounted: Mutex<HashSet<ChannelUri>>,
    /// Notified when a session is added to `uncounted`.
    count_wanted: Notify,
    computing: Semaphore,
    tasks: TaskTracker,
    /// Cancelled when the host shuts down.
    ending: CancellationToken,
}

/// A changeset with a channel.
#[derive(Debug)]
struct OpenChangeset {
    channel: ChannelUri,
    address: ChangesetUri,
    /// The part of the log that it shows. Kept for when the session is not in memory.
    scope: Mutex<ChangeScope>,
    /// When a client last used it.
    used_at: Mutex<Instant>,
    /// The number of requested computations, and a notification for the task.
    requested: AtomicU64,
    request: Notify,
    /// The number of the last request whose result is published.
    computed: watch::Sender<u64>,
    /// Held while the document is compared and changed, so that each change is based on the
    /// current document.
    publishing: Mutex<()>,
    /// Incremented by clients' changes. A result that was computed before one is obsolete.
    edition: AtomicU64,
    /// The operations of its clients run one after the other.
    operating: Semaphore,
    runs: Mutex<OperationRuns>,
    /// Cancelled when the channel is removed.
    closed: CancellationToken,
}

impl OpenChangeset {
    /// Requests a computation. Returns its number.
    fn request_computation(&self) -> u64 {
        let number = self.requested.fetch_add(1, Ordering::SeqCst) + 1;
        self.request.notify_one();
        number
    }

    /// Waits until a requested computation is published, or the channel is removed.
    async fn until_computed(&self, number: u64) {
        let mut computed = self.computed.subscribe();
        tokio::select! {
            () = self.closed.cancelled() => {}
            // The sender lives as long as this value.
            _ = computed.wait_for(|computed| *computed >= number) => {}
        }
    }
}

impl Changesets {
    pub(crate) fn new(
        store: Arc<StateStore>,
        log: Arc<dyn EditLog>,
        default_directory: Option<PathBuf>,
        tasks: TaskTracker,
        ending: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            log,
            default_directory,
            open: Mutex::default(),
            uncounted: Mutex::default(),
            count_wanted: Notify::new(),
            computing: Semaphore::new(MAX_COMPUTING),
            tasks,
            ending,
        })
    }

    /// The address of a changeset; `None` for other channels, and if there is no edit log.
    pub(crate) fn address_of(&self, channel: &ChannelUri) -> Option<ChangesetUri> {
        ChangesetUri::parse(channel).filter(|_| self.log.records_edits())
    }

    /// The changesets of a session, for its document.
    pub(crate) fn of_session(&self, session: &ChannelUri) -> Option<Vec<Changeset>> {
        self.log.records_edits().then(|| catalogue::of_session(session))
    }

    /// The changesets of a chat, for its document.
    pub(crate) fn of_chat(&self, session: &ChannelUri, chat: &ChannelUri) -> Option<Vec<Changeset>> {
        self.log.records_edits().then(|| catalogue::of_chat(session, chat))
    }

    /// Keeps an open channel for another while. Returns whether it is open.
    pub(crate) fn touch(&self, channel: &ChannelUri) -> bool {
        let open = lock(&self.open);
        let Some(changeset) = open.get(channel) else { return false };
        *lock(&changeset.used_at) = Instant::now();
        true
    }

    /// Creates the channel of a changeset, whose session is in memory, and starts to compute
    /// it.
    pub(crate) fn open(
        self: &Arc<Self>,
        channel: &ChannelUri,
        address: ChangesetUri,
    ) -> Result<(), ChangesetError> {
        let scope = self.scope(&address)?;
        let changeset = Arc::new(OpenChangeset {
            channel: channel.clone(),
            address,
            scope: Mutex::new(scope),
            used_at: Mutex::new(Instant::now()),
            // The task computes it at once.
            requested: AtomicU64::new(1),
            request: Notify::new(),
            computed: watch::Sender::new(0),
            publishing: Mutex::default(),
            edition: AtomicU64::new(0),
            operating: Semaphore::new(1),
            runs: Mutex::default(),
            // Requests that wait for a computation end with the host.
            closed: self.ending.child_token(),
        });
        let mut open = lock(&self.open);
        if open.contains_key(channel) {
            return Ok(());
        }
        // It may have been deleted meanwhile. Later, its changesets are removed with it.
        if !self.store.has(&changeset.address.session) {
            return Err(ChangesetError::Unknown(channel.clone()));
        }
        if open.len() >= MAX_OPEN {
            return Err(ChangesetError::TooMany { limit: MAX_OPEN });
        }
        // The new document does not continue the one of an earlier channel.
        self.store.require_snapshots(std::slice::from_ref(channel));
        let state = ChannelState::Changeset(Box::new(document::computing()));
        if self.store.create(vec![(channel.clone(), state)]).is_ok() {
            open.insert(channel.clone(), Arc::clone(&changeset));
            drop(open);
            self.tasks.spawn(channel_task::run(Arc::clone(self), changeset));
        }
        Ok(())
    }

    /// Updates the changesets of a session whose log has changed.
    pub(crate) fn session_changed(&self, session: &ChannelUri) {
        for changeset in lock(&self.open).values() {
            if changeset.address.session == *session {
                changeset.request_computation();
            }
        }
    }

    /// Requests that the counts of a session are computed again.
    pub(crate) fn request_counts(&self, session: &ChannelUri) {
        if self.log.records_edits() {
            lock(&self.uncounted).insert(session.clone());
            self.count_wanted.notify_one();
        }
    }

    /// Waits until counts are requested. Returns the sessions.
    pub(crate) async fn counts_requested(&self) -> HashSet<ChannelUri> {
        loop {
            let sessions = std::mem::take(&mut *lock(&self.uncounted));
            if !sessions.is_empty() {
                return sessions;
            }
            self.count_wanted.notified().await;
        }
    }

    /// Empties the changesets of a session that is deleted and ends their tasks. Returns their
    /// channels, which the caller removes.
    pub(crate) fn end_session(&self, session: &ChannelUri) -> Vec<ChannelUri> {
        self.end_where(|address| address.session == *session)
    }

    /// Removes the changesets of a chat that is deleted or moved.
    pub(crate) fn end_chat(&self, chat: &ChannelUri) {
        let channels = self.end_where(|address| address.chat.as_ref() == Some(chat));
        self.store.remove(&channels);
    }

    fn end_where(&self, ends: impl Fn(&ChangesetUri) -> bool) -> Vec<ChannelUri> {
        let mut open = lock(&self.open);
        let ended: Vec<Arc<OpenChangeset>> = open
            .extract_if(|_, changeset| ends(&changeset.address))
            .map(|(_, changeset)| changeset)
            .collect();
        drop(open);
        for changeset in &ended {
            changeset.closed.cancel();
            let _alone = lock(&changeset.publishing);
            self.commit(changeset, StateAction::ChangesetCleared(ChangesetClearedAction {}));
        }
        ended.into_iter().map(|changeset| changeset.channel.clone()).collect()
    }

    /// Removes a channel that no client uses. Returns whether it was removed.
    fn release(&self, changeset: &OpenChangeset) -> bool {
        let mut open = lock(&self.open);
        let mut used_at = lock(&changeset.used_at);
        if self.has_audience(changeset) {
            *used_at = Instant::now();
            return false;
        }
        let unused = used_at.elapsed() >= GRACE;
        if unused && self.store.remove_unsubscribed(std::slice::from_ref(&changeset.channel)) {
            open.remove(&changeset.channel);
            changeset.closed.cancel();
            tracing::debug!(channel = %changeset.channel, "released changeset without subscribers");
            return true;
        }
        false
    }

    /// Whether clients are subscribed to a changeset.
    fn has_audience(&self, changeset: &OpenChangeset) -> bool {
        self.store.has_audience(std::slice::from_ref(&changeset.channel), None)
    }

    fn get(&self, channel: &ChannelUri) -> Option<Arc<OpenChangeset>> {
        lock(&self.open).get(channel).cloned()
    }

    /// Reads a changeset's document.
    fn read<R>(&self, changeset: &OpenChangeset, look: impl FnOnce(&ChangesetState) -> R) -> Option<R> {
        self.store.read(&changeset.channel, |state| state.changeset().map(look)).flatten()
    }

    /// Publishes an action. The caller holds `publishing`.
    fn commit(&self, changeset: &OpenChangeset, action: StateAction) {
        match self.store.commit(&changeset.channel, &Action::own(action), None) {
            // The channel was removed in the meantime.
            Ok(_) | Err(CommitError::UnknownChannel(_)) => {}
            Err(error) => {
                tracing::error!(channel = %changeset.channel, %error, "cannot publish changeset");
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "changesets/channel_tests.rs"]
mod tests;
