//! Marks the processes of a runtime, so that they can be found without their warden.
//!
//! The mark is a random id, carried in two ways. The environment variable is inherited unless a process
//! clears its environment. On Linux the mark is also a resource limit, which every descendant inherits
//! regardless of its environment, session and parent: the limit for realtime CPU time, which has no effect
//! at the chosen values (more than 100,000 years) and is otherwise unlimited.

use uuid::Uuid;

use crate::options::MARK;
use crate::process_table;

/// Values of the limit are above this one, in microseconds.
#[cfg(target_os = "linux")]
const LIMIT_BASE: u64 = 1 << 62;

/// The mark of a runtime's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessMark(pub(crate) Uuid);

impl ProcessMark {
    /// The mark in the environment of this process.
    pub(crate) fn of_environment() -> Option<Self> {
        std::env::var(MARK).ok()?.parse().ok().map(Self)
    }

    /// Marks this process and its future descendants with the limit. Fails if a lower limit is in force
    /// already; the environment variable remains then.
    #[cfg(target_os = "linux")]
    pub(crate) fn apply(self) -> nix::Result<()> {
        use nix::sys::resource::{Resource, setrlimit};
        setrlimit(Resource::RLIMIT_RTTIME, self.limit(), self.limit())
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn apply(self) -> nix::Result<()> {
        Ok(())
    }

    /// The running processes with this mark.
    pub(crate) fn members(self) -> Vec<i32> {
        let entries = process_table::all().unwrap_or_default();
        let live = entries.iter().filter(|entry| !entry.is_zombie).map(|entry| entry.identity.pid);
        let variable = format!("{MARK}={}", self.0);
        live.filter(|pid| self.is_limit_of(*pid) || process_table::has_variable(*pid, &variable)).collect()
    }

    #[cfg(target_os = "linux")]
    fn is_limit_of(self, pid: i32) -> bool {
        process_table::realtime_limit(pid) == Some(self.limit())
    }

    #[cfg(not(target_os = "linux"))]
    fn is_limit_of(self, _: i32) -> bool {
        false
    }

    /// The value of the limit: 62 random bits of the mark.
    #[cfg(target_os = "linux")]
    fn limit(self) -> u64 {
        let (high, low) = self.0.as_u64_pair();
        // Each half has fixed bits for version and variant, at different places.
        LIMIT_BASE | ((high.rotate_left(32) ^ low) & (LIMIT_BASE - 1))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn limits_of_marks_are_large_and_distinct() {
        let limits: std::collections::BTreeSet<u64> =
            (0..1000).map(|_| ProcessMark(Uuid::new_v4()).limit()).collect();
        assert_eq!(limits.len(), 1000);
        assert!(limits.iter().all(|limit| *limit >= LIMIT_BASE && *limit < 2 * LIMIT_BASE));
    }
}
