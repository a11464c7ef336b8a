//! What waits to be written to one connection.
//!
//! `push` never waits and never drops a single frame: what waits is merged first, and
//! when the bound is reached all the same, the connection as a whole is given up, with
//! a reason, and the client comes back for what it missed. One writer takes everything
//! that waits in one go. Frames leave in the order in which they came; what may wait
//! holds back what came after it only until something comes that may not.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::frame::Frame;
use super::merge::coalesce;
use super::write_load::WriteLoad;

/// Frames that may wait for a client. At 1,000 deltas a second which cannot be merged,
/// this is more than half a minute of a client that reads nothing at all.
const MAX_FRAMES: usize = 32_768;

/// Bytes that may wait for a client: a large snapshot and a good while of
/// streaming behind it.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Bytes that may wait while a request is handled whose answer may be large. Much, since
/// what a client says after such a request waits with it.
const ROOM: usize = MAX_BYTES / 4;

/// A frame larger than this would leave too little place for others, or have none itself.
/// A client that reads as fast as it can is not to blame for its size, so that it may wait
/// beside all the others; but no second one.
const LARGE: usize = MAX_BYTES / 4;

/// Frames that may wait before they are merged. A client that keeps up never has as
/// many, and gets every action as it was published.
const MERGE_FROM: usize = 256;

/// Shortest time between two batches of published frames while the load of writes is high:
/// frames within it go out in one write. Far below what a person notices, and many times
/// fewer writes when a fast stream has many clients. While the load is low nothing waits.
const GATHER: Duration = Duration::from_millis(6);

/// Longest time for which a client may have its frames held back.
const MAX_HOLD: Duration = Duration::from_secs(1);

/// How long a subscriber lets the host hold back what is published, to merge it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// What the subscriber asked for, if it did.
    hold: Option<Duration>,
}

impl Delivery {
    /// Within so many milliseconds, but at most a second; with 0 each frame by itself and
    /// at once, as far as the connection takes it.
    pub fn within_millis(millis: i64) -> Self {
        let hold = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
        Self { hold: Some(hold.min(MAX_HOLD)) }
    }
}

/// The queue of one connection. When it is full the connection is closed.
#[derive(Debug, Default)]
pub struct Outbox {
    queue: Mutex<Queue>,
    /// Wakes the one writer.
    changed: Notify,
    /// Wakes whoever waits for room.
    taken: Notify,
    /// Wakes whoever waits for the end.
    closing: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    frames: Vec<Frame>,
    bytes: usize,
    /// Size of the large frame among them, by which they may be more.
    large: usize,
    /// How many of the frames have been through a merge.
    merged: usize,
    /// When the writer is to take them. Something waits if, and only if, this is set.
    due: Option<Due>,
    /// When it took the last batch of what had been published.
    last_batch: Option<Instant>,
    /// Whether what waits is to be merged when it is taken.
    held: bool,
    closed: Option<CloseReason>,
}

/// When something is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    AtOnce,
    At(Instant),
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
    /// A fault of the host's; what the client knows may not be true any more.
    StateLost,
}

impl Outbox {
    /// Queues a frame that somebody waits for: it leaves at once, with all that is before
    /// it. Gives the connection up if it is too far behind.
    pub fn push(&self, frame: Frame) {
        self.enqueue(frame, |_| Due::AtOnce);
    }

    /// Queues a frame that the host publishes on its own. The frame waits for others if the
    /// load of writes is high or the subscriber allows a delay.
    pub(super) fn publish(&self, frame: Frame, delivery: Delivery, load: &mut WriteLoad, now: Instant) {
        self.enqueue(frame, |queue| {
            let due = match (delivery.hold, queue.last_batch) {
                (None, Some(last)) if load.is_high(now) => Due::At(last + GATHER),
                (None | Some(Duration::ZERO), _) => Due::AtOnce,
                (Some(hold), _) => {
                    queue.held = true;
                    Due::At(now + hold)
                }
            };
            // Frames that follow before the writer takes this one share its write.
            if queue.due.is_none() {
                load.count(now);
            }
            due
        });
    }

