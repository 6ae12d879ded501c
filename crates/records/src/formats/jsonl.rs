//! JSON Lines: an object a line.
//!
//! Every object has `type`, `schema` and `time` (RFC 3339, UTC, nanoseconds).
//! Latencies are integers in nanoseconds. What is not known is null, never 0.
//! A flow has `src`, `sport`, `dst`, `dport` and `proto`; where there are no
//! ports, as in ICMP, they are null and `id` is the identifier of the echo.
//! `interface` is a name, else a number in a string.

use std::{borrow::Cow, net::IpAddr};

use dwell_engine::{
    layers::Passage,
    measure::{Endpoint, FlowChange, FlowEvent, Method, Protocol, Sample},
    rtt::Counter,
};
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{Format, path, response, shift, socket, socket_summary, stack};
use crate::{
    Distribution, Interval, PathTable, Prefix, Response, SocketEnd, Sockets, Source, Stack, StackShift, Status,
    Summary, Timestamps,
};

/// Name and version of the objects' schema. The version changes if a key is
/// removed or changes its meaning, not if one is added.
pub const SCHEMA: &str = "dwell.rtt/1";

/// An object a line.
#[derive(Debug, Clone, Default)]
pub struct Jsonl {
    times: Timestamps,
    first_times: Timestamps,
}

impl Format for Jsonl {
    fn sample(&mut self, sample: &Sample, source: &Source, out: &mut Vec<u8>) {
        let object = SampleObject {
            kind: "rtt",
            schema: SCHEMA,
            time: self.times.rfc3339(source.clock.unix_ns(sample.time_ns)),
            flow: FlowFields::new(&sample.src, &sample.dst, sample.protocol),
            method: sample.method.name(),
            rtt_ns: sample.rtt_ns,
            min_rtt_ns: sample.min_rtt_ns,
            packets: sample.packets,
            bytes: sample.bytes,
            interface: source.interfaces.label(sample.interface),
            handshake: sample.handshake,
        };
        line(&object, out);
    }

    fn flow(&mut self, event: &FlowEvent, source: &Source, out: &mut Vec<u8>) {
        let (name, reason, first_rtt) = match event.change {
            FlowChange::Open => ("open", None, None),
            FlowChange::FirstRtt(method, rtt_ns) => ("first-rtt", None, Some((method, rtt_ns))),
            FlowChange::Close(reason) => ("close", Some(reason.name()), None),
        };
        let first = source.clock.unix_ns(event.first_ns);
        let object = FlowObject {
            kind: "flow",
            schema: SCHEMA,
            time: self.times.rfc3339(source.clock.unix_ns(event.time_ns)),
            event: name,
            reason,
            flow: FlowFields::new(&event.src, &event.dst, event.protocol),
            method: first_rtt.map(|(method, _)| method.name()),
            rtt_ns: first_rtt.map(|(_, rtt_ns)| rtt_ns),
            first_time: self.first_times.rfc3339(first),
            samples: event.samples,
            packets: event.packets,
            bytes: event.bytes,
            interface: source.interfaces.label(event.interface),
        };
        line(&object, out);
    }

    fn response(&mut self, response: &Response<'_>, source: &Source, out: &mut Vec<u8>) {
        response::jsonl(response, &mut self.times, source, out);
    }

    fn stack(&mut self, interval: &Stack<'_>, source: &Source, out: &mut Vec<u8>) {
        stack::jsonl(interval, &mut self.times, source, out);
    }

    fn passage(&mut self, host: &str, passage: &Passage, source: &Source, out: &mut Vec<u8>) {
        stack::passage_jsonl(host, passage, &mut self.times, source, out);
    }

    fn path(&mut self, path: &PathTable<'_>, source: &Source, out: &mut Vec<u8>) {
        path::jsonl(path, &mut self.times, source, out);
    }

    fn shift(&mut self, shift: &StackShift<'_>, source: &Source, out: &mut Vec<u8>) {
        shift::jsonl(shift, &mut self.times, source, out);
    }

    fn sockets(&mut self, sockets: &Sockets<'_>, source: &Source, out: &mut Vec<u8>) {
        socket::jsonl(sockets, &mut self.times, source, out);
    }

    fn socket_end(&mut self, end: &SocketEnd<'_>, source: &Source, out: &mut Vec<u8>) {
        socket_summary::jsonl(end, &mut self.times, source, out);
    }

    fn interval(&mut self, interval: &Interval<'_>, source: &Source, out: &mut Vec<u8>) {
        let time = self.times.rfc3339(source.clock.unix_ns(interval.end_ns));
        for group in interval.ordered() {
            let key = group.key.as_ref();
            let object = AggregateObject {
                kind: "rtt-aggregate",
                schema: SCHEMA,
                time,
                interval_ns: interval.length_ns,
                interface: key.and_then(|key| source.interfaces.label(key.interface)),
                method: key.map(|key| key.method.name()),
                prefix: key.map(|key| key.prefix),
                figures: Distribution::from(&group.histogram),
            };
            line(&object, out);
        }
    }

