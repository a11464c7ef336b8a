//! The order to stop, which long operations look at as they go.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the host is stopping. Once it is, it stays so.
#[derive(Debug, Default)]
pub(crate) struct Stop(AtomicBool);

impl Stop {
    /// Asks everything that can end early to do so.
    pub(crate) fn order(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_ordered(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
