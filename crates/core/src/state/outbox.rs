//! The send queue of one connection.
//!
//! `push` never waits and never drops a single frame. A long queue is merged first; if it
//! still exceeds its limit, the whole connection is closed with a reason, and the client
//! reconnects for the actions that it missed. One writer task takes all queued frames at
//! once. Frames leave in the order in which they were queued. A frame that may be delayed
//! holds back later frames only until one is queued that may not.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::frame::Frame;
use super::merge::coalesce;
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
}

#[derive(Debug, Default)]
struct Queue {
    frames: Vec<Frame>,
    bytes: usize,
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
            queue.closed = Some(CloseReason::TooSlow);
            queue.frames = Vec::new();
            queue.reset();
            self.closing.notify_waiters();
            self.taken.notify_waiters();
            true
        };
        drop(queue);
        if wake {
            self.changed.notify_one();
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

    /// Takes all queued frames once they are due, or returns the close reason.
    /// Cancel-safe.
    pub async fn next_batch(&self) -> Result<Vec<Frame>, CloseReason> {
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
            (std::mem::take(&mut queue.frames), queue.reset())
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

impl Queue {
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
mod tests {
    use super::super::frame::{Action, envelope};
    use super::*;
    use crate::channel::ChannelUri;
    use crate::ids::ServerSeq;

    #[tokio::test]
    async fn queued_frames_are_taken_in_one_batch_in_order() {
        let outbox = Outbox::default();
        for size in [1, 2, 3] {
            outbox.push(Frame::of_size(size));
        }
        let sizes: Vec<usize> = outbox.next_batch().await.unwrap().iter().map(Frame::len).collect();
        assert_eq!(sizes, [1, 2, 3]);
    }

    #[tokio::test]
    async fn full_queue_closes_connection() {
        let outbox = Outbox::default();
        for _ in 0..5 {
            outbox.push(Frame::of_size(LARGE - 16));
        }
        outbox.push(Frame::of_size(1));
        assert_eq!(outbox.next_batch().await.unwrap_err(), CloseReason::TooSlow);
    }

    #[tokio::test]
    async fn one_frame_of_any_size_is_accepted_beyond_limit() {
        let outbox = Outbox::default();
        outbox.push(Frame::of_size(2 * MAX_BYTES));
        outbox.push(Frame::of_size(LARGE + 1));
        outbox.push(Frame::of_size(1));
        assert_eq!(
            outbox.next_batch().await.unwrap().len(),
            3,
            "a second large frame counts toward the limit"
        );
        outbox.push(Frame::of_size(1));
        outbox.push(Frame::of_size(2 * MAX_BYTES));
        outbox.push(Frame::of_size(LARGE));
        assert_eq!(outbox.next_batch().await.unwrap().len(), 3);
        for _ in 0..2 {
            outbox.push(Frame::of_size(LARGE + 1));
            assert_eq!(outbox.next_batch().await.unwrap().len(), 1);
        }
        outbox.push(Frame::of_size(2 * MAX_BYTES));
        outbox.push(Frame::of_size(MAX_BYTES + 1));
        assert_eq!(outbox.next_batch().await.unwrap_err(), CloseReason::TooSlow);
    }

    #[tokio::test(start_paused = true)]
    async fn room_resolves_when_queue_drains_or_closes() {
        let (outbox, patience) = (Outbox::default(), Duration::from_secs(60));
        outbox.push(Frame::of_size(ROOM));
        outbox.room().await;
        outbox.push(Frame::of_size(1));
        assert!(tokio::time::timeout(patience, outbox.room()).await.is_err());
        let taking = async {
            tokio::task::yield_now().await;
            outbox.next_batch().await.unwrap()
        };
        assert_eq!(tokio::join!(outbox.room(), taking).1.len(), 2);
        outbox.push(Frame::of_size(ROOM + 1));
        let taking_less = async {
            tokio::task::yield_now().await;
            // Simulate that the queue was merged.
            outbox.lock().bytes = 1;
            outbox.next_batch().await.unwrap()
        };
        tokio::time::timeout(patience, async { tokio::join!(outbox.room(), taking_less) }).await.unwrap();
        outbox.push(Frame::of_size(2 * MAX_BYTES));
        let closing = async {
            tokio::task::yield_now().await;
            outbox.close(CloseReason::ClientGone);
        };
        tokio::join!(outbox.room(), closing);
    }

    #[tokio::test]
    async fn queued_frames_are_sent_before_close() {
        let outbox = Outbox::default();
        outbox.push(Frame::of_size(1));
        outbox.close(CloseReason::Shutdown);
        outbox.push(Frame::of_size(1));
        assert_eq!(outbox.next_batch().await.unwrap().len(), 1);
        assert_eq!(outbox.next_batch().await.unwrap_err(), CloseReason::Shutdown);
    }

    fn text(seq: u64) -> Frame {
        let action = serde_json::json!({"type": "chat/delta", "turnId": "t", "partId": "p", "content": "x"});
        let action = Action::own(serde_json::from_value(action).unwrap());
        envelope(&ChannelUri::new("x:/1"), &action, ServerSeq(seq), None, None).unwrap()
    }

    /// Publishes with its own write load.
    fn publish(outbox: &Outbox, frame: Frame, delivery: Delivery) {
        outbox.publish(frame, delivery, &mut WriteLoad::default(), Instant::now());
    }

    /// Returns the milliseconds until the next batch and its number of frames.
    async fn next(outbox: &Outbox, since: Instant) -> (u128, usize) {
        let frames = outbox.next_batch().await.unwrap();
        (since.elapsed().as_millis(), frames.len())
    }

    #[tokio::test(start_paused = true)]
    async fn isolated_frames_are_written_without_delay() {
        let (outbox, since, mut load) = (Outbox::default(), Instant::now(), WriteLoad::default());
        for (number, millis) in [0, 0, 0, 1, 1, 5, 50].into_iter().enumerate() {
            tokio::time::advance(Duration::from_millis(millis)).await;
            let published = since.elapsed().as_millis();
            outbox.publish(text(number as u64), Delivery::default(), &mut load, Instant::now());
            assert_eq!(next(&outbox, since).await, (published, 1), "frame {number}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn frames_are_gathered_while_the_load_is_high() {
        let (outbox, since, mut load) = (Outbox::default(), Instant::now(), WriteLoad::default());
        let gather = GATHER.as_millis();
        while !load.is_high(since) {
            load.count(since);
        }
        outbox.publish(text(1), Delivery::default(), &mut load, since);
        assert_eq!(next(&outbox, since).await, (0, 1), "the first frame after a pause");
        outbox.publish(text(2), Delivery::default(), &mut load, since);
        outbox.publish(text(3), Delivery::default(), &mut load, since);
        assert_eq!(next(&outbox, since).await, (gather, 2));
        for _ in 0..1_000 {
            load.count(Instant::now());
        }
        outbox.publish(text(4), Delivery::within_millis(0), &mut load, Instant::now());
        assert_eq!(next(&outbox, since).await, (gather, 1), "a subscriber that wants no delay");
        tokio::time::advance(Duration::from_millis(500)).await;
        outbox.publish(text(5), Delivery::default(), &mut load, Instant::now());
        assert_eq!(next(&outbox, since).await, (gather + 500, 1));
        outbox.publish(text(6), Delivery::default(), &mut load, Instant::now());
        assert_eq!(next(&outbox, since).await, (gather + 500, 1), "the load is low again");
    }

    #[tokio::test(start_paused = true)]
    async fn sustained_flood_is_gathered() {
        let (outbox, since, mut load) = (Outbox::default(), Instant::now(), WriteLoad::default());
        let (mut writes, mut last) = (0, 0);
        for seq in 0..20_000 {
            outbox.publish(text(seq), Delivery::default(), &mut load, Instant::now());
            tokio::select! {
                biased;
                batch = outbox.next_batch() => {
                    drop(batch.unwrap());
                    (writes, last) = (writes + 1, seq);
                }
                () = std::future::ready(()) => assert!(seq - last <= 600, "a frame was delayed by more than 6 ms"),
            }
            tokio::time::advance(Duration::from_micros(10)).await;
        }
        assert_eq!(since.elapsed().as_millis(), 200);
        assert!((100..=5_000).contains(&writes), "{writes} writes for 20000 frames in 200 ms");
    }

    #[tokio::test(start_paused = true)]
    async fn stream_to_many_connections_is_gathered() {
        let mut load = WriteLoad::default();
        let outboxes: Vec<Outbox> = (0..500).map(|_| Outbox::default()).collect();
        let mut writes = 0;
        for seq in 0..100 {
            for outbox in &outboxes {
                outbox.publish(text(seq), Delivery::default(), &mut load, Instant::now());
            }
            for outbox in &outboxes {
                tokio::select! {
                    biased;
                    batch = outbox.next_batch() => {
                        drop(batch.unwrap());
                        writes += 1;
                    }
                    () = std::future::ready(()) => {}
                }
            }
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        // The first frames are sent immediately, then one batch every 6 ms.
        assert!(writes <= 500 * 18, "{writes} writes for 100 frames to 500 connections in 100 ms");
    }

    #[tokio::test(start_paused = true)]
    async fn delayed_frames_are_merged_when_due() {
        let (outbox, since) = (Outbox::default(), Instant::now());
        for seq in 1..=10 {
            publish(&outbox, text(seq), Delivery::within_millis(200));
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        assert_eq!(next(&outbox, since).await, (200, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn response_flushes_delayed_frames() {
        let (outbox, since) = (Outbox::default(), Instant::now());
        publish(&outbox, text(1), Delivery::within_millis(i64::MAX));
        outbox.push(Frame::of_size(1));
        assert_eq!(next(&outbox, since).await, (0, 2));
        publish(&outbox, text(2), Delivery::within_millis(i64::MAX));
        assert_eq!(next(&outbox, since).await, (MAX_HOLD.as_millis(), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn response_wakes_delayed_writer() {
        let (outbox, since) = (Outbox::default(), Instant::now());
        publish(&outbox, text(1), Delivery::within_millis(500));
        let answer = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            outbox.push(Frame::of_size(1));
        };
        assert_eq!(tokio::join!(next(&outbox, since), answer).0, (20, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn delayed_frames_are_sent_immediately_on_close() {
        let (outbox, since) = (Outbox::default(), Instant::now());
        publish(&outbox, text(1), Delivery::within_millis(500));
        outbox.close(CloseReason::Shutdown);
        assert_eq!(next(&outbox, since).await, (0, 1));
        assert_eq!(outbox.next_batch().await.unwrap_err(), CloseReason::Shutdown);
    }
}
