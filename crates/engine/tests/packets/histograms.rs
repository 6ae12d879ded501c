//! The buckets of C and Rust agree, and are narrow enough.

use dwell_engine::{abi, histogram::Histogram};
use proptest::prelude::*;

/// Counts values as the kernel does, without the code under test.
fn kernel(values: &[u64]) -> abi::dwell_histogram {
    let mut raw = abi::dwell_histogram {
        count: values.len() as u64,
        sum_ns: values.iter().sum(),
        min_ns: values.iter().copied().min().unwrap_or(0),
        max_ns: values.iter().copied().max().unwrap_or(0),
        bucket: [0; abi::DWELL_BUCKETS as usize],
    };
    for value in values {
        raw.bucket[index(*value)] += 1;
    }
    raw
}

/// Returns the bucket of a value: an independent implementation of the definition in `core/base/histogram.h`.
fn index(value: u64) -> usize {
    if value < 128 {
        return value as usize;
    }
    if value >= 1 << 36 {
        return abi::DWELL_BUCKETS as usize - 1;
    }
    let power = 63 - value.leading_zeros() as usize;
    let group = power - 6;
    group * 64 + (value >> group) as usize
}

#[test]
fn buckets_are_at_most_1_6_percent_wide_from_a_microsecond_to_a_minute() {
    let mut h = Histogram::default();
    h.record(1_000);
    h.record(60_000_000_000);
    for (low, high, _) in h.buckets() {
        assert!((high - low) as f64 / low as f64 <= 0.016);
    }
    assert_eq!(h.quantile_ns(0.0), h.quantile_ns(0.5));
    assert_eq!(abi::DWELL_BUCKETS, 31 * 64);
}

#[test]
fn an_empty_histogram_knows_nothing() {
    let h = Histogram::default();
    assert_eq!((h.count(), h.min_ns(), h.max_ns()), (0, None, None));
    assert_eq!(h.quantile_ns(0.99), None);
    let mut merged = h.clone();
    merged.merge_kernel(&kernel(&[]));
    assert_eq!(merged, h);
}

#[test]
fn what_is_longer_than_the_last_bucket_keeps_its_maximum() {
    let mut h = Histogram::default();
    h.record(90_000_000_000);
    assert_eq!(h.quantile_ns(1.0), Some(90_000_000_000));
}

proptest! {
    #[test]
    fn the_kernels_counts_merge_into_the_same_histogram(
        values in prop::collection::vec(0u64..1 << 37, 0..60),
        powers in prop::collection::vec((0u32..37, 0u64..4), 0..20),
    ) {
        let mut values = values;
        values.extend(powers.iter().map(|(power, more)| (1u64 << power) + more));
        let mut direct = Histogram::default();
        for value in &values {
            direct.record(*value);
        }
        let mut merged = Histogram::default();
        merged.merge_kernel(&kernel(&values));
        prop_assert_eq!(merged, direct);
    }

    #[test]
    fn a_quantile_is_within_0_8_percent_of_a_value(
        values in prop::collection::vec(1_000u64..60_000_000_000, 1..100),
        q in 0.0f64..=1.0,
    ) {
        let mut h = Histogram::default();
        let mut sorted = values;
        for value in &sorted {
            h.record(*value);
        }
        sorted.sort_unstable();
        let rank = ((q * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len());
        let (want, got) = (sorted[rank - 1] as f64, h.quantile_ns(q).unwrap() as f64);
        prop_assert!((got / want - 1.0).abs() < 0.008, "{got} for {want}");
    }
}
