//! Where wall-clock time comes from, so that tests can choose it.

use jiff::Timestamp;

/// A source of wall-clock time.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
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

/// Formats a time the way the official reducers do: UTC with three decimals.
pub fn wire_time(time: Timestamp) -> String {
    format!("{time:.3}")
}
