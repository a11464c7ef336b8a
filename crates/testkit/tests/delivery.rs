//! How text reaches clients: held back for those who ask for it, each piece by itself for
//! those who do not want to wait; and a client that stops reading is nobody else's
//! trouble, and loses nothing.

#![expect(clippy::indexing_slicing, reason = "JSON without a field reads as null")]

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use innkeeper_testkit::load::{Closed, Driver, LoadHost, Mirror, Reader, Socket, Watch};
use serde_json::{Value, json};

/// How long something may take that is to happen, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(50);

/// A client that has opened the chat and will not read on.
async fn silent(address: SocketAddr, chat: &str) -> Result<(Socket, Mirror)> {
    let mut socket = Socket::connect_narrow(address).await?;
    let answer = socket.introduce("slow", &[chat]).await?;
    Ok((socket, Mirror::new(&answer["snapshots"][0])?))
}

/// Folds what comes next.
async fn fold(socket: &mut Socket, mirror: &mut Mirror) -> Result<()> {
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
    let mut answer = socket.request("reconnect", params).await?;
    let kind = answer["type"].clone();
    mirror.resume(&mut answer)?;
    Ok(kind)
}

async fn fresh(address: SocketAddr, chat: &str) -> Result<Mirror> {
    let (_, answer) = Socket::open(address, "fresh", &[chat]).await?;
    Mirror::new(&answer["snapshots"][0])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_reading_delays_nobody_and_comes_back_equal() -> Result<()> {
    const DELTAS: u64 = 20_000;
    let host = LoadHost::start().await?;
    let address = host.address()?;
    let mut driver = Driver::new(address).await?;
    let (mut slow, mut mirror) = silent(address, &driver.chat).await?;
    let (mut other, _) = Socket::open(address, "other", &[&driver.chat]).await?;
    driver.say(&format!("stream {DELTAS} 10000")).await?;
    let (reader, mut watch) = (Reader::default(), Watch::default());
    tokio::time::timeout(PATIENCE, async {
        tokio::try_join!(reader.watch(&mut other, &mut watch), driver.finish()).map(|_| ())
    })
    .await
    .context("the others wait for a client that does not read")??;

    // The turn is over for the others; now the slow one reads some of what was kept.
    while mirror.frames < 50 {
        tokio::time::timeout(PATIENCE, fold(&mut slow, &mut mirror)).await??;
    }
    drop(slow);
    let partly = fresh(address, &driver.chat).await?;
    assert!(mirror.seq < partly.seq, "the slow client has not missed anything");
    reconnect(address, &driver.chat, &mut mirror).await?;
    assert_eq!(mirror.state, partly.state);
    host.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_slow_client_is_merged_and_nothing_of_it_is_lost() -> Result<()> {
    const DELTAS: u64 = 40_000;
    let host = LoadHost::start().await?;
    let address = host.address()?;
    let mut driver = Driver::new(address).await?;
    let (mut slow, mut mirror) = silent(address, &driver.chat).await?;
    driver.say(&format!("stream {DELTAS} 10000")).await?;
    tokio::time::timeout(PATIENCE, driver.finish()).await??;
    tokio::time::timeout(PATIENCE, async {
        while mirror.state.turns.is_empty() {
            fold(&mut slow, &mut mirror).await?;
        }
        anyhow::Ok(())
    })
    .await
    .context("the slow client does not get the end of the turn")??;
    assert!(mirror.frames < DELTAS as usize, "{} frames: nothing was merged", mirror.frames);
    assert_eq!(mirror.state, fresh(address, &driver.chat).await?.state);
    host.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_too_far_behind_is_closed_and_comes_back_equal() -> Result<()> {
    const TURNS: usize = 4;
    let host = LoadHost::start().await?;
    let address = host.address()?;
    let mut driver = Driver::new(address).await?;
    let (mut slow, mut mirror) = silent(address, &driver.chat).await?;
    // More than twice the 64 MiB that may wait: as much may be with the writer when it is held up. Turn by turn,
    // so that the one who drives them keeps up.
    for _ in 0..TURNS {
        driver.say("replace 36 1000000").await?;
        tokio::time::timeout(PATIENCE, driver.finish()).await??;
    }
    let end = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Err(error) = fold(&mut slow, &mut mirror).await {
                return error;
            }
        }
    })
    .await
    .context("a client that is far behind is kept")?;
    assert!(end.is::<Closed>() || end.is::<std::io::Error>(), "{end:#}");
    assert!(mirror.state.turns.len() < TURNS, "the client was not behind");
    assert_eq!(reconnect(address, &driver.chat, &mut mirror).await?, json!("snapshot"));
    assert_eq!(mirror.state, fresh(address, &driver.chat).await?.state);
    host.stop().await;
    Ok(())
}

/// How many frames a subscriber gets for so many deltas in half a second.
async fn frames_with(delivery: Value, deltas: u64) -> Result<usize> {
    let host = LoadHost::start().await?;
    let address = host.address()?;
    let mut driver = Driver::new(address).await?;
    let (mut socket, _) = Socket::open(address, "reader", &[]).await?;
    let answer = socket.request("subscribe", json!({"channel": driver.chat, "delivery": delivery})).await?;
    let mut mirror = Mirror::new(&answer["snapshot"])?;
    driver.say(&format!("stream {deltas} {}", deltas * 2)).await?;
    tokio::time::timeout(PATIENCE, async {
        while mirror.state.turns.is_empty() {
            fold(&mut socket, &mut mirror).await?;
        }
        anyhow::Ok(())
    })
    .await
    .context("the turn does not end")??;
    assert_eq!(mirror.state, fresh(address, &driver.chat).await?.state);
    host.stop().await;
    Ok(mirror.frames)
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_held_back_and_merged_for_a_client_that_allows_it() -> Result<()> {
    let frames = frames_with(json!({"maxLatencyMs": 400}), 100).await?;
    assert!(frames < 20, "{frames} frames for 100 deltas");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_delta_comes_by_itself_for_a_client_that_wants_no_delay() -> Result<()> {
    let frames = frames_with(json!({"maxLatencyMs": 0}), 100).await?;
    assert!(frames > 100, "{frames} frames for 100 deltas");
    Ok(())
}
