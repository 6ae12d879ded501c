//! Objects of `dwell stack`.

use std::collections::BTreeMap;

use dwell_engine::layers::{Direction, Layer, Segment, SegmentFigures};
use schemars::JsonSchema;
use serde::Serialize;

use super::{FlowObject, LatencyObject, Object, Objects, object::names, rounded};
use crate::{
    Stack, StackByte, StackFlow, StackPlace,
    record::{complete_bytes, last_stamp_ns},
};

/// The method of all latencies of bytes that were stamped at layers or devices.
const BYTE_TRACE: &str = "byte-trace";

/// The time that bytes spent in a segment of the host in an interval.
#[derive(Serialize, JsonSchema)]
pub(super) struct SegmentObject<'a> {
    /// The length of the interval, which ended at `time`.
    interval_ns: u64,
    /// The direction of a connection, from the sender to the receiver of the bytes. Null for all flows together.
    flow: Option<FlowObject>,
    /// The network namespace of the flow's socket: its name, one of its processes, or its number. Null for the one that
    /// dwell runs in, and for all flows together.
    namespace: Option<&'a str>,
    /// The name of the segment.
    #[schemars(extend("enum" = names(Segment::ALL, Segment::name)))]
    segment: &'a str,
    /// "tx" for bytes that this host sends, "rx" for bytes that it receives.
    #[schemars(extend("enum" = names(Direction::ALL, Direction::name)))]
    direction: &'a str,
    /// Whether the figures are of bytes that TCP sent or received more than once, which are kept apart.
    retransmitted: bool,
    /// The segment that contains this one. Null for those that are not part of another.
    part_of: Option<&'a str>,
    /// The time in the segment. All null where a layer is missing.
    latency: LatencyObject,
    /// The share of the segment in the time of its side, from 0 to 1. Null where no byte was stamped at both ends of
    /// its side.
    share: Option<f64>,
    /// The sampling grid: one byte in this many is stamped.
    sample_bytes: u32,
    /// The kernel hook at which the segment starts.
    hook_from: Option<&'a str>,
    /// The kernel hook at which it ends.
    hook_to: Option<&'a str>,
    /// The layer that the kernel has no hook for, so that the segment cannot be measured.
    missing: Option<&'a str>,
}

impl Object for SegmentObject<'_> {
    const KINDS: &'static [&'static str] = &["stack.segment"];
}

/// One byte that went all the way through a side, with `--raw`; it left the last layer at `time`.
#[derive(Serialize, JsonSchema)]
pub(super) struct ByteObject<'a> {
    /// The direction of the connection, from the sender to the receiver of the byte.
    flow: FlowObject,
    /// The network namespace of the flow's socket. Null for the one that dwell runs in.
    namespace: Option<&'a str>,
    /// The TCP sequence number of the byte.
    seq: u32,
    /// "tx" for a byte that this host sent, "rx" for one that it received.
    #[schemars(extend("enum" = names(Direction::ALL, Direction::name)))]
    direction: &'a str,
    /// How many times the byte was handed to the driver. Null on the receiving side.
    sent: Option<u8>,
    /// Whether TCP sent or received the byte more than once.
    retransmitted: bool,
    /// The time at each layer, on CLOCK_MONOTONIC.
    stamp_ns: BTreeMap<&'a str, Option<u64>>,
}

impl Object for ByteObject<'_> {
    const KINDS: &'static [&'static str] = &["stack.byte"];
}

/// The time that bytes spent between one device of the host and the next in an interval, with `--devices`.
#[derive(Serialize, JsonSchema)]
pub(super) struct HopObject<'a> {
    /// The length of the interval, which ended at `time`.
    interval_ns: u64,
    /// The point where the bytes were first seen.
    origin: Place<'a>,
    /// The start of the hop.
    from: Place<'a>,
    /// The end of the hop.
    to: Place<'a>,
    /// The time of the hop.
    latency: LatencyObject,
}

impl Object for HopObject<'_> {
    const KINDS: &'static [&'static str] = &["stack.hop"];
}

/// A point at a device.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "place")]
pub(super) struct Place<'a> {
    /// The name of the device.
    device: &'a str,
    /// The network namespace of the device. Null for the one that dwell runs in.
    namespace: Option<&'a str>,
    /// "queue", "out" or "in".
    point: &'a str,
}

impl<'a> From<&'a StackPlace> for Place<'a> {
    fn from(place: &'a StackPlace) -> Place<'a> {
        Place { device: &place.device, namespace: place.namespace.as_deref(), point: place.point }
    }
}

/// Writes one object per segment of all flows, of bytes that were sent again, and of each flow; a side of a flow that
/// no byte went through has none. Hops follow.
pub(super) fn interval(stack: &Stack<'_>, objects: &mut Objects<'_>) {
    let time_ns = Some(stack.end_ns);
    let flows: Vec<_> = stack.flows.iter().map(|flow| objects.tcp_in(&flow.ends, flow.namespace.as_deref())).collect();
    let mut write = |(flow, namespace), retransmitted: bool, one: &SegmentFigures, all: &[SegmentFigures]| {
        let hooks = stack.hooks_of(one.segment);
        let latency = LatencyObject::new(Some(BYTE_TRACE), &one.histogram);
        let body = SegmentObject {
            interval_ns: stack.length_ns,
            flow,
            namespace,
            segment: one.segment.name(),
            direction: one.segment.direction().name(),
            retransmitted,
            part_of: one.segment.part_of().map(Segment::name),
            latency: if hooks.missing.is_none() { latency } else { LatencyObject::default() },
            share: stack.share(one, all).map(rounded),
            sample_bytes: stack.sample_bytes,
            hook_from: hooks.from.as_deref(),
            hook_to: hooks.to.as_deref(),
            missing: hooks.missing.map(Layer::name),
        };
        objects.write(time_ns, &body);
    };
    for (again, all) in [(false, stack.segments), (true, stack.again)] {
        all.iter().for_each(|one| write((None, None), again, one, all));
    }
    for (object, StackFlow { namespace, segments: all, .. }) in flows.iter().zip(stack.flows) {
        for one in all.iter().filter(|one| complete_bytes(all, one.segment.direction()) > 0) {
            write((Some(object.clone()), namespace.as_deref()), false, one, all);
        }
    }
    for hop in stack.hops {
        let body = HopObject {
            interval_ns: stack.length_ns,
            origin: (&hop.origin).into(),
            from: (&hop.from).into(),
            to: (&hop.to).into(),
            latency: LatencyObject::new(Some(BYTE_TRACE), &hop.histogram),
        };
        objects.write(time_ns, &body);
    }
}

pub(super) fn byte_trace(byte: &StackByte<'_>, objects: &mut Objects<'_>) {
    let StackByte { trace, namespace } = *byte;
    let layers = Layer::ALL.iter().filter(|layer| layer.direction() == trace.direction);
    let body = ByteObject {
        flow: objects.tcp_in(&trace.ends, namespace),
        namespace,
        seq: trace.seq,
        direction: trace.direction.name(),
        sent: (trace.direction == Direction::Tx).then_some(trace.sent),
        retransmitted: trace.again,
        stamp_ns: layers.map(|layer| (layer.name(), trace.stamp_ns(*layer))).collect(),
    };
    objects.write(last_stamp_ns(trace), &body);
}
