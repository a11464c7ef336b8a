//! A stop flag that long operations check.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the host is shutting down. Never reset.
#[derive(Debug, Default)]
pub(crate) struct StopFlag(AtomicBool);

impl StopFlag {
    /// Requests all cancellable operations to stop.
    pub(crate) fn request(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
