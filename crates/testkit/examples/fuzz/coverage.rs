//! Which places of the program a run came through.
//!
//! Owns the counters that the compiler puts into an instrumented build, one
//! for each edge of the control flow. Without instrumentation there are none.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The counters of the program, which live as long as it does.
static FIRST: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Called before `main` by every instrumented module with the range of all counters.
#[expect(unsafe_code, reason = "the compiler's instrumentation looks for this name")]
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(first: *mut u8, end: *mut u8) {
    FIRST.store(first, Ordering::SeqCst);
    COUNT.store((end as usize).saturating_sub(first as usize), Ordering::SeqCst);
}

/// Whether the build is instrumented.
pub(crate) fn is_measured() -> bool {
    COUNT.load(Ordering::SeqCst) > 0
}

/// What the runs so far came through.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    /// A copy of the counters after a run.
    now: Vec<u8>,
    /// For each place the classes of how often a run came through it.
    seen: Vec<u8>,
}

impl Coverage {
    /// Forgets what was counted since the last time.
    pub(crate) fn reset(&mut self) {
        self.take();
    }

    /// Takes in what was counted since [`Self::reset`]; says whether there was anything new.
    pub(crate) fn learn(&mut self) -> bool {
        self.take();
        self.seen.resize(self.now.len(), 0);
        let mut is_new = false;
        // Almost all counters are zero, so eight are skipped at a time.
        for (now, seen) in self.now.chunks(8).zip(self.seen.chunks_mut(8)) {
            if now.iter().all(|count| *count == 0) {
                continue;
            }
            for (count, classes) in now.iter().zip(seen) {
                let class = class_of(*count);
                is_new |= class & !*classes != 0;
                *classes |= class;
            }
        }
        is_new
    }

    /// How many places were ever reached.
    pub(crate) fn places(&self) -> usize {
        self.seen.iter().filter(|classes| **classes != 0).count()
    }

    /// Copies the counters and sets them to zero.
    fn take(&mut self) {
        let (first, count) = (FIRST.load(Ordering::SeqCst), COUNT.load(Ordering::SeqCst));
        self.now.resize(count, 0);
        if count == 0 {
            return;
        }
        #[expect(unsafe_code, reason = "the counters are the compiler's, there is no safe way to them")]
        // SAFETY: the range is the one that the linker gave to the start-up code, is valid for the
        // whole run of the program, and does not overlap the vector, which has room for all of it.
        unsafe {
            std::ptr::copy_nonoverlapping(first, self.now.as_mut_ptr(), count);
            std::ptr::write_bytes(first, 0, count);
        }
    }
}

/// Coming through a place twice is news, the hundredth time is not.
fn class_of(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 1 << 1,
        3 => 1 << 2,
        4..=7 => 1 << 3,
        8..=15 => 1 << 4,
        16..=31 => 1 << 5,
        32..=127 => 1 << 6,
        128..=255 => 1 << 7,
    }
}
