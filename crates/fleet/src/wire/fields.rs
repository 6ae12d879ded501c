//! The ranges that received values must lie in, and the lengths that received lists and names may have.

use std::{
    fmt,
    marker::PhantomData,
    ops::{Range, RangeBounds, RangeInclusive},
};

use dwell_engine::layers::SegmentHooks;
use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};

/// Longest name of a counter or a network namespace, in bytes.
pub const MAX_NAME_BYTES: usize = 64;
/// Longest names of the hooks at one end of a segment, in bytes: the driver's end has four.
pub const MAX_HOOKS_BYTES: usize = 256;
/// Counters in a message at most; a collector keeps no more of an agent.
pub const MAX_COUNTERS: usize = 256;

/// Valid values of CLOCK_MONOTONIC: far from the limits of the type, so that sums and differences cannot overflow.
pub const TIMES_NS: Range<u64> = 0..1 << 62;
/// Valid numbers of batches: their differences and sums cannot overflow.
const NUMBERS: Range<u64> = 0..1 << 62;
/// Valid values of Unix time, from some 36 years before 1970.
const UNIX_TIMES_NS: Range<i64> = -(1 << 60)..1 << 62;
/// Valid durations: up to two years, the range of a histogram.
const DURATIONS_NS: RangeInclusive<u64> = 0..=1 << 56;

pub fn time<'a, D: Deserializer<'a>>(from: D) -> Result<u64, D::Error> {
    within(&TIMES_NS, from, "time")
}

pub fn number<'a, D: Deserializer<'a>>(from: D) -> Result<u64, D::Error> {
    within(&NUMBERS, from, "number of a batch")
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

/// A list of at most `MOST` elements. A longer one is refused before memory is taken for the rest.
pub fn list<'a, D: Deserializer<'a>, T: Deserialize<'a>, const MOST: usize>(from: D) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(List::<T, MOST>(PhantomData))
}

pub fn counters<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<(String, u64)>, D::Error> {
    let counters = list::<_, (&str, u64), MAX_COUNTERS>(from)?;
    match counters.iter().all(|(name, _)| name.len() <= MAX_NAME_BYTES) {
        true => Ok(counters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        false => Err(D::Error::custom("length of a counter's name")),
    }
}

/// A name that may be unknown.
pub fn name<'a, D: Deserializer<'a>>(from: D) -> Result<Option<String>, D::Error> {
    let name = Option::<&str>::deserialize(from)?;
    match name.is_none_or(|name| name.len() <= MAX_NAME_BYTES) {
        true => Ok(name.map(str::to_owned)),
        false => Err(D::Error::custom("length of a name")),
    }
}

pub fn hooks<'a, D: Deserializer<'a>>(from: D) -> Result<SegmentHooks, D::Error> {
    let hooks = SegmentHooks::deserialize(from)?;
    let is_short = |name: &Option<String>| name.as_ref().is_none_or(|name| name.len() <= MAX_HOOKS_BYTES);
    match is_short(&hooks.from) && is_short(&hooks.to) {
        true => Ok(hooks),
        false => Err(D::Error::custom("length of hooks' names")),
    }
}

struct List<T, const MOST: usize>(PhantomData<T>);

impl<'a, T: Deserialize<'a>, const MOST: usize> Visitor<'a> for List<T, MOST> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST} elements")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = from.next_element()? {
            if list.len() == MOST {
                return Err(A::Error::custom("length of a list"));
            }
            list.push(element);
        }
        Ok(list)
    }
}
