//! The ranges that received values must lie in.

use std::ops::{Range, RangeBounds, RangeInclusive};

use serde::{Deserialize, Deserializer, de::Error};

/// Valid values of CLOCK_MONOTONIC: far from the limits of the type, so that sums and differences cannot overflow.
pub const TIMES_NS: Range<u64> = 0..1 << 62;
/// Valid values of Unix time, from some 36 years before 1970.
const UNIX_TIMES_NS: Range<i64> = -(1 << 60)..1 << 62;
/// Valid durations: up to two years, the range of a histogram.
const DURATIONS_NS: RangeInclusive<u64> = 0..=1 << 56;

pub fn time<'a, D: Deserializer<'a>>(from: D) -> Result<u64, D::Error> {
    within(&TIMES_NS, from, "time")
}

pub fn unix_time<'a, D: Deserializer<'a>>(from: D) -> Result<i64, D::Error> {
    within(&UNIX_TIMES_NS, from, "time")
}

pub fn duration<'a, D: Deserializer<'a>>(from: D) -> Result<u64, D::Error> {
    within(&DURATIONS_NS, from, "duration")
}

fn within<'a, D: Deserializer<'a>, T: Deserialize<'a> + PartialOrd>(
    range: &impl RangeBounds<T>,
    from: D,
    what: &str,
) -> Result<T, D::Error> {
    let number = T::deserialize(from)?;
    match range.contains(&number) {
        true => Ok(number),
        false => Err(D::Error::custom(what)),
    }
}
