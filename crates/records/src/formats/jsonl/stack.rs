//! Objects of `dwell stack`.

use std::collections::BTreeMap;

use dwell_engine::layers::{ByteTrace, Counters, Direction, Layer, Segment};
use serde::{Serialize, Serializer};

use super::{Flow, Objects, rounded};
use crate::{
    Distribution, Stack, StackPlace, StackRow,
    record::{complete_bytes, last_stamp_ns},
};

pub(super) const SCHEMA: &str = "dwell.stack/1";

/// `type` "stack": the time that bytes spent in a segment in the interval that ended at `time`. With `missing`, the
/// layer that the kernel has no hook for, the figures are null.
#[derive(Serialize)]
struct Object<'a> {
    interval_ns: u64,
    host: &'a str,
    flow: Option<Flow>,
    segment: &'a str,
    direction: &'a str,
    again: bool,
    part_of: Option<&'a str>,
    #[serde(flatten)]
    figures: Distribution,
    share: Option<f64>,
    sample_bytes: u32,
    hook_from: Option<&'a str>,
    hook_to: Option<&'a str>,
    missing: Option<&'a str>,
}

/// `type` "stack-status": stamped bytes that are in no segment, since the start of the run.
#[derive(Serialize)]
struct StatusObject<'a> {
    host: &'a str,
    #[serde(flatten)]
    counters: Named<'a>,
    missed: BTreeMap<&'a str, u64>,
}

/// Counters as the keys of an object, in the order of the core.
struct Named<'a>(&'a Counters);

impl Serialize for Named<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.named())
    }
}

/// `type` "stack-byte": one byte that went all the way through a side, with its time at each layer. `time` is when it
/// left the last one.
#[derive(Serialize)]
struct ByteObject<'a> {
    host: &'a str,
    flow: Flow,
    seq: u32,
    direction: &'a str,
    sent: Option<u8>,
    again: bool,
    /// On CLOCK_MONOTONIC.
    stamp_ns: BTreeMap<&'a str, Option<u64>>,
}

/// `type` "stack-hop": the time that bytes spent between one device and the next.
#[derive(Serialize)]
struct HopObject<'a> {
    interval_ns: u64,
    host: &'a str,
    origin: Place<'a>,
    from: Place<'a>,
    to: Place<'a>,
    #[serde(flatten)]
    figures: Distribution,
}

#[derive(Serialize)]
struct Place<'a> {
    device: &'a str,
    namespace: Option<&'a str>,
    point: &'a str,
}

impl<'a> From<&'a StackPlace> for Place<'a> {
    fn from(place: &'a StackPlace) -> Place<'a> {
        Place { device: &place.device, namespace: place.namespace.as_deref(), point: place.point }
    }
}

/// Writes one object per segment of all flows, of bytes that were sent again, and of each flow; a side of a flow that no
/// byte went through has none. Hops and counters follow.
pub(super) fn interval(stack: &Stack<'_>, objects: &mut Objects<'_>) {
    let time_ns = Some(stack.end_ns);
    let mut write = |flow: Option<Flow>, again: bool, row: &StackRow, rows: &[StackRow]| {
        let body = Object {
            interval_ns: stack.length_ns,
            host: stack.host,
            flow,
            segment: row.segment.name(),
            direction: row.segment.direction().name(),
            again,
            part_of: row.segment.part_of().map(Segment::name),
            figures: Distribution::from(&row.histogram),
            share: row.share(rows).map(rounded),
            sample_bytes: stack.sample_bytes,
            hook_from: row.hook_from.as_deref(),
            hook_to: row.hook_to.as_deref(),
            missing: row.missing.map(|layer| layer.name()),
        };
        objects.write("stack", SCHEMA, time_ns, &body);
    };
    for row in stack.rows {
        write(None, false, row, stack.rows);
    }
    for row in stack.again {
        write(None, true, row, stack.again);
    }
    for (ends, rows) in stack.flows {
        for row in rows.iter().filter(|row| complete_bytes(rows, row.segment.direction()) > 0) {
            write(Some(ends.into()), false, row, rows);
        }
    }
    for hop in stack.hops {
        let body = HopObject {
            interval_ns: stack.length_ns,
            host: stack.host,
            origin: (&hop.origin).into(),
            from: (&hop.from).into(),
            to: (&hop.to).into(),
            figures: Distribution::from(&hop.histogram),
        };
        objects.write("stack-hop", SCHEMA, time_ns, &body);
    }
    let counters = stack.counters;
    let status = StatusObject {
        host: stack.host,
        counters: Named(counters),
        missed: Layer::ALL.iter().map(|layer| (layer.name(), counters.missed(*layer))).collect(),
    };
    objects.write("stack-status", SCHEMA, time_ns, &status);
}

pub(super) fn byte_trace(host: &str, trace: &ByteTrace, objects: &mut Objects<'_>) {
    let layers = Layer::ALL.iter().filter(|layer| layer.direction() == trace.direction);
    let body = ByteObject {
        host,
        flow: (&trace.ends).into(),
        seq: trace.seq,
        direction: trace.direction.name(),
        sent: (trace.direction == Direction::Tx).then_some(trace.sent),
        again: trace.again,
        stamp_ns: layers.map(|layer| (layer.name(), trace.stamp_ns(*layer))).collect(),
    };
    objects.write("stack-byte", SCHEMA, last_stamp_ns(trace), &body);
}
