//! Abort storm: cuts many requests at random points and checks that nothing leaks.
//!
//! The responses never end on their own, so the upstream must see every started response
//! cancelled, and no socket may stay open.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use innkeeper_bench::plan::{AfterResponse, Plan, StreamPace};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{LoadConnection, LoadEndpoint};
use crate::target::{BenchTarget, UpstreamProcess};
use crate::usage::ProcessTree;

/// Concurrent clients.
const CLIENTS: u32 = 64;

/// Milliseconds between two events of a response.
const DRIP: u32 = 4;

/// Events per response: a minute of them, so that no response completes.
const EVENTS: u32 = 15_000;

/// Upper bound of the bytes read before a cut: the head and some events.
const LATEST_CUT: usize = 2_000;

/// Responses that close their connections to empty a proxy's pool; more than a pool
/// holds.
const DRAIN: u32 = 128;

/// Timeout for cancels and closed sockets to become visible.
const SETTLE: Duration = Duration::from_secs(5);

/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The result of an abort storm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Storm {
    /// Requests with at least one received response byte, which the upstream must have
    /// seen.
    pub(crate) answered: u64,
    /// Requests that reached the upstream.
    pub(crate) started: u64,
    /// Those that the upstream saw cancelled.
    pub(crate) cancelled: u64,
    /// Those still active.
    pub(crate) active: u64,
    /// Time from the last cut to the last cancel seen by the upstream.
    pub(crate) settled: Duration,
    /// Resources of the proxy before and after; `None` without a proxy.
    pub(crate) held: Option<(HeldResources, HeldResources)>,
}

/// Resources of a proxy while it is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldResources {
    pub(crate) files: u64,
    pub(crate) threads: u64,
}

/// Sends `count` requests and cuts all of them.
pub(crate) async fn storm(
    target: &BenchTarget,
    upstream: &UpstreamProcess,
    count: u32,
    seed: u64,
) -> Result<Storm> {
    drain(target).await?;
    let processes = target.processes()?;
    let before = settled(processes.as_ref(), None).await?;
    let counted = upstream.counts().await?;

    let answered = cut_all(&target.endpoint, count, seed).await?;

    let last_cut = Instant::now();
    let mut counts = upstream.counts().await?;
    while counts.active > counted.active && last_cut.elapsed() < SETTLE {
        tokio::time::sleep(POLL_INTERVAL).await;
        counts = upstream.counts().await?;
    }
    let settled_after = last_cut.elapsed();
    drain(target).await.context("after the abort storm")?;
    let after = settled(processes.as_ref(), before).await?;
    Ok(Storm {
        answered,
        started: counts.started - counted.started,
        cancelled: counts.cancelled - counted.cancelled,
        active: counts.active.saturating_sub(counted.active),
        settled: settled_after,
        held: before.zip(after),
    })
}

/// Removes all idle connections from the proxy's pool, so that open sockets can be
/// compared.
async fn drain(target: &BenchTarget) -> Result<()> {
    let plan = Plan { events: 6, pace: StreamPace::Full, ending: AfterResponse::Close };
    for _ in 0..DRAIN {
        target.probe(plan).await?;
    }
    Ok(())
}

/// Waits until the proxy's resources are stable, or not above `wanted`, and returns them.
async fn settled(
    processes: Option<&ProcessTree>,
    wanted: Option<HeldResources>,
) -> Result<Option<HeldResources>> {
    let Some(processes) = processes else { return Ok(None) };
    let start = Instant::now();
    let mut held = resources(processes)?;
    loop {
        tokio::time::sleep(POLL_INTERVAL * 10).await;
        let again = resources(processes)?;
        let is_settled = wanted.map_or(again == held, |wanted| again.files <= wanted.files);
        if is_settled || start.elapsed() > SETTLE {
            return Ok(Some(again));
        }
        held = again;
    }
}

fn resources(processes: &ProcessTree) -> Result<HeldResources> {
    Ok(HeldResources { files: processes.open_files()?, threads: processes.threads()? })
}

/// Cuts `count` requests; returns how many received a response byte.
async fn cut_all(endpoint: &LoadEndpoint, count: u32, seed: u64) -> Result<u64> {
    let plan =
        Plan { events: EVENTS, pace: StreamPace::Drip { millis: DRIP }, ending: AfterResponse::KeepAlive };
    let request = Arc::new(endpoint.request(plan));
    let taken = Arc::new(AtomicU32::new(0));
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (endpoint, request, taken) = (endpoint.clone(), Arc::clone(&request), Arc::clone(&taken));
        let mut random = StdRng::seed_from_u64(seed.wrapping_add(u64::from(client)));
        clients.spawn(async move {
            let mut answered = 0_u64;
            while taken.fetch_add(1, Ordering::Relaxed) < count {
                answered += u64::from(cut_one(&endpoint, &request, &mut random).await?);
            }
            Ok(answered)
        });
    }
    let mut answered = 0;
    while let Some(ended) = clients.join_next().await {
        let ended: Result<u64> = ended.context("client task failed")?;
        answered += ended?;
    }
    Ok(answered)
}

/// Sends one request and cuts it; returns whether a response byte was received.
async fn cut_one(endpoint: &LoadEndpoint, request: &[u8], random: &mut StdRng) -> Result<bool> {
    let mut connection = LoadConnection::open(endpoint).await?;
    let kind = random.random_range(0..10);
    let answered = if kind == 0 {
        let part = random.random_range(1..request.len());
        connection.send(request.get(..part).unwrap_or_default()).await?;
        false
    } else {
        connection.send(request).await?;
        if kind > 1 {
            let received = connection.read_some(random.random_range(1..LATEST_CUT)).await?;
            ensure!(received > 0, "the connection closed before a response");
        }
        kind > 1
    };
    if random.random_bool(0.5) {
        connection.reset()?;
    }
    Ok(answered)
}
