//! Captures recorded in the laboratory, with known delays, and captures that were computed, with known samples.

use std::{collections::BTreeMap, net::IpAddr, path::Path};

use dwell_engine::{
    histogram::Histogram,
    measure::{Method, Sample},
    rtt::Config,
};

use crate::support::{packets, replay};

const CLIENT_MS: f64 = 20.0;
const SERVER_MS: f64 = 5.0;

/// Distributions by interface, method and answering side.
type Sides = BTreeMap<(u32, Method, Side), Histogram>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Client,
    Server,
}

fn measure(file: &str) -> Sides {
    let mut sides = Sides::new();
    for sample in samples(file, &Config::default()) {
        let client: [IpAddr; 2] = ["10.77.1.1".parse().unwrap(), "fd00:77:1::1".parse().unwrap()];
        let side = if client.contains(&sample.dst.address) { Side::Client } else { Side::Server };
        let key = (sample.interface, sample.method, side);
        sides.entry(key).or_default().record(sample.rtt_ns);
    }
    sides
}

fn samples(file: &str, config: &Config) -> Vec<Sample> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures").join(file);
    replay(config, &packets(&path)).samples
}

/// Returns the round-trip times in a computed capture, in milliseconds.
fn computed(file: &str, method: Method) -> Vec<f64> {
    let by_seq = method == Method::TcpSeq;
    let methods = if by_seq { vec![Method::TcpSeq] } else { Method::ALL.to_vec() };
    let samples = samples(file, &Config { methods, ..Config::default() });
    let of_method = samples.iter().filter(|sample| sample.method == method);
    of_method.map(|sample| sample.rtt_ns as f64 / 1e6).collect()
}

#[track_caller]
fn assert_computed(file: &str, method: Method, count: usize, range_ms: std::ops::RangeInclusive<f64>) {
    let rtts_ms = computed(file, method);
    assert_eq!(rtts_ms.len(), count);
    let wrong = rtts_ms.iter().find(|rtt_ms| !range_ms.contains(rtt_ms));
    assert_eq!(wrong, None, "in ms");
}

/// Asserts the median. The emulator releases no packet early and most within a fraction of a millisecond; a round trip
/// passes it twice, a loop of the spin bit four times.
fn assert_median(sides: &Sides, key: (u32, Method, Side), truth_ms: f64, at_least: u64) {
    let histogram = sides.get(&key).unwrap_or_else(|| panic!("no samples of {key:?}"));
    let median_ms = histogram.quantile_ns(0.5).unwrap() as f64 / 1e6;
    assert!(histogram.count() >= at_least, "{key:?}: {} samples", histogram.count());
    let late_ms = if key.1 == Method::QuicSpinLoop { 1.0 } else { 0.5 };
    assert!(
        (truth_ms - 0.1..truth_ms + late_ms).contains(&median_ms),
        "{key:?}: median {median_ms} ms, truth {truth_ms} ms"
    );
}

#[test]
fn each_side_of_a_line_has_its_own_delay() {
    let sides = measure("line.pcap.gz");
    let server = |method| (0, method, Side::Server);
    let client = |method| (0, method, Side::Client);
    assert_median(&sides, server(Method::TcpTimestamp), SERVER_MS, 100);
    assert_median(&sides, client(Method::TcpTimestamp), CLIENT_MS, 100);
    assert_median(&sides, server(Method::Icmp), SERVER_MS, 37);
    assert_median(&sides, server(Method::Icmpv6), SERVER_MS, 40);
    assert_median(&sides, server(Method::Dns), SERVER_MS, 50);
    assert_median(&sides, server(Method::QuicSpin), SERVER_MS, 100);
    assert_median(&sides, client(Method::QuicSpin), CLIENT_MS, 100);
    assert_median(&sides, server(Method::QuicSpinLoop), CLIENT_MS + SERVER_MS, 100);
    assert_median(&sides, client(Method::QuicSpinLoop), CLIENT_MS + SERVER_MS, 100);
    // The server has to do its cryptography first.
    let handshakes = &sides[&server(Method::QuicHandshake)];
    assert_eq!(handshakes.count(), 2);
    assert!(handshakes.min_ns().unwrap() > 5_000_000);
    assert!(handshakes.max_ns().unwrap() < 10_000_000);
}

#[test]
fn a_packet_seen_on_two_interfaces_is_no_retransmission() {
    let sides = measure("any-interface-no-timestamps.pcap.gz");
    for interface in [2, 3] {
        assert_median(&sides, (interface, Method::TcpSeq, Side::Server), SERVER_MS, 99);
        assert_median(&sides, (interface, Method::TcpSeq, Side::Client), CLIENT_MS, 6);
    }
}

#[test]
fn one_direction_gives_no_round_trip() {
    assert_eq!(measure("one-direction.pcap.gz"), Sides::new());
}

#[test]
fn connections_within_one_tick_of_their_clock_are_measured() {
    assert_computed("one-tick-connections.pcap.gz", Method::TcpTimestamp, 200, 0.009..=0.201);
}

#[test]
fn an_echo_request_that_repeats_its_number_is_measured() {
    assert_computed("one-echo-number.pcap.gz", Method::Icmp, 60, 9.999..=10.001);
}

#[test]
fn pipelined_small_segments_are_measured() {
    assert_computed("small-segments.pcap.gz", Method::TcpSeq, 2000, 49.999..=50.001);
}

#[test]
fn the_ack_of_data_and_fin_is_measured() {
    assert_eq!(computed("ack-of-data-and-fin.pcap.gz", Method::TcpSeq), [10.0, 11.0, 12.0]);
}

#[test]
fn a_slow_quic_handshake_does_not_silence_the_spin_bit() {
    assert_computed("quic-slow-handshake.pcap.gz", Method::QuicSpin, 2426, 1.0..=50.0);
}

#[test]
fn connections_of_equal_addresses_and_ports_in_two_vlans_do_not_mix() {
    let config = Config { tcp_auto: true, ..Config::default() };
    let mut found = BTreeMap::new();
    for sample in samples("two-vlans.pcap.gz", &config).iter().filter(|sample| sample.dst.port == 443) {
        let (count, rtts_ms): &mut (u32, Vec<u64>) = found.entry(sample.tunnel.to_string()).or_default();
        *count += 1;
        rtts_ms.push(sample.rtt_ns / 1_000_000);
        rtts_ms.dedup();
    }
    let want = [("vlan 100".to_owned(), (50, vec![10])), ("vlan 200".to_owned(), (50, vec![35]))];
    assert_eq!(found, BTreeMap::from(want));
}
