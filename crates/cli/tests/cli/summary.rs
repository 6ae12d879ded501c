//! Distributions of a replay: `--summary` and `--aggregate` against the samples themselves.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    records::{field, number, objects, of_type, round_trips, text, without_cost},
    support::{Run, dwell, dwell_reading},
    wire::{Packet, Sender, capture, echo, everyday, pings},
};

fn replay(packets: &[Packet], options: &[&str]) -> Run {
    let run = dwell_reading(&[&["rtt", "-r", "-"], options].concat(), &capture(packets));
    assert_eq!(run.status, Some(0), "{run}");
    run
}

/// Pings of four hosts that answer after 1 to 40 ms and something, and once after 90 seconds.
fn spread() -> Vec<Packet> {
    let mut packets = Vec::new();
    let mut random = 12_345_u64;
    for host in 1..=4_u16 {
        let mut at_ms = f64::from(host);
        for seq in 0..250 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let rtt_ms = f64::from(host) * (1.0 + (random >> 40) as f64 / 1e6);
            packets.push(echo(at_ms, Sender::Client, host, seq));
            packets.push(echo(at_ms + rtt_ms, Sender::Server, host, seq));
            at_ms += rtt_ms + 10.0;
        }
    }
    packets.push(echo(20_000.0, Sender::Client, 9, 1));
    packets.push(echo(21_750.0, Sender::Server, 9, 1));
    packets.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
    packets
}

#[test]
fn packets_of_a_capture_of_all_interfaces_are_no_copies_of_those_on_another() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/any-interface-no-timestamps.pcap.gz");
    let run = dwell(&["rtt", "-r", path, "--summary"]);
    assert!(run.stderr.contains("450 packets, 210 samples") && !run.stderr.contains("repeated"), "{run}");
}

/// What a summary must say of these values. Quantiles are nearest ranks.
fn check(figures: &Value, values: &[u64]) {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    assert_eq!(number(figures, "count"), sorted.len() as u64);
    assert_eq!(number(figures, "min_ns"), sorted[0]);
    assert_eq!(number(figures, "max_ns"), sorted[sorted.len() - 1]);
    let sum: u128 = sorted.iter().copied().map(u128::from).sum();
    assert_eq!(u128::from(number(figures, "mean_ns")), sum / sorted.len() as u128);
    for (key, quantile) in [("p50_ns", 0.5), ("p90_ns", 0.9), ("p99_ns", 0.99)] {
        let rank = (sorted.len() as f64 * quantile).ceil() as usize;
        let want = sorted[rank - 1] as f64;
        let said = number(figures, key) as f64;
        assert!((said - want).abs() <= 0.008 * want, "{key}: {said}, not {want}: {figures}");
    }
}

#[test]
fn a_summary_is_what_its_samples_give() {
    for packets in [everyday(), spread()] {
        let samples = replay(&packets, &["--format", "jsonl"]).stdout;
        let flow = |object: &Value| {
            ["method", "src", "dst", "sport", "dport", "echo_id", "proto"]
                .map(|key| field(object, key).to_string())
                .join(" ")
        };
        let mut want = BTreeMap::<String, Vec<u64>>::new();
        for sample in of_type(&samples, "rtt.sample") {
            want.entry(flow(&sample)).or_default().push(number(&sample, "rtt_ns"));
        }
        let summary = replay(&packets, &["--summary", "--format", "jsonl"]).stdout;
        assert_eq!(of_type(&summary, "rtt.sample"), Vec::<Value>::new());
        let lines = of_type(&summary, "rtt.summary");
        assert_eq!(lines.len(), want.len());
        for line in &lines {
            check(line, &want[&flow(line)]);
        }
        let counts: Vec<_> = lines.iter().map(|line| number(line, "count")).collect();
        assert!(counts.is_sorted_by(|a, b| a >= b), "most samples first: {counts:?}");
    }
}

