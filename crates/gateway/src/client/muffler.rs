//! A waker that does not ring for what the woken task did itself.
//!
//! The two halves of an HTTP connection wake each other, although one task
//! drives both and looks again anyway; each event would be followed by a turn
//! of the task that finds nothing to do. What comes from elsewhere meanwhile
//! is never lost.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Wakes the task.
const LOUD: u8 = 0;
/// The task is at work.
const MUFFLED: u8 = 1;
/// The task is at work, and something wanted to wake it.
const MISSED: u8 = 2;

/// Polls what wakes itself.
pub(super) struct Muffler {
    bell: Arc<Bell>,
    /// Rings the bell; one for all polls, so that it need not be registered anew.
    waker: Waker,
}

#[derive(Default)]
struct Bell {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Muffler {
    pub(super) fn new() -> Self {
        let bell = Arc::new(Bell::default());
        Self { waker: Waker::from(Arc::clone(&bell)), bell }
    }

    /// Polls with a waker that is silent until this is over. If the result is
    /// ready, the caller polls again sooner or later and needs no wake-up.
    pub(super) fn poll<T>(
        &self,
        context: &Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.bell.task.register(context.waker());
        self.bell.state.store(MUFFLED, Ordering::SeqCst);
        let polled = poll(&mut Context::from_waker(&self.waker));
        let missed = self.bell.state.swap(LOUD, Ordering::SeqCst) == MISSED;
        if missed && polled.is_pending() {
            context.waker().wake_by_ref();
        }
        polled
    }
}

impl fmt::Debug for Muffler {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Muffler")
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let muffled = self.state.compare_exchange(MUFFLED, MISSED, Ordering::SeqCst, Ordering::SeqCst);
        if muffled == Err(LOUD) {
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

    /// How often the task is woken by a poll that wakes itself, and by a later wake.
    fn woken(polled: Poll<()>, wakes: usize) -> (usize, usize) {
        let count = Arc::new(Count::default());
        let task = Waker::from(Arc::clone(&count));
        let muffler = Muffler::new();
        let mut kept = None;
        let result = muffler.poll(&Context::from_waker(&task), |context| {
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
    fn a_task_with_a_result_is_not_woken_by_itself() {
        assert_eq!(woken(Poll::Ready(()), 2), (0, 1));
    }

    #[test]
    fn a_task_without_a_result_loses_no_wake_up() {
        assert_eq!(woken(Poll::Pending, 2), (1, 1));
        assert_eq!(woken(Poll::Pending, 0), (0, 1));
    }
}
