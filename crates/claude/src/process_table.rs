//! The system's table of processes, as far as leftovers are told from others by it.
//!
//! Reads `/proc` and owns nothing. Where there is no such table, nothing is known about any process.

/// What tells a process from every other one that had, or will have, the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Its id.
    pub(crate) pid: i32,
    /// When it started, in clock ticks since the system did.
    pub(crate) started: u64,
}

/// One line of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) identity: Identity,
    /// Its parent's id.
    pub(crate) parent: i32,
    /// Whether it has ended and only waits to be noticed.
    pub(crate) is_zombie: bool,
}

impl Identity {
    /// The process that has this id now, unless it has ended.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        entry(pid).filter(|entry| !entry.is_zombie).map(|entry| entry.identity)
    }

    /// Whether this very process is alive.
    pub(crate) fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }
}

/// The table's line about one process.
pub(crate) fn entry(pid: i32) -> Option<Entry> {
    // A process may call itself anything, also what is not UTF-8.
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse(pid, &String::from_utf8_lossy(&stat))
}

/// All processes, or nothing if there is no table.
pub(crate) fn all() -> Option<Vec<Entry>> {
    let entries = std::fs::read_dir("/proc").ok()?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Some(pids.filter_map(entry).collect())
}

/// Whether a process was started with a variable of this value; not if that cannot be learned.
pub(crate) fn has_variable(pid: i32, assignment: &str) -> bool {
    std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
        environment.split(|byte| *byte == 0).any(|entry| entry == assignment.as_bytes())
    })
}

/// What tells this run of the system from the others, in which the same ids meant other processes.
pub(crate) fn boot() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// Reads a line of `/proc/<pid>/stat`. The command's name in it may hold anything, also parentheses and line
/// ends, so the fields count from the last closing one.
fn parse(pid: i32, stat: &str) -> Option<Entry> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    // The state is the third field of the line and the start time the twenty-second.
    let started = fields.nth(17)?.parse().ok()?;
    Some(Entry { identity: Identity { pid, started }, parent, is_zombie })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_behind_a_name_with_parentheses() {
        let line = "12 (a) S 1 (b) R 77 12 12 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 99887 1000 1";
        let identity = Identity { pid: 12, started: 99_887 };
        assert_eq!(parse(12, line), Some(Entry { identity, parent: 77, is_zombie: false }));
        assert_eq!(parse(12, "12 (sh"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_is_itself_and_no_other_that_had_its_id() {
        let own = Identity::of(std::process::id().cast_signed()).unwrap();
        assert!(own.is_alive());
        assert!(!Identity { started: own.started + 1, ..own }.is_alive());
    }
}
