//! One client stops reading under load. The others must not notice, and it comes back to
//! the same state as theirs.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use innkeeper_testkit::load::{Closed, Driver, Histogram, Mirror, Reader, Socket, Watch};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::child::Child;
use crate::process;

/// Text a second.
const RATE: u64 = 1_000;

/// For how long the others are measured without the slow client.
const ALONE: Duration = Duration::from_secs(10);

/// How much later the others' text may be because of it.
const TOLERANCE: Duration = Duration::from_millis(5);

/// What happened.
#[derive(Debug)]
pub(crate) struct Outcome {
    alone: Duration,
    beside: Duration,
    frames: usize,
    deltas: u64,
    ended: &'static str,
    told: String,
    memory: u64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { alone, beside, frames, deltas, ended, told, memory } = self;
        let mib = memory / 1048576;
        write!(
            formatter,
            "p99 of the others: {alone:?} without the slow client, {beside:?} beside it (memory then {mib} MiB)\n\
             the slow client read {frames} frames for {deltas} deltas, {ended}, \
             came back for {told} and is equal to a new client"
        )
    }
}

/// Streams once without and once with a client that does not read.
pub(crate) async fn run(time: Duration, clients: usize) -> Result<Outcome> {
    let host = Child::under_load().await?;
    let address = host.address()?;
    let mut driver = Driver::new(address).await?;
    let alone = stream(&mut driver, address, time.min(ALONE), clients).await?;
    let mut slow = Socket::connect_narrow(address).await?;
    let answer = slow.introduce("slow", &[&driver.chat]).await?;
    let mut mirror = Mirror::new(answer.pointer("/snapshots/0").context("no snapshot")?)?;
    let beside = stream(&mut driver, address, time, clients).await?;
    let memory = process::memory(host.pid()?)?.proportional;
    ensure!(
        beside <= alone + TOLERANCE,
        "the others' p99 went from {alone:?} to {beside:?} because one client did not read"
    );
    let ended = drain(&mut slow, &mut mirror).await?;
    drop(slow);
    driver.say("reply 1000").await?;
    driver.finish().await?;
    let told = come_back(address, &driver.chat, &mut mirror).await?;
    let deltas = RATE * time.as_secs().max(1);
    Ok(Outcome { alone, beside, frames: mirror.frames, deltas, ended, told, memory })
}

/// Streams to so many clients that read, and answers the p99 of all of them.
async fn stream(
    driver: &mut Driver,
    address: SocketAddr,
    time: Duration,
    clients: usize,
) -> Result<Duration> {
    let mut readers = JoinSet::new();
    for number in 0..clients {
        let (mut socket, _) = Socket::open(address, &format!("client-{number}"), &[&driver.chat]).await?;
        readers.spawn(async move {
            let mut watch = Watch::default();
            Reader::default().watch(&mut socket, &mut watch).await.map(|()| watch)
        });
    }
    driver.say(&format!("stream {} {RATE}", RATE * time.as_secs().max(1))).await?;
    driver.finish().await?;
    let mut all = Histogram::default();
    while let Some(watch) = readers.join_next().await {
        all.merge(&watch.context("a client panicked")??.ages);
    }
    all.per_mille(990).context("nobody saw any text")
}

/// Reads what the host kept for the slow client, up to the end of the turn or of the
/// connection.
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
            Ok(()) if mirror.state.active_turn.is_none() => return Ok("up to the end of the turn"),
            Ok(()) => {}
            Err(error) => {
                error.downcast::<Closed>()?;
                return Ok("was closed");
            }
        }
    }
}

/// Reconnects and compares what the slow client then has with a fresh snapshot.
async fn come_back(address: SocketAddr, chat: &str, mirror: &mut Mirror) -> Result<String> {
    let mut socket = Socket::connect(address).await?;
    let params = json!({"clientId": "slow", "lastSeenServerSeq": mirror.seq, "subscriptions": [chat]});
    let mut missed = socket.request("reconnect", params).await?;
    let told = match missed.get("actions").and_then(Value::as_array) {
        Some(actions) => format!("{} actions", actions.len()),
        None => "a snapshot".to_owned(),
    };
    mirror.resume(&mut missed)?;
    let (_, answer) = Socket::open(address, "fresh", &[chat]).await?;
    let fresh = Mirror::new(answer.pointer("/snapshots/0").context("no snapshot")?)?;
    ensure!(mirror.state == fresh.state, "the slow client came back to another state than a new one gets");
    Ok(told)
}
