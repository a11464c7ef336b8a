//! Histogram of frame ages, fine enough for percentiles.

use std::time::Duration;

/// Bucket width.
const STEP: Duration = Duration::from_micros(100);

/// Number of buckets. The last one also counts every older frame.
const STEPS: usize = 5_000;

/// Number of frames by age.
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
    /// Records the age of one frame.
    pub fn add(&mut self, age: Duration) {
        let step = usize::try_from(age.as_micros() / STEP.as_micros()).unwrap_or(STEPS);
        if let Some(count) = self.counts.get_mut(step.min(STEPS - 1)) {
            *count += 1;
        }
        self.total += 1;
        self.oldest = self.oldest.max(age);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.oldest = self.oldest.max(other.oldest);
    }

    /// Number of recorded frames.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The age that `part` of 1000 frames do not exceed.
    pub fn per_mille(&self, part: u64) -> Option<Duration> {
        let wanted = (self.total * part).div_ceil(1000);
        let mut seen = 0;
        for (step, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted && seen > 0 {
                let upper = STEP * u32::try_from(step + 1).ok()?;
                // The last bucket has no upper bound; the oldest age is exact.
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
    fn per_mille_returns_bucket_upper_bound_or_oldest_age() {
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
