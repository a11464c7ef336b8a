//! Formats the measurements as a table with ratios and checks their limits.
//!
//! Pure functions. A ratio is the median of the per-round ratios, so that a disturbance of one round affects
//! one value only.

use crate::memory::{Growth, IdleStreamMemory};
use crate::speed::{Run, as_float};
use crate::storm::Storm;

/// The role of a target in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The upstream without a proxy.
    Direct,
    /// The proxy that the gateway is compared with.
    Baseline,
    /// The gateway.
    Gateway,
    /// Another proxy; the gateway may use a fifth of its CPU time.
    Other,
}

/// All measurements of a target.
#[derive(Clone, Debug)]
pub(crate) struct ReportColumn {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) full: Vec<Run>,
    pub(crate) paced: Vec<Run>,
    /// At a rate that other proxies can sustain; empty without other proxies.
    pub(crate) gentle: Vec<Run>,
    /// Short responses; empty without other proxies.
    pub(crate) short: Vec<Run>,
    pub(crate) idle: Option<IdleStreamMemory>,
    pub(crate) growth: Option<Growth>,
    pub(crate) storm: Option<Storm>,
}

impl ReportColumn {
    pub(crate) fn new(name: &str, role: Role) -> Self {
        Self {
            name: name.to_owned(),
            role,
            full: Vec::new(),
            paced: Vec::new(),
            gentle: Vec::new(),
            short: Vec::new(),
            idle: None,
            growth: None,
            storm: None,
        }
    }
}

/// Which limits are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judge {
    /// All limits.
    All,
    /// Only limits that do not depend on the duration of the measurement.
    NoTimes,
}

/// The result of checking a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitVerdict {
    /// The row has no limit.
    NoLimit,
    /// The measurement was too short.
    NotJudged,
    Met,
    Missed,
    /// The value or the value to compare with is missing.
    Unknown,
}

impl LimitVerdict {
    fn of(figure: Option<f64>, limit: f64) -> Self {
        match figure {
            Some(figure) if figure <= limit => Self::Met,
            Some(_) => Self::Missed,
            None => Self::Unknown,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::NoLimit => "",
            Self::NotJudged => "not judged",
            Self::Met => "met",
            Self::Missed => "MISSED",
            Self::Unknown => "unknown",
        }
    }
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReportRow {
    label: String,
    /// One cell per column.
    cells: Vec<String>,
    ratio: String,
    limit: String,
    pub(crate) verdict: LimitVerdict,
}

impl ReportRow {
    /// Describes an exceeded limit.
    pub(crate) fn violation(&self) -> String {
        let label = self.label.trim();
        format!("{label}: {}, limit {}: {}", self.ratio, self.limit, self.verdict.word())
    }
}

/// Maximum CPU time and added time relative to nginx.
const PROCESSOR_LIMIT: f64 = 1.4;
const ADDED_LIMIT: f64 = 1.2;
/// Maximum CPU time relative to another proxy.
const OTHERS_LIMIT: f64 = 0.2;
/// Maximum memory per idle stream, in bytes.
const IDLE_LIMIT: f64 = 64.0 * 1024.0;
/// Upper bound of the memory growth in the second half of many requests, in bytes.
const GROWTH_LIMIT: i64 = 1024 * 1024;

/// Computes the rows of the table.
pub(crate) fn rows(columns: &[ReportColumn], judge: Judge) -> Vec<ReportRow> {
    let sheet = Sheet { columns, judge };
    let mut rows = sheet.processor_rows();
    rows.extend(sheet.other_rows());
    rows.extend(sheet.added_rows());
    rows.extend(sheet.memory_rows());
    rows.extend(sheet.storm_rows());
    rows
}

/// Formats the table.
pub(crate) fn table(columns: &[ReportColumn], rows: &[ReportRow]) -> String {
    let mut lines = vec![
        ["".to_owned()]
            .into_iter()
            .chain(columns.iter().map(|column| column.name.clone()))
            .chain(["innkeeper is".to_owned(), "limit".to_owned(), "".to_owned()])
            .collect::<Vec<_>>(),
    ];
    lines.extend(rows.iter().map(|row| {
        [row.label.clone()]
            .into_iter()
            .chain(row.cells.iter().cloned())
            .chain([row.ratio.clone(), row.limit.clone(), row.verdict.word().to_owned()])
            .collect()
    }));
    let count = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |index: usize| {
        lines.iter().filter_map(|line| line.get(index)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let mut written = String::new();
        for (index, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let cell = if index == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") };
            written.push_str(&cell);
        }
        text.push_str(written.trim_end());
        text.push('\n');
    }
    text
}

/// Selects runs of a target.
type Runs = fn(&ReportColumn) -> &Vec<Run>;

/// Computes rows from the columns.
struct Sheet<'a> {
    columns: &'a [ReportColumn],
    judge: Judge,
}

impl Sheet<'_> {
    fn column(&self, role: Role) -> Option<&ReportColumn> {
        self.columns.iter().find(|column| column.role == role)
    }

