//! Half requests on the host's listener and on its gateway. Turns must go on, new clients
//! must be served, and the host must not keep all of the sockets.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::host_process::{descriptors, gateway};
use crate::host::{HostOptions, TestHost};
use crate::wait::in_time;

/// Sockets without a complete request that each listener may keep.
const KEPT_PER_LISTENER: usize = 256;

/// Descriptors that turns and clients may use during the run.
const OTHERS: usize = 24;

/// How long a turn may take beside the half requests.
const TURN_TIME: Duration = Duration::from_secs(30);

/// The size of the scenario.
#[derive(Clone, Copy, Debug)]
pub struct StarvePlan {
    /// Half requests that are kept open at each of the two listeners.
    pub sockets: usize,
    /// How long turns run beside them; at least two do.
    pub time: Duration,
    /// Seed of the positions at which the requests are cut.
    pub seed: u64,
}

/// Figures of a run.
#[derive(Debug)]
pub struct StarveResult {
    turns: usize,
    slowest: Duration,
    descriptors: usize,
}

impl fmt::Display for StarveResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { turns, slowest, descriptors } = self;
        write!(
            formatter,
            "{turns} turns beside the half requests, the slowest took {slowest:?}; at most {descriptors} open descriptors"
        )
    }
}

/// Runs turns while other sockets never complete their requests.
pub async fn send_half_requests(options: HostOptions, plan: StarvePlan) -> Result<StarveResult> {
    let host = TestHost::start(options).await?;
    let session = format!("claude:/{}", uuid::Uuid::new_v4());
    let mut client = host.observer("client").await?;
    client.create_session(&session, &host.work_uri()).await?;
    let chat = client.open_session(&session).await?;
    client.say(&chat, "turn-0", "#demo\ntext ready").await?;
    client.until_turn_over(&chat, "turn-0").await?;

    let before = descriptors(&host)?;
    let own = host.socket()?.trim_start_matches("ws://").trim_end_matches('/').parse()?;
    let mut random = StdRng::seed_from_u64(plan.seed);
    let mut halves = Vec::new();
    let (start, mut turns, mut slowest, mut most) = (Instant::now(), 0, Duration::ZERO, before);
    while turns < 2 || start.elapsed() < plan.time {
        // Replaces the sockets that the host has closed.
        halves.clear();
        for _ in 0..plan.sockets {
            halves.push(half_request(own, &mut random).await?);
            halves.push(half_request(gateway(&host)?, &mut random).await?);
        }
        most = most.max(descriptors(&host)?);
        turns += 1;
        let (turn, since) = (format!("turn-{turns}"), Instant::now());
        client.say(&chat, &turn, "#demo\ntext still here").await?;
        in_time(TURN_TIME, "a turn beside half requests", client.until_turn_over(&chat, &turn)).await??;
        slowest = slowest.max(since.elapsed());
        let newcomer = format!("newcomer-{turns}");
        in_time(TURN_TIME, "a new client beside half requests", host.observer(&newcomer)).await??;
    }
    let kept = most.saturating_sub(before);
    ensure!(kept <= 2 * KEPT_PER_LISTENER + OTHERS, "the host keeps {kept} descriptors for half requests");
    Ok(StarveResult { turns, slowest, descriptors: most })
}

/// Sends a request up to a random position of its head.
async fn half_request(address: SocketAddr, random: &mut StdRng) -> Result<TcpStream> {
    let head = format!("POST /v1/messages HTTP/1.1\r\nhost: {address}\r\ncontent-length: 1000000\r\n\r");
    let end = random.random_range(0..=head.len());
    let mut socket = TcpStream::connect(address).await.context("cannot connect")?;
    // Fails if the host has already closed the socket.
    socket.write_all(head.as_bytes().get(..end).unwrap_or_default()).await.ok();
    Ok(socket)
}
