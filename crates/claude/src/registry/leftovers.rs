//! Ending what a host that is gone left behind.
//!
//! Owns the steps and their limits. A process is ended only if its environment bears the record's mark, which
//! is random and known to this registry alone. A warden that lives is busy ending the tree and is waited for.

use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use uuid::Uuid;

use super::record::Record;
use crate::options::MARK;
use crate::process_table;

/// The pause between two looks at the process table.
const ROUND: Duration = Duration::from_millis(20);

/// How many rounds a warden gets to end the tree by itself: 6 s, its own steps take at most 5.5 s.
const WARDEN_ROUNDS: u32 = 300;

/// How many rounds the rest has between SIGTERM and SIGKILL: 500 ms.
const GRACE_ROUNDS: u32 = 25;

/// After how many rounds of SIGKILL what still lives cannot be killed: 2 s.
const KILL_ROUNDS: u32 = 100;

/// Ends everything that bears the record's mark; gives the number of processes.
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

/// Ends everything that bears a mark; gives the number of processes. Blocks for some seconds if something
/// does not want to end.
pub(crate) fn end_marked(mark: Uuid) -> usize {
    let assignment = format!("{MARK}={mark}");
    let found = members(&assignment).len();
    if !ended(&assignment, Signal::SIGTERM, GRACE_ROUNDS) && !ended(&assignment, Signal::SIGKILL, KILL_ROUNDS)
    {
        tracing::warn!(%mark, "leftovers of a runtime could not be ended");
    }
    found
}

/// Signals the members until none is left; false if some are after so many rounds.
fn ended(mark: &str, signal: Signal, rounds: u32) -> bool {
    for round in 0..rounds {
        let members = members(mark);
        if members.is_empty() {
            return true;
        }
        // SIGTERM once, so that a clean-up is not disturbed; SIGKILL until nothing new appears.
        if round == 0 || signal == Signal::SIGKILL {
            for pid in members {
                kill(Pid::from_raw(pid), signal).ok();
            }
        }
        sleep(ROUND);
    }
    members(mark).is_empty()
}

/// The live processes that bear the mark.
fn members(mark: &str) -> Vec<i32> {
    let entries = process_table::all().unwrap_or_default();
    let live = entries.iter().filter(|entry| !entry.is_zombie).map(|entry| entry.identity.pid);
    live.filter(|pid| process_table::has_variable(*pid, mark)).collect()
}
