//! A queue bounded by the total size of its items.
//!
//! Owns the items between a producer that never waits and a single consumer that does. A push to a full
//! or closed queue returns an error; the queue never drops an item silently.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Why an item was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PushError {
    /// The queue is full.
    Full,
    /// The queue is closed.
    Closed,
}

/// A queue of items with a size in bytes.
#[derive(Debug)]
pub(crate) struct ByteQueue<T> {
    state: Mutex<QueueState<T>>,
    /// Notified on push and on close.
    changed: Notify,
    /// Capacity in bytes. An empty queue accepts an item of any size.
    limit: usize,
}

#[derive(Debug)]
struct QueueState<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    closed: bool,
}

impl<T> ByteQueue<T> {
    pub(crate) fn new(limit: usize) -> Self {
        let state = QueueState { items: VecDeque::new(), bytes: 0, closed: false };
        Self { state: Mutex::new(state), changed: Notify::new(), limit }
    }

    /// Appends an item unless the queue is full or closed.
    pub(crate) fn push(&self, item: T, weight: usize) -> Result<(), PushError> {
        let mut state = self.lock();
        if state.closed {
            return Err(PushError::Closed);
        }
        if !state.items.is_empty() && state.bytes.saturating_add(weight) > self.limit {
            return Err(PushError::Full);
        }
        state.append(item, weight);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Appends a final item, even if the queue is full, and closes the queue. Does nothing if it is
    /// closed.
    pub(crate) fn finish(&self, item: T) {
        let mut state = self.lock();
        if !state.closed {
            state.append(item, 0);
            state.closed = true;
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Closes the queue; queued items can still be popped.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    /// Closes the queue and returns the queued items.
    pub(crate) fn abandon(&self) -> Vec<T> {
        let mut state = self.lock();
        state.closed = true;
        state.bytes = 0;
        let items = std::mem::take(&mut state.items);
        drop(state);
        self.changed.notify_one();
        items.into_iter().map(|(item, _)| item).collect()
    }

    /// The next item, if any.
    pub(crate) fn try_pop(&self) -> Option<T> {
        self.lock().take().map(|(item, _)| item)
    }

    /// Waits for the next item; `None` once the queue is closed and empty. Cancel-safe. Only for a single
    /// consumer.
    pub(crate) async fn pop(&self) -> Option<T> {
        self.pop_weighed().await.map(|(item, _)| item)
    }

    /// Like [`Self::pop`], with the size of the item.
    pub(crate) async fn pop_weighed(&self) -> Option<(T, usize)> {
        loop {
            // A push after this check stores a permit, so the wait below cannot miss it.
            {
                let mut state = self.lock();
                if let Some(item) = state.take() {
                    return Some(item);
                }
                if state.closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        // The state is consistent after every statement, so a poisoned lock can be used.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> QueueState<T> {
    fn append(&mut self, item: T, weight: usize) {
        self.bytes = self.bytes.saturating_add(weight);
        self.items.push_back((item, weight));
    }

    fn take(&mut self) -> Option<(T, usize)> {
        let (item, weight) = self.items.pop_front()?;
        self.bytes = self.bytes.saturating_sub(weight);
        Some((item, weight))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn items_are_popped_in_order_until_closed_queue_is_empty() {
        let queue = ByteQueue::new(10);
        queue.push('a', 4).unwrap();
        queue.push('b', 4).unwrap();
        queue.finish('c');
        assert_eq!(queue.push('d', 1), Err(PushError::Closed));
        let mut out = Vec::new();
        while let Some(item) = queue.pop().await {
            out.push(item);
        }
        assert_eq!(out, ['a', 'b', 'c']);
    }

    #[test]
    fn full_queue_rejects_items_until_one_is_popped() {
        let queue = ByteQueue::new(10);
        queue.push('a', 8).unwrap();
        assert_eq!(queue.push('b', 3), Err(PushError::Full));
        assert_eq!(queue.try_pop(), Some('a'));
        queue.push('b', 3).unwrap();
    }

    #[test]
    fn empty_queue_accepts_item_above_the_limit() {
        let queue = ByteQueue::new(10);
        queue.push('a', 100).unwrap();
        assert_eq!(queue.push('b', 1), Err(PushError::Full));
    }

    #[tokio::test]
    async fn push_and_close_wake_the_consumer() {
        let queue = ByteQueue::new(10);
        let (item, ()) = tokio::join!(queue.pop(), async { queue.push(1, 1).unwrap() });
        assert_eq!(item, Some(1));
        let (item, ()) = tokio::join!(queue.pop(), async { queue.close() });
        assert_eq!(item, None);
    }
}
