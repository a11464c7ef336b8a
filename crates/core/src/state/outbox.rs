//! What waits to be written to one connection.
//!
//! `push` never waits and never drops a single frame: when the bound is reached
//! the connection as a whole is given up, with a reason, and the client comes
//! back for a snapshot. One writer takes everything that waits in one go.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::frame::Frame;

/// Frames that may wait for a client. At 1,000 deltas a second this is more than
/// half a minute of a client that reads nothing at all.
const MAX_FRAMES: usize = 32_768;

/// Bytes that may wait for a client: a large snapshot and a good while of
/// streaming behind it.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// The queue of one connection. When it is full the connection is closed.
#[derive(Debug, Default)]
pub struct Outbox {
    queue: Mutex<Queue>,
    /// Wakes the one writer.
    changed: Notify,
    /// Wakes whoever waits for the end.
    closing: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<Frame>,
    bytes: usize,
    closed: Option<CloseReason>,
}

/// Why a connection is not written to any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client did not read fast enough.
    TooSlow,
    /// The host is going away.
    Shutdown,
    /// The client went away.
    ClientGone,
    /// The two sides speak no common version of the protocol.
    NoCommonVersion,
    /// The client sent a message that is larger than this host takes.
    MessageTooLarge,
    /// The client sent too much that is no message of the protocol.
    TooMuchGarbage,
    /// The client did not say who it is in time.
    NoHandshake,
}

impl Outbox {
    /// Queues a frame, or gives the connection up if it is too far behind.
    pub fn push(&self, frame: Frame) {
        let mut queue = self.lock();
        if queue.closed.is_some() {
            return;
        }
        if queue.frames.len() >= MAX_FRAMES || queue.bytes.saturating_add(frame.len()) > MAX_BYTES {
            queue.closed = Some(CloseReason::TooSlow);
            queue.frames.clear();
            self.closing.notify_waiters();
        } else {
            queue.bytes += frame.len();
            queue.frames.push_back(frame);
        }
        drop(queue);
        self.changed.notify_one();
    }

    /// Lets what waits go out, then closes the connection.
    pub fn close(&self, reason: CloseReason) {
        self.lock().closed.get_or_insert(reason);
        self.changed.notify_one();
        self.closing.notify_waiters();
    }

    /// Waits until the connection is to be closed, also while something is being
    /// written to it that never ends.
    pub async fn closing(&self) {
        loop {
            let closing = self.closing.notified();
            if self.lock().closed.is_some() {
                return;
            }
            closing.await;
        }
    }

    /// Takes everything that waits, or the reason why nothing will come. Cancel-safe.
    pub async fn next_batch(&self) -> Result<Vec<Frame>, CloseReason> {
        loop {
            if let Some(batch) = self.try_batch() {
                return batch;
            }
            self.changed.notified().await;
        }
    }

    /// Takes everything that waits now, without waiting for more.
    pub fn try_batch(&self) -> Option<Result<Vec<Frame>, CloseReason>> {
        let mut queue = self.lock();
        if !queue.frames.is_empty() {
            queue.bytes = 0;
            return Some(Ok(queue.frames.drain(..).collect()));
        }
        queue.closed.map(Err)
    }

    /// Bytes that wait to be taken.
    pub fn waiting_bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Why the connection ends, once that is decided.
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_come_out_in_one_batch_in_order() {
        let outbox = Outbox::default();
        for size in [1, 2, 3] {
            outbox.push(Frame::of_size(size));
        }
        let sizes: Vec<usize> = outbox.next_batch().await.unwrap().iter().map(Frame::len).collect();
        assert_eq!(sizes, [1, 2, 3]);
    }

    #[tokio::test]
    async fn a_client_that_is_too_far_behind_is_closed_and_not_given_a_gap() {
        let outbox = Outbox::default();
        for _ in 0..3 {
            outbox.push(Frame::of_size(MAX_BYTES / 2 - 16));
        }
        outbox.push(Frame::of_size(1));
        assert_eq!(outbox.next_batch().await.unwrap_err(), CloseReason::TooSlow);
    }

    #[tokio::test]
    async fn what_was_queued_before_a_close_still_goes_out() {
        let outbox = Outbox::default();
        outbox.push(Frame::of_size(1));
        outbox.close(CloseReason::Shutdown);
        outbox.push(Frame::of_size(1));
        assert_eq!(outbox.next_batch().await.unwrap().len(), 1);
        assert_eq!(outbox.next_batch().await.unwrap_err(), CloseReason::Shutdown);
    }
}
