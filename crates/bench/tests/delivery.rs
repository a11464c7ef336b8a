//! Delivery of text to clients: text is merged for clients that allow a delay, and each delta is sent
//! separately to clients that do not; a client that stops reading does not delay others and loses nothing.

#![expect(clippy::indexing_slicing, reason = "indexing a missing JSON field yields null")]

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use innkeeper_bench::load::{LoadDriver, LoadHost, Mirror, Socket, SocketClosed, TimedFrameReader, Watch};
use serde_json::{Value, json};

/// Timeout for expected events, generous for busy machines.
const TIMEOUT: Duration = Duration::from_secs(50);

/// Connects a client that subscribes to the chat and then does not read.
async fn connect_slow(address: SocketAddr, chat: &str) -> Result<(Socket, Mirror)> {
    let mut socket = Socket::connect_narrow(address).await?;
    let response = socket.introduce("slow", &[chat]).await?;
    Ok((socket, Mirror::new(&response["snapshots"][0])?))
}

/// Applies the next frames to the mirror.
async fn apply_next(socket: &mut Socket, mirror: &mut Mirror) -> Result<()> {
    let mut folded = Ok(());
    let read = socket.read(|text| {
        if folded.is_ok() {
            folded = mirror.take(text);
        }
    });
    read.await.and(folded)
}

async fn reconnect(address: SocketAddr, chat: &str, mirror: &mut Mirror) -> Result<Value> {
    let mut socket = Socket::connect(address).await?;
    let params = json!({"clientId": "slow", "lastSeenServerSeq": mirror.seq, "subscriptions": [chat]});
    let mut response = socket.request("reconnect", params).await?;
    let kind = response["type"].clone();
    mirror.resume(&mut response)?;
    Ok(kind)
}

async fn fresh(address: SocketAddr, chat: &str) -> Result<Mirror> {
    let (_, response) = Socket::open(address, "fresh", &[chat]).await?;
    Mirror::new(&response["snapshots"][0])
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_stops_reading_delays_no_other_client_and_recovers() -> Result<()> {
    const DELTAS: u64 = 20_000;
    let host = LoadHost::start().await?;
    let address = host.address()?;
    let mut driver = LoadDriver::new(address).await?;
    let (mut slow, mut mirror) = connect_slow(address, &driver.chat).await?;
    let (mut other, _) = Socket::open(address, "other", &[&driver.chat]).await?;
    driver.say(&format!("stream {DELTAS} 10000")).await?;
    let (reader, mut watch) = (TimedFrameReader::default(), Watch::default());
    tokio::time::timeout(TIMEOUT, async {
        tokio::try_join!(reader.watch(&mut other, &mut watch), driver.finish()).map(|_| ())
    })
    .await
    .context("a client that does not read delays the others")??;

    // The turn has ended for the other clients; now the slow client reads some of the queued frames.
    while mirror.frames < 50 {
        tokio::time::timeout(TIMEOUT, apply_next(&mut slow, &mut mirror)).await??;
    }
    drop(slow);
    let partly = fresh(address, &driver.chat).await?;
    assert!(mirror.seq < partly.seq, "the slow client missed no frames");
    reconnect(address, &driver.chat, &mut mirror).await?;
    assert_eq!(mirror.state, partly.state);
    host.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_queued_for_slow_client_are_merged_without_loss() -> Result<()> {
    const DELTAS: u64 = 40_000;
    let host = LoadHost::start().await?;
    let address = host.address()?;
    let mut driver = LoadDriver::new(address).await?;
    let (mut slow, mut mirror) = connect_slow(address, &driver.chat).await?;
    driver.say(&format!("stream {DELTAS} 10000")).await?;
    tokio::time::timeout(TIMEOUT, driver.finish()).await??;
    tokio::time::timeout(TIMEOUT, async {
        while mirror.state.turns.is_empty() {
            apply_next(&mut slow, &mut mirror).await?;
        }
        anyhow::Ok(())
    })
    .await
    .context("the slow client did not receive the end of the turn")??;
    assert!(mirror.frames < DELTAS as usize, "{} frames, none merged", mirror.frames);
    assert_eq!(mirror.state, fresh(address, &driver.chat).await?.state);
    host.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn client_over_queue_limit_is_closed_and_recovers() -> Result<()> {
    const TURNS: usize = 4;
    let host = LoadHost::start().await?;
    let address = host.address()?;
    let mut driver = LoadDriver::new(address).await?;
    let (mut slow, mut mirror) = connect_slow(address, &driver.chat).await?;
    // More than twice the queue limit of 64 MiB: the blocked writer may hold as much again. Sent turn by
    // turn, so that the driver keeps up, and in outputs that are small enough not to be shortened.
    for _ in 0..TURNS {
        driver.say("replace 180 200000").await?;
        tokio::time::timeout(TIMEOUT, driver.finish()).await??;
    }
    let end = tokio::time::timeout(TIMEOUT, async {
        loop {
            if let Err(error) = apply_next(&mut slow, &mut mirror).await {
                return error;
            }
        }
    })
    .await
    .context("the host did not close a client over the queue limit")?;
    assert!(end.is::<SocketClosed>() || end.is::<std::io::Error>(), "{end:#}");
    assert!(mirror.state.turns.len() < TURNS, "the client did not fall behind");
    assert_eq!(reconnect(address, &driver.chat, &mut mirror).await?, json!("snapshot"));
    assert_eq!(mirror.state, fresh(address, &driver.chat).await?.state);
    host.stop().await;
    Ok(())
}

/// Number of frames that a subscriber with these delivery options receives for `deltas` deltas in half a
/// second.
async fn frames_with(delivery: Value, deltas: u64) -> Result<usize> {
    let host = LoadHost::start().await?;
    let address = host.address()?;
    let mut driver = LoadDriver::new(address).await?;
    let (mut socket, _) = Socket::open(address, "reader", &[]).await?;
    let response = socket.request("subscribe", json!({"channel": driver.chat, "delivery": delivery})).await?;
    let mut mirror = Mirror::new(&response["snapshot"])?;
    driver.say(&format!("stream {deltas} {}", deltas * 2)).await?;
    tokio::time::timeout(TIMEOUT, async {
        while mirror.state.turns.is_empty() {
            apply_next(&mut socket, &mut mirror).await?;
        }
        anyhow::Ok(())
    })
    .await
    .context("the turn did not end")??;
    assert_eq!(mirror.state, fresh(address, &driver.chat).await?.state);
    host.stop().await;
    Ok(mirror.frames)
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_merged_for_client_that_allows_delay() -> Result<()> {
    let frames = frames_with(json!({"maxLatencyMs": 400}), 100).await?;
    assert!(frames < 20, "{frames} frames for 100 deltas");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_delta_is_sent_separately_to_client_without_delay() -> Result<()> {
    let frames = frames_with(json!({"maxLatencyMs": 0}), 100).await?;
    assert!(frames > 100, "{frames} frames for 100 deltas");
    Ok(())
}
