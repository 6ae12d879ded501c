//! Captures that give nothing say why, in one sentence.

use std::fs;

use crate::{
    support::dwell,
    wire::{Packet, Segment, Sender, capture, everyday, tcp, udp},
};

/// Returns the last lines on standard error of a verb that reads these packets, from a file that is always called `x.pcap`.
fn why(verb: &str, packets: &[Packet], options: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pcap");
    fs::write(&path, capture(packets)).unwrap();
    let path = path.to_str().unwrap();
    let run = dwell(&[&[verb, "-n", "-r", path], options].concat());
    assert!(run.stdout.is_empty() && run.stderr.lines().count() <= 2, "{run}");
    run.stderr.lines().nth(1).unwrap_or_default().replace(path, "x.pcap")
}

/// What an end sends on connections of which only that passes.
fn one_way(from: Sender, connections: u16) -> Vec<Packet> {
    let segments = |number: u16| {
        (0..5).map(move |index: u16| {
            let (seq, ack) = (1_000 + 100 * u32::from(index), 5_000);
            let segment =
                Segment { client_port: 40_000 + number, flags: "A", seq, ack, payload: 100, ts: Some((100, 900)) };
            tcp(f64::from(index), from, segment)
        })
    };
    (0..connections).flat_map(segments).collect()
}

#[test]
fn a_round_trip_needs_both_directions() {
    insta::assert_snapshot!(why("rtt", &one_way(Sender::Client, 1), &[]), @"dwell: x.pcap: all 5 packets of TCP go from 192.0.2.1:40000 to 198.51.100.7:443: a round trip needs both directions; from what clients send alone `dwell response -r x.pcap` estimates");
    insta::assert_snapshot!(why("rtt", &one_way(Sender::Client, 3), &[]), @"dwell: x.pcap: all 15 packets of TCP go one way, of 3 connections, as from 192.0.2.1:40000 to 198.51.100.7:443: a round trip needs both directions; from what clients send alone `dwell response -r x.pcap` estimates");
}

#[test]
fn a_response_needs_what_clients_send() {
    insta::assert_snapshot!(why("response", &one_way(Sender::Server, 1), &[]), @"dwell: x.pcap: all 5 packets of TCP go from 198.51.100.7:443 to 192.0.2.1:40000, which is the client: nothing that a client sends was captured; --server says which end is the server");
}

#[test]
fn a_filter_may_leave_out_everything() {
    for verb in ["rtt", "response"] {
        let why = why(verb, &everyday(), &["--filter", "203.0.113.0/24"]);
        assert_eq!(
            why,
            "dwell: x.pcap: the filter (--filter, --port) leaves out all 25 packets that could be measured"
        );
    }
}

#[test]
fn other_protocols_are_not_measured() {
    let packets: Vec<Packet> =
        (0..3_u8).map(|number| udp(f64::from(number), Sender::Client, 40_000, 9_999, &[number; 5])).collect();
    insta::assert_snapshot!(why("rtt", &packets, &[]), @"dwell: x.pcap: none of the 3 packets is of TCP, QUIC, DNS or ICMP echo");
}

#[test]
fn what_was_measured_needs_no_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pcap");
    fs::write(&path, capture(&everyday())).unwrap();
    let run = dwell(&["rtt", "-n", "-r", path.to_str().unwrap()]);
    assert_eq!(run.stderr.lines().count(), 1, "{run}");
}
