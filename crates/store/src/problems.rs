//! Problems with stored data, as sentences for the user.

use std::sync::{Arc, Mutex, PoisonError};

use innkeeper_core::channel::ChannelUri;

use crate::failure::StoreFailure;

/// Maximum number of sentences kept; later ones are only logged. Many damaged records
/// usually have one cause.
const MOST: usize = 100;

/// The sentences so far, shared by the store's threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problems(Arc<Mutex<Vec<String>>>);

impl Problems {
    /// Reports a problem.
    pub(crate) fn report(&self, problem: String) {
        tracing::error!("{problem}");
        let mut problems = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Repeated requests for a damaged record report it only once.
        if problems.len() < MOST && !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    /// Reports a damaged session, if the error is about damage.
    pub(crate) fn report_damage(&self, session: &ChannelUri, failure: &StoreFailure) {
        if let StoreFailure::Damaged { .. } = failure {
            self.report(format!(
                "The session {session} cannot be opened ({failure}). It is kept unchanged in the database until it is \
                 disposed of; all other data is intact."
            ));
        }
    }

    /// All problems, oldest first.
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
