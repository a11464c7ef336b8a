//! Remembers how often the demo model received the same request, and which
//! planned faults have occurred.
//!
//! Bounded; if a state is evicted, its faults can occur once more. The content
//! of a response does not depend on it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use super::fingerprint::Fingerprint;

/// Remembered conversation states. A retry follows within seconds, so this
/// covers the recent requests of many sessions; the oldest is evicted first.
const CAPACITY: usize = 1024;

/// The memory of one demo model.
#[derive(Debug, Default)]
pub(super) struct AttemptMemory(Mutex<RememberedStates>);

#[derive(Debug, Default)]
struct RememberedStates {
    states: HashMap<Fingerprint, AttemptState>,
    /// Keys of `states`, oldest first.
    order: VecDeque<Fingerprint>,
}

#[derive(Debug, Default)]
struct AttemptState {
    attempts: u32,
    /// Script positions of the faults that have occurred.
    faults: Vec<usize>,
}

impl AttemptMemory {
    /// Records a request and returns how many equal ones came before.
    pub(super) fn begin(&self, key: Fingerprint) -> u32 {
        self.with(key, |state| {
            let before = state.attempts;
            state.attempts = state.attempts.saturating_add(1);
            before
        })
    }

    /// Returns whether a once-only fault is still due, and marks it as done.
    pub(super) fn take_fault(&self, key: Fingerprint, place: usize) -> bool {
        self.with(key, |state| {
            let due = !state.faults.contains(&place);
            if due {
                state.faults.push(place);
            }
            due
        })
    }

    fn with<T>(&self, key: Fingerprint, act: impl FnOnce(&mut AttemptState) -> T) -> T {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let RememberedStates { states, order } = &mut *guard;
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
    fn fault_is_due_once_per_position_and_key() {
        let memory = AttemptMemory::default();
        let (one, two) = (Fingerprint::EMPTY.with("one"), Fingerprint::EMPTY.with("two"));
        assert!(memory.take_fault(one, 0));
        assert!(!memory.take_fault(one, 0));
        assert!(memory.take_fault(one, 1));
        assert!(memory.take_fault(two, 0));
        assert_eq!([memory.begin(one), memory.begin(one), memory.begin(two)], [0, 1, 0]);
    }

    #[test]
    fn oldest_state_is_evicted_at_capacity() {
        let memory = AttemptMemory::default();
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
