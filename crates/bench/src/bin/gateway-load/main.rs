//! Gateway benchmark: applies the same load to the fake upstream, nginx, the gateway and optional other
//! proxies in turn, and prints the results as a table.
//!
//! It starts its servers on 127.0.0.1 and stops them. `scripts/bench` builds and runs this program.

mod bench_run;
mod child;
mod client;
mod event_splitter;
mod memory;
mod report;
mod requests;
mod response_parser;
mod sizes;
mod speed;
mod storm;
mod target;
mod usage;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

use crate::bench_run::BenchRun;
use crate::report::{Judge, LimitVerdict};
use crate::sizes::Sizes;
use crate::target::TargetKind;

/// Measures `innkeeper gateway` and nginx on this machine and prints a table.
#[derive(Debug, Parser)]
struct GatewayLoadOptions {
    /// The `innkeeper` program.
    #[arg(long, value_name = "PATH")]
    innkeeper: PathBuf,
    /// The `bench-upstream` program.
    #[arg(long, value_name = "PATH")]
    upstream: PathBuf,
    /// The nginx program; without it there is no baseline.
    #[arg(long, value_name = "PATH")]
    nginx: Option<PathBuf>,
    /// Another proxy and the program that starts it, configured by `BENCH_` environment variables.
    #[arg(long = "other", value_name = "NAME=PATH", value_parser = other)]
    others: Vec<TargetKind>,
    /// Run for seconds instead of minutes; time limits are not checked.
    #[arg(long)]
    quick: bool,
    /// Exit with status 1 if a limit is exceeded.
    #[arg(long)]
    check: bool,
    /// Number of speed measurements per target.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=50))]
    rounds: Option<u32>,
    /// Seed of the random cuts in the abort storm.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Fail after this many seconds [default: 1200, with --quick 120].
    #[arg(long, value_name = "SECONDS")]
    deadline: Option<u64>,
}

fn other(argument: &str) -> Result<TargetKind, String> {
    match argument.split_once('=') {
        Some((name, program)) if !name.is_empty() && !program.is_empty() => {
            Ok(TargetKind::Other { name: name.to_owned(), program: PathBuf::from(program) })
        }
        _ => Err("expected NAME=PATH, for example litellm=scripts/start-litellm".to_owned()),
    }
}

// One thread: the load generator must not take cores from the measured programs.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = GatewayLoadOptions::parse();
    run(&options).await.unwrap_or_else(|error| {
        // If stderr is closed, only the exit code reports the failure.
        writeln!(std::io::stderr(), "gateway-load failed: {error:#}").ok();
        ExitCode::FAILURE
    })
}

async fn run(options: &GatewayLoadOptions) -> Result<ExitCode> {
    raise_open_files()?;
    let deadline = options.deadline.unwrap_or(if options.quick { 120 } else { 1200 });
    let mut stop = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    // Dropping the future kills every server it started.
    tokio::select! {
        ended = tokio::time::timeout(Duration::from_secs(deadline), bench(options)) => match ended {
            Ok(result) => result,
            Err(_) => bail!("not finished after {deadline} s; raise --deadline or use --quick"),
        },
        pressed = tokio::signal::ctrl_c() => {
            pressed.context("cannot wait for Ctrl-C")?;
            Ok(ExitCode::from(130))
        }
        _ = stop.recv() => Ok(ExitCode::from(143)),
    }
}

async fn bench(options: &GatewayLoadOptions) -> Result<ExitCode> {
    let mut sizes = if options.quick { Sizes::QUICK } else { Sizes::WHOLE };
    sizes.rounds = options.rounds.unwrap_or(sizes.rounds);
    let mut kinds = vec![TargetKind::Direct];
    kinds.extend(options.nginx.clone().map(TargetKind::Nginx));
    kinds.push(TargetKind::Gateway(options.innkeeper.clone()));
    kinds.extend(options.others.iter().cloned());
    let busy_before = load_average();
    let benchmark = BenchRun::start(&options.upstream, sizes, options.seed).await?;
    let result = benchmark.measure(&kinds).await?;

    let judge = if options.quick { Judge::NoTimes } else { Judge::All };
    let rows = report::rows(&result.columns, judge);
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let processors = u32::try_from(processors).unwrap_or(u32::MAX);
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{} streams of {} events, {} rounds in turn, {} events/s when paced ({} when gentle), {} idle streams, {} requests of {} \
         events, {} aborts, seed {}\n{processors} processors, load average {busy_before} before and {} after; \
         absolute values vary between machines; compare the ratios\n",
        sizes.load.streams,
        sizes.load.events,
        sizes.rounds,
        sizes.per_second,
        sizes.gentle_per_second,
        sizes.idle_streams,
        sizes.requests,
        sizes.request_events,
        sizes.aborts,
        options.seed,
        load_average(),
    )?;
    writeln!(out, "{}", report::table(&result.columns, &rows))?;
    if busy_before.parse::<f64>().is_ok_and(|busy| busy >= f64::from(processors)) {
        writeln!(out, "warning: the machine was busy; times, and p99 in particular, are unreliable")?;
    }
    for skipped in &result.skipped {
        writeln!(out, "not measured: {skipped}")?;
    }
    let mut exit_code = ExitCode::SUCCESS;
    for row in rows.iter().filter(|row| matches!(row.verdict, LimitVerdict::Missed | LimitVerdict::Unknown)) {
        writeln!(out, "limit exceeded: {}", row.violation())?;
        if options.check {
            exit_code = ExitCode::FAILURE;
        }
    }
    Ok(exit_code)
}

/// The 1-minute load average.
fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_ascii_whitespace().take(1).collect()
}

/// Raises the limit of open files of this program and its servers to the system maximum.
fn raise_open_files() -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("cannot read the open file limit")?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("cannot raise the open file limit")
}