    fn enqueue(&self, frame: Frame, due: impl FnOnce(&mut Queue) -> Due) {
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
            // A writer that waits for an earlier moment anyway is left alone.
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

    /// Lets what waits go out, then closes the connection.
    pub fn close(&self, reason: CloseReason) {
        self.lock().closed.get_or_insert(reason);
        self.changed.notify_one();
        self.closing.notify_waiters();
        self.taken.notify_waiters();
    }

    /// Waits until little waits, so that an answer of any size can be queued; also ends
    /// when the connection does.
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

    /// Takes everything that waits once it is due, or the reason why nothing will come.
    /// Cancel-safe.
    pub async fn next_batch(&self) -> Result<Vec<Frame>, CloseReason> {
        loop {
            let due = {
                let queue = self.lock();
                if queue.closed.is_some() { Some(Due::AtOnce) } else { queue.due }
            };
            match due {
                Some(Due::At(at)) if at > Instant::now() => {
                    // Either way it is looked at again: something more urgent may have come.
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

    /// Takes everything that waits now, due or not, without waiting for more.
    pub fn try_batch(&self) -> Option<Result<Vec<Frame>, CloseReason>> {
        let (mut frames, held) = {
            let mut queue = self.lock();
            if queue.frames.is_empty() {
                return queue.closed.map(Err);
            }
            queue.last_batch = Some(Instant::now());
            (std::mem::take(&mut queue.frames), queue.reset())
        };
        // Whoever waits for room came when there was none, however little waited at last.
        self.taken.notify_waiters();
        // Not under the lock, which whoever publishes needs.
        if held {
            coalesce(&mut frames, 0);
        }
        Some(Ok(frames))
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

impl Queue {
    /// Makes room for one more frame of this size, by merging what waits if it has
    /// become much. Answers whether there is room.
    fn make_room(&mut self, size: usize) -> bool {
        if self.frames.len() - self.merged >= MERGE_FROM || self.is_full(size) {
            // The last frame of the pass before may take in more.
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

    /// Starts anew without frames. Answers whether those that were taken had been held.
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
        for _ in 0..5 {
            outbox.push(Frame::of_size(LARGE - 16));
        }
        outbox.push(Frame::of_size(1));
        assert_eq!(outbox.next_batch().await.unwrap_err(), CloseReason::TooSlow);
    }

    #[tokio::test]
    async fn one_frame_of_any_size_may_wait_and_room_for_others_is_left() {
        let outbox = Outbox::default();
        outbox.push(Frame::of_size(2 * MAX_BYTES));
        outbox.push(Frame::of_size(LARGE + 1));
        outbox.push(Frame::of_size(1));
        assert_eq!(outbox.next_batch().await.unwrap().len(), 3, "a second large one counts with the others");
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
    async fn whoever_waits_for_room_goes_on_when_it_is_there_or_never_will_be() {
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
            // As if what waited had been merged.
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
    async fn what_was_queued_before_a_close_still_goes_out() {
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

    /// Publishes as the only connection of a host.
    fn publish(outbox: &Outbox, frame: Frame, delivery: Delivery) {
        outbox.publish(frame, delivery, &mut WriteLoad::default(), Instant::now());
    }

    /// Milliseconds after which the next batch came, and how many frames were in it.
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
                () = std::future::ready(()) => assert!(seq - last <= 600, "a frame waits for more than 6 ms"),
            }
            tokio::time::advance(Duration::from_micros(10)).await;
        }
        assert_eq!(since.elapsed().as_millis(), 200);
        assert!((100..=5_000).contains(&writes), "{writes} writes for 20000 frames in 200 ms");
    }

    #[tokio::test(start_paused = true)]
    async fn stream_to_many_connections_is_gathered_all_the_time() {
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
        // The first frames go out at once, then one batch each 6 ms.
        assert!(writes <= 500 * 18, "{writes} writes for 100 frames to 500 connections in 100 ms");
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_wait_comes_merged_when_its_time_is_over() {
        let (outbox, since) = (Outbox::default(), Instant::now());
        for seq in 1..=10 {
            publish(&outbox, text(seq), Delivery::within_millis(200));
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        assert_eq!(next(&outbox, since).await, (200, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_takes_along_what_waits_before_it() {
        let (outbox, since) = (Outbox::default(), Instant::now());
        publish(&outbox, text(1), Delivery::within_millis(i64::MAX));
        outbox.push(Frame::of_size(1));
        assert_eq!(next(&outbox, since).await, (0, 2));
        publish(&outbox, text(2), Delivery::within_millis(i64::MAX));
        assert_eq!(next(&outbox, since).await, (MAX_HOLD.as_millis(), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_wakes_a_writer_that_waits_for_later() {
        let (outbox, since) = (Outbox::default(), Instant::now());
        publish(&outbox, text(1), Delivery::within_millis(500));
        let answer = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            outbox.push(Frame::of_size(1));
        };
        assert_eq!(tokio::join!(next(&outbox, since), answer).0, (20, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_held_back_from_a_connection_that_closes() {
        let (outbox, since) = (Outbox::default(), Instant::now());
        publish(&outbox, text(1), Delivery::within_millis(500));
        outbox.close(CloseReason::Shutdown);
        assert_eq!(next(&outbox, since).await, (0, 1));
        assert_eq!(outbox.next_batch().await.unwrap_err(), CloseReason::Shutdown);
    }
}
