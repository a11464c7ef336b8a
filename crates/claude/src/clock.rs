//! Source of wall-clock time; tests substitute their own.

use std::fmt;
use std::time::SystemTime;

/// A source of wall-clock time.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    fn now(&self) -> SystemTime;
}

/// The operating system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the system clock")]
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}
