//! Serializes changes to a file.
//!
//! A fixed number of locks is shared by all files: two files with the same lock wait
//! briefly for each other, and locks never need to be cleaned up.

use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// More than the number of concurrent operations, so that collisions are rare.
const STRIPES: usize = 64;

/// The locks of all files.
#[derive(Debug)]
pub(crate) struct Locks {
    stripes: [Mutex<()>; STRIPES],
    hasher: RandomState,
}

impl Default for Locks {
    fn default() -> Self {
        Self { stripes: std::array::from_fn(|_| Mutex::new(())), hasher: RandomState::new() }
    }
}

impl Locks {
    /// Locks the files with these canonical paths.
    pub(crate) fn hold<'a>(&'a self, paths: &[&Path]) -> Vec<MutexGuard<'a, ()>> {
        let mut stripes: Vec<usize> = paths
            .iter()
            .map(|path| usize::try_from(self.hasher.hash_one(path)).unwrap_or_default() % STRIPES)
            .collect();
        // Lock each stripe once and in a fixed order to avoid deadlocks.
        stripes.sort_unstable();
        stripes.dedup();
        stripes
            .into_iter()
            .filter_map(|stripe| self.stripes.get(stripe))
            .map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner))
            .collect()
    }
}
