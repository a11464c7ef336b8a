//! Undo of random edits by tools, commands and people, in and outside of git.
//!
//! Each case makes random edits over one to three turns, takes one turn back, and compares
//! all files with a model. `INNKEEPER_EDIT_CASES` sets the number of cases, and
//! `INNKEEPER_EDIT_SEED` the first one.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "test helpers fail the test by panicking"
)]

mod disk;
mod model;
mod scenario;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use innkeeper_core::edits::EditStorage;
use innkeeper_store::{EditDatabase, EditDatabaseConfig};
use innkeeper_workspace::{EditLogConfig, LocalEditLog};

use crate::scenario::Scenario;

/// Cases that share a database, since opening one takes longer than a case.
const BATCH: u64 = 50;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

struct OpenLog {
    storage: Arc<EditDatabase>,
    log: LocalEditLog,
}

impl OpenLog {
    fn open(directory: &Path) -> Self {
        let mut config = EditDatabaseConfig::new(1 << 30);
        config.grace = Duration::from_secs(600);
        let storage = Arc::new(EditDatabase::open(directory.join("blobs.db"), config).unwrap());
        let log = LocalEditLog::new(Arc::clone(&storage) as Arc<dyn EditStorage>, EditLogConfig::default());
        Self { storage, log }
    }

    /// Opens database and log again, as after a restart of the host.
    fn reopen(self, directory: &Path) -> Self {
        drop(self.log);
        self.storage.close();
        Self::open(directory)
    }
}

/// Tests that share the cases, so that they run at the same time.
const PARTS: u64 = 4;

#[tokio::test]
async fn undo_of_random_edits_follows_the_model_part_1() {
    run_part(0).await;
}

#[tokio::test]
async fn undo_of_random_edits_follows_the_model_part_2() {
    run_part(1).await;
}

#[tokio::test]
async fn undo_of_random_edits_follows_the_model_part_3() {
    run_part(2).await;
}

#[tokio::test]
async fn undo_of_random_edits_follows_the_model_part_4() {
    run_part(3).await;
}

async fn run_part(part: u64) {
    let cases = number("INNKEEPER_EDIT_CASES", 2_000).div_ceil(PARTS);
    let first = number("INNKEEPER_EDIT_SEED", 1) + part * cases;
    let mut totals = scenario::Totals::default();
    let mut seed = first;
    while seed < first + cases {
        let last = (seed + BATCH).min(first + cases);
        let directory = disk::temporary_directory();
        let template = disk::GitTemplate::create(directory.path());
        let mut open = OpenLog::open(directory.path());
        let mut scenarios = Vec::new();
        for seed in seed..last {
            let mut scenario = Scenario::new(seed, directory.path(), &template);
            scenario.edit(&open.log).await;
            scenarios.push(scenario);
        }
        // Odd cases go on after a restart, even ones without it.
        for scenario in scenarios.iter_mut().filter(|scenario| scenario.seed.is_multiple_of(2)) {
            scenario.undo(&open.log, &mut totals).await;
        }
        open = open.reopen(directory.path());
        for scenario in &mut scenarios {
            if scenario.seed.is_multiple_of(2) {
                scenario.check_after_restart(&open.log).await;
            } else {
                scenario.undo(&open.log, &mut totals).await;
            }
            scenario.redo(&open.log).await;
            scenario.undo_everything(&open.log, &mut totals).await;
        }
        open.log_closed();
        seed = last;
    }
    println!("{totals:?}");
    // The cases are worth something only if all kinds of results occur.
    if cases >= 500 {
        assert!(totals.is_varied(), "{totals:?}");
    }
}

impl OpenLog {
    fn log_closed(self) {
        drop(self.log);
        self.storage.close();
    }
}
