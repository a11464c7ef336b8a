//! Kills processes left behind by dead hosts.
//!
//! Owns the steps and their limits. A process is killed only if it carries the mark of the record, which
//! is random. A running warden is already terminating the tree, so it is waited for.

use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::record::Record;
use crate::process_mark::ProcessMark;

/// Interval between two scans of the process table.
const ROUND: Duration = Duration::from_millis(20);

/// Rounds to wait for a warden to terminate the tree: 6 s; its own steps take at most 5.5 s.
const WARDEN_ROUNDS: u32 = 300;

/// Rounds between SIGTERM and SIGKILL: 500 ms.
const GRACE_ROUNDS: u32 = 25;

/// Rounds of SIGKILL before giving up: 2 s.
const KILL_ROUNDS: u32 = 100;

/// Kills all processes with the mark of the record; returns their number.
pub(super) fn end(record: &Record) -> usize {
    if !record.is_of_this_boot() {
        return 0;
    }
    if let Some(warden) = record.warden {
        if warden.is_alive() {
            // A stopped warden does not notice that the host is gone.
            kill(Pid::from_raw(warden.pid), Signal::SIGCONT).ok();
        }
        for _ in 0..WARDEN_ROUNDS {
            if !warden.is_alive() {
                break;
            }
            sleep(ROUND);
        }
    }
    end_marked(ProcessMark(record.mark))
}

/// Kills all processes with a mark; returns their number. Blocks for some seconds if a process does not
/// exit.
pub(crate) fn end_marked(mark: ProcessMark) -> usize {
    let found = mark.members().len();
    if !ended(mark, Signal::SIGTERM, GRACE_ROUNDS) && !ended(mark, Signal::SIGKILL, KILL_ROUNDS) {
        tracing::warn!(mark = %mark.0, "cannot kill leftover runtime processes");
    }
    found
}

/// Signals the marked processes until none is left; returns false if some remain after all rounds.
fn ended(mark: ProcessMark, signal: Signal, rounds: u32) -> bool {
    for round in 0..rounds {
        let members = mark.members();
        if members.is_empty() {
            return true;
        }
        // SIGTERM once, so as not to disturb a cleanup; SIGKILL until no new process appears.
        if round == 0 || signal == Signal::SIGKILL {
            for pid in members {
                kill(Pid::from_raw(pid), signal).ok();
            }
        }
        sleep(ROUND);
    }
    mark.members().is_empty()
}
