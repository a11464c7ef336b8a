//! A fuzzing campaign: run an input, keep it if it reaches new code, mutate.
//!
//! Manages the corpus and the time limit, and saves inputs that break a target. A
//! watchdog ends a run that hangs.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::Instant;

use crate::coverage::Coverage;
use crate::mutate::mutate;
use crate::targets::FuzzTarget;

/// Maximum corpus size. Above it, new inputs replace old ones, so that a long campaign
/// does not run out of memory.
const MOST_INPUTS: usize = 4000;

/// Timeout of one run. Inputs are a few kilobytes and take microseconds, so a longer run
/// is an endless loop.
const HANG_TIME: Duration = Duration::from_secs(10);

/// Runs between two checks of the deadline.
const RUNS_PER_CHECK: u32 = 64;

/// What to fuzz, and for how long.
#[derive(Debug)]
pub(crate) struct Campaign {
    pub(crate) target: &'static FuzzTarget,
    pub(crate) time: Duration,
    pub(crate) seed: u64,
    /// Directory for inputs that break the target.
    pub(crate) finds: PathBuf,
}

/// The result of a campaign.
#[derive(Debug)]
pub(crate) enum CampaignResult {
    Held { runs: u64, corpus: usize, edges: usize },
    Broke { saved: String },
}

impl Campaign {
    /// Fuzzes until the time limit or until the target breaks.
    pub(crate) fn run(&self) -> io::Result<CampaignResult> {
        let deadline = Instant::now() + self.time;
        let mut random = StdRng::seed_from_u64(self.seed);
        let mut coverage = Coverage::default();
        let watchdog = Watchdog::start(self.target.name, self.finds.clone());
        let mut corpus = (self.target.seeds)()?;
        // Guarantees at least one input.
        corpus.push(Vec::new());
        let mut runs = 0;
        for input in &corpus {
            if let Some(broke) = self.attempt(&watchdog, &mut coverage, input).1 {
                return Ok(broke);
            }
            runs += 1;
        }
        while Instant::now() < deadline {
            for _ in 0..RUNS_PER_CHECK {
                let input = mutate(&mut random, &corpus, self.target.words);
                let (is_new, broke) = self.attempt(&watchdog, &mut coverage, &input);
                if let Some(broke) = broke {
                    return Ok(broke);
                }
                runs += 1;
                if is_new {
                    keep(&mut corpus, input, &mut random);
                }
            }
        }
        Ok(CampaignResult::Held { runs, corpus: corpus.len(), edges: coverage.edges() })
    }

    /// Runs one input; returns whether it reached new code, and the failure if it broke
    /// the target.
    fn attempt(
        &self,
        watchdog: &Watchdog,
        coverage: &mut Coverage,
        input: &[u8],
    ) -> (bool, Option<CampaignResult>) {
        watchdog.watch(input);
        coverage.reset();
        let result = catch_unwind(AssertUnwindSafe(|| (self.target.run)(input)));
        let is_new = coverage.learn();
        let broke = result
            .is_err()
            .then(|| CampaignResult::Broke { saved: save(self.target.name, &self.finds, input) });
        (is_new, broke)
    }
}

fn keep(corpus: &mut Vec<Vec<u8>>, input: Vec<u8>, random: &mut StdRng) {
    if corpus.len() < MOST_INPUTS {
        corpus.push(input);
    } else {
        let place = random.random_range(0..corpus.len());
        if let Some(old) = corpus.get_mut(place) {
            *old = input;
        }
    }
}

/// Picks a random input of the corpus.
pub(crate) fn pick<'a>(random: &mut StdRng, corpus: &'a [Vec<u8>]) -> &'a [u8] {
    corpus.choose(random).map(Vec::as_slice).unwrap_or_default()
}

/// Saves an input that breaks a target; returns a message that says how to reproduce the
/// failure.
fn save(target: &str, folder: &Path, input: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let path = folder.join(format!("{target}-{:016x}", hasher.finish()));
    match std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, input)) {
        Ok(()) => format!("reproduce with: scripts/fuzz --replay {} {target}", path.display()),
        Err(error) => format!("cannot save the input to {}: {error}; input: {input:?}", path.display()),
    }
}

/// Saves the input and aborts the program when a run hangs.
struct Watchdog {
    current: Arc<Mutex<Vec<u8>>>,
    /// One message per run. The channel may be full, since any message resets the
    /// timeout.
    alive: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    fn start(target: &'static str, finds: PathBuf) -> Self {
        let (alive, seen) = sync_channel(1);
        let current = Arc::new(Mutex::new(Vec::new()));
        let watched = Arc::clone(&current);
        let thread = std::thread::spawn(move || guard(&seen, &watched, target, &finds));
        Self { current, alive: Some(alive), thread: Some(thread) }
    }

    fn watch(&self, input: &[u8]) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.clear();
        current.extend_from_slice(input);
        if let Some(alive) = &self.alive {
            // A full channel already resets the timeout.
            alive.try_send(()).ok();
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.alive = None;
        if let Some(thread) = self.thread.take() {
            // Joining fails only if the thread panicked, which stderr shows.
            thread.join().ok();
        }
    }
}

fn guard(alive: &Receiver<()>, current: &Mutex<Vec<u8>>, target: &str, finds: &Path) {
    loop {
        match alive.recv_timeout(HANG_TIME) {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let input = current.lock().unwrap_or_else(PoisonError::into_inner);
                crate::say(&format!("{target}: HANGS; {}", save(target, finds, &input)));
                std::process::abort();
            }
        }
    }
}
