//! The source of wall-clock time, replaceable in tests.

use jiff::Timestamp;

/// A source of wall-clock time.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Formats a time like the official reducers: UTC with three decimals.
pub fn wire_time(time: Timestamp) -> String {
    format!("{time:.3}")
}

/// Formats a stored time, in milliseconds since 1970; `None` if it is out of range.
pub fn wire_time_of_millis(millis: i64) -> Option<String> {
    Timestamp::from_millisecond(millis).ok().map(wire_time)
}
