//! Measures the memory of open streams, and its growth over many requests.
//!
//! Each measurement starts its own server: a server that was busy before would reuse
//! memory it already holds.

use anyhow::{Context as _, Result};
use innkeeper_bench::plan::{AfterResponse, Plan, StreamPace};

use crate::client::LoadConnection;
use crate::requests::requests;
use crate::target::BenchTarget;
use crate::usage::TreeMemory;

/// Requests before the first measurement, to exclude one-time allocations.
const WARM_UP: u32 = 64;

/// Opens `streams` streams that send nothing after their first event, and returns the
/// memory per stream; `None` without a proxy.
pub(crate) async fn per_idle_stream(target: &BenchTarget, streams: u32) -> Result<Option<IdleStreamMemory>> {
    let Some(processes) = target.processes()? else { return Ok(None) };
    requests(target, WARM_UP, Plan::full(20)).await?;
    let before = processes.memory()?;
    let request = target.endpoint.request(Plan {
        events: 20,
        pace: StreamPace::Hold,
        ending: AfterResponse::KeepAlive,
    });
    let mut open = Vec::new();
    for _ in 0..streams {
        let mut connection = LoadConnection::open(&target.endpoint).await?;
        connection.send(&request).await?;
        open.push(connection);
    }
    for connection in &mut open {
        connection.first_event().await.context("cannot open an idle stream")?;
    }
    let after = processes.memory()?;
    drop(open);
    let each = |before: u64, after: u64| after.saturating_sub(before) / u64::from(streams.max(1));
    Ok(Some(IdleStreamMemory {
        resident: each(before.resident, after.resident),
        proportional: each(before.proportional, after.proportional),
    }))
}

/// Bytes per idle stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdleStreamMemory {
    pub(crate) resident: u64,
    pub(crate) proportional: u64,
}

/// Memory of a server while it served many requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    pub(crate) start: TreeMemory,
    pub(crate) half: TreeMemory,
    pub(crate) end: TreeMemory,
}

impl Growth {
    /// Bytes added during the second half of the requests; negative if memory shrank.
    pub(crate) fn second_half(&self) -> i64 {
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        signed(self.end.resident) - signed(self.half.resident)
    }
}

/// Sends `count` requests in two halves and measures memory before, between and after
/// them.
pub(crate) async fn growth(target: &BenchTarget, count: u32, events: u32) -> Result<Option<Growth>> {
    let Some(processes) = target.processes()? else { return Ok(None) };
    let plan = Plan::full(events);
    requests(target, WARM_UP, plan).await?;
    let start = processes.memory()?;
    requests(target, count / 2, plan).await?;
    let half = processes.memory()?;
    requests(target, count - count / 2, plan).await?;
    Ok(Some(Growth { start, half, end: processes.memory()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_half_growth_can_be_negative() {
        let of = |resident| TreeMemory { resident, proportional: 0 };
        let growth = |half, end| Growth { start: of(1), half: of(half), end: of(end) }.second_half();
        assert_eq!(growth(10, 15), 5);
        assert_eq!(growth(15, 10), -5);
    }
}
