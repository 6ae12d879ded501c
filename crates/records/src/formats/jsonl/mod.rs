//! JSON Lines: one object per line.
//!
//! Every object has `type`, `schema`, `time` and `host`. Latencies are integers in nanoseconds. An unknown value is null,
//! never 0. `dwell schema` prints the keys of every type, from the Rust types of the objects.

mod flow;
mod gray;
mod latency;
mod object;
mod path;
mod response;
mod rtt;
mod shift;
mod sockets;
mod stack;
mod status;
mod top;
mod why;

use dwell_engine::{
    layers::Ends,
    measure::{Endpoint, Protocol},
    roles::Role,
};

use super::Format;
use crate::{Record, ResponseKey, RoundTripKey, Schema, Source, Timestamps};

pub use flow::{End, EndNamesObject, FlowObject, NamesObject};
pub use latency::{EstimateObject, LatencyObject};
pub use object::{Header, Object, SCHEMA, write_object};
pub(crate) use sockets::{socket_latencies, total_latencies};

/// Writes one object per line.
#[derive(Debug, Clone, Default)]
pub struct Jsonl {
    times: Timestamps,
    first_times: Timestamps,
}

impl Format for Jsonl {
    fn write(&mut self, record: &Record<'_>, source: &Source, out: &mut Vec<u8>) {
        let objects = &mut Objects { times: &mut self.times, source, out };
        match record {
            Record::Sample(sample) => rtt::sample(sample, objects),
            Record::Flow(event) => rtt::flow(event, &mut self.first_times, objects),
            Record::Interval(interval) => rtt::interval(interval, objects),
            Record::Summary(summary) => rtt::summary(summary, objects),
            Record::Status(status) => status::status(status, objects),
            Record::Response(response) => response::epoch(response, objects),
            Record::ResponseSummary(summary) => response::summary(summary, objects),
            Record::Stack(stack) => stack::interval(stack, objects),
            Record::ByteTrace(trace) => stack::byte_trace(trace, objects),
            Record::Path(path) => path::interval(path, objects),
            Record::Agent(event) => path::agent(event, objects),
            Record::Gray(failure) => gray::failure(failure, objects),
            Record::Shift(shift) => shift::comparison(shift, objects),
            Record::Sockets(sockets) => sockets::interval(sockets, objects),
            Record::SocketEnd(end) => sockets::summary(end, objects),
            Record::Top(top) => top::rows(top, objects),
            Record::Why(verdict) => why::verdict(verdict, objects),
        }
    }
}

/// Adds every object of this crate to a schema.
pub fn add_objects(schema: &mut Schema) {
    schema.add::<rtt::SampleObject<'_>>();
    schema.add::<rtt::FlowEventObject<'_>>();
    schema.add::<rtt::AggregateObject<'_>>();
    schema.add::<rtt::SummaryObject<'_>>();
    schema.add::<response::EpochObject<'_>>();
    schema.add::<response::SummaryObject<'_>>();
    schema.add::<stack::SegmentObject<'_>>();
    schema.add::<stack::ByteObject<'_>>();
    schema.add::<stack::HopObject<'_>>();
    schema.add::<shift::ShiftObject<'_, shift::SegmentKey>>();
    schema.add::<shift::ShiftObject<'_, RoundTripKey>>();
    schema.add::<shift::ShiftObject<'_, ResponseKey>>();
    schema.add::<path::PathObject<'_>>();
    schema.add::<path::AgentObject<'_>>();
    schema.add::<gray::GrayObject<'_>>();
    schema.add::<sockets::SocketObject<'_>>();
    schema.add::<sockets::SocketSummaryObject<'_>>();
    schema.add::<status::StatusObject<'_>>();
    schema.add::<top::RowObject<'_>>();
    schema.add::<why::VerdictObject<'_>>();
}

/// Writes the objects of one record.
struct Objects<'a> {
    times: &'a mut Timestamps,
    source: &'a Source,
    out: &'a mut Vec<u8>,
}

