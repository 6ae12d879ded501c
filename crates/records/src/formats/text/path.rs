//! Tables of `dwell collect`.

use dwell_engine::layers::PathSegment;

use super::{
    Colour, counted, put,
    stack::{self, HEADS, figures, heads},
    trimmed,
};
use crate::PathTable;

/// Writes the hosts and the clocks' bound, then a table: one line per segment in the order of the path, parts of a
/// segment below it, from end to end last.
pub(super) fn interval(table: &PathTable<'_>, out: &mut Vec<u8>) {
    let bytes = table.path.segment(PathSegment::EndToEnd).count();
    put(out, format_args!("  {} → {}", table.tx_host, table.rx_host));
    if let Some(flow) = table.flow {
        put(out, format_args!(", {} → {}", flow.src, flow.dst));
    }
    if let Some(flow) = table.rx_flow {
        put(out, format_args!(", at {} {} → {}", table.rx_host, flow.src, flow.dst));
    }
    let resent = if table.resent { " sent again" } else { "" };
    put(
        out,
        format_args!(
            ": {}{resent} in {}, clocks within {}",
            counted(bytes, "byte", "bytes"),
            trimmed(table.length_ns),
            trimmed(table.path.bound_ns),
        ),
    );
    if table.path.clamped > 0 {
        put(out, format_args!(", {} came before they left, by less", table.path.clamped));
    }
    if table.path.doubtful > 0 {
        put(out, format_args!(", {} doubtful", table.path.doubtful));
    }
    out.push(b'\n');
    put(out, format_args!("{:<17}", "segment"));
    heads(HEADS.len(), out);
    for segment in PathSegment::ALL {
        let histogram = table.path.segment(segment);
        // Without unexplained time there is no such line.
        let is_unexplained = segment.name() == "unexplained";
        if is_unexplained && histogram.count() == 0 {
            continue;
        }
        let indent = if segment.part_of().is_some() { "  " } else { "" };
        let name = match segment.direction() {
            Some(direction) => format!("{} {indent}{}", direction.name(), segment.name()),
            None => segment.name().to_owned(),
        };
        put(out, format_args!("{name:<17}"));
        figures(histogram, out);
        stack::share(table.share(segment), Colour::default(), out);
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use dwell_engine::layers::{Ends, Segment, join::Path};

    use super::*;
    use crate::{Format, Jsonl, Record, Text, formats::samples};

    fn path() -> Path {
        let mut path = Path { bound_ns: 1_200, ..Path::default() };
        for (segment, histogram) in PathSegment::ALL.iter().zip(&mut path.segments) {
            let us = match segment {
                PathSegment::Host(Segment::SocketTcp) => 1_000,
                PathSegment::Host(Segment::IpDriver) => 500,
                PathSegment::Host(Segment::Queueing) => 400,
                PathSegment::Host(Segment::TxTotal) => 1_500,
                PathSegment::Network => 8_000,
                PathSegment::Host(Segment::TcpSocket) => 500,
                PathSegment::Host(Segment::RxTotal) => 500,
                PathSegment::EndToEnd => 10_000,
                _ => continue,
            };
            histogram.record_many(us * 1_000, 2);
        }
        path
    }

    fn table(path: &Path) -> PathTable<'_> {
        PathTable {
            end_ns: 1_000_000_000,
            length_ns: 1_000_000_000,
            tx_host: "a",
            rx_host: "b",
            flow: None,
            rx_flow: None,
            resent: false,
            path,
        }
    }

    #[test]
    fn a_table_follows_the_bytes_from_one_host_to_the_other() {
        let path = path();
        let table = table(&path);
        let mut out = Vec::new();
        Text::default().write(&Record::Path(&table), &samples::source(), &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "\
05:10:01.000000Z  a → b: 2 bytes in 1.00 s, clocks within 1.20 µs
segment             count     mean      p50      p90      p99      max    share
tx socket-tcp           2  1.00 ms  1.00 ms  1.00 ms  1.00 ms  1.00 ms   10.0 %
tx tcp-ip               0        -        -        -        -        -    0.0 %
tx ip-driver            2   500 µs   500 µs   500 µs   500 µs   500 µs    5.0 %
tx   queueing           2   400 µs   400 µs   400 µs   400 µs   400 µs    4.0 %
tx total                2  1.50 ms  1.50 ms  1.50 ms  1.50 ms  1.50 ms   15.0 %
network                 2  8.00 ms  8.00 ms  8.00 ms  8.00 ms  8.00 ms   80.0 %
rx driver-ip            0        -        -        -        -        -    0.0 %
rx ip-tcp               0        -        -        -        -        -    0.0 %
rx tcp-socket           2   500 µs   500 µs   500 µs   500 µs   500 µs    5.0 %
rx   reordering         0        -        -        -        -        -    0.0 %
rx   application        0        -        -        -        -        -    0.0 %
rx total                2   500 µs   500 µs   500 µs   500 µs   500 µs    5.0 %
end-to-end              2  10.0 ms  10.0 ms  10.0 ms  10.0 ms  10.0 ms  100.0 %

"
        );
    }

    #[test]
    fn each_path_segment_has_an_object_with_both_hosts_and_the_flow() {
        let path = path();
        let ends = Ends { src: samples::endpoint("192.0.2.1", 44_321), dst: samples::endpoint("2001:db8::1", 443) };
        let table = PathTable { flow: Some(ends), resent: true, ..table(&path) };
        let mut out = Vec::new();
        Jsonl::default().write(&Record::Path(&table), &samples::source(), &mut out);
        let objects: Vec<serde_json::Value> =
            String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(objects.len(), PathSegment::ALL.len());
        let network = &objects[6];
        assert_eq!(network["type"], "collect.segment");
        assert_eq!(network["schema"], "dwell/2");
        assert_eq!(network["time"], "2026-11-21T05:10:01.000000000Z");
        assert_eq!((&network["tx_host"], &network["rx_host"]), (&"a".into(), &"b".into()));
        assert_eq!(network["segment"], "network");
        assert!(network["direction"].is_null() && network["part_of"].is_null());
        assert_eq!(network["flow"]["sport"], 44_321);
        assert_eq!(network["retransmitted"], true);
        assert_eq!(network["latency"]["mean_ns"], 8_000_000);
        assert_eq!(network["share"], 0.8);
        assert_eq!(network["bound_ns"], 1_200);
        assert_eq!((&network["joined"], &network["rx_flow"]), (&"address".into(), &serde_json::Value::Null));
        assert_eq!(objects[3]["part_of"], "ip-driver");
        assert_eq!(objects[1]["latency"]["count"], 0);
        assert!(objects[1]["latency"]["mean_ns"].is_null());
    }

    #[test]
    fn a_flow_whose_addresses_are_translated_is_shown_as_both_hosts_see_it() {
        let path = path();
        let end = samples::endpoint;
        let flow = Ends { src: end("10.0.0.7", 44_321), dst: end("192.0.2.80", 80) };
        let rx_flow = Ends { src: end("198.51.100.1", 1_024), dst: end("10.1.0.9", 8_080) };
        let table = PathTable { flow: Some(flow), rx_flow: Some(rx_flow), ..table(&path) };
        let [mut text, mut lines] = [Vec::new(), Vec::new()];
        Text::default().write(&Record::Path(&table), &samples::source(), &mut text);
        let text = String::from_utf8(text).unwrap();
        let both = "a → b, 10.0.0.7:44321 → 192.0.2.80:80, at b 198.51.100.1:1024 → 10.1.0.9:8080: 2 bytes in";
        assert!(text.contains(both), "{text}");
        Jsonl::default().write(&Record::Path(&table), &samples::source(), &mut lines);
        let lines = String::from_utf8(lines).unwrap();
        let object: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        assert_eq!((&object["joined"], &object["flow"]["dport"]), (&"sequence".into(), &80.into()));
        assert_eq!((&object["rx_flow"]["src"], &object["rx_flow"]["dport"]), (&"198.51.100.1".into(), &8_080.into()));
    }
}
