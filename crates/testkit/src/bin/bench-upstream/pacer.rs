//! The beat of streams that share a rate.
//!
//! Owns a thread per complete group, since the runtime's timers know whole milliseconds
//! only and would send the events of a millisecond in one burst. The thread wakes up for
//! each event, hands the streams their permits in turn, and ends after the last one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use innkeeper_testkit::bench::monotonic_nanos;
use innkeeper_testkit::bench::plan::{Pace, Plan};
use tokio::sync::Semaphore;

/// Groups that still wait for streams, by their number. A group that never fills stays;
/// a benchmark has few of them.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    waiting: Mutex<HashMap<u32, Vec<Arc<Semaphore>>>>,
}

impl Pacer {
    /// Takes a stream into its group, if it has one, and starts the beat with the last of them.
    pub(crate) fn join(&self, plan: Plan) -> Option<Arc<Semaphore>> {
        let Pace::Shared { group, streams, per_second } = plan.pace else { return None };
        let beats = Arc::new(Semaphore::new(0));
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let members = waiting.entry(group).or_default();
        members.push(Arc::clone(&beats));
        if u32::try_from(members.len()).is_ok_and(|joined| joined >= streams)
            && let Some(members) = waiting.remove(&group)
        {
            let interval = 1_000_000_000 / u64::from(per_second.max(1));
            std::thread::spawn(move || beat(&members, plan.events, interval));
        }
        Some(beats)
    }
}

/// Gives each stream a permit per event, in turn, one each `interval` nanoseconds.
fn beat(members: &[Arc<Semaphore>], events: u32, interval: u64) {
    // The kernel may be 50 µs late by default, which is the time of a whole event here.
    // Where it refuses, events come in small bursts for everybody alike.
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_timerslack(1).ok();
    let mut due = monotonic_nanos();
    for _ in 0..events {
        // All but this thread have gone: nobody is left to be paced.
        if members.iter().all(|beats| Arc::strong_count(beats) == 1) {
            return;
        }
        for beats in members {
            due = due.saturating_add(interval);
            let early = due.saturating_sub(monotonic_nanos());
            if early > 0 {
                std::thread::sleep(Duration::from_nanos(early));
            }
            beats.add_permits(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use innkeeper_testkit::bench::plan::Ending;

    #[tokio::test]
    async fn a_group_beats_once_it_is_complete_and_gives_each_stream_its_events() {
        let pacer = Pacer::default();
        let pace = Pace::Shared { group: 1, streams: 2, per_second: 1_000_000 };
        let plan = Plan { events: 7, pace, ending: Ending::KeepAlive };
        let first = pacer.join(plan).unwrap();
        assert_eq!(first.available_permits(), 0);
        let second = pacer.join(plan).unwrap();
        for beats in [first, second] {
            beats.acquire_many(7).await.unwrap().forget();
            assert_eq!(beats.available_permits(), 0);
        }
        assert!(pacer.waiting.lock().unwrap().is_empty());
    }

    #[test]
    fn a_stream_with_a_pace_of_its_own_gets_no_beat() {
        assert!(Pacer::default().join(Plan::full(20)).is_none());
    }
}
