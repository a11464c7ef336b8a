//! Paces streams that share a rate.
//!
//! Each complete group has its own thread, because tokio timers have a resolution of one
//! millisecond and would send the events of a millisecond in a burst. The thread wakes
//! for each event, adds a permit to each stream in turn, and exits after the last event.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use innkeeper_bench::monotonic_nanos;
use innkeeper_bench::plan::{Plan, StreamPace};
use tokio::sync::Semaphore;

/// Incomplete groups, by id. A group that never fills is never removed; a benchmark has
/// few groups.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    waiting: Mutex<HashMap<u32, Vec<Arc<Semaphore>>>>,
}

impl Pacer {
    /// Adds a stream to its group, if it has one. The last stream of a group starts its
    /// pacing thread.
    pub(crate) fn join(&self, plan: Plan) -> Option<Arc<Semaphore>> {
        let StreamPace::Shared { group, streams, per_second } = plan.pace else { return None };
        let permits = Arc::new(Semaphore::new(0));
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let members = waiting.entry(group).or_default();
        members.push(Arc::clone(&permits));
        if u32::try_from(members.len()).is_ok_and(|joined| joined >= streams)
            && let Some(members) = waiting.remove(&group)
        {
            let interval = 1_000_000_000 / u64::from(per_second.max(1));
            std::thread::spawn(move || pace(&members, plan.events, interval));
        }
        Some(permits)
    }
}

/// Adds a permit per event to each stream in turn, one every `interval` nanoseconds.
fn pace(members: &[Arc<Semaphore>], events: u32, interval: u64) {
    // By default the kernel may wake the thread 50 µs late, which is a whole event
    // interval. If this fails, events are sent in small bursts to all targets alike.
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_timerslack(1).ok();
    let mut due = monotonic_nanos();
    for _ in 0..events {
        // All streams have been dropped.
        if members.iter().all(|permits| Arc::strong_count(permits) == 1) {
            return;
        }
        for permits in members {
            due = due.saturating_add(interval);
            let early = due.saturating_sub(monotonic_nanos());
            if early > 0 {
                std::thread::sleep(Duration::from_nanos(early));
            }
            permits.add_permits(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use innkeeper_bench::plan::AfterResponse;

    #[tokio::test]
    async fn complete_group_gives_each_stream_its_events() {
        let pacer = Pacer::default();
        let pace = StreamPace::Shared { group: 1, streams: 2, per_second: 1_000_000 };
        let plan = Plan { events: 7, pace, ending: AfterResponse::KeepAlive };
        let first = pacer.join(plan).unwrap();
        assert_eq!(first.available_permits(), 0);
        let second = pacer.join(plan).unwrap();
        for permits in [first, second] {
            permits.acquire_many(7).await.unwrap().forget();
            assert_eq!(permits.available_permits(), 0);
        }
        assert!(pacer.waiting.lock().unwrap().is_empty());
    }

    #[test]
    fn stream_without_group_is_not_paced() {
        assert!(Pacer::default().join(Plan::full(20)).is_none());
    }
}
