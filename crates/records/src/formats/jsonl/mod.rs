//! JSON Lines: one object per line.
//!
//! Every object has `type`, `schema` and `time` (RFC 3339, UTC, nanoseconds). Latencies are integers in nanoseconds.
//! An unknown value is null, never 0. A flow has `src`, `sport`, `dst`, `dport` and `proto`; where there are no ports,
//! as in ICMP, they are null and `id` is the identifier of the echo. `interface` is a name, or else a number in a
//! string.

mod path;
mod response;
mod rtt;
mod shift;
mod sockets;
mod stack;

use std::net::IpAddr;

use dwell_engine::layers::Ends;
use serde::Serialize;

use super::Format;
use crate::{Record, Source, Timestamps};

pub use rtt::SCHEMA;

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
            Record::Status(status) => rtt::status(status, objects),
            Record::Response(response) => response::epoch(response, objects),
            Record::Stack(stack) => stack::interval(stack, objects),
            Record::ByteTrace { host, trace } => stack::byte_trace(host, trace, objects),
            Record::Path(path) => path::interval(path, objects),
            Record::Shift(shift) => shift::comparison(shift, objects),
            Record::Sockets(sockets) => sockets::interval(sockets, objects),
            Record::SocketEnd(end) => sockets::summary(end, objects),
        }
    }
}

/// Writes the objects of one record.
struct Objects<'a> {
    times: &'a mut Timestamps,
    source: &'a Source,
    out: &'a mut Vec<u8>,
}

impl Objects<'_> {
    /// Writes one object of type `kind`. `time_ns` is on the source's clock; `None` gives a null `time`.
    fn write(&mut self, kind: &str, schema: &str, time_ns: Option<u64>, body: &impl Serialize) {
        let time = time_ns.and_then(|ns| self.times.rfc3339(self.source.clock.unix_ns(ns)));
        write_object(kind, schema, time, body, self.out);
    }
}

/// Appends one object and a line feed: the header that every object of dwell has, then the fields of `body`.
pub fn write_object(kind: &str, schema: &str, time: Option<&str>, body: &impl Serialize, out: &mut Vec<u8>) {
    /// The name of the object's type, of its schema with a version, and the time that it is about.
    #[derive(Serialize)]
    struct Head<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
        schema: &'a str,
        time: Option<&'a str>,
    }

    #[derive(Serialize)]
    struct Object<'a, T> {
        #[serde(flatten)]
        head: Head<'a>,
        #[serde(flatten)]
        body: &'a T,
    }

    let object = Object { head: Head { kind, schema, time }, body };
    serde_json::to_writer(&mut *out, &object).expect("a Vec takes all, and keys are strings");
    out.push(b'\n');
}

/// One direction of a TCP connection.
#[derive(Clone, Copy, Serialize)]
struct Flow {
    src: IpAddr,
    sport: u16,
    dst: IpAddr,
    dport: u16,
    proto: &'static str,
}

impl From<&Ends> for Flow {
    fn from(ends: &Ends) -> Flow {
        Flow { src: ends.src.address, sport: ends.src.port, dst: ends.dst.address, dport: ends.dst.port, proto: "TCP" }
    }
}

/// Rounds a ratio to six decimals, so that it is written short.
fn rounded(ratio: f64) -> f64 {
    (ratio * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use dwell_engine::{
        abi,
        histogram::Histogram,
        measure::Method,
        rtt::{Counter, Counters},
    };
    use serde_json::{Value, json};

    use super::{super::samples, *};
    use crate::{Clock, Group, GroupKey, Interfaces, Interval, Prefix, Status, Summary};

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
                format.write(&Record::Sample(&sample), &samples::source(), out);
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
        let text = written(|format, out| format.write(&Record::Interval(&interval), &samples::source(), out));
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
        let text = written(|format, out| format.write(&Record::Summary(&summary), &samples::source(), out));
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
        let text = written(|format, out| format.write(&Record::Status(&status), &samples::source(), out));
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
