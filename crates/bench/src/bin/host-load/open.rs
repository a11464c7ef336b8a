//! Measures opening a long chat: from the request to the last byte of its snapshot.

use std::time::Duration;

use anyhow::Result;
use innkeeper_bench::load::{LoadDriver, Socket};
use innkeeper_bench::monotonic_nanos;
use serde_json::json;

use crate::child::Child;
use crate::report::{LoadReport, median};

/// Bytes of text per turn; a snapshot of 1,000 turns takes 4 MB.
const TURN: usize = 3_400;

/// Maximum milliseconds to open the chat.
const LIMIT: f64 = 40.0;

/// Number of measurements.
const ROUNDS: usize = 21;

pub(crate) async fn measure(quick: bool, report: &mut LoadReport) -> Result<()> {
    let turns = if quick { 20 } else { 1_000 };
    let host = Child::under_load().await?;
    let mut driver = LoadDriver::new(host.address()?).await?;
    for _ in 0..turns {
        driver.say(&format!("reply {TURN}")).await?;
        driver.finish().await?;
    }
    let (mut socket, _) = Socket::open(host.address()?, "reader", &[]).await?;
    let (mut times, mut size) = (Vec::new(), 0);
    for _ in 0..ROUNDS {
        let since = monotonic_nanos();
        let snapshot = socket.request_bytes("subscribe", json!({"channel": driver.chat})).await?;
        times.push(Duration::from_nanos(monotonic_nanos().saturating_sub(since)).as_secs_f64() * 1e3);
        size = snapshot.len();
        socket.notify("unsubscribe", json!({"channel": driver.chat})).await?;
    }
    let slowest = times.iter().copied().fold(0.0, f64::max);
    let note = format!("{:.1} MB, slowest of {ROUNDS}: {slowest:.1} ms", size as f64 / 1e6);
    report.within(&format!("open a chat of {turns} turns"), median(times), "ms", LIMIT, note);
    Ok(())
}
