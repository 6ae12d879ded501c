//! Crafted captures of one direction, each with a known latency.

use std::path::Path;

use dwell_capture::Reader;
use dwell_engine::{
    observe::Observation,
    response::{Config, Estimate, Reason, Tracker, Watch, estimate},
};

/// Returns the estimates of all epochs of a capture whose times are moved by `shift_ns`.
fn estimates(file: &str, shift_ns: u64) -> Vec<Estimate> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures").join(file);
    let mut reader = Reader::open(&path).unwrap();
    let mut tracker = Tracker::new(&Watch::default());
    let (mut records, mut last_ns) = (Vec::new(), 0);
    while let Some(packet) = reader.next_packet().unwrap() {
        last_ns = packet.time_ns + shift_ns;
        let observation = Observation {
            time_ns: last_ns,
            interface: packet.interface,
            link: packet.link.0,
            data: packet.data,
            wire_len: packet.wire_len,
        };
        tracker.observe(&observation, |record| records.push(record));
    }
    tracker.finish(last_ns, |record| records.push(record));
    let config = Config::default();
    records.iter().map(|record| estimate(&config, &record.epoch)).collect()
}

/// Asserts that epochs are believed, and are within a twentieth of the truth.
#[track_caller]
fn assert_truth(file: &str, truth_ms: f64, share: f64) {
    let made = estimates(file, 0);
    let believed: Vec<f64> = made
        .iter()
        .filter(|made| made.is_valid() && made.confidence >= 0.7)
        .map(|made| made.response_ns.unwrap() as f64 / 1e6)
        .collect();
    assert!(believed.len() as f64 >= share * made.len() as f64, "{file}: {made:?}");
    for ms in believed {
        assert!((ms / truth_ms - 1.0).abs() < 0.05, "{file}: {ms} ms, truth {truth_ms} ms");
    }
}

#[test]
fn a_loop_of_requests_is_measured() {
    assert_truth("get-loop.pcap.gz", 20.0, 1.0);
}

#[test]
fn a_request_in_two_packets_is_one() {
    assert_truth("one-request-in-two-packets.pcap.gz", 20.0, 1.0);
}

#[test]
fn requests_in_one_packet_are_counted() {
    // Answers came after 10, 20, 30 and 40 ms.
    assert_truth("four-requests-in-one-packet.pcap.gz", 25.0, 0.8);
}

#[test]
fn the_body_of_a_request_is_not_a_request() {
    // Each answer comes in six pieces, the last after 30 ms.
    assert_truth("get-with-a-body.pcap.gz", 30.0, 0.8);
}

#[test]
fn an_ack_that_may_be_delayed_is_no_end_of_an_answer() {
    // There are no timestamps: nothing shows when the answers came, which took 4.9 ms.
    let made = estimates("delayed-acks.pcap.gz", 0);
    assert!(made.iter().all(|made| made.reason == Some(Reason::DelayedAck)), "{made:?}");
}

#[test]
fn the_ack_number_of_a_reset_means_nothing_without_its_flag() {
    assert_truth("reset-low.pcap.gz", 10.5, 0.5);
    assert_truth("reset-high.pcap.gz", 10.5, 0.5);
}

#[test]
fn nothing_depends_on_where_the_clock_begins() {
    for file in ["get-loop.pcap.gz", "one-request-in-two-packets.pcap.gz", "delayed-acks.pcap.gz"] {
        let here = estimates(file, 0);
        for seconds in [1, 100, 275, 100_000] {
            assert_eq!(estimates(file, seconds * 1_000_000_000), here, "{file}");
        }
    }
}
