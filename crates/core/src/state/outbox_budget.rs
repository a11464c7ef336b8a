//! The memory that all outboxes may use together.
//!
//! Each outbox reports what its frames occupy, until they are written. Above the limit,
//! outboxes are closed until the rest fits, in the order of what they occupy times how
//! long their client has not read. One outbox may exceed the limit, so that a client can
//! still receive a single response of any size.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::outbox::Outbox;

/// Bytes that all outboxes except the largest may occupy by default: four that reach
/// their own limit, or a large snapshot for each of a hundred clients that reconnect at
/// once.
const DEFAULT_LIMIT: usize = 256 * 1024 * 1024;

/// Growth between two checks of all outboxes, since a check takes longer than a publish.
const STEP: usize = 4 * 1024 * 1024;

/// Occupied bytes after which it is worth returning free memory to the system.
const MUCH: usize = 24 * 1024 * 1024;

/// Occupied bytes at which most of that memory is free.
const LITTLE: usize = 8 * 1024 * 1024;

/// The sum of all outboxes of a host.
#[derive(Debug)]
pub(super) struct OutboxBudget {
    /// Bytes that all outboxes except the largest may occupy.
    limit: AtomicUsize,
    /// Bytes that the frames of all outboxes occupy.
    occupied: AtomicUsize,
    /// Growth above the limit for which the last check found no outbox to close.
    tolerated: AtomicUsize,
    outboxes: Mutex<Vec<Weak<Outbox>>>,
    /// Whether much memory was occupied since the last notification.
    grown: AtomicBool,
    /// Notified when little memory is occupied after it was much.
    drained: Notify,
}

/// What an outbox contributes to the decision which one to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OutboxLoad {
    /// Occupied bytes times the time without progress in milliseconds.
    pub(super) pressure: u128,
    /// Occupied bytes.
    pub(super) occupied: usize,
}

impl Default for OutboxBudget {
    fn default() -> Self {
        Self {
            limit: AtomicUsize::new(DEFAULT_LIMIT),
            occupied: AtomicUsize::default(),
            tolerated: AtomicUsize::default(),
            outboxes: Mutex::default(),
            grown: AtomicBool::default(),
            drained: Notify::default(),
        }
    }
}

impl OutboxBudget {
    /// Replaces the default limit.
    pub(super) fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Adds an outbox, which reports its changes from now on.
    pub(super) fn add(self: &Arc<Self>, outbox: &Arc<Outbox>) {
        let mut outboxes = self.lock();
        outboxes.retain(|each| each.strong_count() > 0);
        outboxes.push(Arc::downgrade(outbox));
        drop(outboxes);
        outbox.join(self);
    }

    /// Records that an outbox occupied `before` bytes and now occupies `after`.
    pub(super) fn changed(&self, before: usize, after: usize) {
        if after >= before {
            let occupied = self.occupied.fetch_add(after - before, Ordering::Relaxed) + (after - before);
            if occupied > MUCH {
                self.grown.store(true, Ordering::Relaxed);
            }
            return;
        }
        let occupied = self.occupied.fetch_sub(before - after, Ordering::Relaxed) - (before - after);
        if occupied < LITTLE && self.grown.swap(false, Ordering::Relaxed) {
            self.drained.notify_one();
        }
    }

    /// Closes outboxes while they exceed the limit. The caller holds no outbox's lock.
    pub(super) fn enforce(&self) {
        let (occupied, limit) = (self.occupied.load(Ordering::Relaxed), self.limit.load(Ordering::Relaxed));
        if occupied <= limit {
            if self.tolerated.load(Ordering::Relaxed) != 0 {
                self.tolerated.store(0, Ordering::Relaxed);
            }
            return;
        }
        if occupied <= limit + self.tolerated.load(Ordering::Relaxed) {
            return;
        }
        self.close_heaviest(limit);
        let left = self.occupied.load(Ordering::Relaxed);
        self.tolerated.store((left + STEP).saturating_sub(limit), Ordering::Relaxed);
    }

    fn close_heaviest(&self, limit: usize) {
        let now = Instant::now();
        let outboxes: Vec<Arc<Outbox>> = self.lock().iter().filter_map(Weak::upgrade).collect();
        let mut loads: Vec<(OutboxLoad, &Arc<Outbox>)> =
            outboxes.iter().map(|outbox| (outbox.load(now), outbox)).collect();
        loads.sort_unstable_by_key(|(load, _)| *load);
        let mut occupied: usize = loads.iter().map(|(load, _)| load.occupied).sum();
        let largest = |loads: &[(OutboxLoad, &Arc<Outbox>)]| {
            loads.iter().map(|(load, _)| load.occupied).max().unwrap_or_default()
        };
        while occupied - largest(&loads) > limit {
            let Some((load, outbox)) = loads.pop() else { return };
            outbox.evict();
            occupied -= load.occupied;
        }
    }

    /// Waits until little memory is occupied after it was much.
    pub(super) async fn drained(&self) {
        self.drained.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Outbox>>> {
        self.outboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "outbox_budget_tests.rs"]
mod tests;
