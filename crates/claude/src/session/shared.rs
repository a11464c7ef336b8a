//! The state that a session's task shares with its handles.
//!
//! Owns the subscribers and hooks, the status, the record, and the data of the running runtime. Only the
//! task changes them, except for the two lists. Locks are held only briefly.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use uuid::Uuid;

use super::artifact::{Artifact, Recorder};
use super::hooks::{Follower, Hook, Members, tell};
use super::options::SessionOptions;
use super::status::Status;
use crate::controls::Controls;
use crate::event::SessionEvent;
use crate::runtime::Initialized;

/// The shared state of a session.
pub(super) struct SharedSession {
    pub(super) followers: Arc<Members<Follower>>,
    pub(super) hooks: Arc<Members<Hook>>,
    pub(super) status: watch::Sender<Status>,
    recorder: Mutex<Recorder>,
    live: Mutex<Option<LiveRuntime>>,
    fork_source: Mutex<ForkSource>,
}

/// Data of the running runtime.
#[derive(Debug)]
pub(super) struct LiveRuntime {
    pub(super) controls: Controls,
    pub(super) pid: Option<u32>,
    pub(super) initialized: Initialized,
}

/// The data needed to create a fork.
#[derive(Debug)]
struct ForkSource {
    options: SessionOptions,
    conversation: Uuid,
    /// Whether the conversation has messages.
    established: bool,
}

impl SharedSession {
    pub(super) fn new(options: &SessionOptions) -> Self {
        let conversation = options.launch.conversation.id();
        Self {
            followers: Arc::default(),
            hooks: Arc::default(),
            status: watch::Sender::new(Status::Idle),
            recorder: Mutex::new(Recorder::new(conversation, options.clock.now())),
            live: Mutex::new(None),
            fork_source: Mutex::new(ForkSource {
                options: options.clone(),
                conversation,
                established: false,
            }),
        }
    }

    /// Records an event and notifies all subscribers.
    pub(super) fn announce(&self, event: &SessionEvent) {
        lock(&self.recorder).record(event);
        tell(&self.followers, event);
    }

    pub(super) fn record(&self, write: impl FnOnce(&mut Recorder)) {
        write(&mut lock(&self.recorder));
    }

    pub(super) fn artifact(&self) -> Artifact {
        lock(&self.recorder).artifact()
    }

    pub(super) fn set_live(&self, live: Option<LiveRuntime>) {
        *lock(&self.live) = live;
    }

    pub(super) fn live<T>(&self, read: impl FnOnce(&LiveRuntime) -> T) -> Option<T> {
        lock(&self.live).as_ref().map(read)
    }

    pub(super) fn set_options(&self, options: &SessionOptions) {
        lock(&self.fork_source).options = options.clone();
    }

    pub(super) fn options(&self) -> SessionOptions {
        lock(&self.fork_source).options.clone()
    }

    /// Sets the current conversation. A new id has no messages yet.
    pub(super) fn set_conversation(&self, conversation: Uuid) {
        {
            let mut fork_source = lock(&self.fork_source);
            if fork_source.conversation == conversation {
                return;
            }
            fork_source.conversation = conversation;
            fork_source.established = false;
        }
        self.record(|recorder| recorder.conversation_is(conversation));
    }

    pub(super) fn conversation(&self) -> Uuid {
        lock(&self.fork_source).conversation
    }

    pub(super) fn set_established(&self) {
        lock(&self.fork_source).established = true;
    }

    /// The conversation, if it has messages.
    pub(super) fn established(&self) -> Option<Uuid> {
        let fork_source = lock(&self.fork_source);
        fork_source.established.then_some(fork_source.conversation)
    }

    /// Updates the status if it changed.
    pub(super) fn show(&self, status: Status) {
        self.status.send_if_modified(|shown| {
            let changed = *shown != status;
            *shown = status;
            changed
        });
    }
}

impl fmt::Debug for SharedSession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SharedSession")
            .field("status", &*self.status.borrow())
            .field("live", &lock(&self.live))
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each part is consistent after every statement, so a poisoned lock can be used.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
