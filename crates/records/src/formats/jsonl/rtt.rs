//! Objects of `dwell rtt`.

use std::borrow::Cow;

use dwell_engine::measure::{CloseReason, FlowChange, FlowEvent, Method, Sample};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    FlowObject, LatencyObject, Object, Objects,
    object::{names, names_or_null},
};
use crate::{Interval, PathObject, Summary, Timestamps};

pub(super) fn sample(sample: &Sample, objects: &mut Objects<'_>) {
    let body = SampleObject {
        interface: objects.source.interfaces.label(sample.interface),
        flow: objects.flow(&sample.src, &sample.dst, sample.protocol, sample.src_role),
        echo_id: sample.protocol.is_icmp().then_some(sample.src.port),
        tunnel: sample.tunnel.label(),
        method: sample.method.name(),
        rtt_ns: sample.rtt_ns,
        min_rtt_ns: sample.min_rtt_ns,
        queue_ns: sample.queue_ns(),
        handshake: sample.handshake,
        packets: sample.packets,
        bytes: sample.bytes,
    };
    objects.write(Some(sample.time_ns), &body);
}

pub(super) fn flow(event: &FlowEvent, first_times: &mut Timestamps, objects: &mut Objects<'_>) {
    let (reason, first_rtt) = match event.change {
        FlowChange::Open => (None, None),
        FlowChange::FirstRtt(method, rtt_ns) => (None, Some((method, rtt_ns))),
        FlowChange::Close(reason) => (Some(reason.name()), None),
    };
    let is_tcp = event.protocol.0 == 6;
    let body = FlowEventObject {
        interface: objects.source.interfaces.label(event.interface),
        event: event.change.name(),
        reason,
        flow: objects.flow(&event.src, &event.dst, event.protocol, event.src_role),
        echo_id: event.protocol.is_icmp().then_some(event.src.port),
        tunnel: event.tunnel.label(),
        method: first_rtt.map(|(method, _)| method.name()),
        rtt_ns: first_rtt.map(|(_, rtt_ns)| rtt_ns),
        first_time: first_times.rfc3339(objects.source.clock.unix_ns(event.first_ns)),
        samples: event.samples,
        packets: event.packets,
        bytes: event.bytes,
        data_segments: is_tcp.then_some(event.data),
        retransmitted: is_tcp.then_some(event.retransmitted),
        late: is_tcp.then_some(event.late),
        ce: event.ce,
    };
    objects.write(Some(event.time_ns), &body);
}

/// Writes one object per group.
pub(super) fn interval(interval: &Interval<'_>, objects: &mut Objects<'_>) {
    for group in interval.ordered() {
        let key = group.key.as_ref();
        let method = key.map(|key| key.method);
        let body = AggregateObject {
            interface: key.and_then(|key| objects.source.interfaces.label(key.interface)),
            interval_ns: interval.length_ns,
            prefix: key.map(|key| key.prefix.to_string()),
            name: key.and_then(|key| objects.source.prefixes.name(&key.prefix)),
            tunnel: key.and_then(|key| key.tunnel.label()),
            latency: LatencyObject::new(method.map(Method::name), &group.figures.histogram),
            path: PathObject::new(method, &group.figures),
        };
        objects.write(Some(interval.end_ns), &body);
    }
}

/// Writes one object per flow and method, then one per method for the flows beyond the limit.
pub(super) fn summary(summary: &Summary, objects: &mut Objects<'_>) {
    for flow in summary.flows() {
        let key = flow.key;
        let body = SummaryObject {
            interface: objects.source.interfaces.label(key.interface),
            flow: Some(objects.flow(&key.src, &key.dst, key.protocol, flow.src_role)),
            interval_ns: Some(flow.last_ns.saturating_sub(flow.first_ns)),
            echo_id: key.protocol.is_icmp().then_some(key.src.port),
            tunnel: key.tunnel.label(),
            latency: LatencyObject::new(Some(key.method.name()), &flow.figures.histogram),
            path: PathObject::new(Some(key.method), flow.figures),
        };
        objects.write(Some(flow.last_ns), &body);
    }
    for (method, other) in summary.other() {
        let body = SummaryObject {
            interface: None,
            flow: None,
            interval_ns: None,
            echo_id: None,
            tunnel: None,
            latency: LatencyObject::new(Some(method.name()), &other.histogram),
            path: PathObject::new(Some(method), other),
        };
        objects.write(None, &body);
    }
}

