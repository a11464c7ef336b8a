//! What went wrong with stored data, in sentences for a person.

use std::sync::{Arc, Mutex, PoisonError};

use innkeeper_core::channel::ChannelUri;

use crate::failure::Failure;

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
        // Whoever asks again for what is broken gets the same sentence.
        if problems.len() < MOST && !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    /// Reports a session that cannot be used, if that is what failed.
    pub(crate) fn report_damage(&self, session: &ChannelUri, failure: &Failure) {
        if let Failure::Damaged { .. } = failure {
            self.report(format!(
                "The session {session} cannot be opened ({failure}). It stays in the database as it is until it is \
                 disposed of; everything else is there."
            ));
        }
    }

    /// All of them, oldest first.
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
