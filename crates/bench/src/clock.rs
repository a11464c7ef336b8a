//! The clock that all processes of a benchmark share.

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of the monotonic clock, which all local processes share.
///
/// Zero if the clock cannot be read, which does not happen on supported systems.
pub fn monotonic_nanos() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec()).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
    })
}
