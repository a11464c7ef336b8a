//! The processes below the warden.
//!
//! Owns finding and signalling them. On Linux the whole tree is found, whatever sessions and groups its
//! members made; elsewhere only the runtime's own process group can be reached.

use nix::errno::Errno;
#[cfg(target_os = "linux")]
use nix::sys::signal::kill;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Makes this process the parent of every descendant whose own parent ends.
#[cfg(target_os = "linux")]
pub(super) fn adopt_orphans() -> Result<(), Errno> {
    nix::sys::prctl::set_child_subreaper(true)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn adopt_orphans() -> Result<(), Errno> {
    Ok(())
}

/// Sends `signal` to every descendant of this process. One that is gone or not ours to signal is skipped;
/// the caller's loop sees from its children what is left.
#[cfg(target_os = "linux")]
pub(super) fn signal(runtime: Pid, signal: Signal) {
    let Some(members) = descendants() else {
        killpg(runtime, signal).ok();
        return;
    };
    for pid in members {
        kill(pid, signal).ok();
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn signal(runtime: Pid, signal: Signal) {
    killpg(runtime, signal).ok();
}

/// All descendants of this process, or nothing if the process table cannot be read.
#[cfg(target_os = "linux")]
fn descendants() -> Option<Vec<Pid>> {
    let mut rest: Vec<(i32, i32)> = std::fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            // A process may call itself anything, also what is not UTF-8.
            let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
            Some((pid, parent_in(&String::from_utf8_lossy(&stat))?))
        })
        .collect();
    let mut found = vec![Pid::this().as_raw()];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        next += 1;
        rest.retain(|(pid, its_parent)| {
            let is_child = *its_parent == parent;
            if is_child {
                found.push(*pid);
            }
            !is_child
        });
    }
    Some(found.into_iter().skip(1).map(Pid::from_raw).collect())
}

/// The parent's id in a line of `/proc/<pid>/stat`. The command's name before it may hold anything, also
/// parentheses and line ends, so the fields count from the last closing one.
#[cfg(target_os = "linux")]
fn parent_in(stat: &str) -> Option<i32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_a_name_with_parentheses() {
        assert_eq!(parent_in("12 (a) S 1 (b) R 77 12 12 0"), Some(77));
        assert_eq!(parent_in("12 (sh"), None);
    }
}
