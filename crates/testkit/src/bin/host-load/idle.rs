//! What the real program takes that does nothing: how soon it is ready, and its memory.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::child::Child;
use crate::process;
use crate::report::{Report, median};

/// Milliseconds from exec to the ready line.
const READY_LIMIT: f64 = 50.0;

/// MiB with an empty data directory.
const EMPTY_LIMIT: f64 = 15.0;

/// How long a host is left alone before its memory is looked at.
const SETTLE: Duration = Duration::from_secs(2);

pub(crate) async fn measure(innkeeper: &Path, quick: bool, report: &mut Report) -> Result<()> {
    let rounds = if quick { 2 } else { 15 };
    let home = tempfile::tempdir().context("no temporary folder")?;
    let mut times = Vec::new();
    for _ in 0..rounds {
        times.push(start(innkeeper, home.path()).await?.took.as_secs_f64() * 1e3);
    }
    let host = start(innkeeper, home.path()).await?;
    tokio::time::sleep(SETTLE).await;
    let memory = process::memory(host.pid()?)?;
    let note = format!("resident {:.1} MiB", memory.resident as f64 / 1048576.0);
    report.within("ready with an empty data directory", median(times), "ms", READY_LIMIT, String::new());
    report.within("  idle memory (PSS)", memory.proportional as f64 / 1048576.0, "MiB", EMPTY_LIMIT, note);
    Ok(())
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
