//! Each packet is counted exactly once, whatever its bytes are.

use dwell_engine::rtt::{Config, Counter, Tracker};
use proptest::prelude::*;

use crate::{
    links::{EXTENSIONS, WRAPS, extended},
    wire::{ETHERNET, Frame, Side, client, ethernet, frame, observe, small, udp},
};

/// Returns how often the packet was counted: skipped for some reason, without a slot, or as the packet that opened its
/// flow.
fn times_counted(frame: &Frame) -> u64 {
    let config = Config { max_flows: 4, ..small() };
    let mut tracker = Tracker::new(&config);
    observe(&mut tracker, frame, |_| ());
    let counters = tracker.counters();
    assert_eq!(counters.get(Counter::Packets), 1);
    assert_eq!(counters.get(Counter::Bytes), u64::from(frame.wire_len));
    let skips = &Counter::ALL[Counter::NotIp as usize..=Counter::Stray as usize];
    let others = [Counter::Untracked, Counter::Contended, Counter::FlowsOpened];
    skips.iter().chain(&others).map(|counter| counters.get(*counter)).sum()
}

/// TCP with options, ICMP, DNS and both QUIC headers.
fn packets() -> Vec<Vec<u8>> {
    let dns = [&[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3][..], b"www\x07example\0", &[0, 1, 0, 1]];
    let echo = [8, 0, 0, 0, 0, 7, 0, 1, 9, 9, 9, 9];
    let mut icmp = udp(Side::Client, 1, 2, &echo[8..]);
    icmp[9] = 1;
    icmp[20..].copy_from_slice(&echo);
    vec![
        client(0.0).data(100, 20).ack(1).ts(5, 1).ip_packet(),
        client(0.0).seq(100).ack(1).ts(5, 1).sack(3, 9).ip_packet(),
        client(0.0).data(100, 20).ack(1).ipv6().ip_packet(),
        extended(&client(0.0).data(100, 20).ack(1).ts(5, 1), &EXTENSIONS),
        icmp,
        udp(Side::Client, 4000, 53, &dns.concat()),
        udp(Side::Client, 4000, 443, &[0x40; 30]),
        udp(Side::Client, 4000, 443, &[&[0xc0, 0, 0, 0, 1][..], &[8; 30]].concat()),
    ]
}

#[test]
fn a_packet_cut_at_any_byte_is_counted_once_and_as_truncated() {
    for (name, wrap) in WRAPS {
        for ip in packets() {
            let (link, data) = wrap(&ip);
            let whole = frame(0.0, link, data);
            assert_eq!(times_counted(&whole), 1, "{name}");
            for length in 0..whole.data.len() {
                let mut cut = whole.clone();
                cut.data.truncate(length);
                cut.data.shrink_to_fit();
                assert_eq!(times_counted(&cut), 1, "{name}, {length} bytes kept");
            }
        }
    }
}

#[test]
fn a_header_that_is_cut_off_is_called_truncated() {
    for ip in packets() {
        let whole = frame(0.0, ETHERNET, ethernet(&ip));
        let mut reasons = Vec::new();
        for length in 0..=whole.data.len() {
            let mut tracker = Tracker::new(&small());
            let mut cut = whole.clone();
            cut.data.truncate(length);
            observe(&mut tracker, &cut, |_| ());
            reasons.push(tracker.counters().get(Counter::Truncated));
        }
        // The packet is truncated up to some length, and complete enough from there on.
        let enough = reasons.iter().position(|count| *count == 0).unwrap();
        assert!(enough > 14 + 20, "{enough}");
        assert!(reasons[enough..].iter().all(|count| *count == 0));
    }
}

#[test]
fn a_packet_that_ends_early_on_the_wire_is_counted_once() {
    for (name, wrap) in WRAPS {
        for ip in packets() {
            let (link, data) = wrap(&ip);
            for length in 0..data.len() {
                let short = frame(0.0, link, data[..length].to_vec());
                assert_eq!(times_counted(&short), 1, "{name}, {length} bytes");
            }
        }
    }
}

proptest! {
    #[test]
    fn spoilt_bytes_are_counted_once(
        wrap in 0..WRAPS.len(),
        packet in 0usize..8,
        spoilt in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        kept in any::<prop::sample::Index>(),
    ) {
        let (link, data) = WRAPS[wrap].1(&packets()[packet]);
        let mut frame = frame(0.0, link, data);
        for (at, byte) in spoilt {
            let length = frame.data.len();
            frame.data[at.index(length)] = byte;
        }
        frame.data.truncate(1 + kept.index(frame.data.len()));
        prop_assert_eq!(times_counted(&frame), 1);
    }

    #[test]
    fn bytes_without_sense_are_counted_once(
        link in prop::sample::select(vec![0u32, 1, 12, 14, 101, 108, 113, 228, 229, 276, 999]),
        data in prop::collection::vec(any::<u8>(), 0..200),
        more in 0u32..2000,
    ) {
        let mut frame = frame(0.0, link, data);
        frame.wire_len += more;
        prop_assert_eq!(times_counted(&frame), 1);
    }
}
