//! What the demo model remembers: how often it was asked the same, and which
//! planned faults have happened.
//!
//! Bounded; forgetting makes a fault happen once more, nothing worse. The
//! answer's content never depends on it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use super::fingerprint::Fingerprint;

/// Conversation states remembered. A retry follows within seconds, so this
/// holds the recent past of many sessions; the oldest state is forgotten first.
const CAPACITY: usize = 1024;

/// The memory of one demo model.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    states: HashMap<Fingerprint, State>,
    /// Keys of `states`, oldest first.
    order: VecDeque<Fingerprint>,
}

#[derive(Debug, Default)]
struct State {
    attempts: u32,
    /// Places in the script of the faults that have happened.
    faults: Vec<usize>,
}

impl Memory {
    /// Notes a request and returns how many like it came before.
    pub(super) fn begin(&self, key: Fingerprint) -> u32 {
        self.with(key, |state| {
            let before = state.attempts;
            state.attempts = state.attempts.saturating_add(1);
            before
        })
    }

    /// Says whether a once-only fault is still due, and takes it as done.
    pub(super) fn take_fault(&self, key: Fingerprint, place: usize) -> bool {
        self.with(key, |state| {
            let due = !state.faults.contains(&place);
            if due {
                state.faults.push(place);
            }
            due
        })
    }

    fn with<T>(&self, key: Fingerprint, act: impl FnOnce(&mut State) -> T) -> T {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Seen { states, order } = &mut *guard;
        if !states.contains_key(&key) {
            if order.len() == CAPACITY
                && let Some(oldest) = order.pop_front()
            {
                states.remove(&oldest);
            }
            order.push_back(key);
        }
        act(states.entry(key).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_due_once_for_each_place_and_key() {
        let memory = Memory::default();
        let (one, two) = (Fingerprint::EMPTY.with("one"), Fingerprint::EMPTY.with("two"));
        assert!(memory.take_fault(one, 0));
        assert!(!memory.take_fault(one, 0));
        assert!(memory.take_fault(one, 1));
        assert!(memory.take_fault(two, 0));
        assert_eq!([memory.begin(one), memory.begin(one), memory.begin(two)], [0, 1, 0]);
    }

    #[test]
    fn memory_stays_small_and_forgets_the_oldest() {
        let memory = Memory::default();
        for number in 0..=CAPACITY {
            assert!(memory.take_fault(Fingerprint::EMPTY.with(&number.to_string()), 0));
        }
        let seen = memory.0.lock().unwrap();
        assert_eq!((seen.states.len(), seen.order.len()), (CAPACITY, CAPACITY));
        drop(seen);
        assert!(memory.take_fault(Fingerprint::EMPTY.with("0"), 0));
        assert!(!memory.take_fault(Fingerprint::EMPTY.with(&CAPACITY.to_string()), 0));
    }
}
