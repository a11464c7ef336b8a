use std::time::Duration;

use super::*;
use crate::speed::Ages;
use crate::storm::HeldResources;
use crate::usage::TreeMemory;

fn run(processor: Option<f64>, p50: u64, p99: u64) -> Run {
    Run { processor, rate: 1000.0, per_read: 1.0, age: Some(Ages { p50, p99 }) }
}

fn column(name: &str, role: Role, runs: &[Run]) -> ReportColumn {
    ReportColumn {
        full: runs.to_vec(),
        paced: runs.to_vec(),
        gentle: runs.to_vec(),
        short: runs.to_vec(),
        ..ReportColumn::new(name, role)
    }
}

fn storm() -> Storm {
    let held = HeldResources { files: 12, threads: 3 };
    Storm {
        answered: 8,
        started: 9,
        cancelled: 9,
        active: 0,
        settled: Duration::from_millis(3),
        held: Some((held, held)),
    }
}

/// Measurements that just meet every limit.
fn good() -> Vec<ReportColumn> {
    let memory = |resident| TreeMemory { resident, proportional: 0 };
    let mut gateway = column("innkeeper", Role::Gateway, &[run(Some(1_400.0), 220, 2_200)]);
    gateway.idle = Some(IdleStreamMemory { resident: 64 * 1024, proportional: 0 });
    gateway.growth =
        Some(Growth { start: memory(0), half: memory(5_000_000), end: memory(5_000_000 + (1 << 20) - 1) });
    gateway.storm = Some(storm());
    vec![
        column("direct", Role::Direct, &[run(None, 100, 1_000)]),
        column("nginx", Role::Baseline, &[run(Some(1_000.0), 200, 2_000)]),
        gateway,
        column("peer", Role::Other, &[run(Some(7_010.0), 300, 3_000)]),
    ]
}

fn verdicts(columns: &[ReportColumn], judge: Judge) -> Vec<LimitVerdict> {
    let rows = rows(columns, judge);
    rows.iter().map(|row| row.verdict).filter(|verdict| *verdict != LimitVerdict::NoLimit).collect()
}

/// The limits in table order.
const LIMITS: [&str; 8] = ["processor", "other", "p50", "p99", "idle", "growth", "cancels", "files"];

#[test]
fn values_at_limits_meet_them() {
    assert_eq!(verdicts(&good(), Judge::All), [LimitVerdict::Met; LIMITS.len()]);
}

#[test]
fn each_value_above_its_limit_misses_only_that_limit() {
    type Spoil = (&'static str, fn(&mut [ReportColumn]));
    let spoil: [Spoil; 10] = [
        ("processor", |columns| columns[2].full[0].processor = Some(1_401.0)),
        ("other", |columns| columns[3].full[0].processor = Some(6_999.0)),
        ("p50", |columns| columns[2].paced[0].age = Some(Ages { p50: 221, p99: 2_200 })),
        ("p99", |columns| columns[2].paced[0].age = Some(Ages { p50: 220, p99: 2_201 })),
        ("idle", |columns| columns[2].idle.as_mut().unwrap().resident += 1),
        ("growth", |columns| columns[2].growth.as_mut().unwrap().end.resident += 1),
        ("cancels", |columns| columns[2].storm.as_mut().unwrap().active = 1),
        ("cancels", |columns| columns[2].storm.as_mut().unwrap().cancelled = 8),
        ("cancels", |columns| columns[2].storm.as_mut().unwrap().answered = 10),
        ("files", |columns| columns[2].storm.as_mut().unwrap().held.as_mut().unwrap().1.files += 1),
    ];
    for (spoiled, spoil) in spoil {
        let mut columns = good();
        spoil(&mut columns);
        let expected =
            LIMITS.map(|limit| if limit == spoiled { LimitVerdict::Missed } else { LimitVerdict::Met });
        assert_eq!(verdicts(&columns, Judge::All), expected, "{spoiled}");
    }
}

#[test]
fn ratios_are_unknown_without_baseline() {
    let mut columns = good();
    columns.remove(1);
    let expected = LIMITS.map(|limit| match limit {
        "processor" | "p50" | "p99" => LimitVerdict::Unknown,
        _ => LimitVerdict::Met,
    });
    assert_eq!(verdicts(&columns, Judge::All), expected);
}

#[test]
fn quick_run_checks_only_limits_independent_of_time() {
    let expected = LIMITS.map(|limit| match limit {
        "idle" | "cancels" | "files" => LimitVerdict::Met,
        _ => LimitVerdict::NotJudged,
    });
    assert_eq!(verdicts(&good(), Judge::NoTimes), expected);
}

#[test]
fn ratio_is_median_of_rounds() {
    let rounds = |figures: [f64; 3]| figures.map(|figure| run(Some(figure), 0, 0));
    let columns = [
        column("nginx", Role::Baseline, &rounds([1_000.0, 9_000.0, 1_000.0])),
        column("innkeeper", Role::Gateway, &rounds([1_100.0, 9_900.0, 5_000.0])),
    ];
    let rows = rows(&columns, Judge::All);
    assert_eq!(rows[0].ratio, "1.10 × nginx");
    assert_eq!(rows[1].ratio, "1.10 – 5.00");
}

#[test]
fn table_has_line_per_row_and_cell_per_target() {
    let columns = good();
    let rows = rows(&columns, Judge::All);
    let text = table(&columns, &rows);
    assert_eq!(text.lines().count(), rows.len() + 1);
    let first = text.lines().nth(1).unwrap();
    for part in ["CPU time per event", "–", "1.0", "1.4", "7.0", "1.40 × nginx", "≤ 1.4 ×", "met"] {
        assert!(first.contains(part), "{part} in {first}");
    }
    assert!(rows[0].violation().starts_with("CPU time per event, µs: 1.40 × nginx, limit ≤ 1.4 ×"));
}

#[test]
fn median_of_even_count_is_mean_of_middle_two() {
    assert_eq!(median(vec![]), None);
    assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
}
