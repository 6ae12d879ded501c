//! Compact encoding of byte traces: each flow once, and timestamps relative to the first one of a trace.

use std::{collections::HashMap, hash::Hash, num::NonZeroU64};

use dwell_engine::layers::{ByteTrace, Direction, Ends, Isns, Layer};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::fields;

/// Maximum number of traces in a message. Agents send half as many, and collectors keep as many
/// in a row of their store.
const MAX_TRACES: usize = 1 << 14;

/// Traces of bytes that have passed all layers of one direction, in the order in which the probe reported them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ByteTraces(pub Vec<ByteTrace>);

/// Traces whose flows are known by `F`, each of which is there once.
#[derive(Serialize, Deserialize)]
pub(super) struct Packed<F> {
    #[serde(deserialize_with = "fields::list::<_, _, MAX_TRACES>", bound(deserialize = "F: Deserialize<'de>"))]
    flows: Vec<F>,
    #[serde(deserialize_with = "fields::list::<_, _, MAX_TRACES>")]
    traces: Vec<PackedTrace>,
}

/// What a flow of a trace is known by.
pub(super) trait TracedFlow: Copy + Eq + Hash {
    /// Returns the flow of a trace.
    fn of(trace: &ByteTrace) -> Self;
    /// Returns the flow as it is in messages of today.
    fn parts(self) -> Flow;
}

/// The ends of a flow, the number of its network namespace, and the initial sequence numbers of its connection.
type Flow = (Ends, u32, Option<Isns>);

impl TracedFlow for Flow {
    fn of(trace: &ByteTrace) -> Flow {
        (trace.ends, trace.namespace, trace.isns)
    }

    fn parts(self) -> Flow {
        self
    }
}

/// As in version 3.
impl TracedFlow for Ends {
    fn of(trace: &ByteTrace) -> Ends {
        trace.ends
    }

    fn parts(self) -> Flow {
        (self, 0, None)
    }
}

#[derive(Serialize, Deserialize)]
struct PackedTrace {
    /// Index into the flows.
    flow: u32,
    seq: u32,
    is_up: bool,
    sent: u8,
    again: bool,
    /// A bit for each layer that has a timestamp.
    layers: u16,
    /// The first timestamp.
    first_ns: u64,
    /// The other timestamps, relative to the first.
    #[serde(deserialize_with = "fields::list::<_, _, { Layer::ALL.len() }>")]
    later_ns: Vec<i64>,
}

impl<F: TracedFlow> Packed<F> {
    pub(super) fn of(traces: &[ByteTrace]) -> Packed<F> {
        let mut flows = Vec::new();
        let mut index = HashMap::new();
        let traces = traces.iter().map(|trace| {
            let flow = *index.entry(F::of(trace)).or_insert_with_key(|flow| {
                flows.push(*flow);
                flows.len() as u32 - 1
            });
            PackedTrace::pack(trace, flow)
        });
        let traces = traces.collect();
        Packed { flows, traces }
    }

    /// Returns `None` if no agent would write these.
    pub(super) fn unpack(&self) -> Option<ByteTraces> {
        let traces = self.traces.iter().map(|trace| {
            let flow = self.flows.get(trace.flow as usize)?;
            trace.unpack(flow.parts())
        });
        traces.collect::<Option<_>>().map(ByteTraces)
    }
}

impl Serialize for ByteTraces {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Packed::<Flow>::of(&self.0).serialize(to)
    }
}

impl<'a> Deserialize<'a> for ByteTraces {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<ByteTraces, D::Error> {
        let packed = Packed::<Flow>::deserialize(from)?;
        packed.unpack().ok_or_else(|| D::Error::custom("trace"))
    }
}

impl PackedTrace {
    fn pack(trace: &ByteTrace, flow: u32) -> PackedTrace {
        let stamps = trace.stamps.iter().zip(0..);
        let layers = stamps.fold(0, |bits, (stamp, layer)| bits | u16::from(stamp.is_some()) << layer);
        let mut stamps = trace.stamps.iter().flatten().map(|stamp| stamp.get());
        let first_ns = stamps.next().unwrap_or(0);
        PackedTrace {
            flow,
            seq: trace.seq,
            is_up: trace.direction == Direction::Rx,
            sent: trace.sent,
            again: trace.again,
            layers,
            first_ns,
            later_ns: stamps.map(|stamp| stamp.wrapping_sub(first_ns).cast_signed()).collect(),
        }
    }

    /// Returns `None` for a trace that no agent would write.
    fn unpack(&self, (ends, namespace, isns): Flow) -> Option<ByteTrace> {
        let direction = match self.is_up {
            false => Direction::Tx,
            true => Direction::Rx,
        };
        let mut trace = ByteTrace {
            ends,
            namespace,
            seq: self.seq,
            isns,
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
            let time = times.next().filter(|time| fields::TIMES_NS.contains(time))?;
            if layer.direction() != direction {
                return None;
            }
            trace.stamps[layer as usize] = Some(NonZeroU64::new(time)?);
        }
        let is_valid = self.layers != 0 && self.layers >> Layer::ALL.len() == 0;
        (is_valid && times.next().is_none()).then_some(trace)
    }
}
