//! Observers: consumers inside the process that receive committed actions as typed
//! values.
//!
//! A commit queues its action to every observer of the channel in its own critical
//! section, so an observer receives the actions of all its channels in order of their
//! sequence numbers. The queue is bounded: if an observer falls behind, its queue is
//! cleared, it receives [`Observed::Lagged`], and it reads the state with
//! [`StateObserver::resync`]. Rejected actions and turns loaded for one client are not
//! commits and are not observed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ahp_types::actions::StateAction;
use tokio::sync::Notify;

use super::super::frame::Action;
use super::super::snapshot::ChannelState;
use super::StateStore;
use crate::channel::{ChannelKind, ChannelUri};
use crate::ids::ServerSeq;

/// Capacity of an observer's queue: four seconds of 1,000 deltas per second, and many
/// large tool results. A full queue is cleared, and the observer receives
/// [`Observed::Lagged`]: reading the state is cheaper than processing more items than
/// this.
const CAPACITY: Capacity = Capacity { items: 4096, bytes: 16 * 1024 * 1024 };

/// The channels an observer follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObserverScope {
    /// One channel, which need not exist yet.
    Channel(ChannelUri),
    /// Every channel of this kind.
    Kind(ChannelKind),
    /// Every channel.
    All,
}

impl ObserverScope {
    fn covers(&self, channel: &ChannelUri, kind: ChannelKind) -> bool {
        match self {
            Self::Channel(wanted) => wanted == channel,
            Self::Kind(wanted) => *wanted == kind,
            Self::All => true,
        }
    }
}

/// A change of a channel.
#[derive(Clone, Debug, PartialEq)]
pub enum Observed {
    /// An action was committed.
    Action {
        /// The channel.
        channel: ChannelUri,
        /// The action's sequence number.
        seq: ServerSeq,
        /// The action, shared by all observers.
        action: Arc<StateAction>,
    },
    /// A channel was created. Its initial state is not an action; use
    /// [`StateObserver::resync`] to read it.
    Created(ChannelUri),
    /// A channel was removed.
    Removed(ChannelUri),
    /// The queue was full and items were dropped. An observer that keeps a copy of the state
    /// must call [`StateObserver::resync`] before it applies another action.
    Lagged,
}

/// Receives the changes of the channels in a scope. Dropping it ends the observation.
#[derive(Debug)]
pub struct StateObserver {
    store: Weak<StateStore>,
    id: ObserverId,
    queue: Arc<ObserverQueue>,
}

