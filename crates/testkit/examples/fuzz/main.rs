//! Fuzzing of every parser of foreign bytes: `scripts/fuzz SECONDS [TARGET]`.
//!
//! A small coverage-guided fuzzer that needs neither a nightly compiler nor a
//! C++ one, because every check has to run on a machine that has just a Rust
//! toolchain. Built without the script's compiler flags it still works, but
//! mutates blindly.

mod coverage;
mod engine;
mod mutate;
mod targets;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use engine::{Campaign, Outcome};
use targets::{TARGETS, Target};

const USAGE: &str =
    "usage: fuzz SECONDS [TARGET] [--seed NUMBER] [--finds FOLDER]\n       fuzz --replay FILE TARGET";

/// The exit code of a wrong use.
const WRONG_USE: u8 = 2;

fn main() -> ExitCode {
    let outcome = match Arguments::parse(std::env::args().skip(1)) {
        Ok(Arguments::Fuzz { time, targets, seed, finds }) => fuzz(time, &targets, seed, finds),
        Ok(Arguments::Replay { file, target }) => replay(&file, target),
        Err(problem) => {
            say(&format!("{problem}\n{USAGE}\ntargets: {}", names()));
            return ExitCode::from(WRONG_USE);
        }
    };
    if outcome { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What was asked for.
enum Arguments {
    Fuzz { time: Duration, targets: Vec<&'static Target>, seed: u64, finds: PathBuf },
    Replay { file: PathBuf, target: &'static Target },
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let first = words.next().ok_or("how many seconds?")?;
        if first == "--replay" {
            let file = words.next().ok_or("which file?")?.into();
            let name = words.next().ok_or("which target?")?;
            return Ok(Self::Replay { file, target: find(&name)? });
        }
        let seconds = first.parse().map_err(|_| format!("`{first}` is not a number of seconds"))?;
        let mut targets: Vec<&Target> = TARGETS.iter().collect();
        let mut seed = rand::random();
        let mut finds = PathBuf::from(".");
        while let Some(word) = words.next() {
            match word.as_str() {
                "--seed" => {
                    let number = words.next().ok_or("which seed?")?;
                    seed = number.parse().map_err(|_| format!("`{number}` is not a seed"))?;
                }
                "--finds" => finds = words.next().ok_or("which folder?")?.into(),
                name => targets = vec![find(name)?],
            }
        }
        Ok(Self::Fuzz { time: Duration::from_secs(seconds), targets, seed, finds })
    }
}

fn find(name: &str) -> Result<&'static Target, String> {
    TARGETS.iter().find(|target| target.name == name).ok_or_else(|| format!("there is no target `{name}`"))
}

fn names() -> String {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    names.join(", ")
}

/// Fuzzes each target for the whole time; says whether all of them held.
fn fuzz(time: Duration, targets: &[&'static Target], seed: u64, finds: PathBuf) -> bool {
    if !coverage::is_measured() {
        say("built without coverage: mutating blindly; scripts/fuzz builds it with");
    }
    let mut all_held = true;
    for target in targets {
        say(&format!("{}: fuzzing for {} s with the seed {seed}", target.name, time.as_secs()));
        let campaign = Campaign { target, time, seed, finds: finds.clone() };
        match campaign.run() {
            Ok(Outcome::Held { runs, corpus, places }) => {
                say(&format!("{}: held in {runs} runs; {corpus} inputs reach {places} places", target.name));
            }
            Ok(Outcome::Broke { saved }) => {
                all_held = false;
                say(&format!("{}: BROKE; {saved}", target.name));
            }
            Err(error) => {
                all_held = false;
                say(&format!("{}: its seeds cannot be read: {error}", target.name));
            }
        }
    }
    all_held
}

fn replay(file: &PathBuf, target: &Target) -> bool {
    match std::fs::read(file) {
        Ok(input) => {
            // A panic is what the person wants to see, so it is not caught.
            (target.run)(&input);
            say(&format!("{}: held", target.name));
            true
        }
        Err(error) => {
            say(&format!("{} cannot be read: {error}", file.display()));
            false
        }
    }
}

fn say(line: &str) {
    // If stderr is gone there is nobody to tell.
    writeln!(std::io::stderr(), "{line}").ok();
}
