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
    assert_eq!(outbox.next_batch().await.unwrap().len(), 3, "a second large frame counts toward the limit");
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
