//! One client stops reading under load. The others must not notice, and it comes back to
//! the same state as theirs.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use innkeeper_testkit::load::{Closed, Histogram, Reader, Socket, Watch};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::child::Child;
use crate::driver::Driver;

/// Text a second.
const RATE: u64 = 1_000;

/// How much later the others' text may be, beside their own time without the slow client.
const TOLERANCE: Duration = Duration::from_millis(10);

/// What happened.
#[derive(Debug)]
pub(crate) struct Outcome {
    alone: Duration,
    beside: Duration,
    ended: String,
    caught_up: String,
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { alone, beside, ended, caught_up } = self;
        write!(
            formatter,
            "p99 of the others: {alone:?} without the slow client, {beside:?} beside it\n\
             the slow client {ended}, and {caught_up}"
        )
    }
}

/// Streams once without and once with a client that does not read.
pub(crate) async fn run(time: Duration, clients: usize) -> Result<Outcome> {
    let host = Child::under_load().await?;
    let address = host.address()?;
    let mut driver = Driver::new(address).await?;
    let alone = stream(&mut driver, address, time.min(Duration::from_secs(10)), clients).await?;
    let (mut slow, _) = Socket::open(address, "slow", &[&driver.chat]).await?;
    let mut watch = Watch::default();
    let beside = stream(&mut driver, address, time, clients).await?;
    ensure!(
        beside <= alone + TOLERANCE,
        "the others' p99 went from {alone:?} to {beside:?} because one client did not read"
    );
    let ended = drain(&mut slow, &mut watch).await?;
    drop(slow);
    let caught_up = come_back(address, &driver.chat, watch.last_seq).await?;
    Ok(Outcome { alone, beside, ended, caught_up })
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

/// Reads what the host kept for the slow client, to its end or to the end of the turn.
async fn drain(slow: &mut Socket, watch: &mut Watch) -> Result<String> {
    match Reader::default().watch(slow, watch).await {
        Ok(()) => Ok(format!("got {} frames for all of the text", watch.ages.total())),
        Err(error) => {
            let closed = error.downcast::<Closed>()?;
            Ok(format!("was closed with code {} after {} frames", closed.code, watch.ages.total()))
        }
    }
}

/// Reconnects and compares what the slow client then has with a fresh snapshot.
async fn come_back(address: SocketAddr, chat: &str, seen: u64) -> Result<String> {
    let mut socket = Socket::connect(address).await?;
    let params = json!({"clientId": "slow", "lastSeenServerSeq": seen, "subscriptions": [chat]});
    let missed = socket.request("reconnect", params).await?;
    let (mut fresh, _) = Socket::open(address, "fresh", &[]).await?;
    let snapshot = fresh.request("subscribe", json!({"channel": chat})).await?;
    let state = snapshot.pointer("/snapshot/state").context("no snapshot")?;
    match missed.get("type").and_then(Value::as_str) {
        Some("replay") => {
            let actions = missed.get("actions").and_then(Value::as_array).context("no actions")?;
            Ok(format!("was told the {} actions that it missed", actions.len()))
        }
        _ => {
            let given = missed.pointer("/snapshots/0/state").context("no snapshot")?;
            ensure!(given == state, "the slow client came back to another state than a new one gets");
            Ok("got a new snapshot, equal to what a new client gets".to_owned())
        }
    }
}
