//! Signals the warden's descendants.
//!
//! On Linux, all descendants are found and signalled, regardless of their sessions and process groups;
//! elsewhere only the runtime's process group can be reached.

use nix::errno::Errno;
#[cfg(target_os = "linux")]
use nix::sys::signal::kill;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

#[cfg(target_os = "linux")]
use crate::process_table;

/// Makes this process the parent of orphaned descendants.
#[cfg(target_os = "linux")]
pub(super) fn adopt_orphans() -> Result<(), Errno> {
    nix::sys::prctl::set_child_subreaper(true)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn adopt_orphans() -> Result<(), Errno> {
    Ok(())
}

/// Lets this process run again if it is stopped when the host exits. Otherwise it would not notice the exit.
#[cfg(target_os = "linux")]
pub(super) fn resume_when_host_exits() {
    // A failure matters only for a stopped warden, which the next start of a host resumes.
    nix::sys::prctl::set_pdeathsig(Signal::SIGCONT).ok();
}

#[cfg(not(target_os = "linux"))]
pub(super) fn resume_when_host_exits() {}

/// Sends `signal` to every descendant of this process. Skips processes that are gone or not permitted;
/// the caller's loop checks its children for the remaining ones.
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

/// All descendants of this process; `None` if the process table cannot be read.
#[cfg(target_os = "linux")]
fn descendants() -> Option<Vec<Pid>> {
    let mut rest = process_table::all()?;
    let mut found = vec![Pid::this().as_raw()];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        next += 1;
        rest.retain(|entry| {
            let is_child = entry.parent == parent;
            if is_child {
                found.push(entry.identity.pid);
            }
            !is_child
        });
    }
    Some(found.into_iter().skip(1).map(Pid::from_raw).collect())
}
