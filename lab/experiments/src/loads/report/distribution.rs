//! The distribution of estimates beside that of the truth.

use dwell_engine::stats::{mean, quantile, sorted};

use super::compare::{Comparison, Truth};

/// Shares at which distributions are told.
pub(super) const SHARES: [(&str, f64); 7] =
    [("p10", 0.1), ("p25", 0.25), ("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)];

/// Over the epochs that have both an estimate and that truth. In nanoseconds, ascending.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Distributions {
    pub(super) truth: Vec<f64>,
    pub(super) estimate: Vec<f64>,
}

impl Distributions {
    pub(super) fn new(comparison: &Comparison, truth: Truth) -> Self {
        Self {
            truth: sorted(comparison.pairs(truth).map(|(_, truth)| truth)),
            estimate: sorted(comparison.pairs(truth).map(|(estimate, _)| estimate)),
        }
    }

    pub(super) fn means(&self) -> Option<(f64, f64)> {
        Some((mean(self.truth.iter().copied())?, mean(self.estimate.iter().copied())?))
    }

    /// By how much a percentile of the estimates differs from that of the truth at most, and which it is.
    pub(super) fn greatest_difference(&self) -> Option<(f64, &'static str)> {
        SHARES
            .iter()
            .filter_map(|&(name, share)| {
                let ratio = quantile(&self.estimate, share)? / quantile(&self.truth, share)?;
                Some((ratio - 1.0, name))
            })
            .max_by(|(one, _), (other, _)| one.abs().total_cmp(&other.abs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_differ_most_where_their_percentiles_do() {
        let values = |scale: f64| (1..=100).map(|n| f64::from(n) * scale).collect();
        let mut distributions = Distributions { truth: values(1.0), estimate: values(1.02) };
        let (difference, _) = distributions.greatest_difference().unwrap();
        assert!((difference - 0.02).abs() < 1e-9, "{difference}");
        distributions.estimate[74] = 60.0;
        let (difference, at) = distributions.greatest_difference().unwrap();
        assert_eq!(at, "p75");
        assert!((difference + 0.2).abs() < 1e-9, "{difference}");
        distributions.estimate.clear();
        assert_eq!(distributions.greatest_difference(), None);
        assert_eq!(distributions.means(), None);
    }
}
