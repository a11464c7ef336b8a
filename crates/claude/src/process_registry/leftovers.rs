//! Kills processes left behind by dead hosts.
//!
//! Owns the steps and their limits. A process is killed only if its environment contains the mark of the
//! record, which is random and known only to the registry. A running warden is already terminating the
//! tree, so it is waited for.

use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use uuid::Uuid;

use super::record::Record;
use crate::options::MARK;
use crate::process_table;

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
        for _ in 0..WARDEN_ROUNDS {
            if !warden.is_alive() {
                break;
            }
            sleep(ROUND);
        }
    }
    end_marked(record.mark)
}

/// Kills all processes with a mark; returns their number. Blocks for some seconds if a process does not
/// exit.
pub(crate) fn end_marked(mark: Uuid) -> usize {
    let assignment = format!("{MARK}={mark}");
    let found = members(&assignment).len();
    if !ended(&assignment, Signal::SIGTERM, GRACE_ROUNDS) && !ended(&assignment, Signal::SIGKILL, KILL_ROUNDS)
    {
        tracing::warn!(%mark, "cannot kill leftover runtime processes");
    }
    found
}

/// Signals the marked processes until none is left; returns false if some remain after all rounds.
fn ended(mark: &str, signal: Signal, rounds: u32) -> bool {
    for round in 0..rounds {
        let members = members(mark);
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
    members(mark).is_empty()
}

/// The running processes with the mark.
fn members(mark: &str) -> Vec<i32> {
    let entries = process_table::all().unwrap_or_default();
    let live = entries.iter().filter(|entry| !entry.is_zombie).map(|entry| entry.identity.pid);
    live.filter(|pid| process_table::has_variable(*pid, mark)).collect()
}
