//! One change of a file at a time.
//!
//! A fixed number of locks, shared by all files: two files that fall on the same
//! lock wait for each other for a moment, and nothing ever has to be cleaned up.

use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// More than operations that run at once, so that they seldom meet by chance.
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
    /// Waits until nobody else changes any of the files, by their canonical paths.
    pub(crate) fn hold<'a>(&'a self, paths: &[&Path]) -> Vec<MutexGuard<'a, ()>> {
        let mut stripes: Vec<usize> = paths
            .iter()
            .map(|path| usize::try_from(self.hasher.hash_one(path)).unwrap_or_default() % STRIPES)
            .collect();
        // Always in the same order and each once, or two operations could wait for
        // each other.
        stripes.sort_unstable();
        stripes.dedup();
        stripes
            .into_iter()
            .filter_map(|stripe| self.stripes.get(stripe))
            .map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner))
            .collect()
    }
}
