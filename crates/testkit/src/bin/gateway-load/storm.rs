//! Many requests that are cut off at random points, and what is left of them.
//!
//! The answers never end by themselves, so every one that began must be seen cancelled
//! by the upstream, and no socket of it may stay open anywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use innkeeper_testkit::bench::plan::{Ending, Pace, Plan};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{Connection, Door};
use crate::target::{Target, Upstream};
use crate::usage::Tree;

/// Clients at once.
const CLIENTS: u32 = 64;

/// Milliseconds between two events of an answer.
const DRIP: u32 = 4;

/// Events of an answer: a minute of them, so that none ends by itself.
const EVENTS: u32 = 15_000;

/// Bytes of an answer after which a client is gone at the latest: the head and some events.
const LATEST_CUT: usize = 2_000;

/// Answers that close their connections, to empty a proxy's pool: more than a pool keeps.
const DRAIN: u32 = 128;

/// How long the cancels and the closed sockets may take to show.
const SETTLE: Duration = Duration::from_secs(5);

/// How often it is looked whether they do.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// What a storm left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Storm {
    /// Requests of which a byte of the answer was seen, so that the upstream surely had them.
    pub(crate) answered: u64,
    /// Requests that reached the upstream.
    pub(crate) started: u64,
    /// Those of them that it saw cancelled.
    pub(crate) cancelled: u64,
    /// Those of them that still run.
    pub(crate) active: u64,
    /// From the last cut to the last cancel, as the upstream saw it.
    pub(crate) settled: Duration,
    /// What the proxy held before and after; none without a proxy.
    pub(crate) held: Option<(Held, Held)>,
}

/// What a proxy holds while nothing is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) files: u64,
    pub(crate) threads: u64,
}

/// Makes so many requests and cuts every one of them.
pub(crate) async fn storm(target: &Target, upstream: &Upstream, count: u32, seed: u64) -> Result<Storm> {
    drain(target).await?;
    let processes = target.processes()?;
    let before = settled(processes.as_ref(), None).await?;
    let counted = upstream.counts().await?;

    let answered = cut_all(&target.door, count, seed).await?;

    let last_cut = Instant::now();
    let mut counts = upstream.counts().await?;
    while counts.active > counted.active && last_cut.elapsed() < SETTLE {
        tokio::time::sleep(LOOK_AGAIN).await;
        counts = upstream.counts().await?;
    }
    let settled_after = last_cut.elapsed();
    drain(target).await.context("after the storm")?;
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

/// Takes all idle connections out of the proxy's pool, so that open sockets can be compared.
async fn drain(target: &Target) -> Result<()> {
    let plan = Plan { events: 6, pace: Pace::Full, ending: Ending::Close };
    for _ in 0..DRAIN {
        target.probe(plan).await?;
    }
    Ok(())
}

/// What the proxy holds as soon as it is the same twice, or no more than is wanted.
async fn settled(processes: Option<&Tree>, wanted: Option<Held>) -> Result<Option<Held>> {
    let Some(processes) = processes else { return Ok(None) };
    let start = Instant::now();
    let mut held = look(processes)?;
    loop {
        tokio::time::sleep(LOOK_AGAIN * 10).await;
        let again = look(processes)?;
        let is_settled = wanted.map_or(again == held, |wanted| again.files <= wanted.files);
        if is_settled || start.elapsed() > SETTLE {
            return Ok(Some(again));
        }
        held = again;
    }
}

fn look(processes: &Tree) -> Result<Held> {
    Ok(Held { files: processes.open_files()?, threads: processes.threads()? })
}

/// Cuts all requests and returns how many of them had an answer.
async fn cut_all(door: &Door, count: u32, seed: u64) -> Result<u64> {
    let plan = Plan { events: EVENTS, pace: Pace::Drip { millis: DRIP }, ending: Ending::KeepAlive };
    let request = Arc::new(door.request(plan));
    let taken = Arc::new(AtomicU32::new(0));
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (door, request, taken) = (door.clone(), Arc::clone(&request), Arc::clone(&taken));
        let mut random = StdRng::seed_from_u64(seed.wrapping_add(u64::from(client)));
        clients.spawn(async move {
            let mut answered = 0_u64;
            while taken.fetch_add(1, Ordering::Relaxed) < count {
                answered += u64::from(cut_one(&door, &request, &mut random).await?);
            }
            Ok(answered)
        });
    }
    let mut answered = 0;
    while let Some(ended) = clients.join_next().await {
        let ended: Result<u64> = ended.context("a client's task failed")?;
        answered += ended?;
    }
    Ok(answered)
}

/// Makes one request and cuts it; says whether a byte of the answer had come.
async fn cut_one(door: &Door, request: &[u8], random: &mut StdRng) -> Result<bool> {
    let mut connection = Connection::open(door).await?;
    let kind = random.random_range(0..10);
    let answered = if kind == 0 {
        let part = random.random_range(1..request.len());
        connection.send(request.get(..part).unwrap_or_default()).await?;
        false
    } else {
        connection.send(request).await?;
        if kind > 1 {
            let came = connection.read_some(random.random_range(1..LATEST_CUT)).await?;
            ensure!(came > 0, "the connection was closed before an answer");
        }
        kind > 1
    };
    if random.random_bool(0.5) {
        connection.reset()?;
    }
    Ok(answered)
}
