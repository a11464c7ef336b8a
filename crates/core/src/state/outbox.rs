//! The send queue of one connection.
//!
//! `push` never waits and never drops a single frame. A long queue is merged first; if it
//! still exceeds its limit, the whole connection is closed with a reason, and the client
//! reconnects for the actions that it missed. One writer task takes all queued frames at
//! once. Frames leave in the order in which they were queued. A frame that may be delayed
//! holds back later frames only until one is queued that may not. All outboxes together
//! have a limit, too (`outbox_budget`).

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::frame::Frame;
use super::merge::coalesce;
use super::outbox_budget::{OutboxBudget, OutboxLoad};
use super::write_load::WriteLoad;

/// Maximum number of queued frames: more than 30 seconds of 1,000 unmergeable deltas per
/// second to a client that does not read.
const MAX_FRAMES: usize = 32_768;

/// Maximum number of queued bytes: a large snapshot and a long stream after it.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Bytes that may be queued before a request with a potentially large response is
/// handled. The limit is high because the client's later messages wait with that request.
const ROOM: usize = MAX_BYTES / 4;

/// Frames above this size would leave too little space for others, or exceed the limit
/// alone. A client that reads fast enough must not be closed because of their size, so
/// one such frame may be queued in addition to the limit, but not a second one.
const LARGE: usize = MAX_BYTES / 4;

/// Number of unmerged frames from which the queue is merged. A client that keeps up never
/// reaches it and receives every action as published.
const MERGE_FROM: usize = 256;

/// Minimum time between two batches of published frames while the write load is high;
/// frames in between share one write. Not noticeable to a user, and saves most of the
/// writes when a fast stream has many clients. While the load is low, frames are not
/// delayed.
const GATHER: Duration = Duration::from_millis(6);

/// Maximum delay that a client can request.
const MAX_HOLD: Duration = Duration::from_secs(1);

/// How long a subscriber allows the host to delay published frames in order to merge
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// The requested delay, if any.
    hold: Option<Duration>,
}

impl Delivery {
    /// A delay of at most `millis` milliseconds, limited to one second. With 0, each
    /// frame is sent immediately and unmerged, as far as the connection keeps up.
    pub fn within_millis(millis: i64) -> Self {
        let hold = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
        Self { hold: Some(hold.min(MAX_HOLD)) }
    }
}

/// The send queue of one connection. If it is full, the connection is closed.
#[derive(Debug, Default)]
pub struct Outbox {
    queue: Mutex<Queue>,
    /// Notifies the writer task.
    changed: Notify,
    /// Notifies tasks that wait for room.
    taken: Notify,
    /// Notified when the outbox closes.
    closing: Notify,
    /// The limit of all outboxes; not set for one that is not attached.
    budget: OnceLock<Arc<OutboxBudget>>,
}

#[derive(Debug, Default)]
struct Queue {
    frames: Vec<Frame>,
    bytes: usize,
    /// Bytes that the writer took and has not written completely.
    in_flight: usize,
    /// Bytes that the budget was told of.
    reported: usize,
    /// Size of the queued frame that may exceed the limit.
    large: usize,
    /// Number of frames that were already merged.
    merged: usize,
    /// When the writer should take the frames. Set if and only if frames are queued.
    due: Option<SendTime>,
    /// When the writer took the last batch.
    last_batch: Option<Instant>,
    /// Whether the frames are merged when they are taken.
    held: bool,
    closed: Option<CloseReason>,
}

/// When a frame should be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SendTime {
    AtOnce,
    At(Instant),
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client did not read fast enough.
    TooSlow,
    /// The host is shutting down.
    Shutdown,
    /// The client closed the connection.
    ClientGone,
    /// Client and host do not share a protocol version.
    NoCommonVersion,
    /// The client sent a message above the size limit.
    MessageTooLarge,
    /// The client violated the transport's protocol.
    ProtocolViolation,
    /// The client sent text that is not UTF-8.
    InvalidText,
    /// The client sent too many invalid messages.
    TooMuchGarbage,
    /// The client did not complete the handshake in time.
    NoHandshake,
    /// Internal error; the client's copy of the state may be wrong.
    StateLost,
}