    fn cells(&self, cell: impl Fn(&ReportColumn) -> Option<String>) -> Vec<String> {
        self.columns.iter().map(|column| cell(column).unwrap_or_else(|| "–".to_owned())).collect()
    }

    /// A row without a limit.
    fn plain(&self, label: &str, cell: impl Fn(&ReportColumn) -> Option<String>) -> ReportRow {
        ReportRow {
            label: label.to_owned(),
            cells: self.cells(cell),
            ratio: String::new(),
            limit: String::new(),
            verdict: LimitVerdict::NoLimit,
        }
    }

    /// The verdict on a limit that depends on the duration of the measurement.
    fn timed(&self, verdict: LimitVerdict) -> LimitVerdict {
        if self.judge == Judge::NoTimes { LimitVerdict::NotJudged } else { verdict }
    }

    fn processor_rows(&self) -> Vec<ReportRow> {
        let processor = |runs: &[Run]| median(runs.iter().filter_map(|run| run.processor).collect());
        let ratios = |runs: Runs| -> Vec<f64> {
            let of_both = self.column(Role::Gateway).zip(self.column(Role::Baseline));
            let rounds = of_both.into_iter().flat_map(|(ours, theirs)| runs(ours).iter().zip(runs(theirs)));
            rounds.filter_map(|(ours, theirs)| Some(ours.processor? / theirs.processor?)).collect()
        };
        let full = ratios(|column| &column.full);
        let mut first = self.plain("CPU time per event, µs", |column| micros(processor(&column.full)?));
        first.ratio = times(median(full.clone()), "nginx");
        first.limit = format!("≤ {PROCESSOR_LIMIT} ×");
        first.verdict = self.timed(LimitVerdict::of(median(full.clone()), PROCESSOR_LIMIT));
        let mut spread = self.plain("  lowest and highest round", |_| Some(String::new()));
        spread.ratio = extremes(&full);
        let mut paced =
            self.plain("  at the paced rate, one by one, µs", |column| micros(processor(&column.paced)?));
        paced.ratio = times(median(ratios(|column| &column.paced)), "nginx");
        vec![
            first,
            spread,
            paced,
            self.plain("  events/s at full speed", |column| {
                Some(format!("{:.0}", median(column.full.iter().map(|run| run.rate).collect())?))
            }),
            self.plain("  events per client read", |column| {
                Some(format!("{:.1}", median(column.full.iter().map(|run| run.per_read).collect())?))
            }),
        ]
    }

