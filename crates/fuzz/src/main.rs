//! Fuzzes every parser of untrusted bytes: `scripts/fuzz SECONDS [TARGET]`.
//!
//! A small coverage-guided fuzzer that needs neither a nightly compiler nor a C++
//! compiler, because every check must run with a stable Rust toolchain only. Without the
//! compiler flags of `scripts/fuzz` it still works, but mutates without coverage
//! feedback.

mod coverage;
mod engine;
mod mutate;
mod targets;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use engine::{Campaign, CampaignResult};
use targets::{FuzzTarget, TARGETS};

const USAGE: &str =
    "usage: fuzz SECONDS [TARGET] [--seed NUMBER] [--finds FOLDER]\n       fuzz --replay FILE TARGET";

/// Exit code for invalid arguments.
const USAGE_ERROR: u8 = 2;

fn main() -> ExitCode {
    let outcome = match FuzzArguments::parse(std::env::args().skip(1)) {
        Ok(FuzzArguments::Fuzz { time, targets, seed, finds }) => fuzz(time, &targets, seed, finds),
        Ok(FuzzArguments::Replay { file, target }) => replay(&file, target),
        Err(problem) => {
            say(&format!("{problem}\n{USAGE}\ntargets: {}", names()));
            return ExitCode::from(USAGE_ERROR);
        }
    };
    if outcome { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Parsed command line.
enum FuzzArguments {
    Fuzz { time: Duration, targets: Vec<&'static FuzzTarget>, seed: u64, finds: PathBuf },
    Replay { file: PathBuf, target: &'static FuzzTarget },
}

impl FuzzArguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let first = words.next().ok_or("missing SECONDS")?;
        if first == "--replay" {
            let file = words.next().ok_or("missing FILE after --replay")?.into();
            let name = words.next().ok_or("missing TARGET")?;
            return Ok(Self::Replay { file, target: find(&name)? });
        }
        let seconds = first.parse().map_err(|_| format!("invalid number of seconds `{first}`"))?;
        let mut targets: Vec<&FuzzTarget> = TARGETS.iter().collect();
        let mut seed = rand::random();
        let mut finds = PathBuf::from(".");
        while let Some(word) = words.next() {
            match word.as_str() {
                "--seed" => {
                    let number = words.next().ok_or("missing NUMBER after --seed")?;
                    seed = number.parse().map_err(|_| format!("invalid seed `{number}`"))?;
                }
                "--finds" => finds = words.next().ok_or("missing FOLDER after --finds")?.into(),
                name => targets = vec![find(name)?],
            }
        }
        Ok(Self::Fuzz { time: Duration::from_secs(seconds), targets, seed, finds })
    }
}

fn find(name: &str) -> Result<&'static FuzzTarget, String> {
    TARGETS.iter().find(|target| target.name == name).ok_or_else(|| format!("unknown target `{name}`"))
}

fn names() -> String {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    names.join(", ")
}

/// Fuzzes each target for `time`; returns whether all targets passed.
fn fuzz(time: Duration, targets: &[&'static FuzzTarget], seed: u64, finds: PathBuf) -> bool {
    if !coverage::is_measured() {
        say("built without coverage; run scripts/fuzz to build with coverage");
    }
    let mut all_passed = true;
    for target in targets {
        say(&format!("{}: fuzzing for {} s with seed {seed}", target.name, time.as_secs()));
        let campaign = Campaign { target, time, seed, finds: finds.clone() };
        match campaign.run() {
            Ok(CampaignResult::Held { runs, corpus, edges }) => {
                say(&format!("{}: passed {runs} runs; {corpus} inputs reach {edges} edges", target.name));
            }
            Ok(CampaignResult::Broke { saved }) => {
                all_passed = false;
                say(&format!("{}: FAILED; {saved}", target.name));
            }
            Err(error) => {
                all_passed = false;
                say(&format!("{}: cannot read its seeds: {error}", target.name));
            }
        }
    }
    all_passed
}

fn replay(file: &PathBuf, target: &FuzzTarget) -> bool {
    match std::fs::read(file) {
        Ok(input) => {
            // The panic is not caught, so that its message and backtrace are shown.
            (target.run)(&input);
            say(&format!("{}: passed", target.name));
            true
        }
        Err(error) => {
            say(&format!("cannot read {}: {error}", file.display()));
            false
        }
    }
}

fn say(line: &str) {
    // Errors are ignored if stderr is closed.
    writeln!(std::io::stderr(), "{line}").ok();
}
