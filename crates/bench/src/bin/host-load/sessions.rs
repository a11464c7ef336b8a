//! Measures the memory of a host with many open sessions of which few are active, and how much
//! later a session answers whose idle runtime was released, compared with a bare runtime that
//! resumes a conversation.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use innkeeper_testkit::{HostOptions, TestHost, eventually};

use crate::bare::{BareRuntime, HookUse, RuntimeLaunch, SuspendedRuntime, first_turn};
use crate::process;
use crate::report::LoadReport;
use crate::turn::{PROMPT, version};
use crate::turn_client::TurnClient;
use crate::turn_times::{ComparedTurns, TurnTimes, in_time};

/// Maximum memory of the host and all of its processes, in MiB (1.5 GB).
const MEMORY_LIMIT: f64 = 1430.5;

/// Maximum milliseconds that a released session may answer later than a resumed bare runtime, at the
/// median.
const RESUME_LIMIT: f64 = 50.0;

/// Open sessions, and how many of them have a running turn.
const SESSIONS: (usize, usize) = (100, 5);

/// Measured turns of released sessions.
const ROUNDS: usize = 15;

/// How long a runtime is idle before it is released.
const IDLE: Duration = Duration::from_secs(3);

/// How long the release of idle runtimes may take.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(60);

/// A prompt that makes the demo model answer until the measurement has ended.
const LONG_PROMPT: &str = "#demo\ntext Good evening.\nwait 3000000\ntext Good night.";

/// Measures one runtime.
pub(crate) async fn measure(
    innkeeper: &Path,
    claude: &Path,
    quick: bool,
    report: &mut LoadReport,
) -> Result<()> {
    released_sessions(innkeeper, claude, quick, report).await?;
    open_sessions(innkeeper, claude, quick, report).await
}

/// Starts a host that releases idle runtimes early.
async fn start(innkeeper: &Path, claude: &Path, config: &Path) -> Result<TestHost> {
    let file = config.join("config.toml");
    let minutes = IDLE.as_secs_f64() / 60.0;
    std::fs::write(&file, format!("[agents]\nidle_minutes = {minutes}\n"))?;
    let arguments = vec!["--no-token".to_owned(), "--config".to_owned(), file.display().to_string()];
    TestHost::start(HostOptions { arguments, ..HostOptions::new(innkeeper, Some(PathBuf::from(claude))) })
        .await
}

async fn open_sessions(innkeeper: &Path, claude: &Path, quick: bool, report: &mut LoadReport) -> Result<()> {
    let (sessions, active) = if quick { (6, 1) } else { SESSIONS };
    let config = tempfile::tempdir().context("cannot create a temporary directory")?;
    let host = start(innkeeper, claude, config.path()).await?;
    let mut clients = Vec::with_capacity(sessions);
    for _ in 0..sessions {
        let mut client = TurnClient::connect(&host).await?;
        in_time(client.turn(PROMPT)).await?;
        clients.push(client);
    }
    for client in clients.iter_mut().take(active) {
        client.start_turn(LONG_PROMPT).await?;
    }
    let others = format!("the runtimes of {} idle sessions were released", sessions - active);
    eventually(RELEASE_TIMEOUT, &others, || host.runtimes().len() <= active).await?;
    let runtimes = host.runtimes().len();
    ensure!(runtimes == active, "{runtimes} runtimes for {active} active sessions");
    let own = process::memory(host.pid()?)?.proportional;
    let mut all = own;
    for process in host.processes() {
        all += process::memory(process.pid)?.proportional;
    }
    let what = format!("memory of {sessions} sessions, {active} active, {} (PSS)", version(claude));
    let note = format!("the host alone: {:.1} MiB", mebibytes(own));
    report.within(&what, mebibytes(all), "MiB", MEMORY_LIMIT, note);
    Ok(())
}

async fn released_sessions(
    innkeeper: &Path,
    claude: &Path,
    quick: bool,
    report: &mut LoadReport,
) -> Result<()> {
    let config = tempfile::tempdir().context("cannot create a temporary directory")?;
    let host = start(innkeeper, claude, config.path()).await?;
    let mut client = TurnClient::connect(&host).await?;
    in_time(client.turn(PROMPT)).await?;
    let launch = RuntimeLaunch::of(&host)?;
    let mut bare = BareRuntime::start(&launch, HookUse::None).await?;
    in_time(bare.turn(PROMPT)).await?;
    let mut bare = Some(bare.suspend().await?);
    let mut turns = ComparedTurns::default();
    for round in 0..if quick { 2 } else { ROUNDS } {
        host.no_processes(RELEASE_TIMEOUT).await.context("the idle runtime was not released")?;
        turns.run(round, resumed_turn(&mut bare), client.turn(PROMPT)).await?;
    }
    turns.add_rows(&format!("a turn of a released session, {}", version(claude)), RESUME_LIMIT, report);
    Ok(())
}

/// A turn of a bare runtime that resumes its conversation, from before its start.
async fn resumed_turn(conversation: &mut Option<SuspendedRuntime>) -> Result<TurnTimes> {
    let suspended = conversation.take().context("the conversation has a runtime")?;
    let (runtime, times) = first_turn(suspended.resume(), PROMPT).await?;
    *conversation = Some(runtime.suspend().await?);
    Ok(times)
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1048576.0
}