impl Outbox {
    /// Queues a frame that a client waits for. It is sent immediately, with all frames
    /// queued before it. Closes the connection if the queue is full.
    pub fn push(&self, frame: Frame) {
        self.enqueue(frame, |_| SendTime::AtOnce);
    }

    /// Queues a frame that the host publishes. The frame is delayed if the write load is
    /// high or the subscriber allows a delay.
    pub(super) fn publish(&self, frame: Frame, delivery: Delivery, load: &mut WriteLoad, now: Instant) {
        self.enqueue(frame, |queue| {
            let due = match (delivery.hold, queue.last_batch) {
                (None, Some(last)) if load.is_high(now) => SendTime::At(last + GATHER),
                (None | Some(Duration::ZERO), _) => SendTime::AtOnce,
                (Some(hold), _) => {
                    queue.held = true;
                    SendTime::At(now + hold)
                }
            };
            // Later frames share the write of this one until the writer takes it.
            if queue.due.is_none() {
                load.count(now);
            }
            due
        });
    }

    fn enqueue(&self, frame: Frame, due: impl FnOnce(&mut Queue) -> SendTime) {
        let mut queue = self.lock();
        if queue.closed.is_some() {
            return;
        }
        let wake = if queue.make_room(frame.len()) {
            let due = due(&mut queue);
            queue.bytes += frame.len();
            if frame.len() > LARGE {
                queue.large = queue.large.max(frame.len());
            }
            queue.frames.push(frame);
            // Notify the writer only if this frame is due earlier.
            let sooner = queue.due.is_none_or(|before| due < before);
            if sooner {
                queue.due = Some(due);
            }
            sooner
        } else {
            drop(queue);
            return self.evict();
        };
        self.report(&mut queue);
        drop(queue);
        if wake {
            self.changed.notify_one();
        }
        if let Some(budget) = self.budget.get() {
            budget.enforce();
        }
    }

    /// Closes the connection at once, because its client reads too slowly. Drops the
    /// queued frames.
    pub(super) fn evict(&self) {
        let mut queue = self.lock();
        queue.closed.get_or_insert(CloseReason::TooSlow);
        queue.frames = Vec::new();
        queue.reset();
        // The writer drops its batch soon after the close; other outboxes need not wait.
        queue.in_flight = 0;
        self.report(&mut queue);
        drop(queue);
        self.changed.notify_one();
        self.closing.notify_waiters();
        self.taken.notify_waiters();
    }

    /// Counts toward this budget from now on.
    pub(super) fn join(&self, budget: &Arc<OutboxBudget>) {
        // An outbox is attached once.
        self.budget.get_or_init(|| Arc::clone(budget));
    }

    /// What this outbox occupies, and for how long its client has not read.
    pub(super) fn load(&self, now: Instant) -> OutboxLoad {
        let queue = self.lock();
        let occupied = queue.occupied();
        let waited =
            queue.last_batch.filter(|_| queue.in_flight > 0).map_or(Duration::ZERO, |taken| now - taken);
        OutboxLoad { pressure: occupied as u128 * (waited.as_millis() + 1), occupied }
    }

    /// Reports a change of the queue to the budget.
    fn report(&self, queue: &mut Queue) {
        if let Some(budget) = self.budget.get() {
            let occupied = queue.occupied();
            budget.changed(std::mem::replace(&mut queue.reported, occupied), occupied);
        }
    }

    /// Records that the writer has written its last batch.
    fn written(&self) {
        let mut queue = self.lock();
        if queue.in_flight > 0 {
            queue.in_flight = 0;
            self.report(&mut queue);
        }
    }