    fn summary(&mut self, summary: &Summary, source: &Source, out: &mut Vec<u8>) {
        for flow in summary.flows() {
            let key = flow.key;
            let object = SummaryObject {
                kind: "rtt-summary",
                schema: SCHEMA,
                time: self.times.rfc3339(source.clock.unix_ns(flow.last_ns)),
                flow: FlowFields::new(&key.src, &key.dst, key.protocol),
                method: key.method,
                figures: Distribution::from(flow.histogram),
                interface: source.interfaces.label(key.interface),
            };
            line(&object, out);
        }
        for (method, histogram) in summary.other() {
            let object = SummaryObject {
                kind: "rtt-summary",
                schema: SCHEMA,
                time: None,
                flow: FlowFields::default(),
                method,
                figures: Distribution::from(histogram),
                interface: None,
            };
            line(&object, out);
        }
    }

    fn status(&mut self, status: &Status, source: &Source, out: &mut Vec<u8>) {
        let object = StatusObject {
            kind: "rtt-status",
            schema: SCHEMA,
            time: status.time_ns.and_then(|ns| self.times.rfc3339(source.clock.unix_ns(ns))),
            last: status.last,
            counters: status,
        };
        line(&object, out);
    }
}

fn line(object: &impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(&mut *out, object).expect("a Vec takes all, and keys are strings");
    out.push(b'\n');
}

/// `type` "rtt": one latency. `src` sent a packet, `dst` answered it, and `rtt_ns`
/// lies between seeing the two. `min_rtt_ns` is the flow's least so far
/// towards `dst`; `packets` and `bytes` are the flow's so far in both directions.
#[derive(Serialize)]
struct SampleObject<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    schema: &'a str,
    time: Option<&'a str>,
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

/// `type` "flow": `event` is "open", "first-rtt" (with `method` and `rtt_ns`) or "close" (with
/// `reason`). `src` sent the first packet that was seen, at `first_time`.
#[derive(Serialize)]
struct FlowObject<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    schema: &'a str,
    time: Option<&'a str>,
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

/// `type` "rtt-aggregate": the samples of a group in the interval that ended at
/// `time`. All of `interface`, `method` and `prefix` are null for samples that
/// found no group left.
#[derive(Serialize)]
struct AggregateObject<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    schema: &'a str,
    time: Option<&'a str>,
    interval_ns: u64,
    interface: Option<Cow<'a, str>>,
    method: Option<&'a str>,
    #[serde(serialize_with = "as_text")]
    prefix: Option<Prefix>,
    #[serde(flatten)]
    figures: Distribution,
}

/// `type` "rtt-summary": the samples of a direction of a flow in the whole run, the
/// last of them at `time`. Ends, protocol, time and interface are null for
/// flows beyond the limit.
#[derive(Serialize)]
struct SummaryObject<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    schema: &'a str,
    time: Option<&'a str>,
    #[serde(flatten)]
    flow: FlowFields,
    #[serde(serialize_with = "method_name")]
    method: Method,
    #[serde(flatten)]
    figures: Distribution,
    interface: Option<Cow<'a, str>>,
}

/// `type` "rtt-status": every counter of the engine by name, as totals since the
/// start of the run. `last` is true in the one that ends it.
#[derive(Serialize)]
struct StatusObject<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    schema: &'a str,
    time: Option<&'a str>,
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

#[cfg(test)]
mod tests {
    use dwell_engine::{abi, histogram::Histogram, rtt::Counters};
    use serde_json::{Value, json};

    use super::{super::samples, *};
    use crate::{Clock, Group, GroupKey, Interfaces};

    fn written(write: impl FnOnce(&mut Jsonl, &mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut Jsonl::default(), &mut out);
        String::from_utf8(out).unwrap()
    }

    fn objects(text: &str) -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_sample_begins_exactly_as_documented() {
        let text = written(|format, out| {
            format.sample(&samples::tcp4(), &samples::source(), out);
        });
        assert_eq!(
            text,
            concat!(
                r#"{"type":"rtt","schema":"dwell.rtt/1","time":"2026-11-21T05:10:00.123456789Z","#,
                r#""src":"192.0.2.1","sport":44321,"dst":"198.51.100.7","dport":443,"proto":"TCP","#,
                r#""method":"tcp-timestamp","rtt_ns":1234567,"min_rtt_ns":1100000,"#,
                r#""packets":17,"bytes":4242,"interface":"eth0","handshake":false}"#,
                "\n"
            )
        );
    }