    /// Compares the gateway's CPU time with that of each other proxy.
    ///
    /// At full speed a slow proxy falls behind and then reads many events at once, which makes each event
    /// cheap. The gentle rate shows the cost of a single event, and short responses the cost of a request.
    fn other_rows(&self) -> Vec<ReportRow> {
        let processor = |runs: &[Run]| median(runs.iter().filter_map(|run| run.processor).collect());
        let mut rows = Vec::new();
        for other in self.columns.iter().filter(|column| column.role == Role::Other) {
            let ratio = |runs: Runs| {
                let ours = processor(runs(self.column(Role::Gateway)?))?;
                Some(ours / processor(runs(other))?)
            };
            let mut row = self.plain(&format!("  compared with {}", other.name), |_| Some(String::new()));
            let full = ratio(|column| &column.full);
            row.ratio = times(full, "");
            row.limit = format!("≤ {OTHERS_LIMIT} ×");
            row.verdict = self.timed(LimitVerdict::of(full, OTHERS_LIMIT));
            rows.push(row);
            let runs: [(&str, Runs); 2] =
                [("one by one", |column| &column.gentle), ("in short responses", |column| &column.short)];
            for (how, runs) in runs {
                let label = format!("  compared with {}, {how}", other.name);
                let mut row = self.plain(&label, |_| Some(String::new()));
                row.ratio = times(ratio(runs), "");
                rows.push(row);
            }
        }
        if !rows.is_empty() {
            let plain = [
                self.plain("  at a gentle rate, one by one, µs", |column| {
                    micros(processor(&column.gentle)?)
                }),
                self.plain("  in short responses, µs", |column| micros(processor(&column.short)?)),
                self.plain("  events/s in short responses", |column| {
                    Some(format!("{:.0}", median(column.short.iter().map(|run| run.rate).collect())?))
                }),
            ];
            rows.splice(0..0, plain);
        }
        rows
    }

    fn added_rows(&self) -> Vec<ReportRow> {
        let age = |column: &ReportColumn, of: fn(&Run) -> Option<f64>| {
            micros(median(column.paced.iter().filter_map(of).collect())?)
        };
        let mut rows = vec![self.plain("age of an event on arrival, p50 / p99, µs", |column| {
            Some(format!("{} / {}", age(column, p50)?, age(column, p99)?))
        })];
        for (label, of) in
            [("time added, p50, µs", p50 as fn(&Run) -> Option<f64>), ("time added, p99, µs", p99)]
        {
            let added = |column: &ReportColumn| self.added(column, of);
            let of_role = |role| self.column(role).and_then(added);
            // There is no ratio if the baseline adds nothing.
            let ratio = of_role(Role::Gateway)
                .zip(of_role(Role::Baseline).filter(|added| *added > 0.0))
                .map(|(ours, theirs)| ours / theirs);
            let mut row =
                self.plain(
                    label,
                    |column| {
                        if column.role == Role::Direct { None } else { micros(added(column)?) }
                    },
                );
            row.ratio = times(ratio, "nginx");
            row.limit = format!("≤ {ADDED_LIMIT} ×");
            row.verdict = self.timed(LimitVerdict::of(ratio, ADDED_LIMIT));
            rows.push(row);
        }
        rows
    }

    /// How much later events arrive than without a proxy, in nanoseconds.
    fn added(&self, column: &ReportColumn, of: fn(&Run) -> Option<f64>) -> Option<f64> {
        let direct = self.column(Role::Direct)?;
        let of_rounds = column.paced.iter().zip(&direct.paced);
        median(of_rounds.filter_map(|(through, direct)| Some(of(through)? - of(direct)?)).collect())
    }

