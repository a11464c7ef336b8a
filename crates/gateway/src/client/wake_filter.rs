//! A waker that ignores wake-ups caused by the polled task itself.
//!
//! The two halves of an HTTP connection wake each other, although one task
//! drives both and polls both anyway. Without the filter each event would be
//! followed by a poll that finds nothing to do. A wake-up from another task is
//! never lost.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Not polling: wake-ups are passed on.
const PASSING: u8 = 0;
/// The task is polling.
const POLLING: u8 = 1;
/// The task is polling, and a wake-up arrived meanwhile.
const WOKEN: u8 = 2;

/// Polls a future or stream that wakes itself.
pub(super) struct WakeFilter {
    shared: Arc<FilteredWaker>,
    /// The same waker for all polls, so that it is not registered again each time.
    waker: Waker,
}

#[derive(Default)]
struct FilteredWaker {
    state: AtomicU8,
    task: AtomicWaker,
}

impl WakeFilter {
    pub(super) fn new() -> Self {
        let shared = Arc::new(FilteredWaker::default());
        Self { waker: Waker::from(Arc::clone(&shared)), shared }
    }

    /// Polls with a waker that is silent until the poll returns. If the result
    /// is ready, the caller will poll again and needs no wake-up.
    pub(super) fn poll<T>(
        &self,
        context: &Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.shared.task.register(context.waker());
        self.shared.state.store(POLLING, Ordering::SeqCst);
        let polled = poll(&mut Context::from_waker(&self.waker));
        let missed = self.shared.state.swap(PASSING, Ordering::SeqCst) == WOKEN;
        if missed && polled.is_pending() {
            context.waker().wake_by_ref();
        }
        polled
    }
}

impl fmt::Debug for WakeFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("WakeFilter")
    }
}

impl Wake for FilteredWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let previous = self.state.compare_exchange(POLLING, WOKEN, Ordering::SeqCst, Ordering::SeqCst);
        if previous == Err(PASSING) {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Counts the wake-ups during a poll that wakes itself, and after a later wake.
    fn woken(polled: Poll<()>, wakes: usize) -> (usize, usize) {
        let count = Arc::new(Count::default());
        let task = Waker::from(Arc::clone(&count));
        let filter = WakeFilter::new();
        let mut kept = None;
        let result = filter.poll(&Context::from_waker(&task), |context| {
            for _ in 0..wakes {
                context.waker().wake_by_ref();
            }
            kept = Some(context.waker().clone());
            polled
        });
        assert_eq!(result, polled);
        let at_once = count.0.load(Ordering::SeqCst);
        kept.unwrap().wake();
        (at_once, count.0.load(Ordering::SeqCst) - at_once)
    }

    #[test]
    fn ready_poll_is_not_woken_by_itself() {
        assert_eq!(woken(Poll::Ready(()), 2), (0, 1));
    }

    #[test]
    fn pending_poll_loses_no_wake_up() {
        assert_eq!(woken(Poll::Pending, 2), (1, 1));
        assert_eq!(woken(Poll::Pending, 0), (0, 1));
    }
}
