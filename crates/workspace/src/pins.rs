//! Where directories led when they were first seen.
//!
//! A directory that is later replaced by a link does not become another one by that.
//! Invariant: a directory whose disk does not answer holds up one caller, and others only
//! for a moment; nobody holds the lock while the disk is asked.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long the others wait for who asks first. A disk that works needs far less; one that
/// hangs is to cost no more than this and one turn.
const PATIENCE: Duration = Duration::from_secs(1);

/// Directories and where they led.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<PathBuf, PathBuf>,
    /// What is being found out, and since when.
    asking: HashMap<PathBuf, Instant>,
}

/// Where a directory leads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pin {
    /// To this canonical path.
    To(PathBuf),
    /// It does not exist.
    Nowhere,
    /// Its disk does not answer.
    Unknown,
}

impl Pins {
    /// Forgets all but those that are listed, in order.
    pub(crate) fn retain(&self, listed: &[PathBuf]) {
        self.lock().known.retain(|path, _| listed.binary_search(path).is_ok());
    }

    /// Where a directory leads, which `ask` finds out the first time.
    pub(crate) fn find(&self, path: &Path, ask: impl FnOnce(&Path) -> Option<PathBuf>) -> Pin {
        let mut state = self.lock();
        loop {
            if let Some(root) = state.known.get(path) {
                return Pin::To(root.clone());
            }
            let Some(since) = state.asking.get(path) else { break };
            let left = PATIENCE.saturating_sub(since.elapsed());
            if left.is_zero() {
                return Pin::Unknown;
            }
            state = self.answered.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.asking.insert(path.to_owned(), Instant::now());
        drop(state);
        let found = ask(path);
        let mut state = self.lock();
        state.asking.remove(path);
        self.answered.notify_all();
        match found {
            Some(root) => {
                state.known.insert(path.to_owned(), root.clone());
                Pin::To(root)
            }
            None => Pin::Nowhere,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_directory_that_hangs_holds_up_who_asks_first_and_no_other_directory() {
        let pins = &Pins::default();
        let (hung, fine) = (Path::new("/hung"), Path::new("/fine"));
        let (begun, begins) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        std::thread::scope(move |scope| {
            let first = scope.spawn(move || {
                pins.find(hung, |_| {
                    begun.send(()).unwrap();
                    answers.recv().unwrap()
                })
            });
            begins.recv().unwrap();
            assert_eq!(pins.find(fine, |path| Some(path.to_owned())), Pin::To(fine.to_owned()));
            assert_eq!(pins.find(hung, |_| panic!("it is asked already")), Pin::Unknown);
            pins.retain(&[hung.to_owned()]);
            answer.send(Some(PathBuf::from("/place"))).unwrap();
            assert_eq!(first.join().unwrap(), Pin::To(PathBuf::from("/place")));
        });
        assert_eq!(pins.find(hung, |_| panic!("it is known")), Pin::To(PathBuf::from("/place")));
        assert_eq!(pins.find(fine, |_| None), Pin::Nowhere, "it was forgotten");
    }

    #[test]
    fn who_comes_second_hears_the_answer_that_the_first_one_gets() {
        let pins = &Pins::default();
        let path = Path::new("/new");
        let (begun, begins) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        std::thread::scope(move |scope| {
            let first = scope.spawn(move || {
                pins.find(path, |_| {
                    begun.send(()).unwrap();
                    answers.recv().unwrap()
                })
            });
            begins.recv().unwrap();
            let second = scope.spawn(move || pins.find(path, |_| panic!("it is asked already")));
            answer.send(Some(PathBuf::from("/place"))).unwrap();
            assert_eq!(first.join().unwrap(), Pin::To(PathBuf::from("/place")));
            assert_eq!(second.join().unwrap(), Pin::To(PathBuf::from("/place")));
        });
    }
}