    /// Closes the connection after the queued frames are sent.
    pub fn close(&self, reason: CloseReason) {
        self.lock().closed.get_or_insert(reason);
        self.changed.notify_one();
        self.closing.notify_waiters();
        self.taken.notify_waiters();
    }

    /// Waits until a response of any size can be queued, or the connection closes.
    pub async fn room(&self) {
        loop {
            let taken = self.taken.notified();
            {
                let queue = self.lock();
                if queue.closed.is_some() || queue.bytes <= ROOM {
                    return;
                }
            }
            taken.await;
        }
    }

    /// Waits until the connection is closing, even while a write to it never completes.
    pub async fn closing(&self) {
        loop {
            let closing = self.closing.notified();
            if self.lock().closed.is_some() {
                return;
            }
            closing.await;
        }
    }

    /// Takes all queued frames once they are due, or returns the close reason. The
    /// previous batch counts as written. Cancel-safe.
    pub async fn next_batch(&self) -> Result<Vec<Frame>, CloseReason> {
        self.written();
        loop {
            let due = {
                let queue = self.lock();
                if queue.closed.is_some() { Some(SendTime::AtOnce) } else { queue.due }
            };
            match due {
                Some(SendTime::At(at)) if at > Instant::now() => {
                    // Check again in either case: a more urgent frame may have been
                    // queued.
                    tokio::time::timeout_at(at, self.changed.notified()).await.ok();
                }
                Some(_) => {
                    if let Some(batch) = self.try_batch() {
                        return batch;
                    }
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// Takes all queued frames now, whether due or not.
    pub fn try_batch(&self) -> Option<Result<Vec<Frame>, CloseReason>> {
        let (mut frames, held) = {
            let mut queue = self.lock();
            if queue.frames.is_empty() {
                return queue.closed.map(Err);
            }
            queue.last_batch = Some(Instant::now());
            queue.in_flight = queue.bytes;
            let taken = (std::mem::take(&mut queue.frames), queue.reset());
            self.report(&mut queue);
            taken
        };
        // Notify always: a waiting task saw a full queue, even if little is queued now.
        self.taken.notify_waiters();
        // Merge outside of the lock, which publishers need.
        if held {
            coalesce(&mut frames, 0);
        }
        Some(Ok(frames))
    }

    /// Number of queued bytes.
    pub fn waiting_bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Why the connection closes, if it does.
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let mut queue = self.lock();
        queue.frames = Vec::new();
        queue.reset();
        queue.in_flight = 0;
        self.report(&mut queue);
    }
}

impl Queue {
    /// Memory of the queued frames and of those in flight.
    fn occupied(&self) -> usize {
        self.bytes + self.in_flight + self.frames.len() * size_of::<Frame>()
    }

    /// Makes room for a frame of this size, merging the queue if it is long. Returns
    /// whether there is room.
    fn make_room(&mut self, size: usize) -> bool {
        if self.frames.len() - self.merged >= MERGE_FROM || self.is_full(size) {
            // The last frame of the previous pass may accept more text.
            let from = self.merged.saturating_sub(1);
            self.bytes -= self.bytes_from(from);
            coalesce(&mut self.frames, from);
            self.bytes += self.bytes_from(from);
            self.merged = self.frames.len();
        }
        !self.is_full(size)
    }

    fn is_full(&self, size: usize) -> bool {
        let bytes = self.bytes.saturating_add(size);
        let allowed = match self.large {
            0 if size > LARGE => MAX_BYTES.saturating_add(size),
            large => MAX_BYTES.saturating_add(large),
        };
        self.frames.len() >= MAX_FRAMES || bytes > allowed
    }

    fn bytes_from(&self, from: usize) -> usize {
        self.frames.iter().skip(from).map(Frame::len).sum()
    }

    /// Resets the queue. Returns whether the taken frames were held for merging.
    fn reset(&mut self) -> bool {
        self.bytes = 0;
        self.large = 0;
        self.merged = 0;
        self.due = None;
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