    #[test]
    fn every_kind_of_sample() {
        let text = written(|format, out| {
            for sample in samples::all() {
                format.sample(&sample, &samples::source(), out);
            }
        });
        insta::assert_snapshot!(text, @r#"
        {"type":"rtt","schema":"dwell.rtt/1","time":"2026-11-21T05:10:00.123456789Z","src":"192.0.2.1","sport":44321,"dst":"198.51.100.7","dport":443,"proto":"TCP","method":"tcp-timestamp","rtt_ns":1234567,"min_rtt_ns":1100000,"packets":17,"bytes":4242,"interface":"eth0","handshake":false}
        {"type":"rtt","schema":"dwell.rtt/1","time":"2026-11-21T05:10:01.000000000Z","src":"2001:db8::1","sport":50000,"dst":"2001:db8:0:1::443","dport":443,"proto":"TCP","method":"tcp-seq","rtt_ns":456000,"min_rtt_ns":456000,"packets":17,"bytes":4242,"interface":"eth0","handshake":true}
        {"type":"rtt","schema":"dwell.rtt/1","time":"2026-11-21T05:10:02.000000001Z","src":"192.0.2.1","sport":null,"dst":"203.0.113.255","dport":null,"proto":"ICMP","id":17,"method":"icmp","rtt_ns":789,"min_rtt_ns":0,"packets":17,"bytes":4242,"interface":"7","handshake":false}
        {"type":"rtt","schema":"dwell.rtt/1","time":"2026-11-21T06:09:59.999999999Z","src":"fe80::1","sport":null,"dst":"fe80::2","dport":null,"proto":"ICMPv6","id":65535,"method":"icmpv6","rtt_ns":12345678901,"min_rtt_ns":999999,"packets":17,"bytes":4242,"interface":"eth0","handshake":false}
        {"type":"rtt","schema":"dwell.rtt/1","time":"2026-11-21T05:10:00.123456789Z","src":"192.0.2.1","sport":44321,"dst":"198.51.100.7","dport":443,"proto":"UDP","method":"quic-spin-loop","rtt_ns":18446744073709551615,"min_rtt_ns":20000000,"packets":18446744073709551615,"bytes":4242,"interface":"eth0","handshake":false}
        {"type":"rtt","schema":"dwell.rtt/1","time":"2026-11-21T05:10:00.123456789Z","src":"192.0.2.1","sport":44321,"dst":"198.51.100.7","dport":443,"proto":"132","method":"dns","rtt_ns":1234567,"min_rtt_ns":1100000,"packets":17,"bytes":4242,"interface":"eth0","handshake":false}
        "#);
        for (object, sample) in objects(&text).iter().zip(samples::all()) {
            assert_eq!(object["rtt_ns"], sample.rtt_ns);
            assert_eq!(object["src"], sample.src.address.to_string());
            let (port, id) = match sample.protocol.is_icmp() {
                true => (Value::Null, json!(sample.src.port)),
                false => (json!(sample.src.port), Value::Null),
            };
            assert_eq!((&object["sport"], &object["id"]), (&port, &id));
        }
    }

    #[test]
    fn what_is_not_known_is_null() {
        let source = Source { clock: Clock::with_offset(i128::MAX), interfaces: Interfaces::unknown() };
        let text = written(|format, out| format.sample(&samples::tcp4(), &source, out));
        let object = &objects(&text)[0];
        assert_eq!(object["time"], Value::Null);
        assert_eq!(object["interface"], Value::Null);
    }

    #[test]
    fn a_hostile_interface_name_stays_inside_its_string() {
        let mut source = samples::source();
        source.interfaces.insert(2, "a\"},\n{\u{1b}\\\u{2028}é");
        let text = written(|format, out| format.sample(&samples::tcp4(), &source, out));
        assert_eq!(text.lines().count(), 1);
        let object = &objects(&text)[0];
        assert_eq!(object["interface"], "a\"},\n{\u{1b}\\\u{2028}é");
    }

    #[test]
    fn flow_events() {
        let text = written(|format, out| {
            for event in samples::flows() {
                format.flow(&event, &samples::source(), out);
            }
        });
        insta::assert_snapshot!(text, @r#"
        {"type":"flow","schema":"dwell.rtt/1","time":"2026-11-21T05:10:00.010000000Z","event":"open","reason":null,"src":"192.0.2.1","sport":44321,"dst":"198.51.100.7","dport":443,"proto":"TCP","method":null,"rtt_ns":null,"first_time":"2026-11-21T05:10:00.010000000Z","samples":0,"packets":1,"bytes":74,"interface":"eth0"}
        {"type":"flow","schema":"dwell.rtt/1","time":"2026-11-21T05:10:00.035000000Z","event":"first-rtt","reason":null,"src":"192.0.2.1","sport":44321,"dst":"198.51.100.7","dport":443,"proto":"TCP","method":"tcp-timestamp","rtt_ns":25000000,"first_time":"2026-11-21T05:10:00.010000000Z","samples":1,"packets":2,"bytes":148,"interface":"eth0"}
        {"type":"flow","schema":"dwell.rtt/1","time":"2026-11-21T05:11:01.500000000Z","event":"close","reason":"idle","src":"fe80::1","sport":null,"dst":"fe80::2","dport":null,"proto":"ICMPv6","id":9,"method":null,"rtt_ns":null,"first_time":"2026-11-21T05:10:00.010000000Z","samples":3,"packets":6,"bytes":708,"interface":"eth0"}
        "#);
    }

    #[test]
    fn aggregates_with_other_last() {
        let mut histogram = Histogram::default();
        [900, 1_500_000, 25_000_000].iter().for_each(|rtt| histogram.record(*rtt));
        let key = GroupKey {
            interface: 9,
            method: Method::QuicSpin,
            prefix: Prefix { address: "2001:db8::".parse().unwrap(), bits: 48 },
        };
        let groups = [None, Some(key)].map(|key| Group { key, histogram: histogram.clone() });
        let interval = Interval { end_ns: 5, length_ns: 1_000_000_000, groups: &groups };
        let text = written(|format, out| format.interval(&interval, &samples::source(), out));
        insta::assert_snapshot!(text, @r#"
        {"type":"rtt-aggregate","schema":"dwell.rtt/1","time":"2026-11-21T05:10:00.000000005Z","interval_ns":1000000000,"interface":"9","method":"quic-spin","prefix":"2001:db8::/48","count":3,"min_ns":900,"p50_ns":1499136,"p90_ns":25000000,"p99_ns":25000000,"max_ns":25000000,"mean_ns":8833633}
        {"type":"rtt-aggregate","schema":"dwell.rtt/1","time":"2026-11-21T05:10:00.000000005Z","interval_ns":1000000000,"interface":null,"method":null,"prefix":null,"count":3,"min_ns":900,"p50_ns":1499136,"p90_ns":25000000,"p99_ns":25000000,"max_ns":25000000,"mean_ns":8833633}
        "#);
    }

    #[test]
    fn a_summary_with_flows_beyond_its_limit() {
        let mut summary = Summary::new(2);
        let kinds = samples::all();
        for sample in [kinds[2], kinds[1], kinds[1], kinds[3]] {
            summary.add(&sample);
        }
        let text = written(|format, out| format.summary(&summary, &samples::source(), out));
        insta::assert_snapshot!(text, @r#"
        {"type":"rtt-summary","schema":"dwell.rtt/1","time":"2026-11-21T05:10:01.000000000Z","src":"2001:db8::1","sport":50000,"dst":"2001:db8:0:1::443","dport":443,"proto":"TCP","method":"tcp-seq","count":2,"min_ns":456000,"p50_ns":456000,"p90_ns":456000,"p99_ns":456000,"max_ns":456000,"mean_ns":456000,"interface":"eth0"}
        {"type":"rtt-summary","schema":"dwell.rtt/1","time":"2026-11-21T05:10:02.000000001Z","src":"192.0.2.1","sport":null,"dst":"203.0.113.255","dport":null,"proto":"ICMP","id":17,"method":"icmp","count":1,"min_ns":789,"p50_ns":789,"p90_ns":789,"p99_ns":789,"max_ns":789,"mean_ns":789,"interface":"7"}
        {"type":"rtt-summary","schema":"dwell.rtt/1","time":null,"src":null,"sport":null,"dst":null,"dport":null,"proto":null,"method":"icmpv6","count":1,"min_ns":12345678901,"p50_ns":12345678901,"p90_ns":12345678901,"p99_ns":12345678901,"max_ns":12345678901,"mean_ns":12345678901,"interface":null}
        "#);
    }

    #[test]
    fn a_status_has_every_counter() {
        let mut raw = abi::dwell_counters::default();
        for (value, counter) in raw.value.iter_mut().zip(100..) {
            *value = counter;
        }
        let status = Status { time_ns: None, last: true, counters: Counters::sum([&raw]) };
        let text = written(|format, out| format.status(&status, &samples::source(), out));
        let object = &objects(&text)[0];
        assert!(
            text.starts_with(r#"{"type":"rtt-status","schema":"dwell.rtt/1","time":null,"last":true,"packets":100,"#)
        );
        for counter in Counter::ALL {
            assert_eq!(object[counter.name()], status.counters.get(counter));
        }
        assert_eq!(object.as_object().unwrap().len(), 4 + Counter::ALL.len());
    }
}
