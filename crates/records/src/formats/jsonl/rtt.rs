//! Objects of `dwell rtt`.

use std::{borrow::Cow, net::IpAddr};

use dwell_engine::{
    measure::{Endpoint, FlowChange, FlowEvent, Method, Protocol, Sample},
    rtt::Counter,
};
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::Objects;
use crate::{Distribution, Interval, Prefix, Status, Summary, Timestamps};

/// Name and version of the schema of `dwell rtt`. The version changes if a key is removed or changes its meaning, not
/// if one is added.
pub const SCHEMA: &str = "dwell.rtt/1";

pub(super) fn sample(sample: &Sample, objects: &mut Objects<'_>) {
    let body = SampleObject {
        flow: FlowFields::new(&sample.src, &sample.dst, sample.protocol),
        method: sample.method.name(),
        rtt_ns: sample.rtt_ns,
        min_rtt_ns: sample.min_rtt_ns,
        packets: sample.packets,
        bytes: sample.bytes,
        interface: objects.source.interfaces.label(sample.interface),
        handshake: sample.handshake,
    };
    objects.write("rtt", SCHEMA, Some(sample.time_ns), &body);
}

pub(super) fn flow(event: &FlowEvent, first_times: &mut Timestamps, objects: &mut Objects<'_>) {
    let (name, reason, first_rtt) = match event.change {
        FlowChange::Open => ("open", None, None),
        FlowChange::FirstRtt(method, rtt_ns) => ("first-rtt", None, Some((method, rtt_ns))),
        FlowChange::Close(reason) => ("close", Some(reason.name()), None),
    };
    let body = FlowObject {
        event: name,
        reason,
        flow: FlowFields::new(&event.src, &event.dst, event.protocol),
        method: first_rtt.map(|(method, _)| method.name()),
        rtt_ns: first_rtt.map(|(_, rtt_ns)| rtt_ns),
        first_time: first_times.rfc3339(objects.source.clock.unix_ns(event.first_ns)),
        samples: event.samples,
        packets: event.packets,
        bytes: event.bytes,
        interface: objects.source.interfaces.label(event.interface),
    };
    objects.write("flow", SCHEMA, Some(event.time_ns), &body);
}

/// Writes one object per group.
pub(super) fn interval(interval: &Interval<'_>, objects: &mut Objects<'_>) {
    for group in interval.ordered() {
        let key = group.key.as_ref();
        let body = AggregateObject {
            interval_ns: interval.length_ns,
            interface: key.and_then(|key| objects.source.interfaces.label(key.interface)),
            method: key.map(|key| key.method.name()),
            prefix: key.map(|key| key.prefix),
            figures: Distribution::from(&group.histogram),
        };
        objects.write("rtt-aggregate", SCHEMA, Some(interval.end_ns), &body);
    }
}

/// Writes one object per flow and method, then one per method for the flows beyond the limit.
pub(super) fn summary(summary: &Summary, objects: &mut Objects<'_>) {
    for flow in summary.flows() {
        let key = flow.key;
        let body = SummaryObject {
            flow: FlowFields::new(&key.src, &key.dst, key.protocol),
            method: key.method,
            figures: Distribution::from(flow.histogram),
            interface: objects.source.interfaces.label(key.interface),
        };
        objects.write("rtt-summary", SCHEMA, Some(flow.last_ns), &body);
    }
    for (method, histogram) in summary.other() {
        let figures = Distribution::from(histogram);
        let body = SummaryObject { flow: FlowFields::default(), method, figures, interface: None };
        objects.write("rtt-summary", SCHEMA, None, &body);
    }
}

pub(super) fn status(status: &Status, objects: &mut Objects<'_>) {
    objects.write("rtt-status", SCHEMA, status.time_ns, &StatusObject { last: status.last, counters: status });
}

/// `type` "rtt": one latency. `src` sent a packet, `dst` answered it, and `rtt_ns` is the time between seeing the two.
/// `min_rtt_ns` is the flow's least so far towards `dst`; `packets` and `bytes` are the flow's so far in both
/// directions.
#[derive(Serialize)]
struct SampleObject<'a> {
    #[serde(flatten)]
    flow: FlowFields,
    method: &'a str,
    rtt_ns: u64,
    min_rtt_ns: u64,
    packets: u64,
    bytes: u64,
    interface: Option<Cow<'a, str>>,
    handshake: bool,
}

/// `type` "flow": `event` is "open", "first-rtt" (with `method` and `rtt_ns`) or "close" (with `reason`). `src` sent
/// the first packet that was seen, at `first_time`.
#[derive(Serialize)]
struct FlowObject<'a> {
    event: &'a str,
    reason: Option<&'a str>,
    #[serde(flatten)]
    flow: FlowFields,
    method: Option<&'a str>,
    rtt_ns: Option<u64>,
    first_time: Option<&'a str>,
    samples: u32,
    packets: u64,
    bytes: u64,
    interface: Option<Cow<'a, str>>,
}

/// `type` "rtt-aggregate": the samples of a group in the interval that ended at `time`. All of `interface`, `method`
/// and `prefix` are null for samples for which there was no group left.
#[derive(Serialize)]
struct AggregateObject<'a> {
    interval_ns: u64,
    interface: Option<Cow<'a, str>>,
    method: Option<&'a str>,
    #[serde(serialize_with = "as_text")]
    prefix: Option<Prefix>,
    #[serde(flatten)]
    figures: Distribution,
}

/// `type` "rtt-summary": the samples of a direction of a flow in the whole run, the last of them at `time`. Ends,
/// protocol, time and interface are null for flows beyond the limit.
#[derive(Serialize)]
struct SummaryObject<'a> {
    #[serde(flatten)]
    flow: FlowFields,
    #[serde(serialize_with = "method_name")]
    method: Method,
    #[serde(flatten)]
    figures: Distribution,
    interface: Option<Cow<'a, str>>,
}

/// `type` "rtt-status": every counter of the engine by name, as totals since the start of the run. `last` is true in
/// the one that ends it.
#[derive(Serialize)]
struct StatusObject<'a> {
    last: bool,
    #[serde(flatten, serialize_with = "by_name")]
    counters: &'a Status,
}

#[derive(Default, Serialize)]
struct FlowFields {
    src: Option<IpAddr>,
    sport: Option<u16>,
    dst: Option<IpAddr>,
    dport: Option<u16>,
    proto: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u16>,
}

impl FlowFields {
    fn new(src: &Endpoint, dst: &Endpoint, protocol: Protocol) -> FlowFields {
        let port = |port| (!protocol.is_icmp()).then_some(port);
        FlowFields {
            src: Some(src.address),
            sport: port(src.port),
            dst: Some(dst.address),
            dport: port(dst.port),
            proto: Some(match protocol.0 {
                6 => Cow::Borrowed("TCP"),
                17 => Cow::Borrowed("UDP"),
                _ => Cow::Owned(protocol.to_string()),
            }),
            id: protocol.is_icmp().then_some(src.port),
        }
    }
}

fn as_text<S: Serializer>(prefix: &Option<Prefix>, serializer: S) -> Result<S::Ok, S::Error> {
    match prefix {
        Some(prefix) => serializer.collect_str(prefix),
        None => serializer.serialize_none(),
    }
}

fn method_name<S: Serializer>(method: &Method, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(method.name())
}

fn by_name<S: Serializer>(status: &Status, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(Counter::ALL.len()))?;
    for counter in Counter::ALL {
        map.serialize_entry(counter.name(), &status.counters.get(counter))?;
    }
    map.end()
}
