//! Measured values and their limits.

use std::fmt;

/// All measurements, in order.
#[derive(Debug, Default)]
pub(crate) struct LoadReport {
    rows: Vec<Measurement>,
}

#[derive(Debug)]
struct Measurement {
    what: String,
    measured: f64,
    unit: &'static str,
    limit: Option<f64>,
    note: String,
}

impl LoadReport {
    /// Adds a measurement with an upper limit.
    pub(crate) fn within(&mut self, what: &str, measured: f64, unit: &'static str, limit: f64, note: String) {
        self.rows.push(Measurement { what: what.to_owned(), measured, unit, limit: Some(limit), note });
    }

    /// Adds a measurement without a limit.
    pub(crate) fn record(&mut self, what: &str, measured: f64, unit: &'static str) {
        self.rows.push(Measurement {
            what: what.to_owned(),
            measured,
            unit,
            limit: None,
            note: String::new(),
        });
    }

    /// The rows that exceed their limit, formatted.
    pub(crate) fn missed(&self) -> Vec<String> {
        self.rows.iter().filter(|row| !row.is_met()).map(|row| row.to_string().trim().to_owned()).collect()
    }
}

impl Measurement {
    /// A value that is not a number does not meet its limit.
    fn is_met(&self) -> bool {
        self.limit.is_none_or(|limit| self.measured <= limit)
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, measured, unit, limit, note } = self;
        let limit = limit.map(|limit| format!("≤ {limit} {unit}")).unwrap_or_default();
        let verdict = match (&self.limit, self.is_met()) {
            (None, _) => "",
            (Some(_), true) => "ok",
            (Some(_), false) => "MISSED",
        };
        let measured = format!("{measured:.2} {unit}");
        write!(formatter, "{what:<62} {measured:>12}  {limit:<12} {verdict:<7} {note}")
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            writeln!(formatter, "{}", row.to_string().trim_end())?;
        }
        Ok(())
    }
}

/// The median; NaN for an empty list.
pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The 95 % confidence interval of the median; NaN for an empty list.
pub(crate) fn median_interval(mut numbers: Vec<f64>) -> (f64, f64) {
    numbers.sort_unstable_by(f64::total_cmp);
    let count = numbers.len();
    let half_width = (0.98 * (count as f64).sqrt()).ceil() as usize;
    let at = |index: usize| numbers.get(index.min(count.saturating_sub(1))).copied().unwrap_or(f64::NAN);
    (at((count / 2).saturating_sub(half_width)), at(count / 2 + half_width))
}

/// Nearest-rank percentiles; NaN for an empty list.
pub(crate) fn percentiles<const N: usize>(mut numbers: Vec<f64>, per_cent: [usize; N]) -> [f64; N] {
    numbers.sort_unstable_by(f64::total_cmp);
    per_cent.map(|part| {
        let rank = (numbers.len() * part).div_ceil(100);
        numbers.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_of_median_becomes_narrow_with_many_numbers() {
        let interval =
            |count: u32| median_interval((0..count).map(|n| f64::from(n) / f64::from(count)).collect());
        assert_eq!(interval(4), (0.0, 0.75));
        let (low, high) = interval(10_000);
        assert!(0.48 < low && low < 0.5 && 0.5 < high && high < 0.52, "{low} to {high}");
        assert!(median_interval(Vec::new()).0.is_nan());
    }

    #[test]
    fn limit_is_missed_by_greater_value_and_by_nan() {
        let mut report = LoadReport::default();
        report.within("met", 3.0, "ms", 3.0, String::new());
        report.within("missed", 3.1, "ms", 3.0, String::new());
        report.within("unknown", median(Vec::new()), "ms", 3.0, String::new());
        report.record("no limit", 99.0, "ms");
        let missed = report.missed();
        assert_eq!(missed.len(), 2, "{missed:?}");
        assert!(missed[0].starts_with("missed") && missed[1].starts_with("unknown"));
    }
    #[test]
    fn percentiles_use_nearest_rank() {
        let numbers = (1..=200).rev().map(f64::from).collect();
        assert_eq!(percentiles(numbers, [50, 99, 100]), [100.0, 198.0, 200.0]);
        assert_eq!(percentiles(vec![7.0], [50, 99]), [7.0, 7.0]);
        assert!(percentiles(Vec::new(), [50])[0].is_nan());
    }
}
