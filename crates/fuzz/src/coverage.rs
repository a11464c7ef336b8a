//! Tracks which edges of the control flow a run reached.
//!
//! Reads the counters that the compiler adds to an instrumented build, one per edge. Without instrumentation
//! there are none.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The counters, which live as long as the program.
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

/// The coverage of all runs so far.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    /// The counters of the last run.
    now: Vec<u8>,
    /// For each edge, the hit count classes of all runs.
    seen: Vec<u8>,
}

impl Coverage {
    /// Discards the current counts.
    pub(crate) fn reset(&mut self) {
        self.take();
    }

    /// Adds the counts since [`Self::reset`]; returns whether they contain new coverage.
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

    /// Number of edges that were ever reached.
    pub(crate) fn edges(&self) -> usize {
        self.seen.iter().filter(|classes| **classes != 0).count()
    }

    /// Copies the counters and sets them to zero.
    fn take(&mut self) {
        let (first, count) = (FIRST.load(Ordering::SeqCst), COUNT.load(Ordering::SeqCst));
        self.now.resize(count, 0);
        if count == 0 {
            return;
        }
        #[expect(unsafe_code, reason = "the compiler's counters cannot be accessed safely")]
        // SAFETY: the range is the one that the linker passed to the start-up code, is valid for the whole
        // run of the program, and does not overlap the vector, which has the same length.
        unsafe {
            std::ptr::copy_nonoverlapping(first, self.now.as_mut_ptr(), count);
            std::ptr::write_bytes(first, 0, count);
        }
    }
}

/// Maps a hit count to a class: reaching an edge twice is new coverage, the hundredth time is not.
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
