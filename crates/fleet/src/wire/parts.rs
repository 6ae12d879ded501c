//! How the engine's types are written.

use std::net::IpAddr;

use dwell_engine::{layers::Ends, measure::Endpoint};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// As its number.
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

/// As its number, if there is one.
pub mod layer {
    use dwell_engine::layers::Layer;

    use super::*;

    pub fn serialize<S: Serializer>(layer: &Option<Layer>, to: S) -> Result<S::Ok, S::Error> {
        layer.map(|layer| layer as u8).serialize(to)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<Layer>, D::Error> {
        let number = Option::<u8>::deserialize(from)?;
        let layer = number.map(|number| Layer::ALL.get(usize::from(number)).copied());
        layer
            .map(|layer| layer.ok_or_else(|| D::Error::custom("layer")))
            .transpose()
    }
}

/// As its own bytes.
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

/// As addresses and ports.
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
        Ok(Ends {
            src: end(src),
            dst: end(dst),
        })
    }
}
