//! A queue that is bounded by the bytes it holds.
//!
//! Owns the items between a producer that never waits and one consumer that does. The producer learns that
//! the queue is full or closed and decides what that means; nothing is dropped silently.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Why an item was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The queue holds as many bytes as it may.
    Full,
    /// Nobody takes items out any more.
    Closed,
}

/// A queue of items that each weigh some bytes.
#[derive(Debug)]
pub(crate) struct ByteQueue<T> {
    state: Mutex<State<T>>,
    /// Told of every item and of the closing.
    changed: Notify,
    /// The most bytes that are held. A single item above it is taken if nothing else is held.
    limit: usize,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    closed: bool,
}

impl<T> ByteQueue<T> {
    pub(crate) fn new(limit: usize) -> Self {
        let state = State { items: VecDeque::new(), bytes: 0, closed: false };
        Self { state: Mutex::new(state), changed: Notify::new(), limit }
    }

    /// Appends an item unless the queue is full or closed.
    pub(crate) fn push(&self, item: T, weight: usize) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.closed {
            return Err(Refused::Closed);
        }
        if !state.items.is_empty() && state.bytes.saturating_add(weight) > self.limit {
            return Err(Refused::Full);
        }
        state.append(item, weight);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Appends a last item, also to a full queue, and closes it. Does nothing to a closed queue.
    pub(crate) fn finish(&self, item: T) {
        let mut state = self.lock();
        if !state.closed {
            state.append(item, 0);
            state.closed = true;
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Takes no more items; those that are held can still be taken out.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    /// Takes no more items and gives back those that are held.
    pub(crate) fn abandon(&self) -> Vec<T> {
        let mut state = self.lock();
        state.closed = true;
        state.bytes = 0;
        let items = std::mem::take(&mut state.items);
        drop(state);
        self.changed.notify_one();
        items.into_iter().map(|(item, _)| item).collect()
    }

    /// The next item if there is one now.
    pub(crate) fn try_pop(&self) -> Option<T> {
        self.lock().take().map(|(item, _)| item)
    }

    /// The next item, waiting for it; nothing once the queue is closed and empty. Cancel-safe. For one
    /// consumer alone.
    pub(crate) async fn pop(&self) -> Option<T> {
        self.pop_weighed().await.map(|(item, _)| item)
    }

    /// The next item as [`Self::pop`] gives it, with its weight.
    pub(crate) async fn pop_weighed(&self) -> Option<(T, usize)> {
        loop {
            // A push after this look leaves a permit behind, so the wait below cannot miss it.
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

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // The state is whole after every statement, so a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
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
    async fn items_come_out_in_order_and_a_closed_queue_ends_after_them() {
        let queue = ByteQueue::new(10);
        queue.push('a', 4).unwrap();
        queue.push('b', 4).unwrap();
        queue.finish('c');
        assert_eq!(queue.push('d', 1), Err(Refused::Closed));
        let mut out = Vec::new();
        while let Some(item) = queue.pop().await {
            out.push(item);
        }
        assert_eq!(out, ['a', 'b', 'c']);
    }

    #[test]
    fn a_full_queue_refuses_until_something_is_taken() {
        let queue = ByteQueue::new(10);
        queue.push('a', 8).unwrap();
        assert_eq!(queue.push('b', 3), Err(Refused::Full));
        assert_eq!(queue.try_pop(), Some('a'));
        queue.push('b', 3).unwrap();
    }

    #[test]
    fn one_item_above_the_limit_is_taken_alone() {
        let queue = ByteQueue::new(10);
        queue.push('a', 100).unwrap();
        assert_eq!(queue.push('b', 1), Err(Refused::Full));
    }

    #[tokio::test]
    async fn a_waiting_consumer_is_woken_by_an_item_and_by_the_closing() {
        let queue = ByteQueue::new(10);
        let (item, ()) = tokio::join!(queue.pop(), async { queue.push(1, 1).unwrap() });
        assert_eq!(item, Some(1));
        let (item, ()) = tokio::join!(queue.pop(), async { queue.close() });
        assert_eq!(item, None);
    }
}