impl Objects<'_> {
    /// Returns the object of a flow with its names.
    fn flow(&self, src: &Endpoint, dst: &Endpoint, protocol: Protocol, seen: Option<Role>) -> FlowObject {
        FlowObject::of_source(src, dst, protocol, seen, self.source)
    }

    /// Returns the object of one direction of a TCP connection with its names.
    fn tcp(&self, ends: &Ends) -> FlowObject {
        FlowObject::of_tcp(ends, self.source)
    }

    /// The same for a namespace. The names are of the one that dwell runs in, which is `None`.
    fn tcp_in(&self, ends: &Ends, namespace: Option<&str>) -> FlowObject {
        match namespace {
            None => self.tcp(ends),
            Some(_) => FlowObject::new(&ends.src, &ends.dst, Protocol::TCP, None),
        }
    }

    /// Writes one object. `time_ns` is on the source's clock; `None` gives a null `time`.
    fn write(&mut self, time_ns: Option<u64>, body: &impl Object) {
        let time = time_ns.and_then(|ns| self.times.rfc3339(self.source.clock.unix_ns(ns)));
        write_object(Header { time, host: self.source.host.as_deref() }, body, self.out);
    }
}

/// Rounds a ratio to six decimals, so that it is written short.
fn rounded(ratio: f64) -> f64 {
    (ratio * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use dwell_engine::{
        measure::{Method, Sample, Tunnel},
        rtt::Figures,
    };
    use serde_json::{Value, json};

    use super::{super::samples, *};
    use crate::{Clock, Group, GroupKey, Interfaces, Interval, Prefix, Status, Summary, Verb};

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
            format.write(&Record::Sample(&samples::tcp4()), &samples::source(), out);
        });
        assert_eq!(
            text,
            concat!(
                r#"{"type":"rtt.sample","schema":"dwell/2","time":"2026-11-21T05:10:00.123456789Z","#,
                r#""host":"here","interface":"eth0","flow":{"src":"192.0.2.1","sport":44321,"#,
                r#""dst":"198.51.100.7","dport":443,"proto":"TCP","id":"1:3+1ROSajzqNleEHGBuufJMdXiQI=","#,
                r#""client":"src"},"echo_id":null,"tunnel":null,"method":"tcp-timestamp","rtt_ns":1234567,"#,
                r#""min_rtt_ns":1100000,"queue_ns":34567,"handshake":false,"packets":17,"bytes":4242}"#,
                "\n"
            )
        );
    }

    #[test]
    fn every_kind_of_sample() {
        let text = written(|format, out| {
            for sample in samples::all() {
                format.write(&Record::Sample(&sample), &samples::source(), out);
            }
        });
        insta::assert_snapshot!(text, @r#"
        {"type":"rtt.sample","schema":"dwell/2","time":"2026-11-21T05:10:00.123456789Z","host":"here","interface":"eth0","flow":{"src":"192.0.2.1","sport":44321,"dst":"198.51.100.7","dport":443,"proto":"TCP","id":"1:3+1ROSajzqNleEHGBuufJMdXiQI=","client":"src"},"echo_id":null,"tunnel":null,"method":"tcp-timestamp","rtt_ns":1234567,"min_rtt_ns":1100000,"queue_ns":34567,"handshake":false,"packets":17,"bytes":4242}
        {"type":"rtt.sample","schema":"dwell/2","time":"2026-11-21T05:10:01.000000000Z","host":"here","interface":"eth0","flow":{"src":"2001:db8::1","sport":50000,"dst":"2001:db8:0:1::443","dport":443,"proto":"TCP","id":"1:u8CNW2URs63Ms57BOIhY4Gx1LEY=","client":"src"},"echo_id":null,"tunnel":null,"method":"tcp-seq","rtt_ns":456000,"min_rtt_ns":456000,"queue_ns":0,"handshake":true,"packets":17,"bytes":4242}
        {"type":"rtt.sample","schema":"dwell/2","time":"2026-11-21T05:10:02.000000001Z","host":"here","interface":"7","flow":{"src":"192.0.2.1","sport":null,"dst":"203.0.113.255","dport":null,"proto":"ICMP","id":"1:KnP0mMWb/YAgmksXI4u0LVgmT+A=","client":"src"},"echo_id":17,"tunnel":null,"method":"icmp","rtt_ns":789,"min_rtt_ns":0,"queue_ns":789,"handshake":false,"packets":17,"bytes":4242}
        {"type":"rtt.sample","schema":"dwell/2","time":"2026-11-21T06:09:59.999999999Z","host":"here","interface":"eth0","flow":{"src":"fe80::1","sport":null,"dst":"fe80::2","dport":null,"proto":"ICMPv6","id":"1:3H+V/JVcqh/phPel5utt4dOKqOU=","client":"src"},"echo_id":65535,"tunnel":null,"method":"icmpv6","rtt_ns":12345678901,"min_rtt_ns":999999,"queue_ns":12344678902,"handshake":false,"packets":17,"bytes":4242}
        {"type":"rtt.sample","schema":"dwell/2","time":"2026-11-21T05:10:00.123456789Z","host":"here","interface":"eth0","flow":{"src":"192.0.2.1","sport":44321,"dst":"198.51.100.7","dport":443,"proto":"UDP","id":"1:luDeOydVsxExbUhM8ZHXksj5VfM=","client":"src"},"echo_id":null,"tunnel":null,"method":"quic-spin-loop","rtt_ns":18446744073709551615,"min_rtt_ns":20000000,"queue_ns":18446744073689551615,"handshake":false,"packets":18446744073709551615,"bytes":4242}
        {"type":"rtt.sample","schema":"dwell/2","time":"2026-11-21T05:10:00.123456789Z","host":"here","interface":"eth0","flow":{"src":"192.0.2.1","sport":44321,"dst":"198.51.100.7","dport":443,"proto":"132","id":"1:iMdsvxyyP1zuk/30o19v4uxGt88=","client":"src"},"echo_id":null,"tunnel":null,"method":"dns","rtt_ns":1234567,"min_rtt_ns":1100000,"queue_ns":34567,"handshake":false,"packets":17,"bytes":4242}
        "#);
        for (object, sample) in objects(&text).iter().zip(samples::all()) {
            assert_eq!(object["rtt_ns"], sample.rtt_ns);
            assert_eq!(object["flow"]["src"], sample.src.address.to_string());
            let (port, id) = match sample.protocol.is_icmp() {
                true => (Value::Null, json!(sample.src.port)),
                false => (json!(sample.src.port), Value::Null),
            };
            assert_eq!((&object["flow"]["sport"], &object["echo_id"]), (&port, &id));
        }
    }

    #[test]
    fn what_is_not_known_is_null() {
        let clock = Clock::with_offset(i128::MAX);
        let source = Source { clock, interfaces: Interfaces::unknown(), ..Source::default() };
        let text = written(|format, out| format.write(&Record::Sample(&samples::tcp4()), &source, out));
        let object = &objects(&text)[0];
        assert_eq!(object["time"], Value::Null);
        assert_eq!(object["interface"], Value::Null);
    }

    #[test]
    fn a_hostile_interface_name_stays_inside_its_string() {
        let mut source = samples::source();
        source.interfaces.insert(2, "a\"},\n{\u{1b}\\\u{2028}é");
        let text = written(|format, out| format.write(&Record::Sample(&samples::tcp4()), &source, out));
        assert_eq!(text.lines().count(), 1);
        let object = &objects(&text)[0];
        assert_eq!(object["interface"], "a\"},\n{\u{1b}\\\u{2028}é");
    }

    #[test]
    fn flow_events() {
        let text = written(|format, out| {
            for event in samples::flows() {
                format.write(&Record::Flow(&event), &samples::source(), out);
            }
        });
        insta::assert_snapshot!(text, @r#"
        {"type":"rtt.flow","schema":"dwell/2","time":"2026-11-21T05:10:00.010000000Z","host":"here","interface":"eth0","event":"open","reason":null,"flow":{"src":"192.0.2.1","sport":44321,"dst":"198.51.100.7","dport":443,"proto":"TCP","id":"1:3+1ROSajzqNleEHGBuufJMdXiQI=","client":"src"},"echo_id":null,"tunnel":null,"method":null,"rtt_ns":null,"first_time":"2026-11-21T05:10:00.010000000Z","samples":0,"packets":1,"bytes":74,"data_segments":0,"retransmitted":0,"late":0,"ce":0}
        {"type":"rtt.flow","schema":"dwell/2","time":"2026-11-21T05:10:00.035000000Z","host":"here","interface":"eth0","event":"first-rtt","reason":null,"flow":{"src":"192.0.2.1","sport":44321,"dst":"198.51.100.7","dport":443,"proto":"TCP","id":"1:3+1ROSajzqNleEHGBuufJMdXiQI=","client":"src"},"echo_id":null,"tunnel":null,"method":"tcp-timestamp","rtt_ns":25000000,"first_time":"2026-11-21T05:10:00.010000000Z","samples":1,"packets":2,"bytes":148,"data_segments":0,"retransmitted":0,"late":0,"ce":0}
        {"type":"rtt.flow","schema":"dwell/2","time":"2026-11-21T05:11:01.500000000Z","host":"here","interface":"eth0","event":"close","reason":"idle","flow":{"src":"fe80::1","sport":null,"dst":"fe80::2","dport":null,"proto":"ICMPv6","id":"1:3H+V/JVcqh/phPel5utt4dOKqOU=","client":null},"echo_id":9,"tunnel":null,"method":null,"rtt_ns":null,"first_time":"2026-11-21T05:10:00.010000000Z","samples":3,"packets":6,"bytes":708,"data_segments":null,"retransmitted":null,"late":null,"ce":0}
        "#);
    }

    #[test]
    fn aggregates_with_other_last() {
        let mut figures = Figures::default();
        for rtt_ns in [900, 1_500_000, 25_000_000] {
            figures.add(&Sample { rtt_ns, base_ns: 900, ..samples::tcp4() });
        }
        let key = GroupKey {
            interface: 9,
            tunnel: Tunnel(7),
            method: Method::QuicSpin,
            prefix: Prefix { address: "2001:db8::".parse().unwrap(), bits: 48 },
        };
        let groups = [None, Some(key)].map(|key| Group { key, figures: figures.clone() });
        let interval = Interval { end_ns: 5, length_ns: 1_000_000_000, groups: &groups };
        let text = written(|format, out| format.write(&Record::Interval(&interval), &samples::source(), out));
        insta::assert_snapshot!(text, @r#"
        {"type":"rtt.aggregate","schema":"dwell/2","time":"2026-11-21T05:10:00.000000005Z","host":"here","interface":"9","interval_ns":1000000000,"prefix":"2001:db8::/48","name":null,"tunnel":"vlan 7","latency":{"method":"quic-spin","count":3,"mean_ns":8833633,"min_ns":900,"max_ns":25000000,"p50_ns":1499136,"p90_ns":25000000,"p95_ns":25000000,"p99_ns":25000000,"p99_9_ns":25000000},"queue_mean_ns":8832733,"queue_max_ns":24999100,"data_segments":null,"retransmitted":null,"packets_back":450,"late":null,"ce":18}
        {"type":"rtt.aggregate","schema":"dwell/2","time":"2026-11-21T05:10:00.000000005Z","host":"here","interface":null,"interval_ns":1000000000,"prefix":null,"name":null,"tunnel":null,"latency":{"method":null,"count":3,"mean_ns":8833633,"min_ns":900,"max_ns":25000000,"p50_ns":1499136,"p90_ns":25000000,"p95_ns":25000000,"p99_ns":25000000,"p99_9_ns":25000000},"queue_mean_ns":8832733,"queue_max_ns":24999100,"data_segments":600,"retransmitted":9,"packets_back":450,"late":3,"ce":18}
        "#);
    }

    #[test]
    fn a_summary_with_flows_beyond_its_limit() {
        let mut summary = Summary::new(2);
        let kinds = samples::all();
        for sample in [kinds[2], kinds[1], kinds[1], kinds[3]] {
            summary.add(&sample);
        }
        let text = written(|format, out| format.write(&Record::Summary(&summary), &samples::source(), out));
        insta::assert_snapshot!(text, @r#"
        {"type":"rtt.summary","schema":"dwell/2","time":"2026-11-21T05:10:01.000000000Z","host":"here","interface":"eth0","flow":{"src":"2001:db8::1","sport":50000,"dst":"2001:db8:0:1::443","dport":443,"proto":"TCP","id":"1:u8CNW2URs63Ms57BOIhY4Gx1LEY=","client":"src"},"interval_ns":0,"echo_id":null,"tunnel":null,"latency":{"method":"tcp-seq","count":2,"mean_ns":456000,"min_ns":456000,"max_ns":456000,"p50_ns":456000,"p90_ns":456000,"p95_ns":456000,"p99_ns":456000,"p99_9_ns":456000},"queue_mean_ns":0,"queue_max_ns":0,"data_segments":2,"retransmitted":0,"packets_back":2,"late":0,"ce":0}
        {"type":"rtt.summary","schema":"dwell/2","time":"2026-11-21T05:10:02.000000001Z","host":"here","interface":"7","flow":{"src":"192.0.2.1","sport":null,"dst":"203.0.113.255","dport":null,"proto":"ICMP","id":"1:KnP0mMWb/YAgmksXI4u0LVgmT+A=","client":"src"},"interval_ns":0,"echo_id":17,"tunnel":null,"latency":{"method":"icmp","count":1,"mean_ns":789,"min_ns":789,"max_ns":789,"p50_ns":789,"p90_ns":789,"p95_ns":789,"p99_ns":789,"p99_9_ns":789},"queue_mean_ns":789,"queue_max_ns":789,"data_segments":null,"retransmitted":null,"packets_back":1,"late":null,"ce":0}
        {"type":"rtt.summary","schema":"dwell/2","time":null,"host":"here","interface":null,"flow":null,"interval_ns":null,"echo_id":null,"tunnel":null,"latency":{"method":"icmpv6","count":1,"mean_ns":12345678901,"min_ns":12345678901,"max_ns":12345678901,"p50_ns":12345678901,"p90_ns":12345678901,"p95_ns":12345678901,"p99_ns":12345678901,"p99_9_ns":12345678901},"queue_mean_ns":12344678902,"queue_max_ns":12344678902,"data_segments":null,"retransmitted":null,"packets_back":1,"late":null,"ce":1}
        "#);
    }

    #[test]
    fn a_status_says_what_was_lost_and_what_it_cost() {
        let status = samples::status();
        let text = written(|format, out| format.write(&Record::Status(&status), &samples::source(), out));
        insta::assert_snapshot!(text, @r#"
        {"type":"rtt.status","schema":"dwell/2","time":null,"host":"here","last":true,"lost":7,"cost":{"cpu_ns":5,"bpf_ns":null,"bpf_runs":null,"cpu_ns_per_packet":0.1,"bpf_ns_per_packet":null},"counters":{"bytes":101,"packets":100},"fail_if":null}
        "#);
        for (verb, kind) in [(Verb::Response, "response.status"), (Verb::Lb, "lb.status")] {
            let status = Status { verb, ..status.clone() };
            let text = written(|format, out| format.write(&Record::Status(&status), &samples::source(), out));
            assert_eq!(objects(&text)[0]["type"], kind);
        }
    }
}
