//! One client stops reading under load. Other clients must not be delayed, and after a
//! reconnect it must have the same state as the others.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use innkeeper_bench::load::{Histogram, LoadDriver, Mirror, Socket, SocketClosed, TimedFrameReader, Watch};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::child::Child;
use crate::process;

/// Deltas per second.
const RATE: u64 = 1_000;

/// How long the others are measured without the slow client.
const ALONE: Duration = Duration::from_secs(10);

/// Maximum delay that the slow client may add for the others.
const TOLERANCE: Duration = Duration::from_millis(5);

/// The result of the test.
#[derive(Debug)]
pub(crate) struct SlowClientResult {
    alone: Duration,
    beside: Duration,
    frames: usize,
    deltas: u64,
    ended: &'static str,
    received: String,
    memory: u64,
}

impl fmt::Display for SlowClientResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { alone, beside, frames, deltas, ended, received, memory } = self;
        let mib = memory / 1048576;
        write!(
            formatter,
            "p99 of the others: {alone:?} without the slow client, {beside:?} with it (host memory {mib} MiB)\n\
             the slow client read {frames} frames for {deltas} deltas, {ended}, \
             received {received} on reconnect and equals a new client"
        )
    }
}

/// Streams once without and once with a client that does not read.
pub(crate) async fn run(time: Duration, clients: usize) -> Result<SlowClientResult> {
    let host = Child::under_load().await?;
    let address = host.address()?;
    let mut driver = LoadDriver::new(address).await?;
    let alone = stream(&mut driver, address, time.min(ALONE), clients).await?;
    let mut slow = Socket::connect_narrow(address).await?;
    let response = slow.introduce("slow", &[&driver.chat]).await?;
    let mut mirror = Mirror::new(response.pointer("/snapshots/0").context("no snapshot")?)?;
    let beside = stream(&mut driver, address, time, clients).await?;
    let memory = process::memory(host.pid()?)?.proportional;
    ensure!(
        beside <= alone + TOLERANCE,
        "a client that does not read raised the p99 of the others from {alone:?} to {beside:?}"
    );
    let ended = drain(&mut slow, &mut mirror).await?;
    drop(slow);
    driver.say("reply 1000").await?;
    driver.finish().await?;
    let received = reconnect(address, &driver.chat, &mut mirror).await?;
    let deltas = RATE * time.as_secs().max(1);
    Ok(SlowClientResult { alone, beside, frames: mirror.frames, deltas, ended, received, memory })
}

/// Streams to `clients` reading clients and returns their common p99.
async fn stream(
    driver: &mut LoadDriver,
    address: SocketAddr,
    time: Duration,
    clients: usize,
) -> Result<Duration> {
    let mut readers = JoinSet::new();
    for number in 0..clients {
        let (mut socket, _) = Socket::open(address, &format!("client-{number}"), &[&driver.chat]).await?;
        readers.spawn(async move {
            let mut watch = Watch::default();
            TimedFrameReader::default().watch(&mut socket, &mut watch).await.map(|()| watch)
        });
    }
    driver.say(&format!("stream {} {RATE}", RATE * time.as_secs().max(1))).await?;
    driver.finish().await?;
    let mut all = Histogram::default();
    while let Some(watch) = readers.join_next().await {
        all.merge(&watch.context("a client panicked")??.ages);
    }
    all.per_mille(990).context("no client received text")
}

/// Reads the frames queued for the slow client, until the turn ends or the connection
/// closes.
async fn drain(slow: &mut Socket, mirror: &mut Mirror) -> Result<&'static str> {
    loop {
        let mut folded = Ok(());
        let read = slow.read(|text| {
            if folded.is_ok() {
                folded = mirror.take(text);
            }
        });
        let read = read.await;
        folded?;
        match read {
            Ok(()) if mirror.state.active_turn.is_none() => return Ok("reached the end of the turn"),
            Ok(()) => {}
            Err(error) => {
                error.downcast::<SocketClosed>()?;
                return Ok("was closed by the host");
            }
        }
    }
}

/// Reconnects and compares the slow client's state with a fresh snapshot.
async fn reconnect(address: SocketAddr, chat: &str, mirror: &mut Mirror) -> Result<String> {
    let mut socket = Socket::connect(address).await?;
    let params = json!({"clientId": "slow", "lastSeenServerSeq": mirror.seq, "subscriptions": [chat]});
    let mut missed = socket.request("reconnect", params).await?;
    let received = match missed.get("actions").and_then(Value::as_array) {
        Some(actions) => format!("{} actions", actions.len()),
        None => "a snapshot".to_owned(),
    };
    mirror.resume(&mut missed)?;
    let (_, response) = Socket::open(address, "fresh", &[chat]).await?;
    let fresh = Mirror::new(response.pointer("/snapshots/0").context("no snapshot")?)?;
    ensure!(
        mirror.state == fresh.state,
        "the slow client's state differs from a new client's after reconnecting"
    );
    Ok(received)
}
