//! Log-linear histograms over the buckets of `core/base/histogram.h`.

mod bytes;
mod figure;
mod sum;

use std::collections::BTreeMap;

use crate::abi;

pub use bytes::BytesError;
pub use figure::Figure;
pub use sum::{Addend, HistogramSum};

/// A distribution of latencies in nanoseconds. Buckets are at most 1.6 % wide, so a quantile is within 0.8 % of a
/// recorded value; the count, sum, minimum and maximum are exact. Values above 68.7 s share the last bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    count: u64,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
    buckets: BTreeMap<u16, u64>,
}

impl Histogram {
    /// Adds one value.
    pub fn record(&mut self, value_ns: u64) {
        self.record_many(value_ns, 1);
    }

    /// Adds one value `count` times.
    pub fn record_many(&mut self, value_ns: u64, count: u64) {
        if count == 0 {
            return;
        }
        let sum_ns = u128::from(value_ns) * u128::from(count);
        self.note(count, sum_ns, value_ns, value_ns);
        *self.buckets.entry(bucket_of(value_ns)).or_default() += count;
    }

    /// Adds all values of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        self.note(other.count, other.sum_ns, other.min_ns, other.max_ns);
        for (bucket, count) in &other.buckets {
            *self.buckets.entry(*bucket).or_default() += count;
        }
    }

    /// Adds the values that the kernel counted on one CPU.
    pub fn merge_kernel(&mut self, kernel: &abi::dwell_histogram) {
        if kernel.count == 0 {
            return;
        }
        self.note(kernel.count, u128::from(kernel.sum_ns), kernel.min_ns, kernel.max_ns);
        for (bucket, count) in (0..).zip(kernel.bucket).filter(|(_, count)| *count > 0) {
            *self.buckets.entry(bucket).or_default() += u64::from(count);
        }
    }

    /// Adds the values that the kernel counted for a flow, in buckets eight times as wide: quantiles are then within
    /// 6.3 % of a recorded value, from 256 ns to 11 s. The minimum is unknown; the lower edge of the first filled
    /// bucket stands for it.
    pub fn merge_coarse(&mut self, flow: &abi::dwell_flow_segment) {
        const WIDE: u16 = 1 << abi::DWELL_COARSE_SHIFT;
        // The first bucket holds everything below 256 ns, and is mapped to the upper half of that range.
        let fine = |coarse: u16| (coarse + abi::DWELL_COARSE_SKIPPED as u16) * WIDE;

        let mut filled = (0..).zip(flow.bucket).filter(|(_, count)| *count > 0);
        let Some((first, _)) = filled.clone().next() else {
            return;
        };
        let (min_ns, _) = bucket_range(fine(first));
        let sum_ns = u128::from(flow.sum_ns);
        self.note(flow.count, sum_ns, min_ns.min(flow.max_ns), flow.max_ns);
        filled.by_ref().for_each(|(bucket, count)| {
            *self.buckets.entry(fine(bucket) + WIDE / 2).or_default() += u64::from(count);
        });
    }

    fn note(&mut self, count: u64, sum_ns: u128, min_ns: u64, max_ns: u64) {
        if self.count == 0 || min_ns < self.min_ns {
            self.min_ns = min_ns;
        }
        self.max_ns = self.max_ns.max(max_ns);
        self.count += count;
        self.sum_ns += sum_ns;
    }

    /// Returns the number of recorded values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of all values, in nanoseconds.
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// Returns the minimum, or `None` if there are no values.
    pub fn min_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min_ns)
    }

    /// Returns the maximum, or `None` if there are no values.
    pub fn max_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max_ns)
    }

    /// Returns the mean, rounded down, or `None` if there are no values.
    pub fn mean_ns(&self) -> Option<u64> {
        (self.count > 0).then(|| (self.sum_ns / u128::from(self.count)) as u64)
    }

    /// Returns the value at quantile `q` (0 to 1) by nearest rank: the middle of its bucket, but never outside the
    /// recorded range. Values that are counted but in no bucket, as happens when the histogram was read during an
    /// update, are ignored.
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        let [value_ns] = self.quantiles_ns([q]);
        value_ns
    }

    /// Returns the values at several quantiles, which must ascend, in one pass over the buckets.
    pub fn quantiles_ns<const N: usize>(&self, ascending: [f64; N]) -> [Option<u64>; N] {
        self.quantiles_of(|| self.buckets.iter().map(|(bucket, count)| (*bucket, *count)), ascending)
    }

    /// Returns the values at several quantiles of buckets in ascending order, of which this has the least and the greatest value.
    fn quantiles_of<const N: usize, I: Iterator<Item = (u16, u64)>>(
        &self,
        buckets: impl Fn() -> I,
        ascending: [f64; N],
    ) -> [Option<u64>; N] {
        let held: u128 = buckets().map(|(_, count)| u128::from(count)).sum();
        let (mut seen, mut current) = (0, None);
        let mut buckets = buckets();
        ascending.map(|q| {
            let rank = ((q * held as f64).ceil() as u128).clamp(1, held.max(1));
            while seen < rank {
                let (bucket, count) = buckets.next()?;
                seen += u128::from(count);
                current = Some(bucket);
            }
            let (low, high) = bucket_range(current?);
            Some((low + (high - low) / 2).clamp(self.min_ns, self.max_ns))
        })
    }

    /// Returns the filled buckets in ascending order: lower edge, upper edge (exclusive), count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.buckets.iter().map(|(bucket, count)| {
            let (low, high) = bucket_range(*bucket);
            (low, high, *count)
        })
    }
}

