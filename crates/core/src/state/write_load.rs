//! Estimates how many writes to connections publishing causes.
//!
//! Owns one number for all connections of a store. While it is low, every published frame is
//! written at once; while it is high, each connection gathers frames into fewer writes. Does
//! not measure the writes themselves: a connection that cannot take a write gathers anyway,
//! because its frames wait for the writer.

use std::time::Duration;

use tokio::time::Instant;

/// The share of time that one write may use: 20,000 writes a second over all connections. A
/// write takes about 10 µs of processor time, so writing at once takes up to a fifth of a
/// processor.
const TIME_PER_WRITE: Duration = Duration::from_micros(50);

/// Writes above the rate that do not count as high load, as time: 120 writes. Enough for the
/// first frames of an answer to dozens of subscribers.
const BURST: Duration = Duration::from_millis(6);

/// The most time that is booked ahead. Many times the time between two batches, so that the
/// load stays high between the batches of a flood; short enough that it is low again soon
/// after one.
const MAX_AHEAD: Duration = Duration::from_millis(100);

/// The writes of the last milliseconds, counted as a leaky bucket.
#[derive(Debug, Default)]
pub(super) struct WriteLoad {
    /// Up to when the counted writes use the time that writes may use.
    booked_until: Option<Instant>,
}

impl WriteLoad {
    /// Counts one write.
    pub(super) fn count(&mut self, now: Instant) {
        let start = self.booked_until.map_or(now, |until| until.max(now));
        self.booked_until = Some((start + TIME_PER_WRITE).min(now + MAX_AHEAD));
    }

    /// Whether writes come faster than the process should make them.
    pub(super) fn is_high(&self, now: Instant) -> bool {
        self.booked_until.is_some_and(|until| until > now + BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_low_at_the_rate_and_high_above_it() {
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
    fn load_is_low_during_a_burst_and_soon_after_a_flood() {
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
