//! Captures made to break programs: each packet is counted exactly once, whatever it is.

use std::fs;

use dwell_engine::{measure::Method, rtt::Counter};
use serde_json::Value;

use crate::support::{Packet, Replay, folder, only, packets, replay};

/// Returns the number of packets that were skipped for any reason.
fn passed_over(replay: &Replay) -> u64 {
    let skips = &Counter::ALL[Counter::NotIp as usize..=Counter::UnknownLink as usize];
    skips.iter().chain(&[Counter::Untracked]).map(|counter| replay.counters.get(*counter)).sum()
}

fn listed() -> Option<Vec<(String, Vec<Packet>, Value)>> {
    let folder = folder()?;
    let text = fs::read(folder.join("refs/nasty_A.json")).unwrap();
    let references: Vec<Value> = serde_json::from_slice(&text).unwrap();
    let read = |reference: Value| {
        let file = reference["file"].as_str().unwrap();
        let name = file.rsplit_once('/').unwrap().1;
        let packets = packets(&folder.join("nasty").join(name));
        (name.to_owned(), packets, reference)
    };
    Some(references.into_iter().map(read).collect())
}

#[test]
fn each_packet_is_counted() {
    let Some(files) = listed() else { return };
    assert_eq!(files.len(), 34);
    for (name, packets, reference) in files {
        let mut frames = reference["obs"]["tshark_frames"].as_u64().unwrap();
        if reference["id"] == "N04" {
            frames -= 3; // custom blocks, which tshark lists as well
        }
        let replay = replay(&only(&Method::ALL), &packets);
        assert_eq!(replay.counters.get(Counter::Packets), frames, "{name}");
        assert!(passed_over(&replay) <= frames, "{name}");
        let seen: u64 = packets.iter().map(|packet| u64::from(packet.wire_len)).sum();
        assert_eq!(replay.counters.get(Counter::Bytes), seen, "{name}");
    }
}

#[test]
fn what_makes_them_nasty_is_counted_by_its_reason() {
    let Some(files) = listed() else { return };
    for (id, counter, times) in [
        ("N18", Counter::OtherProtocol, 0), // offloaded, length 0: it is taken
        ("N19", Counter::OtherProtocol, 1),
        ("N24", Counter::Truncated, 1),
        ("N25", Counter::Truncated, 1),
        ("N21", Counter::UnknownLink, 179),
    ] {
        let (name, packets, _) = files.iter().find(|(_, _, reference)| reference["id"] == id).unwrap();
        let replay = replay(&only(&Method::ALL), packets);
        assert_eq!(replay.counters.get(counter), times, "{name}");
    }
    // fragments of both families
    for id in ["N09", "N26"] {
        let (name, packets, _) = files.iter().find(|(_, _, reference)| reference["id"] == id).unwrap();
        let replay = replay(&only(&Method::ALL), packets);
        assert!(replay.counters.get(Counter::Fragment) > 0, "{name}");
    }
}

#[test]
fn other_encapsulations_give_samples() {
    let Some(files) = listed() else { return };
    for (id, method) in [
        ("N07", Method::TcpTimestamp), // SLL2
        ("N08", Method::TcpTimestamp), // SLL
        ("N09", Method::TcpTimestamp), // VLAN
        ("N10", Method::Icmp),         // QinQ
        ("N11", Method::Icmp),         // MPLS
        ("N12", Method::Icmpv6),       // 6in4
    ] {
        let (name, packets, _) = files.iter().find(|(_, _, reference)| reference["id"] == id).unwrap();
        let samples = replay(&only(&[method]), packets).samples;
        assert!(!samples.is_empty(), "{name}: no {method}");
    }
}

#[test]
fn spoilt_bytes_do_no_harm() {
    let Some(files) = listed() else { return };
    let mut dice = 1u64;
    let mut roll = move |sides: usize| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (dice >> 33) as usize % sides.max(1)
    };
    for (_, packets, _) in files {
        for _ in 0..20 {
            let mut spoilt = packets.clone();
            for packet in &mut spoilt {
                for _ in 0..3 {
                    let at = roll(packet.data.len());
                    if let Some(byte) = packet.data.get_mut(at) {
                        *byte = roll(256) as u8;
                    }
                }
                if roll(4) == 0 {
                    let kept = roll(packet.data.len() + 1);
                    packet.data.truncate(kept);
                    packet.data.shrink_to_fit();
                }
            }
            let replay = replay(&only(&Method::ALL), &spoilt);
            assert_eq!(replay.counters.get(Counter::Packets), spoilt.len() as u64);
        }
    }
}
