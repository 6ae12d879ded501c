//! What a process exports at one time.

use std::collections::BTreeMap;

use dwell_engine::histogram::Histogram;

use crate::{Family, Kind};

/// Resolution of native histograms: 2^4 buckets per power of two, each 4.4 % wide. The engine's are at most 1.6 % wide.
pub(crate) const NATIVE_SCHEMA: i32 = 4;

/// The families of a process with their values at one time, in the order in which they are exported.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    pub(crate) families: Vec<(Family, Vec<Series>)>,
}

/// One combination of labels and its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    /// The values of the family's labels, in their order.
    pub labels: Vec<String>,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Number(Number),
    Distribution(Distribution),
}

/// The value of a counter or gauge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A whole number.
    Count(u64),
    /// Any other.
    Real(f64),
}

impl From<u64> for Number {
    fn from(count: u64) -> Number {
        Number::Count(count)
    }
}

impl From<f64> for Number {
    fn from(real: f64) -> Number {
        Number::Real(real)
    }
}

/// The value of a histogram.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Distribution {
    /// The number of values up to each bound of the family.
    pub up_to: Vec<u64>,
    pub count: u64,
    pub sum_seconds: f64,
    /// The number of values of 0.
    pub zeros: u64,
    /// The number of values in each native bucket that has any: up to 2^(index / 2^schema) seconds.
    pub native: BTreeMap<i32, u64>,
}

impl Snapshot {
    /// Starts a family. All its samples must follow before the next family starts.
    pub fn family(&mut self, family: &Family) {
        self.families.push((*family, Vec::new()));
    }

    /// Adds one sample; `values` are those of the family's labels, in their order.
    pub fn sample<L: AsRef<str>>(&mut self, family: &Family, values: &[L], value: impl Into<Number>) {
        self.add(family, values, Value::Number(value.into()));
    }

    /// Adds one histogram of a histogram family. A bucket of the engine is counted below the first bound that is not less
    /// than its greatest value, so that no value appears below a bound that it exceeds.
    pub fn histogram<L: AsRef<str>>(&mut self, family: &Family, values: &[L], histogram: &Histogram) {
        let Kind::Histogram(bounds_ns) = family.kind else {
            return debug_assert!(false, "{} is not declared as a histogram", family.name);
        };
        let mut buckets = histogram.buckets().peekable();
        let mut below = 0;
        let up_to = bounds_ns.iter().map(|bound_ns| {
            while let Some((_, _, count)) = buckets.next_if(|(_, high, _)| high - 1 <= *bound_ns) {
                below += count;
            }
            below
        });
        let (up_to, sum_seconds) = (up_to.collect(), seconds(histogram.sum_ns()));
        let (mut zeros, mut native) = (0, BTreeMap::new());
        for (low, high, count) in histogram.buckets() {
            match high - 1 {
                0 => zeros += count,
                most => *native.entry(native_index((low + most) as f64 / 2e9)).or_default() += count,
            }
        }
        let distribution = Distribution { up_to, count: histogram.count(), sum_seconds, zeros, native };
        self.add(family, values, Value::Distribution(distribution));
    }

    fn add<L: AsRef<str>>(&mut self, family: &Family, values: &[L], value: Value) {
        debug_assert_eq!(family.labels.len(), values.len(), "labels of {}", family.name);
        let labels = values.iter().map(|value| value.as_ref().to_owned()).collect();
        match self.families.last_mut() {
            Some((last, series)) if last == family => series.push(Series { labels, value }),
            _ => debug_assert!(false, "{} is not started", family.name),
        }
    }
}

/// Returns the index of the native bucket of a value.
fn native_index(seconds: f64) -> i32 {
    (seconds.log2() * f64::from(1 << NATIVE_SCHEMA)).ceil() as i32
}

/// Converts nanoseconds to seconds, the base unit of times in metrics.
pub fn seconds(ns: u128) -> f64 {
    ns as f64 / 1e9
}
