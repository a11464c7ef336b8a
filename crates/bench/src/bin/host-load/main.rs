//! Host benchmark: the cost of a commit and of a permission decision, the delay of many
//! clients, the time to open a long chat, the resources of an idle host, the time the
//! host adds to a turn and to a tool call that needs permission, the memory of many sessions, and the
//! cost of recording edits.
//!
//! It starts its hosts on 127.0.0.1 and stops them. `scripts/bench` and `scripts/soak`
//! build and run this program. It also serves as the host under load, in a separate
//! process.

mod bare;
mod call_times;
mod child;
mod commit;
mod crowd;
mod edits;
mod fill;
mod idle;
mod open;
mod permissions;
mod policy;
mod pressure;
mod process;
mod report;
mod sessions;
mod slow_client;
mod turn;
mod turn_client;
mod turn_times;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Parser, Subcommand};
use innkeeper_bench::load::LoadHost;
use innkeeper_core::storage::Storage;
use innkeeper_store::{Store, StoreConfig};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::pressure::{ConnectionsOptions, DeafOptions, StarveOptions};
use crate::report::LoadReport;

#[derive(Debug, Parser)]
struct HostLoadOptions {
    #[command(subcommand)]
    command: LoadCommand,
}

#[derive(Debug, Subcommand)]
enum LoadCommand {
    /// Measure the host on this machine and print a table
    Bench(BenchOptions),
    /// Measure the first delta and the end of turns through the host and from a bare runtime
    Turn(RuntimeOptions),
    /// Measure the memory of many open sessions, and the first answer of a released session
    Sessions(RuntimeOptions),
    /// Measure tool calls that a permission rule of the host allows, and those of a bare runtime
    Permissions(RuntimeOptions),
    /// Measure what recording edits adds to a turn, and the search for changed files
    Edits(BenchOptions),
    /// Let one client stop reading while others continue, then reconnect it
    Slow(SlowOptions),
    /// Let clients ask for much and never read; checks the host's memory
    Deaf(DeafOptions),
    /// Run turns beside half requests on both listeners
    Starve(StarveOptions),
    /// Connect clients up to the host's limit of open files, then run turns
    Connections(ConnectionsOptions),
    /// Run the host under load; exits when stdin closes
    #[command(hide = true)]
    Serve {
        /// Data directory
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
}

#[derive(Debug, Args)]
struct BenchOptions {
    /// The `innkeeper` program
    #[arg(long, value_name = "PATH")]
    innkeeper: PathBuf,
    /// Run for a few seconds to check that everything works; limits are not checked
    #[arg(long)]
    quick: bool,
    /// Exit with status 1 if a limit is exceeded
    #[arg(long)]
    check: bool,
    /// Fail after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    deadline: u64,
}

#[derive(Debug, Args)]
struct RuntimeOptions {
    #[command(flatten)]
    bench: BenchOptions,
    /// Claude runtime to measure with; can be given several times
    #[arg(long, value_name = "PATH", required = true)]
    claude: Vec<PathBuf>,
}

impl RuntimeOptions {
    fn deadline(&self) -> Duration {
        Duration::from_secs(self.bench.deadline)
    }
}

#[derive(Debug, Args)]
struct SlowOptions {
    /// How long the client does not read
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// Number of clients that continue to read
    #[arg(long, value_name = "N", default_value_t = 20)]
    clients: usize,
}

fn main() -> ExitCode {
    run(HostLoadOptions::parse()).unwrap_or_else(|error| {
        // If stderr is closed, only the exit code reports the failure.
        writeln!(std::io::stderr(), "host-load failed: {error:#}").ok();
        ExitCode::FAILURE
    })
}

fn run(options: HostLoadOptions) -> Result<ExitCode> {
    raise_open_files()?;
    match options.command {
        // The same number of threads as the real host.
        LoadCommand::Serve { data } => {
            runtime(tokio::runtime::Builder::new_multi_thread())?.block_on(serve(data))
        }
        // One thread: the load generator must not take cores from the measured host.
        LoadCommand::Bench(options) => {
            let deadline = Duration::from_secs(options.deadline);
            runtime(tokio::runtime::Builder::new_current_thread())?
                .block_on(unless_stopped(deadline, bench(&options)))
        }
        // Many runtimes are started one after the other, here and below.
        LoadCommand::Turn(options) => on_one_thread(3 * options.deadline(), turn(&options)),
        LoadCommand::Sessions(options) => on_one_thread(3 * options.deadline(), sessions(&options)),
        LoadCommand::Permissions(options) => on_one_thread(options.deadline(), permissions(&options)),
        LoadCommand::Edits(options) => on_one_thread(Duration::from_secs(options.deadline), edits(&options)),
        LoadCommand::Slow(options) => {
            let deadline = Duration::from_secs(options.seconds + 120);
            runtime(tokio::runtime::Builder::new_current_thread())?
                .block_on(unless_stopped(deadline, slow(&options)))
        }
        LoadCommand::Deaf(options) => on_one_thread(options.deadline(), options.run()),
        LoadCommand::Starve(options) => on_one_thread(options.deadline(), options.run()),
        LoadCommand::Connections(options) => on_one_thread(options.deadline(), options.run()),
    }
}

fn on_one_thread(deadline: Duration, work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    runtime(tokio::runtime::Builder::new_current_thread())?.block_on(unless_stopped(deadline, work))
}

fn runtime(mut builder: tokio::runtime::Builder) -> Result<tokio::runtime::Runtime> {
    builder.enable_all().build().context("cannot start the async runtime")
}

/// Stops on a signal or after `deadline`; dropping `work` kills every host it started.
async fn unless_stopped(
    deadline: Duration,
    work: impl Future<Output = Result<ExitCode>>,
) -> Result<ExitCode> {
    let mut stop = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    tokio::select! {
        ended = tokio::time::timeout(deadline, work) => match ended {
            Ok(result) => result,
            Err(_) => bail!("not finished after {} s", deadline.as_secs()),
        },
        pressed = tokio::signal::ctrl_c() => {
            pressed.context("cannot wait for Ctrl-C")?;
            Ok(ExitCode::from(130))
        }
        _ = stop.recv() => Ok(ExitCode::from(143)),
    }
}

async fn serve(data: PathBuf) -> Result<ExitCode> {
    let store = Arc::new(Store::open(StoreConfig::new(data))?);
    let host = LoadHost::start_with(Arc::clone(&store) as Arc<dyn Storage>).await?;
    writeln!(std::io::stdout(), "{}", json!({"event": "ready", "address": host.address()?.to_string()}))?;
    let (mut stdin, mut ignored) = (tokio::io::stdin(), [0; 64]);
    while stdin.read(&mut ignored).await.is_ok_and(|read| read > 0) {}
    host.stop().await;
    store.close();
    Ok(ExitCode::SUCCESS)
}

async fn bench(options: &BenchOptions) -> Result<ExitCode> {
    let mut report = LoadReport::default();
    commit::measure(options.quick, &mut report)?;
    policy::measure(options.quick, &mut report)?;
    crowd::measure(options.quick, &mut report).await?;
    open::measure(options.quick, &mut report).await?;
    idle::measure(&options.innkeeper, options.quick, &mut report).await?;
    print(&report, options)
}

async fn turn(options: &RuntimeOptions) -> Result<ExitCode> {
    let RuntimeOptions { bench, claude } = options;
    let mut report = LoadReport::default();
    for claude in claude {
        turn::measure(&bench.innkeeper, claude, bench.quick, &mut report).await?;
    }
    print(&report, bench)
}

async fn sessions(options: &RuntimeOptions) -> Result<ExitCode> {
    let RuntimeOptions { bench, claude } = options;
    let mut report = LoadReport::default();
    for claude in claude {
        sessions::measure(&bench.innkeeper, claude, bench.quick, &mut report).await?;
    }
    print(&report, bench)
}

async fn permissions(options: &RuntimeOptions) -> Result<ExitCode> {
    let RuntimeOptions { bench, claude } = options;
    let mut report = LoadReport::default();
    for claude in claude {
        permissions::measure(&bench.innkeeper, claude, bench.quick, &mut report).await?;
    }
    print(&report, bench)
}

async fn edits(options: &BenchOptions) -> Result<ExitCode> {
    let mut report = LoadReport::default();
    edits::measure(options.quick, &mut report).await?;
    print(&report, options)
}

/// Prints the report and checks its limits.
fn print(report: &LoadReport, options: &BenchOptions) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{report}")?;
    if options.quick {
        writeln!(out, "quick run: limits are not checked")?;
        return Ok(ExitCode::SUCCESS);
    }
    let missed = report.missed();
    for row in &missed {
        writeln!(out, "limit exceeded: {row}")?;
    }
    Ok(if options.check && !missed.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn slow(options: &SlowOptions) -> Result<ExitCode> {
    let outcome = slow_client::run(Duration::from_secs(options.seconds), options.clients).await?;
    writeln!(std::io::stdout(), "{outcome}")?;
    Ok(ExitCode::SUCCESS)
}

/// Raises the limit of open files of this program and its hosts to the system maximum.
fn raise_open_files() -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("cannot read the open file limit")?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("cannot raise the open file limit")
}
