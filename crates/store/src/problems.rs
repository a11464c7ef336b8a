//! What went wrong with stored data, in sentences for a person.

use std::sync::{Arc, Mutex, PoisonError};

/// The most sentences that are kept; later ones are in the log alone. A person reads a few, and a thousand
/// broken records have one cause.
const MOST: usize = 100;

/// The sentences so far, shared by the threads of a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problems(Arc<Mutex<Vec<String>>>);

impl Problems {
    /// Reports a problem.
    pub(crate) fn report(&self, problem: String) {
        tracing::error!("{problem}");
        let mut problems = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if problems.len() < MOST {
            problems.push(problem);
        }
    }

    /// All of them, oldest first.
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
