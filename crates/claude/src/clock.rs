//! Where wall-clock time comes from, so that tests can choose it.

use std::fmt;
use std::time::SystemTime;

/// A source of wall-clock time.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// The time now.
    fn now(&self) -> SystemTime;
}

/// The operating system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the system")]
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}
