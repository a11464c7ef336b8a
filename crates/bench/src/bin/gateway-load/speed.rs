//! Measures CPU time per event and the age of events on arrival.
//!
//! A run is one load on one target. Connections are opened and used once beforehand, so that the cost of
//! connecting is excluded.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use innkeeper_bench::plan::{AfterResponse, Plan, StreamPace};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{LoadConnection, ResponseStats};
use crate::requests::requests;
use crate::target::BenchTarget;

/// Timeout of a run.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A number of concurrent streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamLoad {
    pub(crate) streams: u32,
    /// Events per stream.
    pub(crate) events: u32,
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// CPU nanoseconds per event; `None` without a proxy.
    pub(crate) processor: Option<f64>,
    /// Events per second over all streams.
    pub(crate) rate: f64,
    /// Events per client read, which shows how far events were merged on the way.
    pub(crate) per_read: f64,
    /// Age of events on arrival; `None` if they had no timestamps.
    pub(crate) age: Option<Ages>,
}

/// Percentiles of ages, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ages {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
}

/// Streams at full speed.
pub(crate) async fn full(target: &BenchTarget, load: StreamLoad) -> Result<Run> {
    run(target, load, Plan::full(load.events)).await
}

/// Streams that share a rate. `group` must be unused.
pub(crate) async fn paced(
    target: &BenchTarget,
    load: StreamLoad,
    per_second: u32,
    group: u32,
) -> Result<Run> {
    let pace = StreamPace::Shared { group, streams: load.streams, per_second };
    run(target, load, Plan { events: load.events, pace, ending: AfterResponse::KeepAlive }).await
}

/// Many short responses, which include the cost of a request.
pub(crate) async fn short(target: &BenchTarget, count: u32, events: u32) -> Result<Run> {
    let plan = Plan::full(events);
    let processes = target.processes()?;
    let before = processes.as_ref().map(|tree| tree.processor_time()).transpose()?;
    let start = Instant::now();
    requests(target, count, plan).await?;
    let seconds = start.elapsed().as_secs_f64();
    let after = processes.as_ref().map(|tree| tree.processor_time()).transpose()?;
    let sent = f64::from(count) * f64::from(events);
    Ok(Run {
        processor: before.zip(after).map(|(before, after)| as_float(after.saturating_sub(before)) / sent),
        rate: sent / seconds,
        per_read: 0.0,
        age: None,
    })
}

async fn run(target: &BenchTarget, load: StreamLoad, plan: Plan) -> Result<Run> {
    tokio::time::timeout(TIMEOUT, measure(target, load, plan))
        .await
        .with_context(|| format!("not finished after {} s", TIMEOUT.as_secs()))?
}

async fn measure(target: &BenchTarget, load: StreamLoad, plan: Plan) -> Result<Run> {
    let warm = Plan::full(20);
    let warm_request = target.endpoint.request(warm);
    let mut connections = Vec::new();
    for _ in 0..load.streams {
        let mut connection = LoadConnection::open(&target.endpoint).await?;
        connection.ask(&warm_request, warm, target.fidelity).await?;
        connections.push(connection);
    }

    let processes = target.processes()?;
    let before = processes.as_ref().map(|tree| tree.processor_time()).transpose()?;
    let start = Instant::now();
    let stats = request_all(target, connections, plan).await?;
    let seconds = start.elapsed().as_secs_f64();
    let after = processes.as_ref().map(|tree| tree.processor_time()).transpose()?;

    // Events as sent by the upstream, so that merging events does not make a proxy look more expensive.
    let sent = f64::from(load.streams) * f64::from(load.events);
    Ok(Run {
        processor: before.zip(after).map(|(before, after)| as_float(after.saturating_sub(before)) / sent),
        rate: sent / seconds,
        per_read: as_float(stats.events) / as_float(stats.reads.max(1)),
        age: percentiles(stats.ages),
    })
}

/// Sends a request on every connection at once and sums the statistics.
async fn request_all(
    target: &BenchTarget,
    connections: Vec<LoadConnection>,
    plan: Plan,
) -> Result<ResponseStats> {
    let request = Arc::new(target.endpoint.request(plan));
    let fidelity = target.fidelity;
    let mut requests = JoinSet::new();
    for mut connection in connections {
        let request = Arc::clone(&request);
        requests.spawn(async move { connection.ask(&request, plan, fidelity).await });
    }
    let mut stats = ResponseStats::default();
    while let Some(response) = requests.join_next().await {
        stats.add(response.context("stream task failed")??);
    }
    ensure!(stats.events > 0, "received no events");
    Ok(stats)
}

/// The percentiles; `None` for an empty list.
fn percentiles(mut ages: Vec<u64>) -> Option<Ages> {
    ages.sort_unstable();
    let at = |percent: usize| ages.get(ages.len().checked_sub(1)? * percent / 100).copied();
    Some(Ages { p50: at(50)?, p99: at(99)? })
}

#[expect(clippy::cast_precision_loss, reason = "printed with a few digits only")]
pub(crate) fn as_float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_sort_ages() {
        assert_eq!(percentiles(Vec::new()), None);
        assert_eq!(percentiles((0..=100).rev().collect()), Some(Ages { p50: 50, p99: 99 }));
        assert_eq!(percentiles(vec![7]), Some(Ages { p50: 7, p99: 7 }));
    }
}