#[test]
fn a_summary_as_a_table() {
    insta::assert_snapshot!(replay(&everyday(), &["--summary"]), @"
    exit 0
    stdout: interface  flow                                        method          count      min      p50      p90      p99      max     mean    queue  resent   CE
    stdout: -          ICMP    192.0.2.1 → 198.51.100.7 id 7       icmp                1  5.12 ms  5.12 ms  5.12 ms  5.12 ms  5.12 ms  5.12 ms     0 ns       -  0 %
    stdout: -          UDP     192.0.2.1:5353 → 198.51.100.7:53    dns                 1  12.5 ms  12.5 ms  12.5 ms  12.5 ms  12.5 ms  12.5 ms     0 ns       -  0 %  [DNS example.org]
    stdout: -          TCP     192.0.2.1:40000 → 198.51.100.7:443  tcp-seq             1  5.50 ms  5.50 ms  5.50 ms  5.50 ms  5.50 ms  5.50 ms     0 ns     0 %  0 %
    stdout: -          TCP     192.0.2.1:40001 → 198.51.100.7:443  tcp-seq             1  5.20 ms  5.20 ms  5.20 ms  5.20 ms  5.20 ms  5.20 ms     0 ns     0 %  0 %
    stdout: -          UDP     192.0.2.1:50000 → 198.51.100.7:443  quic-handshake      1  5.90 ms  5.90 ms  5.90 ms  5.90 ms  5.90 ms  5.90 ms     0 ns       -  0 %
    stdout: -          TCP     198.51.100.7:443 → 192.0.2.1:40000  tcp-seq             1  20.5 ms  20.5 ms  20.5 ms  20.5 ms  20.5 ms  20.5 ms     0 ns     0 %  0 %
    stdout: -          TCP     198.51.100.7:443 → 192.0.2.1:40001  tcp-seq             1  20.7 ms  20.7 ms  20.7 ms  20.7 ms  20.7 ms  20.7 ms     0 ns     0 %  0 %
    stdout: -          ICMPv6  2001:db8::1 → 2001:db8:1::7 id 8    icmpv6              1  5.65 ms  5.65 ms  5.65 ms  5.65 ms  5.65 ms  5.65 ms     0 ns       -  0 %
    stderr: dwell: 25 packets, 8 samples, 0 events lost, 4550 bytes, 6 flows opened, 8 stamps
    ");
}

#[test]
fn a_summary_as_jsonl() {
    let summary = replay(&everyday(), &["--summary", "--format", "jsonl"]).stdout;
    let lines: String = summary
        .lines()
        .filter(|line| line.contains("icmp") || line.contains("tcp-seq"))
        .map(|line| format!("{line}\n"))
        .collect();
    insta::assert_snapshot!(without_cost(&lines), @r#"
    {"type":"rtt.summary","schema":"dwell/2","time":"2026-01-02T03:04:05.205123456Z","host":null,"interface":null,"flow":{"src":"192.0.2.1","sport":null,"dst":"198.51.100.7","dport":null,"proto":"ICMP","id":"1:gWq+zk/5wiECNk6+x16LEy0O2tI=","client":"src"},"interval_ns":0,"echo_id":7,"tunnel":null,"latency":{"method":"icmp","count":1,"mean_ns":5123456,"min_ns":5123456,"max_ns":5123456,"p50_ns":5123456,"p90_ns":5123456,"p95_ns":5123456,"p99_ns":5123456,"p99_9_ns":5123456},"queue_mean_ns":0,"queue_max_ns":0,"data_segments":null,"retransmitted":null,"packets_back":1,"late":null,"ce":0}
    {"type":"rtt.summary","schema":"dwell/2","time":"2026-01-02T03:04:05.031500000Z","host":null,"interface":null,"flow":{"src":"192.0.2.1","sport":40000,"dst":"198.51.100.7","dport":443,"proto":"TCP","id":"1:lWOTJwBjzASkHgo+w0kukpG9z0M=","client":"src"},"interval_ns":0,"echo_id":null,"tunnel":null,"latency":{"method":"tcp-seq","count":1,"mean_ns":5500000,"min_ns":5500000,"max_ns":5500000,"p50_ns":5500000,"p90_ns":5500000,"p95_ns":5500000,"p99_ns":5500000,"p99_9_ns":5500000},"queue_mean_ns":0,"queue_max_ns":0,"data_segments":1,"retransmitted":0,"packets_back":2,"late":0,"ce":0}
    {"type":"rtt.summary","schema":"dwell/2","time":"2026-01-02T03:04:05.131200000Z","host":null,"interface":null,"flow":{"src":"192.0.2.1","sport":40001,"dst":"198.51.100.7","dport":443,"proto":"TCP","id":"1:Y3FAroZblQjUHTHH5ulsAD4YBHA=","client":"src"},"interval_ns":0,"echo_id":null,"tunnel":null,"latency":{"method":"tcp-seq","count":1,"mean_ns":5200000,"min_ns":5200000,"max_ns":5200000,"p50_ns":5200000,"p90_ns":5200000,"p95_ns":5200000,"p99_ns":5200000,"p99_9_ns":5200000},"queue_mean_ns":0,"queue_max_ns":0,"data_segments":1,"retransmitted":0,"packets_back":2,"late":0,"ce":0}
    {"type":"rtt.summary","schema":"dwell/2","time":"2026-01-02T03:04:05.052000000Z","host":null,"interface":null,"flow":{"src":"198.51.100.7","sport":443,"dst":"192.0.2.1","dport":40000,"proto":"TCP","id":"1:lWOTJwBjzASkHgo+w0kukpG9z0M=","client":"dst"},"interval_ns":0,"echo_id":null,"tunnel":null,"latency":{"method":"tcp-seq","count":1,"mean_ns":20500000,"min_ns":20500000,"max_ns":20500000,"p50_ns":20500000,"p90_ns":20500000,"p95_ns":20500000,"p99_ns":20500000,"p99_9_ns":20500000},"queue_mean_ns":0,"queue_max_ns":0,"data_segments":1,"retransmitted":0,"packets_back":4,"late":0,"ce":0}
    {"type":"rtt.summary","schema":"dwell/2","time":"2026-01-02T03:04:05.152700000Z","host":null,"interface":null,"flow":{"src":"198.51.100.7","sport":443,"dst":"192.0.2.1","dport":40001,"proto":"TCP","id":"1:Y3FAroZblQjUHTHH5ulsAD4YBHA=","client":"dst"},"interval_ns":0,"echo_id":null,"tunnel":null,"latency":{"method":"tcp-seq","count":1,"mean_ns":20700000,"min_ns":20700000,"max_ns":20700000,"p50_ns":20700000,"p90_ns":20700000,"p95_ns":20700000,"p99_ns":20700000,"p99_9_ns":20700000},"queue_mean_ns":0,"queue_max_ns":0,"data_segments":1,"retransmitted":0,"packets_back":4,"late":0,"ce":0}
    {"type":"rtt.summary","schema":"dwell/2","time":"2026-01-02T03:04:05.215654321Z","host":null,"interface":null,"flow":{"src":"2001:db8::1","sport":null,"dst":"2001:db8:1::7","dport":null,"proto":"ICMPv6","id":"1:5+qmWhaRGZrwM2S70wWVlYcyO3I=","client":"src"},"interval_ns":0,"echo_id":8,"tunnel":null,"latency":{"method":"icmpv6","count":1,"mean_ns":5654321,"min_ns":5654321,"max_ns":5654321,"p50_ns":5654321,"p90_ns":5654321,"p95_ns":5654321,"p99_ns":5654321,"p99_9_ns":5654321},"queue_mean_ns":0,"queue_max_ns":0,"data_segments":null,"retransmitted":null,"packets_back":1,"late":null,"ce":0}
    "#);
}

#[test]
fn a_summary_of_nothing() {
    assert_eq!(replay(&[], &["--summary"]).stdout, "No samples.\n");
}

#[test]
fn an_aggregate_as_a_table_an_interval() {
    insta::assert_snapshot!(replay(&everyday(), &["--aggregate", "--interval", "100ms"]), @"
    exit 0
    stdout: 03:04:05.100000Z  2 samples in 100 ms
    stdout: interface  method   prefix           count      min      p50      p90      p99      max     mean    queue  resent   CE
    stdout: -          tcp-seq  192.0.2.0/24         1  20.5 ms  20.5 ms  20.5 ms  20.5 ms  20.5 ms  20.5 ms     0 ns     0 %  0 %
    stdout: -          tcp-seq  198.51.100.0/24      1  5.50 ms  5.50 ms  5.50 ms  5.50 ms  5.50 ms  5.50 ms     0 ns     0 %  0 %
    stdout:
    stdout: 03:04:05.200000Z  2 samples in 100 ms
    stdout: interface  method   prefix           count      min      p50      p90      p99      max     mean    queue  resent   CE
    stdout: -          tcp-seq  192.0.2.0/24         1  20.7 ms  20.7 ms  20.7 ms  20.7 ms  20.7 ms  20.7 ms     0 ns     0 %  0 %
    stdout: -          tcp-seq  198.51.100.0/24      1  5.20 ms  5.20 ms  5.20 ms  5.20 ms  5.20 ms  5.20 ms     0 ns     0 %  0 %
    stdout:
    stdout: 03:04:05.300000Z  2 samples in 100 ms
    stdout: interface  method  prefix           count      min      p50      p90      p99      max     mean    queue  resent   CE
    stdout: -          icmp    198.51.100.0/24      1  5.12 ms  5.12 ms  5.12 ms  5.12 ms  5.12 ms  5.12 ms     0 ns       -  0 %
    stdout: -          icmpv6  2001:db8:1::/48      1  5.65 ms  5.65 ms  5.65 ms  5.65 ms  5.65 ms  5.65 ms     0 ns       -  0 %
    stdout:
    stdout: 03:04:05.400000Z  1 sample in 100 ms
    stdout: interface  method  prefix           count      min      p50      p90      p99      max     mean    queue  resent   CE
    stdout: -          dns     198.51.100.0/24      1  12.5 ms  12.5 ms  12.5 ms  12.5 ms  12.5 ms  12.5 ms     0 ns       -  0 %
    stdout:
    stdout: 03:04:05.405900Z  1 sample in 5.90 ms
    stdout: interface  method          prefix           count      min      p50      p90      p99      max     mean    queue  resent   CE
    stdout: -          quic-handshake  198.51.100.0/24      1  5.90 ms  5.90 ms  5.90 ms  5.90 ms  5.90 ms  5.90 ms     0 ns       -  0 %
    stdout:
    stderr: dwell: 25 packets, 8 samples, 0 events lost, 4550 bytes, 6 flows opened, 8 stamps
    ");
}

#[test]
fn an_aggregate_as_jsonl() {
    let told = replay(&everyday(), &["--aggregate", "--interval", "300ms", "--format", "jsonl"]);
    insta::assert_snapshot!(without_cost(&told.stdout), @r#"
    {"type":"rtt.aggregate","schema":"dwell/2","time":"2026-01-02T03:04:05.300000000Z","host":null,"interface":null,"interval_ns":300000000,"prefix":"192.0.2.0/24","name":null,"tunnel":null,"latency":{"method":"tcp-seq","count":2,"mean_ns":20600000,"min_ns":20500000,"max_ns":20700000,"p50_ns":20578304,"p90_ns":20578304,"p95_ns":20578304,"p99_ns":20578304,"p99_9_ns":20578304},"queue_mean_ns":0,"queue_max_ns":0,"data_segments":2,"retransmitted":0,"packets_back":8,"late":0,"ce":0}
    {"type":"rtt.aggregate","schema":"dwell/2","time":"2026-01-02T03:04:05.300000000Z","host":null,"interface":null,"interval_ns":300000000,"prefix":"198.51.100.0/24","name":null,"tunnel":null,"latency":{"method":"tcp-seq","count":2,"mean_ns":5350000,"min_ns":5200000,"max_ns":5500000,"p50_ns":5210112,"p90_ns":5472256,"p95_ns":5472256,"p99_ns":5472256,"p99_9_ns":5472256},"queue_mean_ns":0,"queue_max_ns":0,"data_segments":2,"retransmitted":0,"packets_back":4,"late":0,"ce":0}
    {"type":"rtt.aggregate","schema":"dwell/2","time":"2026-01-02T03:04:05.300000000Z","host":null,"interface":null,"interval_ns":300000000,"prefix":"198.51.100.0/24","name":null,"tunnel":null,"latency":{"method":"icmp","count":1,"mean_ns":5123456,"min_ns":5123456,"max_ns":5123456,"p50_ns":5123456,"p90_ns":5123456,"p95_ns":5123456,"p99_ns":5123456,"p99_9_ns":5123456},"queue_mean_ns":0,"queue_max_ns":0,"data_segments":null,"retransmitted":null,"packets_back":1,"late":null,"ce":0}
    {"type":"rtt.aggregate","schema":"dwell/2","time":"2026-01-02T03:04:05.300000000Z","host":null,"interface":null,"interval_ns":300000000,"prefix":"2001:db8:1::/48","name":null,"tunnel":null,"latency":{"method":"icmpv6","count":1,"mean_ns":5654321,"min_ns":5654321,"max_ns":5654321,"p50_ns":5654321,"p90_ns":5654321,"p95_ns":5654321,"p99_ns":5654321,"p99_9_ns":5654321},"queue_mean_ns":0,"queue_max_ns":0,"data_segments":null,"retransmitted":null,"packets_back":1,"late":null,"ce":0}
    {"type":"rtt.status","schema":"dwell/2","time":"2026-01-02T03:04:05.300000000Z","host":null,"last":false,"lost":0,"counters":{"aggregate_other":0,"ambiguous":0,"backwards":0,"bytes":1908,"contended":0,"events_lost":0,"filtered":0,"flows_evicted":0,"flows_expired":0,"flows_opened":4,"fragment":0,"groups_freed":0,"malformed":0,"not_ip":0,"other_protocol":0,"packets":21,"samples":6,"server":0,"slots_freed":0,"spin_early":0,"spin_order":0,"stamps":6,"stamps_overwritten":0,"stray":0,"too_deep":0,"truncated":0,"unknown_link":0,"unreported":0,"untracked":0},"fail_if":null}
    {"type":"rtt.aggregate","schema":"dwell/2","time":"2026-01-02T03:04:05.405900000Z","host":null,"interface":null,"interval_ns":105900000,"prefix":"198.51.100.0/24","name":null,"tunnel":null,"latency":{"method":"dns","count":1,"mean_ns":12500000,"min_ns":12500000,"max_ns":12500000,"p50_ns":12500000,"p90_ns":12500000,"p95_ns":12500000,"p99_ns":12500000,"p99_9_ns":12500000},"queue_mean_ns":0,"queue_max_ns":0,"data_segments":null,"retransmitted":null,"packets_back":1,"late":null,"ce":0}
    {"type":"rtt.aggregate","schema":"dwell/2","time":"2026-01-02T03:04:05.405900000Z","host":null,"interface":null,"interval_ns":105900000,"prefix":"198.51.100.0/24","name":null,"tunnel":null,"latency":{"method":"quic-handshake","count":1,"mean_ns":5900000,"min_ns":5900000,"max_ns":5900000,"p50_ns":5900000,"p90_ns":5900000,"p95_ns":5900000,"p99_ns":5900000,"p99_9_ns":5900000},"queue_mean_ns":0,"queue_max_ns":0,"data_segments":null,"retransmitted":null,"packets_back":1,"late":null,"ce":0}
    {"type":"rtt.status","schema":"dwell/2","time":"2026-01-02T03:04:05.405900000Z","host":null,"last":true,"lost":0,"counters":{"aggregate_other":0,"ambiguous":0,"backwards":0,"bytes":4550,"contended":0,"events_lost":0,"filtered":0,"flows_evicted":0,"flows_expired":0,"flows_opened":6,"fragment":0,"groups_freed":0,"malformed":0,"not_ip":0,"other_protocol":0,"packets":25,"samples":8,"server":0,"slots_freed":0,"spin_early":0,"spin_order":0,"stamps":8,"stamps_overwritten":0,"stray":0,"too_deep":0,"truncated":0,"unknown_link":0,"unreported":0,"untracked":0},"fail_if":null}
    "#);
}

#[test]
fn aggregates_add_up_to_the_single_samples() {
    let packets = spread();
    let samples = of_type(&replay(&packets, &["--format", "jsonl"]).stdout, "rtt.sample");
    let trips = round_trips(&samples);
    for interval in ["10ms", "1s", "1h"] {
        let options = ["--aggregate", "--format", "jsonl", "--prefix4", "32", "--interval", interval];
        let groups = of_type(&replay(&packets, &options).stdout, "rtt.aggregate");
        let mut sums = BTreeMap::<(String, String), (u64, u64, u64)>::new();
        for group in &groups {
            let prefix = text(group, "prefix").strip_suffix("/32").unwrap();
            let key = (text(group, "method").to_owned(), prefix.to_owned());
            let sum = sums.entry(key).or_insert((0, u64::MAX, 0));
            sum.0 += number(group, "count");
            sum.1 = sum.1.min(number(group, "min_ns"));
            sum.2 = sum.2.max(number(group, "max_ns"));
            assert!(number(group, "count") > 0, "{group}");
        }
        let want: BTreeMap<_, _> = trips
            .iter()
            .map(|(key, values)| {
                let (min, max) = (values.iter().min().unwrap(), values.iter().max().unwrap());
                (key.clone(), (values.len() as u64, *min, *max))
            })
            .collect();
        assert_eq!(sums, want, "{interval}");
        if interval == "1h" {
            check(&groups[0], &trips.values().next().unwrap().clone());
        }
    }
}

#[test]
fn intervals_begin_with_the_first_packet_and_hold_their_own_samples() {
    let packets = spread();
    let samples = of_type(&replay(&packets, &["--format", "jsonl"]).stdout, "rtt.sample");
    let options = ["--aggregate", "--format", "jsonl", "--interval", "500ms"];
    let groups = of_type(&replay(&packets, &options).stdout, "rtt.aggregate");
    let mut before = String::new();
    for group in &groups {
        let end = text(group, "time");
        let last = group == groups.last().unwrap();
        let inside = samples.iter().filter(|sample| {
            let time = text(sample, "time");
            time >= before.as_str() && (time < end || last)
        });
        assert_eq!(number(group, "count"), inside.count() as u64, "{group}");
        before = end.to_owned();
    }
}

#[test]
fn groups_beyond_the_limit_are_counted_as_other() {
    let options = ["--aggregate", "--format", "jsonl", "--interval", "1h", "--max-groups"];
    let all = replay(&everyday(), &[&options[..], &["512"]].concat()).stdout;
    let few = replay(&everyday(), &[&options[..], &["3"]].concat()).stdout;
    let count = |told: &str| {
        let groups = of_type(told, "rtt.aggregate");
        groups.iter().map(|group| number(group, "count")).sum::<u64>()
    };
    assert_eq!(count(&few), count(&all));
    let groups = of_type(&few, "rtt.aggregate");
    // One of the three is `other`.
    assert_eq!(groups.len(), 3);
    let other = groups.last().unwrap();
    for key in ["interface", "method", "prefix"] {
        assert!(field(other, key).is_null(), "{other}");
    }
    let counted = |told: &str| number(of_type(told, "rtt.status").last().unwrap(), "aggregate_other");
    assert_eq!(counted(&few), number(other, "count"));
    assert_eq!(counted(&all), 0);
}

#[test]
fn a_summary_beside_aggregates_tells_both() {
    let run = replay(&everyday(), &["--summary", "--aggregate", "--format", "jsonl", "--interval", "1h"]);
    let count = |kind| {
        let lines = of_type(&run.stdout, kind);
        lines.iter().map(|line| number(line, "count")).sum::<u64>()
    };
    assert!(count("rtt.summary") > 0);
    assert_eq!(count("rtt.summary"), count("rtt.aggregate"));
}

#[test]
fn a_packet_with_a_wrong_time_leaves_the_intervals_after_it_whole() {
    // 30 pings of 10 ms each, and in the middle one packet from an hour later, or from
    // the beginning.
    for wrong_ms in [3_600_000.0, 0.0] {
        let mut packets = pings(30);
        packets.insert(31, echo(wrong_ms, Sender::Client, 9, 1));
        let options = ["--aggregate", "--format", "jsonl", "--interval", "50ms"];
        let groups = of_type(&replay(&packets, &options).stdout, "rtt.aggregate");
        let counts: Vec<_> = groups.iter().map(|group| number(group, "count")).collect();
        let length = |group: &Value| number(group, "interval_ns");
        assert!(groups[..groups.len() - 1].iter().all(|g| length(g) == 50_000_000));
        assert_eq!(counts.iter().sum::<u64>(), 30, "{counts:?}");
        assert_eq!(&counts[..3], [5; 3], "{counts:?}");
        assert!(counts[3..].iter().all(|count| *count <= 5), "{counts:?}");
        assert!((6..=8).contains(&counts.len()), "{counts:?}");
    }
}

#[test]
fn each_interval_as_jsonl_ends_with_what_was_counted_so_far() {
    let options = ["--aggregate", "--format", "jsonl", "--interval", "50ms"];
    let told = replay(&pings(12), &options).stdout;
    let lines: Vec<_> = objects(&told)
        .iter()
        .map(|line| match text(line, "type") {
            "rtt.status" => format!(
                "{} {} {} {}",
                text(line, "time"),
                line["last"],
                number(line, "packets"),
                number(line, "samples")
            ),
            kind => format!("{kind} {}", number(line, "count")),
        })
        .collect();
    assert_eq!(
        lines,
        [
            "rtt.aggregate 5",
            "2026-01-02T03:04:05.050000000Z false 10 5",
            "rtt.aggregate 5",
            "2026-01-02T03:04:05.100000000Z false 20 10",
            "rtt.aggregate 2",
            "2026-01-02T03:04:05.115000000Z true 24 12",
        ]
    );
}

#[test]
fn a_summary_is_sorted_by_a_figure_and_cut_and_says_what_it_left_out() {
    let ranked = |options: &[&str]| {
        let summary = replay(&spread(), &[&["--summary", "--format", "jsonl"], options].concat()).stdout;
        let lines = of_type(&summary, "rtt.summary");
        (lines, of_type(&summary, "rtt.status").pop().unwrap())
    };
    let (all, whole) = ranked(&["--by", "max"]);
    let longest: Vec<_> = all.iter().map(|line| number(line, "max_ns")).collect();
    assert!(longest.len() == 5 && longest.is_sorted_by(|a, b| a >= b), "{longest:?}");
    assert!(whole["counters"]["summary_lines_cut"].is_null(), "{whole}");
    let (first, cut) = ranked(&["--by", "max", "--top", "2"]);
    assert_eq!(first[..], all[..2]);
    assert_eq!(cut["counters"]["summary_lines_cut"], 3);
    let text = replay(&spread(), &["--summary", "--top", "2"]).stdout;
    assert!(text.lines().count() == 4 && text.ends_with("3 lines not shown, because of --top.\n"), "{text}");
    let without = dwell_reading(&["rtt", "-r", "-", "--top", "2"], &[]);
    assert_eq!(without.status, Some(2), "{without}");
    assert!(without.stderr.contains("--by and --top are for --summary"), "{without}");
}

#[test]
fn a_port_and_a_filter_must_both_hold() {
    let flows = |options: &[&str]| {
        let summary = replay(&everyday(), &[&["--summary", "--format", "jsonl"], options].concat()).stdout;
        let lines = of_type(&summary, "rtt.summary");
        lines.iter().map(|line| format!("{} {}", text(line, "src"), text(line, "method"))).collect::<Vec<_>>()
    };
    assert_eq!(flows(&["-p", "53"]), ["192.0.2.1 dns"]);
    assert_eq!(flows(&["-p", "40001"]), ["192.0.2.1 tcp-seq", "198.51.100.7 tcp-seq"]);
    assert_eq!(flows(&["-p", "443", "-f", "udp"]), ["192.0.2.1 quic-handshake"]);
    assert_eq!(flows(&["-p", "443", "-f", "udp or port 40000", "-f", "!192.0.2.1:50000"]).len(), 2);
    assert_eq!(flows(&["-p", "53", "-f", "tcp"]), [""; 0]);
}
