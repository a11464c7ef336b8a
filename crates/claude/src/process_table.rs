//! Reads the process table of the operating system.
//!
//! Reads `/proc`. On systems without it, no process is known.

/// Identifies a process even if its id is reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessIdentity {
    /// Process id.
    pub(crate) pid: i32,
    /// Start time in clock ticks since boot.
    pub(crate) started: u64,
}

/// A process table entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessEntry {
    pub(crate) identity: ProcessIdentity,
    /// Process id of the parent.
    pub(crate) parent: i32,
    /// Whether the process has exited but was not reaped.
    pub(crate) is_zombie: bool,
}

impl ProcessIdentity {
    /// The running process with this id.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        entry(pid).filter(|entry| !entry.is_zombie).map(|entry| entry.identity)
    }

    /// Whether this process is still running.
    pub(crate) fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }
}

/// The entry of a process.
pub(crate) fn entry(pid: i32) -> Option<ProcessEntry> {
    // The process name may contain any bytes, including invalid UTF-8.
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse(pid, &String::from_utf8_lossy(&stat))
}

/// All processes; `None` if there is no process table.
pub(crate) fn all() -> Option<Vec<ProcessEntry>> {
    let entries = std::fs::read_dir("/proc").ok()?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Some(pids.filter_map(entry).collect())
}

/// Whether a process was started with this environment variable; false if its environment cannot be read.
pub(crate) fn has_variable(pid: i32, assignment: &str) -> bool {
    std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
        environment.split(|byte| *byte == 0).any(|entry| entry == assignment.as_bytes())
    })
}

/// The hard limit of a process for realtime CPU time, in microseconds; `None` if it is unlimited or
/// unknown.
#[cfg(target_os = "linux")]
pub(crate) fn realtime_limit(pid: i32) -> Option<u64> {
    realtime_limit_in(&std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?)
}

/// Parses `/proc/<pid>/limits`: name, soft limit, hard limit and unit in each line.
#[cfg(target_os = "linux")]
fn realtime_limit_in(limits: &str) -> Option<u64> {
    let values = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout"))?;
    values.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Identifies the current boot of the system; process ids are only comparable within one boot.
pub(crate) fn boot() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// Parses `/proc/<pid>/stat`. The process name may contain any characters, including parentheses and line
/// ends, so the fields are counted from the last closing parenthesis.
fn parse(pid: i32, stat: &str) -> Option<ProcessEntry> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    // The state is the third field, the start time the twenty-second.
    let started = fields.nth(17)?.parse().ok()?;
    Some(ProcessEntry { identity: ProcessIdentity { pid, started }, parent, is_zombie })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_entry_whose_name_contains_parentheses() {
        let line = "12 (a) S 1 (b) R 77 12 12 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 99887 1000 1";
        let identity = ProcessIdentity { pid: 12, started: 99_887 };
        assert_eq!(parse(12, line), Some(ProcessEntry { identity, parent: 77, is_zombie: false }));
        assert_eq!(parse(12, "12 (sh"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn parses_realtime_limit() {
        let limits = |value| format!("Max cpu time 1 2 s\nMax realtime timeout      {value}   us        \n");
        assert_eq!(realtime_limit_in(&limits("7 4611686018427387905")), Some(4_611_686_018_427_387_905));
        assert_eq!(realtime_limit_in(&limits("unlimited            unlimited")), None);
        assert_eq!(realtime_limit_in(""), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn process_with_other_start_time_is_not_alive() {
        let own = ProcessIdentity::of(std::process::id().cast_signed()).unwrap();
        assert!(own.is_alive());
        assert!(!ProcessIdentity { started: own.started + 1, ..own }.is_alive());
    }
}
