//! Estimates the rate of connection writes that publishing causes.
//!
//! Holds one value for all connections of a store. While it is low, every published frame
//! is written immediately; while it is high, each connection gathers frames into fewer
//! writes. Does not measure the writes themselves: a connection that cannot accept a
//! write gathers frames anyway, because they wait for its writer.

use std::time::Duration;

use tokio::time::Instant;

/// The time budget of one write: 20,000 writes per second over all connections. A write
/// takes about 10 µs of CPU time, so unbatched writes use up to a fifth of a core.
const TIME_PER_WRITE: Duration = Duration::from_micros(50);

/// Burst above the rate that does not count as high load: 120 writes. Enough for the
/// first frames of a response to dozens of subscribers.
const BURST: Duration = Duration::from_millis(6);

/// Maximum time booked ahead. Many times the interval between two batches, so that the
/// load stays high between the batches of a flood, but short enough to become low soon
/// after one.
const MAX_AHEAD: Duration = Duration::from_millis(100);

/// The writes of the last milliseconds, counted with a leaky bucket.
#[derive(Debug, Default)]
pub(super) struct WriteLoad {
    /// The time at which the budget of the counted writes is used up.
    booked_until: Option<Instant>,
}

impl WriteLoad {
    /// Counts one write.
    pub(super) fn count(&mut self, now: Instant) {
        let start = self.booked_until.map_or(now, |until| until.max(now));
        self.booked_until = Some((start + TIME_PER_WRITE).min(now + MAX_AHEAD));
    }

    /// Whether the write rate is above the budget.
    pub(super) fn is_high(&self, now: Instant) -> bool {
        self.booked_until.is_some_and(|until| until > now + BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_high_above_the_rate() {
        let (mut load, mut now) = (WriteLoad::default(), Instant::now());
        for _ in 0..10_000 {
            load.count(now);
            assert!(!load.is_high(now));
            now += TIME_PER_WRITE;
        }
        for _ in 0..500 {
            load.count(now);
            now += TIME_PER_WRITE / 2;
        }
        assert!(load.is_high(now));
    }

    #[test]
    fn load_is_low_during_burst_and_soon_after_flood() {
        let (mut load, now) = (WriteLoad::default(), Instant::now());
        for _ in 0..120 {
            load.count(now);
        }
        assert!(!load.is_high(now));
        for _ in 0..100_000 {
            load.count(now);
        }
        assert!(load.is_high(now));
        assert!(!load.is_high(now + MAX_AHEAD - BURST));
    }
}
