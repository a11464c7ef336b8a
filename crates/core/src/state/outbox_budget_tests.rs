use std::time::Duration;

use super::super::frame::Frame;
use super::super::outbox::CloseReason;
use super::*;

const MIB: usize = 1024 * 1024;

fn outboxes(count: usize) -> (Arc<OutboxBudget>, Vec<Arc<Outbox>>) {
    let budget = Arc::new(OutboxBudget::default());
    let outboxes: Vec<Arc<Outbox>> = (0..count).map(|_| Arc::default()).collect();
    for outbox in &outboxes {
        budget.add(outbox);
    }
    (budget, outboxes)
}

fn occupied(budget: &OutboxBudget) -> usize {
    budget.occupied.load(Ordering::Relaxed)
}

fn open(outboxes: &[Arc<Outbox>]) -> usize {
    outboxes.iter().filter(|outbox| outbox.close_reason().is_none()).count()
}

#[tokio::test(start_paused = true)]
async fn outboxes_together_stay_within_budget() {
    let (budget, outboxes) = outboxes(40);
    for _ in 0..30 {
        for outbox in &outboxes {
            outbox.push(Frame::of_size(MIB));
            assert!(occupied(&budget) <= DEFAULT_LIMIT + 64 * MIB + STEP, "{} MiB", occupied(&budget) / MIB);
        }
    }
    assert!((1..=11).contains(&open(&outboxes)), "{} open", open(&outboxes));
    drop(outboxes);
    assert_eq!(occupied(&budget), 0);
}

#[tokio::test(start_paused = true)]
async fn client_that_does_not_read_is_closed_before_one_that_does() {
    let (_budget, outboxes) = outboxes(41);
    let (reading, deaf) = outboxes.split_last().unwrap();
    for outbox in deaf {
        outbox.push(Frame::of_size(6 * MIB));
        // The writer has the batch and never returns for the next one.
        outbox.next_batch().await.unwrap();
    }
    tokio::time::advance(Duration::from_secs(5)).await;
    reading.push(Frame::of_size(60 * MIB));
    assert_eq!(reading.close_reason(), None, "the largest outbox, but its client reads");
    for outbox in deaf {
        outbox.push(Frame::of_size(3 * MIB));
    }
    assert_eq!(reading.close_reason(), None);
    let closed: Vec<_> = deaf.iter().filter_map(|outbox| outbox.close_reason()).collect();
    assert!(!closed.is_empty() && closed.iter().all(|reason| *reason == CloseReason::TooSlow), "{closed:?}");
}

#[tokio::test(start_paused = true)]
async fn single_response_of_any_size_is_not_closed() {
    let (_budget, outboxes) = outboxes(3);
    outboxes[0].push(Frame::of_size(DEFAULT_LIMIT + 64 * MIB));
    outboxes[1].push(Frame::of_size(MIB));
    assert_eq!(open(&outboxes), 3);
    outboxes[2].push(Frame::of_size(DEFAULT_LIMIT + 64 * MIB));
    assert_eq!(open(&outboxes), 2, "two such responses at once are too many");
    assert_eq!(outboxes[1].close_reason(), None);
}

#[tokio::test(start_paused = true)]
async fn batch_counts_until_writer_asks_for_the_next() {
    let (budget, outboxes) = outboxes(1);
    outboxes[0].push(Frame::of_size(MIB));
    assert!(occupied(&budget) >= MIB);
    outboxes[0].next_batch().await.unwrap();
    assert!(occupied(&budget) >= MIB);
    let more = tokio::time::timeout(Duration::from_secs(1), outboxes[0].next_batch()).await;
    assert!(more.is_err());
    assert_eq!(occupied(&budget), 0);
}

#[tokio::test(start_paused = true)]
async fn drained_is_notified_once_after_much_memory_was_used() {
    let (budget, outboxes) = outboxes(1);
    let wait = || tokio::time::timeout(Duration::from_secs(1), budget.drained());
    outboxes[0].push(Frame::of_size(MIB));
    outboxes[0].close(CloseReason::ClientGone);
    assert!(wait().await.is_err(), "too little was used");
    let large = Arc::<Outbox>::default();
    budget.add(&large);
    large.push(Frame::of_size(MUCH));
    assert!(wait().await.is_err(), "it is still in use");
    drop(large);
    assert!(wait().await.is_ok());
    assert!(wait().await.is_err());
}
