//! What a distribution is judged and sorted by.

use super::Histogram;

/// A figure of a distribution, by the name that users give it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Figure {
    /// The number of latencies.
    Count,
    /// The arithmetic mean.
    Mean,
    /// The minimum.
    Min,
    /// The maximum.
    Max,
    /// The median.
    P50,
    /// The 90th percentile.
    P90,
    /// The 95th percentile.
    P95,
    /// The 99th percentile.
    P99,
    /// The 99.9th percentile.
    P99_9,
}

impl Figure {
    /// All figures.
    pub const ALL: [Figure; 9] = [
        Figure::Count,
        Figure::Mean,
        Figure::Min,
        Figure::Max,
        Figure::P50,
        Figure::P90,
        Figure::P95,
        Figure::P99,
        Figure::P99_9,
    ];

    /// Returns the name in options and messages.
    pub fn name(self) -> &'static str {
        match self {
            Figure::Count => "count",
            Figure::Mean => "mean",
            Figure::Min => "min",
            Figure::Max => "max",
            Figure::P50 => "p50",
            Figure::P90 => "p90",
            Figure::P95 => "p95",
            Figure::P99 => "p99",
            Figure::P99_9 => "p99.9",
        }
    }

    /// Returns the figure of this name.
    pub fn from_name(name: &str) -> Option<Figure> {
        Figure::ALL.into_iter().find(|figure| figure.name() == name)
    }

    /// Returns the figure of a distribution: nanoseconds, or a number for [`Figure::Count`]. `None` if the distribution
    /// is empty, except for its count, which is 0.
    pub fn of(self, histogram: &Histogram) -> Option<u64> {
        match self {
            Figure::Count => Some(histogram.count()),
            Figure::Mean => histogram.mean_ns(),
            Figure::Min => histogram.min_ns(),
            Figure::Max => histogram.max_ns(),
            Figure::P50 => histogram.quantile_ns(0.5),
            Figure::P90 => histogram.quantile_ns(0.9),
            Figure::P95 => histogram.quantile_ns(0.95),
            Figure::P99 => histogram.quantile_ns(0.99),
            Figure::P99_9 => histogram.quantile_ns(0.999),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_name_and_unknown_where_nothing_was_recorded() {
        let mut histogram = Histogram::default();
        (1..=100u64).for_each(|ns| histogram.record(ns));
        let of = |name: &str| Figure::from_name(name).and_then(|figure| figure.of(&histogram));
        let found = ["count", "mean", "min", "max", "p50", "p90", "p95", "p99", "p99.9", "p98"].map(of);
        let known = [100, 50, 1, 100, 50, 90, 95, 99, 100].map(Some);
        assert_eq!((&found[..9], found[9]), (&known[..], None));
        for figure in Figure::ALL {
            let expected = (figure == Figure::Count).then_some(0);
            assert_eq!(figure.of(&Histogram::default()), expected, "{}", figure.name());
        }
    }
}
