//! Canonical paths of directories, resolved once.
//!
//! If a directory is later replaced by a link, the link does not change its canonical
//! path. Invariant: a directory on a hanging disk blocks one caller, and others only
//! briefly; the lock is not held during disk access.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long other callers wait for the first one. A working disk needs far less; a
/// hanging disk costs no more than this and one operation slot.
const PATIENCE: Duration = Duration::from_secs(1);

/// Directories and their canonical paths.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    state: Mutex<PinState>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct PinState {
    known: HashMap<PathBuf, PathBuf>,
    /// Directories being resolved, with the start time.
    asking: HashMap<PathBuf, Instant>,
}

/// The result of resolving a directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pin {
    /// The canonical path.
    To(PathBuf),
    /// The directory does not exist.
    Nowhere,
    /// The disk does not respond.
    Unknown,
}

impl Pins {
    /// Removes all directories that are not in `listed`, which must be sorted.
    pub(crate) fn retain(&self, listed: &[PathBuf]) {
        self.lock().known.retain(|path, _| listed.binary_search(path).is_ok());
    }

    /// Returns the canonical path of a directory, resolved with `ask` the first time.
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

    fn lock(&self) -> MutexGuard<'_, PinState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn hanging_directory_blocks_only_first_caller() {
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
            assert_eq!(pins.find(hung, |_| panic!("resolved twice")), Pin::Unknown);
            pins.retain(&[hung.to_owned()]);
            answer.send(Some(PathBuf::from("/place"))).unwrap();
            assert_eq!(first.join().unwrap(), Pin::To(PathBuf::from("/place")));
        });
        assert_eq!(pins.find(hung, |_| panic!("resolved again")), Pin::To(PathBuf::from("/place")));
        assert_eq!(pins.find(fine, |_| None), Pin::Nowhere, "it was removed");
    }

    #[test]
    fn second_caller_receives_result_of_first() {
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
            let second = scope.spawn(move || pins.find(path, |_| panic!("resolved twice")));
            answer.send(Some(PathBuf::from("/place"))).unwrap();
            assert_eq!(first.join().unwrap(), Pin::To(PathBuf::from("/place")));
            assert_eq!(second.join().unwrap(), Pin::To(PathBuf::from("/place")));
        });
    }
}
