//! How much processor time an event costs, and how much later it comes.
//!
//! A run is one load on one target. Connections are opened and used once before it, so
//! that it measures events and not connecting.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use innkeeper_testkit::bench::plan::{Ending, Pace, Plan};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{Connection, Tally};
use crate::requests::requests;
use crate::target::Target;

/// A load that is slower than this is not worth waiting for.
const PATIENCE: Duration = Duration::from_secs(120);

/// A number of streams at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) streams: u32,
    /// The events of each stream.
    pub(crate) events: u32,
}

/// What a run showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Nanoseconds of processor time for an event; none without a proxy.
    pub(crate) processor: Option<f64>,
    /// Events of all streams in a second.
    pub(crate) rate: f64,
    /// Events in a read of the client's: how much was put together on the way.
    pub(crate) per_read: f64,
    /// The age of events when they came, in nanoseconds; none if they carried no time.
    pub(crate) age: Option<Ages>,
}

/// Percentiles of ages, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ages {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
}

/// Streams that come as fast as they are taken.
pub(crate) async fn full(target: &Target, load: Load) -> Result<Run> {
    run(target, load, Plan::full(load.events)).await
}

/// Streams that share a rate. The group's number must be new.
pub(crate) async fn paced(target: &Target, load: Load, per_second: u32, group: u32) -> Result<Run> {
    let pace = Pace::Shared { group, streams: load.streams, per_second };
    run(target, load, Plan { events: load.events, pace, ending: Ending::KeepAlive }).await
}

/// So many answers of a few events each, where the cost of a request counts too.
pub(crate) async fn short(target: &Target, count: u32, events: u32) -> Result<Run> {
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

async fn run(target: &Target, load: Load, plan: Plan) -> Result<Run> {
    tokio::time::timeout(PATIENCE, measure(target, load, plan))
        .await
        .with_context(|| format!("the load took more than {} s", PATIENCE.as_secs()))?
}

async fn measure(target: &Target, load: Load, plan: Plan) -> Result<Run> {
    let warm = Plan::full(20);
    let warm_request = target.door.request(warm);
    let mut connections = Vec::new();
    for _ in 0..load.streams {
        let mut connection = Connection::open(&target.door).await?;
        connection.ask(&warm_request, warm, target.fidelity).await?;
        connections.push(connection);
    }

    let processes = target.processes()?;
    let before = processes.as_ref().map(|tree| tree.processor_time()).transpose()?;
    let start = Instant::now();
    let tally = ask_all(target, connections, plan).await?;
    let seconds = start.elapsed().as_secs_f64();
    let after = processes.as_ref().map(|tree| tree.processor_time()).transpose()?;

    // Counted as the upstream sent them, so that a proxy that merges events is not charged for more.
    let sent = f64::from(load.streams) * f64::from(load.events);
    Ok(Run {
        processor: before.zip(after).map(|(before, after)| as_float(after.saturating_sub(before)) / sent),
        rate: sent / seconds,
        per_read: as_float(tally.events) / as_float(tally.reads.max(1)),
        age: percentiles(tally.ages),
    })
}

/// Asks on all connections at once and adds up what came.
async fn ask_all(target: &Target, connections: Vec<Connection>, plan: Plan) -> Result<Tally> {
    let request = Arc::new(target.door.request(plan));
    let fidelity = target.fidelity;
    let mut asked = JoinSet::new();
    for mut connection in connections {
        let request = Arc::clone(&request);
        asked.spawn(async move { connection.ask(&request, plan, fidelity).await });
    }
    let mut tally = Tally::default();
    while let Some(answer) = asked.join_next().await {
        tally.add(answer.context("a stream's task failed")??);
    }
    ensure!(tally.events > 0, "no event came");
    Ok(tally)
}

/// The percentiles of some ages, if there are any.
fn percentiles(mut ages: Vec<u64>) -> Option<Ages> {
    ages.sort_unstable();
    let at = |percent: usize| ages.get(ages.len().checked_sub(1)? * percent / 100).copied();
    Some(Ages { p50: at(50)?, p99: at(99)? })
}

#[expect(clippy::cast_precision_loss, reason = "figures for a person, of a few digits")]
pub(crate) fn as_float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_ages() {
        assert_eq!(percentiles(Vec::new()), None);
        assert_eq!(percentiles((0..=100).rev().collect()), Some(Ages { p50: 50, p99: 99 }));
        assert_eq!(percentiles(vec![7]), Some(Ages { p50: 7, p99: 7 }));
    }
}
