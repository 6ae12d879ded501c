//! Serialization of the engine's types, with the ranges that received values must lie in.

use std::{
    net::IpAddr,
    ops::{Range, RangeBounds, RangeInclusive},
};

use dwell_engine::{layers::Ends, measure::Endpoint};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

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

/// Serializes a segment as its number.
pub mod segment {
    use dwell_engine::layers::Segment;

    use super::*;

    pub fn serialize<S: Serializer>(segment: &Segment, to: S) -> Result<S::Ok, S::Error> {
        (*segment as u8).serialize(to)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Segment, D::Error> {
        let number = u8::deserialize(from)?;
        let segment = Segment::ALL.get(usize::from(number));
        segment.copied().ok_or_else(|| D::Error::custom("segment"))
    }
}

/// Serializes an optional layer as its number.
pub mod layer {
    use dwell_engine::layers::Layer;

    use super::*;

    pub fn serialize<S: Serializer>(layer: &Option<Layer>, to: S) -> Result<S::Ok, S::Error> {
        layer.map(|layer| layer as u8).serialize(to)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<Layer>, D::Error> {
        let number = Option::<u8>::deserialize(from)?;
        let layer = number.map(|number| Layer::ALL.get(usize::from(number)).copied());
        layer.map(|layer| layer.ok_or_else(|| D::Error::custom("layer"))).transpose()
    }
}

/// Serializes a histogram in its own compact form.
pub mod histogram {
    use dwell_engine::histogram::Histogram;

    use super::*;

    pub fn serialize<S: Serializer>(histogram: &Histogram, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&histogram.to_bytes())
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Histogram, D::Error> {
        let bytes = <&[u8]>::deserialize(from)?;
        Histogram::from_bytes(bytes).map_err(D::Error::custom)
    }
}

/// Serializes the ends of a flow as addresses and ports.
pub mod ends {
    use super::*;

    type Plain = ((IpAddr, u16), (IpAddr, u16));

    pub fn serialize<S: Serializer>(ends: &Ends, to: S) -> Result<S::Ok, S::Error> {
        let end = |end: Endpoint| (end.address, end.port);
        let plain: Plain = (end(ends.src), end(ends.dst));
        plain.serialize(to)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Ends, D::Error> {
        let end = |(address, port)| Endpoint { address, port };
        let (src, dst) = Plain::deserialize(from)?;
        Ok(Ends { src: end(src), dst: end(dst) })
    }
}