fn bucket_of(value_ns: u64) -> u16 {
    crate::rtt::native::bucket_index(value_ns) as u16
}

/// Returns the lower edge and the upper edge (exclusive) of a bucket.
fn bucket_range(bucket: u16) -> (u64, u64) {
    let (bucket, linear) = (u64::from(bucket), 1 << abi::DWELL_GROUPING_POWER);
    if bucket < 2 * linear {
        return (bucket, bucket + 1);
    }
    let shift = bucket / linear - 1;
    let low = (bucket % linear + linear) << shift;
    (low, low + (1 << shift))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn edges_of_buckets_are_where_the_core_puts_values() {
        for bucket in 0..abi::DWELL_BUCKETS as u16 {
            let (low, high) = bucket_range(bucket);
            assert_eq!(bucket_of(low), bucket);
            assert_eq!(bucket_of(high - 1), bucket);
        }
        assert_eq!(bucket_of(u64::MAX), abi::DWELL_BUCKETS as u16 - 1);
        assert_eq!(bucket_range(abi::DWELL_BUCKETS as u16 - 1).1, 1 << 36);
    }

    #[test]
    fn quantiles_of_a_known_series() {
        let mut h = Histogram::default();
        (1..=1000u64).for_each(|ms| h.record(ms * 1_000_000));
        for (q, want) in [(0.5, 500e6), (0.9, 900e6), (0.99, 990e6)] {
            let got = h.quantile_ns(q).unwrap() as f64;
            assert!((got / want - 1.0).abs() < 0.008, "p{q}: {got}");
        }
        let several = [0.0, 0.5, 0.5, 0.9, 0.99, 1.0];
        assert_eq!(h.quantiles_ns(several), several.map(|q| h.quantile_ns(q)));
        assert_eq!(h.mean_ns(), Some(500_500_000));
        assert_eq!((h.min_ns(), h.max_ns()), (Some(1_000_000), Some(1_000_000_000)));
        assert_eq!(Histogram::default().quantile_ns(0.5), None);
        assert_eq!(Histogram::default().mean_ns(), None);
    }

    #[test]
    fn a_flows_coarse_buckets_keep_count_and_mean_and_come_near_its_quantiles() {
        let mut flow =
            abi::dwell_flow_segment { count: 0, sum_ns: 0, max_ns: 0, bucket: [0; abi::DWELL_COARSE_BUCKETS as usize] };
        let values = (1..=1000u64).map(|us| us * 1_000);
        for ns in values.clone() {
            flow.count += 1;
            flow.sum_ns += ns;
            flow.max_ns = flow.max_ns.max(ns);
            let coarse = bucket_of(ns) >> abi::DWELL_COARSE_SHIFT;
            flow.bucket[usize::from(coarse) - abi::DWELL_COARSE_SKIPPED as usize] += 1;
        }
        let mut h = Histogram::default();
        h.merge_coarse(&flow);
        assert_eq!((h.count(), h.mean_ns()), (1000, Some(500_500)));
        assert_eq!(h.max_ns(), Some(1_000_000));
        for (q, want) in [(0.5, 500e3), (0.9, 900e3), (0.99, 990e3)] {
            let got = h.quantile_ns(q).unwrap() as f64;
            assert!((got / want - 1.0).abs() < 0.063, "p{q}: {got}");
        }
    }

    proptest! {
        #[test]
        fn a_bucket_is_at_most_1_6_percent_wide(value in 128u64..(1 << 36)) {
            let (low, high) = bucket_range(bucket_of(value));
            prop_assert!(low <= value && value < high);
            prop_assert!((high - low) as f64 / low as f64 <= 1.0 / 64.0);
        }

        #[test]
        fn merging_is_recording_both(a in prop::collection::vec(0u64..1 << 40, 0..50), b in prop::collection::vec(0u64..1 << 40, 0..50)) {
            let fill = |values: &[u64]| {
                let mut h = Histogram::default();
                values.iter().for_each(|v| h.record(*v));
                h
            };
            let mut merged = fill(&a);
            merged.merge(&fill(&b));
            prop_assert_eq!(merged, fill(&[a, b].concat()));
        }
    }
}