/// One round trip: `src` sent a packet, `dst` answered it, and `rtt_ns` is the time between seeing the two.
#[derive(Serialize, JsonSchema)]
pub(super) struct SampleObject<'a> {
    /// The interface at which both packets were seen: a name, or else a number. Null where a capture does not record it.
    interface: Option<Cow<'a, str>>,
    /// The flow, from the end that sent the packet to the end that answered.
    flow: FlowObject,
    /// The identifier of an ICMP echo.
    echo_id: Option<u16>,
    /// What encloses the packets, as in "vlan 7". Null if nothing does.
    tunnel: Option<String>,
    /// The method.
    #[schemars(extend("enum" = names(Method::ALL, Method::name)))]
    method: &'a str,
    /// The round-trip time between the vantage point and `dst`.
    rtt_ns: u64,
    /// The flow's minimum towards `dst` so far, including this sample.
    min_rtt_ns: u64,
    /// What `rtt_ns` is longer than the minimum of the last 8.6 to 17.2 seconds.
    queue_ns: u64,
    /// Whether the packets opened the connection.
    handshake: bool,
    /// The packets of the flow so far, in both directions.
    packets: u64,
    /// The bytes of these packets, including link headers.
    bytes: u64,
}

impl Object for SampleObject<'_> {
    const KINDS: &'static [&'static str] = &["rtt.sample"];
}

/// A change in the life of a flow, with `--flow-events`.
#[derive(Serialize, JsonSchema)]
pub(super) struct FlowEventObject<'a> {
    /// The interface of the flow: a name, or else a number. Null where a capture does not record it.
    interface: Option<Cow<'a, str>>,
    /// What has changed.
    #[schemars(extend("enum" = FlowChange::NAMES))]
    event: &'a str,
    /// Why the flow was closed. Null for other events.
    #[schemars(extend("enum" = names_or_null(CloseReason::ALL, CloseReason::name)))]
    reason: Option<&'a str>,
    /// The flow, from the end that sent the first packet that was seen.
    flow: FlowObject,
    /// The identifier of an ICMP echo.
    echo_id: Option<u16>,
    /// What encloses the packets, as in "vlan 7". Null if nothing does.
    tunnel: Option<String>,
    /// The method of the first round trip. Null for other events.
    #[schemars(extend("enum" = names_or_null(Method::ALL, Method::name)))]
    method: Option<&'a str>,
    /// The first round-trip time. Null for other events.
    rtt_ns: Option<u64>,
    /// The time of the first packet that was seen.
    first_time: Option<&'a str>,
    /// Round trips so far.
    samples: u32,
    /// Packets so far, in both directions.
    packets: u64,
    /// The bytes of these packets, including link headers.
    bytes: u64,
    /// TCP segments with data so far, in both directions. Null for other protocols.
    data_segments: Option<u64>,
    /// Segments of `data_segments` that had passed before.
    retransmitted: Option<u32>,
    /// Segments of `data_segments` that filled a hole.
    late: Option<u32>,
    /// Packets that a router had marked as having met congestion (ECN).
    ce: u32,
}

impl Object for FlowEventObject<'_> {
    const KINDS: &'static [&'static str] = &["rtt.flow"];
}

/// The samples of a group in an interval, with `--aggregate`. Interface, method and prefix are all null for samples for
/// which there was no group left.
#[derive(Serialize, JsonSchema)]
pub(super) struct AggregateObject<'a> {
    /// The interface of the group: a name, or else a number.
    interface: Option<Cow<'a, str>>,
    /// The length of the interval, which ended at `time`.
    interval_ns: u64,
    /// The addresses that answered, as in "192.0.2.0/24".
    prefix: Option<String>,
    /// The name of the prefix, from `--prefixes`.
    name: Option<&'a str>,
    /// What encloses the packets, as in "vlan 7". Null if nothing does.
    tunnel: Option<String>,
    /// The round-trip times.
    latency: LatencyObject,
    #[serde(flatten)]
    path: PathObject,
}

impl Object for AggregateObject<'_> {
    const KINDS: &'static [&'static str] = &["rtt.aggregate"];
}

/// The samples of one direction of a flow in the whole run, the last of them at `time`, with `--summary`.
#[derive(Serialize, JsonSchema)]
pub(super) struct SummaryObject<'a> {
    /// The interface of the flow: a name, or else a number. Null where a capture does not record it.
    interface: Option<Cow<'a, str>>,
    /// The flow, from the end that sent packets to the end that answered. Null for all flows beyond the limit together.
    flow: Option<FlowObject>,
    /// The time from the first of the samples to the last, 0 if there is one. Null for all flows beyond the limit together.
    interval_ns: Option<u64>,
    /// The identifier of an ICMP echo.
    echo_id: Option<u16>,
    /// What encloses the packets, as in "vlan 7". Null if nothing does.
    tunnel: Option<String>,
    /// The round-trip times.
    latency: LatencyObject,
    #[serde(flatten)]
    path: PathObject,
}

impl Object for SummaryObject<'_> {
    const KINDS: &'static [&'static str] = &["rtt.summary"];
}
