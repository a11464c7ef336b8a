//! One benchmark run: decides which target is measured when.
//!
//! Invariant: within a phase the targets alternate round by round, so that other activity
//! on the machine affects all of them.

use std::future::Future;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::memory;
use crate::report::{ReportColumn, Role};
use crate::sizes::Sizes;
use crate::speed::{self, Run};
use crate::storm;
use crate::target::{BenchTarget, TargetKind, UpstreamProcess};

/// Timeout of one measurement of one target; the longest is 100,000 requests.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A benchmark with its upstream.
#[derive(Debug)]
pub(crate) struct BenchRun {
    upstream: UpstreamProcess,
    sizes: Sizes,
    seed: u64,
}

/// All measurements, and the targets that could not be measured with the reason.
#[derive(Debug)]
pub(crate) struct BenchResult {
    pub(crate) columns: Vec<ReportColumn>,
    pub(crate) skipped: Vec<String>,
}

/// A target and its measurements so far.
struct TargetEntry<'a> {
    kind: &'a TargetKind,
    column: ReportColumn,
    /// `None` after an optional target has failed.
    target: Option<BenchTarget>,
}

impl TargetEntry<'_> {
    /// Returns the run. A failure of an optional target only excludes that target.
    fn keep(&mut self, run: Result<Run>, skipped: &mut Vec<String>) -> Result<Option<Run>> {
        match run {
            Ok(run) => Ok(Some(run)),
            Err(error) if self.column.role == Role::Other => {
                skipped.push(format!("{error:#}"));
                self.target = None;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl BenchRun {
    pub(crate) async fn start(upstream: &Path, sizes: Sizes, seed: u64) -> Result<Self> {
        Ok(Self { upstream: UpstreamProcess::start(upstream).await?, sizes, seed })
    }

    /// Measures all targets. Targets other than the upstream, nginx and the gateway may
    /// fail; the result then contains the reason.
    pub(crate) async fn measure(&self, kinds: &[TargetKind]) -> Result<BenchResult> {
        let mut skipped = Vec::new();
        let mut entries = Vec::new();
        for kind in kinds {
            say(&format!("starting {}", kind.name()));
            let column = ReportColumn::new(kind.name(), role(kind));
            match kind.start(&self.upstream).await.with_context(|| kind.name().to_owned()) {
                Ok(target) => entries.push(TargetEntry { kind, column, target: Some(target) }),
                Err(error) if column.role == Role::Other => skipped.push(format!("{error:#}")),
                Err(error) => return Err(error),
            }
        }
        let mut group = 0;
        self.full(&mut entries, &mut skipped).await?;
        if entries.iter().any(|entry| entry.column.role == Role::Other) {
            self.beside_others(&mut entries, &mut skipped, &mut group).await?;
        }
        // Other proxies are not measured further, and some of them are never quite idle.
        for entry in entries.iter_mut().filter(|entry| entry.column.role == Role::Other) {
            entry.target = None;
        }
        self.paced(&mut entries, &mut group).await?;
        // The following measurements start their own servers.
        for entry in &mut entries {
            entry.target = None;
        }
        self.memory(&mut entries).await?;
        self.storms(&mut entries).await?;
        Ok(BenchResult { columns: entries.into_iter().map(|entry| entry.column).collect(), skipped })
    }

    async fn full(&self, entries: &mut [TargetEntry<'_>], skipped: &mut Vec<String>) -> Result<()> {
        for round in 1..=self.sizes.rounds {
            say(&format!("full speed, round {round} of {}", self.sizes.rounds));
            for entry in entries.iter_mut() {
                let Some(target) = &entry.target else { continue };
                if entry.column.role == Role::Other && round > self.sizes.others_rounds {
                    continue;
                }
                let run = named(entry.kind, target, speed::full(target, self.sizes.load)).await;
                if let Some(run) = entry.keep(run, skipped)? {
                    entry.column.full.push(run);
                }
            }
        }
        Ok(())
    }

    /// Measurements for the comparison with other proxies only: single events at a rate
    /// that they can sustain, and short responses.
    async fn beside_others(
        &self,
        entries: &mut [TargetEntry<'_>],
        skipped: &mut Vec<String>,
        group: &mut u32,
    ) -> Result<()> {
        let (load, per_second) = (self.sizes.gentle_load(), self.sizes.gentle_per_second);
        for round in 1..=self.sizes.others_rounds {
            say(&format!("gentle and short loads, round {round} of {}", self.sizes.others_rounds));
            for entry in entries.iter_mut() {
                let Some(target) = &entry.target else { continue };
                *group += 1;
                let run = speed::paced(target, load, per_second, *group);
                let run = named(entry.kind, target, run).await;
                if let Some(run) = entry.keep(run, skipped)? {
                    entry.column.gentle.push(run);
                }
                let Some(target) = &entry.target else { continue };
                let run = speed::short(target, self.sizes.short_requests, self.sizes.request_events);
                let run = named(entry.kind, target, run).await;
                if let Some(run) = entry.keep(run, skipped)? {
                    entry.column.short.push(run);
                }
            }
        }
        Ok(())
    }

    async fn paced(&self, entries: &mut [TargetEntry<'_>], group: &mut u32) -> Result<()> {
        let rounds = self.sizes.rounds * self.sizes.paced_turns;
        for round in 1..=rounds {
            say(&format!("{} events/s, round {round} of {rounds}", self.sizes.per_second));
            for entry in measured_in_full(entries) {
                let Some(target) = &entry.target else { continue };
                *group += 1;
                let run = speed::paced(target, self.sizes.paced_load(), self.sizes.per_second, *group);
                entry.column.paced.push(named(entry.kind, target, run).await?);
            }
        }
        Ok(())
    }

    async fn memory(&self, entries: &mut [TargetEntry<'_>]) -> Result<()> {
        for entry in measured_in_full(entries) {
            if entry.column.role == Role::Direct {
                continue;
            }
            say(&format!("memory of {}", entry.kind.name()));
            let target = entry.kind.start(&self.upstream).await?;
            let idle = memory::per_idle_stream(&target, self.sizes.idle_streams);
            entry.column.idle = named(entry.kind, &target, idle).await?;
            drop(target);
            let target = entry.kind.start(&self.upstream).await?;
            let growth = memory::growth(&target, self.sizes.requests, self.sizes.request_events);
            entry.column.growth = named(entry.kind, &target, growth).await?;
        }
        Ok(())
    }

    async fn storms(&self, entries: &mut [TargetEntry<'_>]) -> Result<()> {
        for entry in measured_in_full(entries) {
            say(&format!("abort storm on {}", entry.kind.name()));
            let target = entry.kind.start(&self.upstream).await?;
            let storm = storm::storm(&target, &self.upstream, self.sizes.aborts, self.seed);
            entry.column.storm = Some(named(entry.kind, &target, storm).await?);
        }
        Ok(())
    }
}

/// The targets that take part in all measurements; only the CPU time of other proxies is
/// compared.
fn measured_in_full<'a, 'k>(
    entries: &'a mut [TargetEntry<'k>],
) -> impl Iterator<Item = &'a mut TargetEntry<'k>> {
    entries.iter_mut().filter(|entry| entry.column.role != Role::Other)
}

fn role(kind: &TargetKind) -> Role {
    match kind {
        TargetKind::Direct => Role::Direct,
        TargetKind::Nginx(_) => Role::Baseline,
        TargetKind::Gateway(_) => Role::Gateway,
        TargetKind::Other { .. } => Role::Other,
    }
}

/// Adds a timeout to a measurement, and the target's name and stderr to an error.
async fn named<T>(
    kind: &TargetKind,
    target: &BenchTarget,
    measured: impl Future<Output = Result<T>>,
) -> Result<T> {
    let in_time = tokio::time::timeout(TIMEOUT, measured).await;
    let measured = in_time.with_context(|| format!("not finished after {} s", TIMEOUT.as_secs())).flatten();
    measured.with_context(|| {
        let stderr = target.stderr_tail();
        if stderr.is_empty() { kind.name().to_owned() } else { format!("{} (stderr: {stderr})", kind.name()) }
    })
}

/// Reports progress on stderr; ignores a closed stderr.
fn say(message: &str) {
    writeln!(std::io::stderr(), "• {message}").ok();
}
