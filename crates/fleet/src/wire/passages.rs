//! Many passages, in few bytes: flows once, times from the first stamp on.

use std::{collections::HashMap, num::NonZeroU64};

use dwell_engine::layers::{Direction, Ends, Layer, Passage};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::parts;

/// In a message; agents send far fewer.
const MOST: usize = 1 << 16;

/// Bytes that finished a side, in the order in which they were told.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Passages(pub Vec<Passage>);

#[derive(Serialize, Deserialize)]
struct Packed {
    flows: Vec<PackedEnds>,
    each: Vec<PackedPassage>,
}

#[derive(Serialize, Deserialize)]
struct PackedEnds(#[serde(with = "parts::ends")] Ends);

#[derive(Serialize, Deserialize)]
struct PackedPassage {
    /// Index into the flows.
    flow: u32,
    seq: u32,
    is_up: bool,
    sent: u8,
    again: bool,
    /// A bit for each layer that has a stamp.
    layers: u16,
    /// The first stamp, and of the others how much later they are.
    first_ns: u64,
    later_ns: Vec<i64>,
}

impl Serialize for Passages {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut flows = Vec::new();
        let mut known = HashMap::new();
        let each = self.0.iter().map(|passage| {
            let flow = *known.entry(passage.ends).or_insert_with(|| {
                flows.push(PackedEnds(passage.ends));
                flows.len() as u32 - 1
            });
            PackedPassage::of(passage, flow)
        });
        let each = each.collect();
        Packed { flows, each }.serialize(to)
    }
}

impl<'a> Deserialize<'a> for Passages {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Passages, D::Error> {
        let packed = Packed::deserialize(from)?;
        if packed.each.len() > MOST {
            return Err(D::Error::custom("passages"));
        }
        let each = packed.each.iter().map(|passage| {
            let ends = packed.flows.get(passage.flow as usize)?;
            passage.unpack(ends.0)
        });
        let each: Option<_> = each.collect();
        each.map(Passages).ok_or_else(|| D::Error::custom("passage"))
    }
}

impl PackedPassage {
    fn of(passage: &Passage, flow: u32) -> PackedPassage {
        let stamps = passage.stamps.iter().zip(0..);
        let layers = stamps.fold(0, |bits, (stamp, layer)| bits | u16::from(stamp.is_some()) << layer);
        let mut stamps = passage.stamps.iter().flatten().map(|stamp| stamp.get());
        let first_ns = stamps.next().unwrap_or(0);
        PackedPassage {
            flow,
            seq: passage.seq,
            is_up: passage.direction == Direction::Rx,
            sent: passage.sent,
            again: passage.again,
            layers,
            first_ns,
            later_ns: stamps.map(|stamp| stamp.wrapping_sub(first_ns).cast_signed()).collect(),
        }
    }

    /// `None` of what no agent writes.
    fn unpack(&self, ends: Ends) -> Option<Passage> {
        let direction = match self.is_up {
            false => Direction::Tx,
            true => Direction::Rx,
        };
        let mut passage = Passage {
            ends,
            seq: self.seq,
            direction,
            sent: self.sent,
            again: self.again,
            stamps: [None; Layer::ALL.len()],
        };
        let later = self.later_ns.iter();
        let mut times =
            std::iter::once(self.first_ns).chain(later.map(|later| self.first_ns.wrapping_add_signed(*later)));
        for layer in Layer::ALL {
            if self.layers & 1 << layer as u32 == 0 {
                continue;
            }
            let time = times.next().filter(|time| parts::TIMES_NS.contains(time))?;
            if layer.direction() != direction {
                return None;
            }
            passage.stamps[layer as usize] = Some(NonZeroU64::new(time)?);
        }
        let is_known = self.layers != 0 && self.layers >> Layer::ALL.len() == 0;
        (is_known && times.next().is_none()).then_some(passage)
    }
}
