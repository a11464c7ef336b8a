//! Ages of frames, counted in steps that are fine enough for a percentile.

use std::time::Duration;

/// How fine ages are told apart.
const STEP: Duration = Duration::from_micros(100);

/// Steps that are counted; what is older than all of them, in the last one.
const STEPS: usize = 5_000;

/// How many frames had which age.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u32>,
    total: u64,
    oldest: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; STEPS], total: 0, oldest: Duration::ZERO }
    }
}

impl Histogram {
    /// Counts a frame.
    pub fn add(&mut self, age: Duration) {
        let step = usize::try_from(age.as_micros() / STEP.as_micros()).unwrap_or(STEPS);
        if let Some(count) = self.counts.get_mut(step.min(STEPS - 1)) {
            *count += 1;
        }
        self.total += 1;
        self.oldest = self.oldest.max(age);
    }

    /// Counts what another has counted.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.oldest = self.oldest.max(other.oldest);
    }

    /// How many frames were counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The age that so many of a thousand frames did not exceed.
    pub fn per_mille(&self, part: u64) -> Option<Duration> {
        let wanted = (self.total * part).div_ceil(1000);
        let mut seen = 0;
        for (step, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted && seen > 0 {
                let upper = STEP * u32::try_from(step + 1).ok()?;
                // What is beyond the last step is only known by the oldest.
                return Some(if step + 1 == STEPS { self.oldest } else { upper.min(self.oldest) });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_ages() {
        let (mut ages, mut more) = (Histogram::default(), Histogram::default());
        for millis in 1..=50 {
            ages.add(Duration::from_millis(millis));
            more.add(Duration::from_millis(millis + 50));
        }
        ages.merge(&more);
        assert_eq!(ages.total(), 100);
        assert_eq!(ages.per_mille(500), Some(Duration::from_micros(50_100)));
        assert_eq!(ages.per_mille(990), Some(Duration::from_micros(99_100)));
        ages.add(Duration::from_secs(7));
        assert_eq!(ages.per_mille(1000), Some(Duration::from_secs(7)));
        assert_eq!(Histogram::default().per_mille(990), None);
    }
}