impl StateObserver {
    /// The next item; `None` if the store was dropped. Cancel-safe: a cancelled call does
    /// not lose an item.
    pub async fn next(&mut self) -> Option<Observed> {
        loop {
            let changed = self.queue.changed.notified();
            {
                let mut items = self.queue.lock();
                if let Some(item) = items.take() {
                    return Some(item);
                }
                if items.closed {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// Reads every channel of the scope and clears the queue in one critical section: the
    /// next item is the first change after the state that `look` saw. Returns the
    /// sequence number of that state, or `None` if the store was dropped.
    ///
    /// `look` runs under the store's lock: it must be short and must not use the store.
    pub fn resync(&mut self, mut look: impl FnMut(&ChannelUri, &ChannelState)) -> Option<ServerSeq> {
        let store = self.store.upgrade()?;
        let inner = store.lock();
        self.queue.lock().clear();
        let scope = inner.observers.scope(self.id)?;
        if let ObserverScope::Channel(uri) = scope {
            if let Some(channel) = inner.channels.get(uri) {
                look(uri, &channel.state);
            }
        } else {
            let covered =
                |(uri, channel): &(&ChannelUri, &super::Channel)| scope.covers(uri, channel.state.kind());
            for (uri, channel) in inner.channels.iter().filter(covered) {
                look(uri, &channel.state);
            }
        }
        Some(inner.seq)
    }
}

impl Drop for StateObserver {
    fn drop(&mut self) {
        if let Some(store) = self.store.upgrade() {
            store.lock().observers.remove(self.id);
        }
    }
}

impl StateStore {
    /// Observes the channels of a scope, starting with the next commit. To read the
    /// earlier state, call [`StateObserver::resync`] first.
    pub fn observe(self: &Arc<Self>, scope: ObserverScope) -> StateObserver {
        self.observe_with(scope, CAPACITY)
    }

    fn observe_with(self: &Arc<Self>, scope: ObserverScope, capacity: Capacity) -> StateObserver {
        let queue = Arc::new(ObserverQueue::new(capacity));
        let id = self.lock().observers.add(scope, Arc::clone(&queue));
        StateObserver { store: Arc::downgrade(self), id, queue }
    }
}

/// Identifies an observer within its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ObserverId(u64);

/// All observers of a store. If there are none, a commit only checks an empty list.
#[derive(Debug, Default)]
pub(super) struct Observers {
    registered: Vec<Registered>,
    next_id: u64,
}

#[derive(Debug)]
struct Registered {
    id: ObserverId,
    scope: ObserverScope,
    queue: Arc<ObserverQueue>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl Observers {
    /// Queues a committed action.
    pub(super) fn committed(&self, channel: &ChannelUri, kind: ChannelKind, seq: ServerSeq, action: &Action) {
        for observer in self.of(channel, kind) {
            let item =
                Observed::Action { channel: channel.clone(), seq, action: Arc::clone(action.shared()) };
            observer.queue.push(item, action.encoded_len());
        }
    }

    /// Queues the creation of a channel.
    pub(super) fn created(&self, channel: &ChannelUri, kind: ChannelKind) {
        for observer in self.of(channel, kind) {
            observer.queue.push(Observed::Created(channel.clone()), 0);
        }
    }

    /// Queues the removal of a channel.
    pub(super) fn removed(&self, channel: &ChannelUri, kind: ChannelKind) {
        for observer in self.of(channel, kind) {
            observer.queue.push(Observed::Removed(channel.clone()), 0);
        }
    }

    fn of(&self, channel: &ChannelUri, kind: ChannelKind) -> impl Iterator<Item = &Registered> {
        self.registered.iter().filter(move |observer| observer.scope.covers(channel, kind))
    }

    fn add(&mut self, scope: ObserverScope, queue: Arc<ObserverQueue>) -> ObserverId {
        let id = ObserverId(self.next_id);
        self.next_id += 1;
        self.registered.push(Registered { id, scope, queue });
        id
    }

    fn remove(&mut self, id: ObserverId) {
        self.registered.retain(|observer| observer.id != id);
    }

    fn scope(&self, id: ObserverId) -> Option<&ObserverScope> {
        self.registered.iter().find(|observer| observer.id == id).map(|observer| &observer.scope)
    }
}

/// Capacity of an observer's queue.
#[derive(Clone, Copy, Debug)]
struct Capacity {
    items: usize,
    /// Maximum size of the encoded actions. A single action of any size is accepted if
    /// the queue is empty.
    bytes: usize,
}

/// The queue of one observer.
#[derive(Debug)]
struct ObserverQueue {
    items: Mutex<Items>,
    capacity: Capacity,
    /// Notifies the observer.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Items {
    /// The items with their sizes.
    waiting: VecDeque<(Observed, usize)>,
    /// Sum of the sizes.
    bytes: usize,
    /// Whether items were dropped before the first queued one.
    lagged: bool,
    /// Whether the store was dropped.
    closed: bool,
}

impl ObserverQueue {
    fn new(capacity: Capacity) -> Self {
        Self { items: Mutex::default(), capacity, changed: Notify::new() }
    }

    fn push(&self, item: Observed, size: usize) {
        let mut items = self.lock();
        let Capacity { items: most, bytes } = self.capacity;
        if items.waiting.len() >= most || (!items.waiting.is_empty() && items.bytes + size > bytes) {
            items.clear();
            items.lagged = true;
        }
        items.bytes += size;
        items.waiting.push_back((item, size));
        drop(items);
        self.changed.notify_one();
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Items> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Items {
    fn take(&mut self) -> Option<Observed> {
        if std::mem::take(&mut self.lagged) {
            return Some(Observed::Lagged);
        }
        let (item, size) = self.waiting.pop_front()?;
        self.bytes -= size;
        Some(item)
    }

    fn clear(&mut self) {
        self.waiting = VecDeque::new();
        self.bytes = 0;
        self.lagged = false;
    }
}

#[cfg(test)]
#[path = "observers_tests.rs"]
mod tests;