    fn memory_rows(&self) -> Vec<ReportRow> {
        let idle = self.column(Role::Gateway).and_then(|column| column.idle);
        let mut per_stream = self.plain("memory per idle stream, KiB (proportional)", |column| {
            let idle = column.idle?;
            Some(format!("{} ({})", kibibytes(idle.resident), kibibytes(idle.proportional)))
        });
        per_stream.ratio = idle.map_or_else(String::new, |idle| format!("{} KiB", kibibytes(idle.resident)));
        per_stream.limit = format!("≤ {:.0} KiB", IDLE_LIMIT / 1024.0);
        per_stream.verdict = LimitVerdict::of(idle.map(|idle| as_float(idle.resident)), IDLE_LIMIT);

        let second = self.column(Role::Gateway).and_then(|column| column.growth);
        let mut growth = self.plain("memory at start, half, end of many requests, MiB", |column| {
            let growth = column.growth?;
            let [start, half, end] = [growth.start, growth.half, growth.end]
                .map(|memory| format!("{:.1}", as_float(memory.resident) / 1048576.0));
            Some(format!("{start} {half} {end}"))
        });
        growth.ratio =
            second.map_or_else(String::new, |second| format!("{:+} KiB", second.second_half() / 1024));
        growth.limit = format!("< {} KiB", GROWTH_LIMIT / 1024);
        growth.verdict = self.timed(match second {
            None => LimitVerdict::Unknown,
            Some(second) if second.second_half() < GROWTH_LIMIT => LimitVerdict::Met,
            Some(_) => LimitVerdict::Missed,
        });
        vec![per_stream, growth]
    }

    fn storm_rows(&self) -> Vec<ReportRow> {
        let ours = self.column(Role::Gateway).and_then(|column| column.storm);
        let judge = |holds: fn(&Storm) -> bool| match &ours {
            None => LimitVerdict::Unknown,
            Some(storm) if holds(storm) => LimitVerdict::Met,
            Some(_) => LimitVerdict::Missed,
        };
        let mut cancelled = self.plain("abort storm: cancelled of started responses", |column| {
            let storm = column.storm?;
            Some(format!("{} of {}", storm.cancelled, storm.started))
        });
        cancelled.limit = "all".to_owned();
        cancelled.ratio = ours.map_or_else(String::new, |storm| format!("{} left", storm.active));
        cancelled.verdict = judge(every_cancel_was_seen);
        let mut files = self.plain("  open files before, after", |column| {
            let (before, after) = column.storm?.held?;
            Some(format!("{} {}", before.files, after.files))
        });
        files.limit = "equal".to_owned();
        files.ratio = ours
            .and_then(|storm| storm.held)
            .map_or_else(String::new, |(before, after)| format!("{} → {}", before.files, after.files));
        files.verdict = judge(|storm| storm.held.is_some_and(|(before, after)| before.files == after.files));
        vec![
            cancelled,
            self.plain("  last cut to last cancel, ms", |column| {
                Some(format!("{:.1}", column.storm?.settled.as_secs_f64() * 1000.0))
            }),
            files,
            self.plain("  threads before, after", |column| {
                let (before, after) = column.storm?.held?;
                Some(format!("{} {}", before.threads, after.threads))
            }),
        ]
    }
}

/// Whether the upstream saw every started response cancelled, and every response that a client saw was
/// started.
pub(crate) fn every_cancel_was_seen(storm: &Storm) -> bool {
    storm.active == 0 && storm.cancelled == storm.started && storm.started >= storm.answered
}

fn p50(run: &Run) -> Option<f64> {
    run.age.map(|age| as_float(age.p50))
}

fn p99(run: &Run) -> Option<f64> {
    run.age.map(|age| as_float(age.p99))
}

fn micros(nanos: f64) -> Option<String> {
    nanos.is_finite().then(|| format!("{:.1}", nanos / 1000.0))
}

fn kibibytes(bytes: u64) -> String {
    format!("{:.1}", as_float(bytes) / 1024.0)
}

fn times(ratio: Option<f64>, reference: &str) -> String {
    ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2} × {reference}").trim_end().to_owned())
}

/// The lowest and highest ratio, which show the spread around the median.
fn extremes(ratios: &[f64]) -> String {
    let lowest = ratios.iter().copied().min_by(f64::total_cmp);
    let highest = ratios.iter().copied().max_by(f64::total_cmp);
    lowest.zip(highest).map_or_else(String::new, |(lowest, highest)| format!("{lowest:.2} – {highest:.2}"))
}

/// The median; `None` for an empty list.
fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_unstable_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    let upper = numbers.get(middle).copied()?;
    if numbers.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(upper, numbers.get(middle.checked_sub(1)?).copied()?))
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
