//! Measures how much time the host adds to the first delta and to the end of a turn, compared
//! with a bare runtime. Both use the same options and the same demo model and alternate turn
//! by turn, so that changes in machine speed affect both.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use innkeeper_testkit::{HostOptions, TestHost, eventually};

use crate::bare::{BareRuntime, HookUse, RuntimeLaunch, first_turn};
use crate::process;
use crate::report::LoadReport;
use crate::turn_client::TurnClient;
use crate::turn_times::{ComparedTurns, TurnTimes, in_time};

/// Maximum milliseconds that the host may add to a turn of a running runtime, at the median.
const WARM_LIMIT: f64 = 2.0;

/// Maximum milliseconds that the host may add to a first turn, which starts the runtime, at the median.
const COLD_LIMIT: f64 = 10.0;

/// Unmeasured turns on each side of a pair.
const WARM_UP: usize = 10;

/// Pairs of runtimes for warm turns. One runtime can be faster than another for its whole life.
const WARM_PAIRS: usize = 5;

/// Measured warm turns on each side of a pair.
const WARM_ROUNDS: usize = 50;

/// Measured first turns on each side.
const COLD_ROUNDS: usize = 40;

/// Measured turns on each side of runtimes that were started in advance.
const PREWARMED_ROUNDS: usize = 40;

/// How long the processes of a finished turn may take to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the start of a runtime may take.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A prompt that makes the demo model respond at once with one short text.
pub(crate) const PROMPT: &str = "#demo\ntext Good evening, a room is free.";

/// Measures one runtime.
pub(crate) async fn measure(
    innkeeper: &Path,
    claude: &Path,
    quick: bool,
    report: &mut LoadReport,
) -> Result<()> {
    let options = HostOptions {
        arguments: vec!["--no-token".to_owned()],
        ..HostOptions::new(innkeeper, Some(PathBuf::from(claude)))
    };
    let host = TestHost::start(options).await?;
    let mut client = TurnClient::connect(&host).await?;
    // The first message starts the host's runtime, whose options the bare runtimes copy.
    in_time(client.turn(PROMPT)).await?;
    let launch = RuntimeLaunch::of(&host)?;
    client.dispose().await?;
    let warm = warm_turns(&launch, &host, quick).await?;
    warm.add_rows(&format!("a warm turn, {}", version(claude)), WARM_LIMIT, report);
    let cold = first_turns(&launch, &host, quick).await?;
    cold.add_rows(&format!("a first turn, {}", version(claude)), COLD_LIMIT, report);
    let prewarmed = prewarmed_turns(&launch, &host, quick).await?;
    prewarmed.add_rows(&format!("a pre-warmed first turn, {}", version(claude)), WARM_LIMIT, report);
    Ok(())
}

/// Turns of runtimes that have had turns before.
async fn warm_turns(launch: &RuntimeLaunch, host: &TestHost, quick: bool) -> Result<ComparedTurns> {
    let (pairs, warm_up, rounds) = if quick { (1, 1, 5) } else { (WARM_PAIRS, WARM_UP, WARM_ROUNDS) };
    let mut measured = ComparedTurns::default();
    for _ in 0..pairs {
        host.no_processes(EXIT_TIMEOUT).await?;
        let mut client = TurnClient::connect(host).await?;
        let mut runtime = BareRuntime::start(launch, HookUse::None).await?;
        // The runtimes compile their code in these turns.
        let mut unmeasured = ComparedTurns::default();
        for round in 0..warm_up {
            unmeasured.run(round, runtime.turn(PROMPT), client.turn(PROMPT)).await?;
        }
        for round in 0..rounds {
            measured.run(round, runtime.turn(PROMPT), client.turn(PROMPT)).await?;
        }
        runtime.stop().await?;
        client.dispose().await?;
    }
    Ok(measured)
}

/// First turns, which start their runtime.
async fn first_turns(launch: &RuntimeLaunch, host: &TestHost, quick: bool) -> Result<ComparedTurns> {
    let mut turns = ComparedTurns::default();
    for round in 0..if quick { 2 } else { COLD_ROUNDS } {
        host.no_processes(EXIT_TIMEOUT).await?;
        turns.run(round, bare_first_turn(launch), host_first_turn(host)).await?;
    }
    Ok(turns)
}

async fn bare_first_turn(launch: &RuntimeLaunch) -> Result<TurnTimes> {
    let (runtime, times) = first_turn(BareRuntime::start(launch, HookUse::None), PROMPT).await?;
    runtime.stop().await?;
    Ok(times)
}

async fn host_first_turn(host: &TestHost) -> Result<TurnTimes> {
    let mut client = TurnClient::connect(host).await?;
    let times = client.turn(PROMPT).await?;
    client.dispose().await?;
    host.no_processes(EXIT_TIMEOUT).await?;
    Ok(times)
}

/// First turns of runtimes that were started in advance: by a draft, and by the benchmark.
async fn prewarmed_turns(launch: &RuntimeLaunch, host: &TestHost, quick: bool) -> Result<ComparedTurns> {
    let mut turns = ComparedTurns::default();
    for round in 0..if quick { 2 } else { PREWARMED_ROUNDS } {
        host.no_processes(EXIT_TIMEOUT).await?;
        let mut client = TurnClient::connect(host).await?;
        client.write_draft("Good").await?;
        let started = || host.runtimes().first().copied();
        eventually(START_TIMEOUT, "the draft started a runtime", || started().is_some()).await?;
        process::idle(started().context("the runtime exited")?).await?;
        let mut runtime = BareRuntime::start(launch, HookUse::None).await?;
        process::idle(runtime.pid()?).await?;
        turns.run(round, runtime.turn(PROMPT), client.turn(PROMPT)).await?;
        runtime.stop().await?;
        client.dispose().await?;
    }
    Ok(turns)
}

/// The name of the runtime's installation directory, which is its version.
pub(crate) fn version(claude: &Path) -> String {
    let folder = claude.parent().and_then(Path::file_name).unwrap_or(claude.as_os_str());
    folder.to_string_lossy().into_owned()
}
