//! Measures one session that streams to many clients: the age of text on arrival, and the
//! CPU time and memory of the host. The clients run in this process and only count
//! frames.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use innkeeper_bench::load::{Histogram, LoadDriver, Socket, TimedFrameReader, Watch};
use innkeeper_bench::monotonic_nanos;
use tokio::task::JoinSet;

use crate::child::Child;
use crate::process;
use crate::report::LoadReport;

/// Deltas per second.
const RATE: u64 = 1_000;

/// Maximum age on arrival, in milliseconds.
const BEHIND_LIMIT: f64 = 25.0;

/// Maximum number of cores that the host may use.
const PROCESSOR_LIMIT: f64 = 1.0;

pub(crate) async fn measure(quick: bool, report: &mut LoadReport) -> Result<()> {
    let (clients, seconds) = if quick { (20, 1) } else { (500, 15) };
    let host = Child::under_load().await?;
    let mut driver = LoadDriver::new(host.address()?).await?;
    let mut readers = JoinSet::new();
    for number in 0..clients {
        let (socket, _) = Socket::open(host.address()?, &format!("client-{number}"), &[&driver.chat]).await?;
        readers.spawn(read(socket));
    }
    let (before, since) = (process::processor_time(host.pid()?)?, monotonic_nanos());
    driver.say(&format!("stream {} {RATE}", seconds * RATE)).await?;
    driver.finish().await?;
    let mut worst = Duration::ZERO;
    let mut all = Histogram::default();
    while let Some(watch) = readers.join_next().await {
        let watch = watch.context("a client panicked")??;
        worst = worst.max(watch.ages.per_mille(990).context("a client received no text")?);
        all.merge(&watch.ages);
    }
    let elapsed = Duration::from_nanos(monotonic_nanos().saturating_sub(since)).as_secs_f64();
    let processor = (process::processor_time(host.pid()?)? - before).as_secs_f64() / elapsed;
    let expected = clients * seconds * RATE;
    ensure!(all.total() <= expected, "{} frames for {expected} deltas", all.total());
    let frames =
        format!("{:.0} % of the deltas sent as separate frames", 100.0 * share(all.total(), expected));
    let millis = |age: Option<Duration>| age.map_or(f64::NAN, |age| age.as_secs_f64() * 1e3);
    let what = format!("{RATE} deltas/s to {clients} clients: age, p99 of the worst");
    report.within(&what, millis(Some(worst)), "ms", BEHIND_LIMIT, frames);
    report.record("  p50 of all", millis(all.per_mille(500)), "ms");
    report.record("  maximum of all", millis(all.per_mille(1000)), "ms");
    report.within("  cores used by the host", processor, "", PROCESSOR_LIMIT, String::new());
    let memory = process::memory(host.pid()?)?;
    report.record("  memory of the host afterwards (PSS)", memory.proportional as f64 / 1048576.0, "MiB");
    Ok(())
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

async fn read(mut socket: Socket) -> Result<Watch> {
    let (reader, mut watch) = (TimedFrameReader::default(), Watch::default());
    reader.watch(&mut socket, &mut watch).await?;
    Ok(watch)
}
