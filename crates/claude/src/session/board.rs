//! What a session's task shows to its handles.
//!
//! Owns the parts that both sides see: who follows and hooks in, the status, the record, and what is known of
//! the live runtime. Only the task changes them, but for the two lists. Every lock is short.

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

/// The shared parts of a session.
pub(super) struct Board {
    pub(super) followers: Arc<Members<Follower>>,
    pub(super) hooks: Arc<Members<Hook>>,
    pub(super) status: watch::Sender<Status>,
    recorder: Mutex<Recorder>,
    live: Mutex<Option<LiveRuntime>>,
    identity: Mutex<Identity>,
}

/// What is known of the runtime that runs.
#[derive(Debug)]
pub(super) struct LiveRuntime {
    pub(super) controls: Controls,
    pub(super) pid: Option<u32>,
    pub(super) initialized: Initialized,
}

/// What another session would be made from.
#[derive(Debug)]
struct Identity {
    options: SessionOptions,
    conversation: Uuid,
    /// Whether the conversation has messages.
    established: bool,
}

impl Board {
    pub(super) fn new(options: &SessionOptions) -> Self {
        let conversation = options.launch.conversation.id();
        Self {
            followers: Arc::default(),
            hooks: Arc::default(),
            status: watch::Sender::new(Status::Idle),
            recorder: Mutex::new(Recorder::new(conversation, options.clock.now())),
            live: Mutex::new(None),
            identity: Mutex::new(Identity { options: options.clone(), conversation, established: false }),
        }
    }

    /// Writes an event down and tells everybody of it.
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
        lock(&self.identity).options = options.clone();
    }

    pub(super) fn options(&self) -> SessionOptions {
        lock(&self.identity).options.clone()
    }

    /// The conversation goes on under this id. One that it did not have before has no messages yet.
    pub(super) fn set_conversation(&self, conversation: Uuid) {
        {
            let mut identity = lock(&self.identity);
            if identity.conversation == conversation {
                return;
            }
            identity.conversation = conversation;
            identity.established = false;
        }
        self.record(|recorder| recorder.conversation_is(conversation));
    }

    pub(super) fn conversation(&self) -> Uuid {
        lock(&self.identity).conversation
    }

    pub(super) fn set_established(&self) {
        lock(&self.identity).established = true;
    }

    /// The conversation, once it has messages.
    pub(super) fn established(&self) -> Option<Uuid> {
        let identity = lock(&self.identity);
        identity.established.then_some(identity.conversation)
    }

    /// Shows a status, if it is another one.
    pub(super) fn show(&self, status: Status) {
        self.status.send_if_modified(|shown| {
            let changed = *shown != status;
            *shown = status;
            changed
        });
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Board")
            .field("status", &*self.status.borrow())
            .field("live", &lock(&self.live))
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each part is whole after every statement, so a panic elsewhere leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
