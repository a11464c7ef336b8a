//! What the two programs of `scripts/bench` share: the events of an answer, the
//! words in which a load asks for one, and the clock that both read.
//!
//! Neither program is in here: `bench-upstream` answers, `gateway-load` asks and measures.

pub mod events;
pub mod plan;

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds on a clock that all processes of this machine share.
///
/// Zero where the clock cannot be read, which no supported system does.
pub fn monotonic_nanos() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec()).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
    })
}
