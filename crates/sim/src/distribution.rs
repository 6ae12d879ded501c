//! Distributions of ratios that are at least 1.

/// A histogram of ratios. Buckets are 0.2 % wide, so that quantiles are accurate to 0.1 %. The last
/// bucket is beyond every ratio of two times in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    buckets: Vec<u64>,
    count: u64,
    sum: f64,
}

const BUCKET_WIDTH: f64 = 0.002;
/// The last bucket: ln 2^64, the longest time in nanoseconds over the shortest, in units of the bucket width.
const LAST_BUCKET: usize = 22_181;

impl Default for Distribution {
    fn default() -> Distribution {
        Distribution { buckets: Vec::new(), count: 0, sum: 0.0 }
    }
}

impl Distribution {
    /// Adds a ratio.
    pub fn add(&mut self, ratio: f64) {
        let bucket = ((ratio.max(1.0).ln() / BUCKET_WIDTH).round() as usize).min(LAST_BUCKET);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum += ratio;
    }

    /// Adds all ratios of another distribution.
    pub fn merge(&mut self, other: &Distribution) {
        if other.buckets.len() > self.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (sum, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += count;
        }
        self.count += other.count;
        self.sum += other.sum;
    }

    /// Number of ratios.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Mean of the ratios; `None` without any.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    /// The `q` quantile; `None` without any ratio.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let rank = (q * self.count as f64).ceil().max(1.0) as u64;
        let mut points = self.points();
        points.find_map(|(ratio, cumulative)| (cumulative >= rank).then_some(ratio))
    }

    /// Points of the cumulative distribution: ratios, each with the number of ratios that are at most as large.
    pub fn points(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let buckets = self.buckets.iter().enumerate();
        let mut sum = 0;
        buckets.filter(|(_, count)| **count > 0).map(move |(bucket, count)| {
            sum += count;
            ((bucket as f64 * BUCKET_WIDTH).exp(), sum)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_tenth_of_a_percent() {
        let mut both = Distribution::default();
        assert_eq!(both.quantile(0.5), None);
        let mut other = Distribution::default();
        for i in 0..10_000 {
            let half = if i % 2 == 0 { &mut both } else { &mut other };
            half.add(1.0 + f64::from(i) / 1000.0);
        }
        both.merge(&other);
        for q in [0.001f64, 0.25, 0.5, 0.9, 1.0] {
            let truth = 1.0 + ((q * 1e4).ceil() - 1.0) / 1000.0;
            let quantile = both.quantile(q).unwrap();
            assert!((quantile / truth - 1.0).abs() < 0.00101, "{quantile} {truth}");
        }
        assert_eq!(both.count(), 10_000);
        // A server that cannot keep up makes clients wait for many thousand times their least.
        both.add(1e9);
        assert!((both.quantile(1.0).unwrap() / 1e9 - 1.0).abs() < 0.00101);
        // No time in nanoseconds is infinitely long, and nothing is set aside for it.
        both.add(f64::INFINITY);
        assert!(both.quantile(1.0).unwrap() > 1e19);
    }
}
