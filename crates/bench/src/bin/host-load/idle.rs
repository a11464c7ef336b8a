//! Measures the idle `innkeeper` program: startup time, time to list its sessions, and
//! memory, with no sessions and with many.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use innkeeper_bench::load::Socket;
use innkeeper_bench::monotonic_nanos;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::child::Child;
use crate::fill::fill;
use crate::process;
use crate::report::{LoadReport, median};

/// Maximum milliseconds from exec to the ready line.
const READY_LIMIT: f64 = 50.0;

/// Maximum milliseconds from the request to the last byte of the list.
const LIST_LIMIT: f64 = 10.0;

/// Maximum memory in MiB, with an empty data directory and with many sessions.
const MEMORY_LIMITS: [f64; 2] = [15.0, 30.0];

/// Number of measurements.
const ROUNDS: usize = 15;

/// Delay before memory is measured.
const SETTLE: Duration = Duration::from_secs(2);

pub(crate) async fn measure(innkeeper: &Path, quick: bool, report: &mut LoadReport) -> Result<()> {
    let many = if quick { 100 } else { 10_000 };
    for (sessions, memory_limit) in [0, many].into_iter().zip(MEMORY_LIMITS) {
        let home = tempfile::tempdir().context("cannot create a temporary directory")?;
        let data = home.path().join("data");
        // The first start creates the token and an empty database.
        stop(start(innkeeper, home.path()).await?).await?;
        if sessions > 0 {
            fill(&data, sessions).await?;
        }
        let mut times = Vec::new();
        for _ in 0..if quick { 2 } else { ROUNDS } {
            let host = start(innkeeper, home.path()).await?;
            times.push(host.took.as_secs_f64() * 1e3);
            stop(host).await?;
        }
        let host = start(innkeeper, home.path()).await?;
        tokio::time::sleep(SETTLE).await;
        let memory = process::memory(host.pid()?)?;
        let what = format!("ready with {sessions} stored sessions");
        report.within(&what, median(times), "ms", READY_LIMIT, String::new());
        let note = format!("resident {:.1} MiB", mebibytes(memory.resident));
        report.within("  idle memory (PSS)", mebibytes(memory.proportional), "MiB", memory_limit, note);
        if sessions > 0 {
            list(&host, sessions, report).await?;
        }
        stop(host).await?;
    }
    Ok(())
}

/// Measures the time to list all sessions.
async fn list(host: &Child, sessions: u64, report: &mut LoadReport) -> Result<()> {
    let (mut socket, _) = Socket::open(host.address()?, "reader", &[]).await?;
    let (mut times, mut size) = (Vec::new(), 0);
    for _ in 0..ROUNDS {
        let since = monotonic_nanos();
        let rows = socket.request_bytes("listSessions", json!({})).await?;
        times.push(Duration::from_nanos(monotonic_nanos().saturating_sub(since)).as_secs_f64() * 1e3);
        size = rows.len();
        let listed = memchr::memmem::find_iter(&rows, br#""resource":"claude:/"#).count();
        ensure!(u64::try_from(listed)? == sessions, "the list contains {listed} of {sessions} sessions");
    }
    let slowest = times.iter().copied().fold(0.0, f64::max);
    let note = format!("{:.1} MB, slowest of {ROUNDS}: {slowest:.1} ms", size as f64 / 1e6);
    report.within("  listing them", median(times), "ms", LIST_LIMIT, note);
    let memory = process::memory(host.pid()?)?;
    report.record("  memory after listing (PSS)", mebibytes(memory.proportional), "MiB");
    Ok(())
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1048576.0
}

async fn start(innkeeper: &Path, home: &Path) -> Result<Child> {
    let data = home.join("data");
    let arguments = [
        "serve",
        "--json",
        "--no-open",
        "--no-token",
        "--listen",
        "127.0.0.1:0",
        "--upstream",
        "demo",
        "--data-dir",
    ];
    let arguments = arguments.into_iter().map(OsStr::new).chain([data.as_os_str()]);
    Child::start(innkeeper, arguments, Some(home)).await
}

/// Shuts a host down with SIGTERM; a killed host would leave recovery work for the next
/// start.
async fn stop(mut host: Child) -> Result<()> {
    kill(Pid::from_raw(i32::try_from(host.pid()?)?), Signal::SIGTERM)
        .context("cannot send SIGTERM to the host")?;
    host.ended().await
}
