//! The times of turns with and without the host.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::report::{LoadReport, median, median_interval, percentiles};

/// Timeout of a turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(60);

/// Pause between turns, in which a runtime finishes its work after the result.
const PAUSE: Duration = Duration::from_millis(20);

/// Milliseconds from a message to the first delta and to the end of its turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TurnTimes {
    pub(crate) first_delta: f64,
    pub(crate) end: f64,
}

impl TurnTimes {
    /// From the times of a clock in nanoseconds.
    pub(crate) fn new(since: u64, first_delta: u64, end: u64) -> Self {
        let after = |at: u64| at.saturating_sub(since) as f64 / 1e6;
        Self { first_delta: after(first_delta), end: after(end) }
    }
}

/// Turns of a bare runtime and of the host, which were run alternately.
#[derive(Debug, Default)]
pub(crate) struct ComparedTurns {
    bare: Vec<TurnTimes>,
    host: Vec<TurnTimes>,
}

impl ComparedTurns {
    /// Runs a turn on each side; every other time the host is first.
    pub(crate) async fn run(
        &mut self,
        round: usize,
        bare: impl Future<Output = Result<TurnTimes>>,
        host: impl Future<Output = Result<TurnTimes>>,
    ) -> Result<()> {
        let (bare, host) = if round.is_multiple_of(2) {
            let first = in_time(bare).await?;
            (first, in_time(host).await?)
        } else {
            let first = in_time(host).await?;
            (in_time(bare).await?, first)
        };
        self.add(bare, host);
        Ok(())
    }

    fn add(&mut self, bare: TurnTimes, host: TurnTimes) {
        self.bare.push(bare);
        self.host.push(host);
    }

    /// Adds rows for the first delta and the end. The host may add `limit` milliseconds at the median.
    pub(crate) fn add_rows(&self, what: &str, limit: f64, report: &mut LoadReport) {
        let times = |time: fn(&TurnTimes) -> f64| {
            let of = |turns: &[TurnTimes]| turns.iter().map(time).collect::<Vec<_>>();
            (of(&self.bare), of(&self.host))
        };
        for (kind, (bare, host)) in
            [("first delta", times(|times| times.first_delta)), ("end", times(|times| times.end))]
        {
            // Each pair ran under the same conditions, so other programs on the machine affect the
            // differences less than the times.
            let added: Vec<_> = bare.iter().zip(&host).map(|(bare, host)| host - bare).collect();
            let (low, high) = median_interval(added.clone());
            let [bare_p50, bare_p99] = percentiles(bare, [50, 99]);
            let [host_p50, host_p99] = percentiles(host, [50, 99]);
            report.record(&format!("{kind} of {what}: bare runtime, p50"), bare_p50, "ms");
            report.record("  through the host, p50", host_p50, "ms");
            let note = format!(
                "95 %: {low:.2} to {high:.2} ms; p99: {bare_p99:.2} ms bare, {host_p99:.2} ms through the host"
            );
            report.within("  added by the host, median of the pairs", median(added), "ms", limit, note);
        }
    }
}

/// Runs a turn with a timeout, and pauses after it.
pub(crate) async fn in_time(turn: impl Future<Output = Result<TurnTimes>>) -> Result<TurnTimes> {
    let times = tokio::time::timeout(TURN_TIMEOUT, turn).await.context("timed out waiting for a turn")??;
    tokio::time::sleep(PAUSE).await;
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slower_host_misses_limit_on_machine_that_becomes_slower() {
        let mut turns = ComparedTurns::default();
        let times = |first_delta, end| TurnTimes { first_delta, end };
        for slow in (0_u8..10).map(|round| f64::from(round) * 10.0) {
            turns.add(times(slow, 20.0 + slow), times(slow + 1.0, 23.0 + slow));
        }
        let mut report = LoadReport::default();
        turns.add_rows("a turn", 2.0, &mut report);
        let missed = report.missed();
        assert_eq!(missed.len(), 1, "{missed:?}");
        assert!(missed[0].contains("3.00 ms"), "{missed:?}");
    }
}
