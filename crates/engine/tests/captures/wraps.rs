//! Sequence numbers and TSvals that are made to wrap in the middle give the same samples.

use std::collections::BTreeMap;

use dwell_engine::{measure::Method, rtt::Config};

use crate::support::{Packet, capture, only, packets, replay};

/// Offsets in an Ethernet frame with TCP.
struct Tcp {
    from: Vec<u8>,
    to: Vec<u8>,
    /// The offset of the TCP header.
    at: usize,
    /// The offset of TSval.
    ts: Option<usize>,
    has_ack: bool,
}

fn tcp(packet: &Packet) -> Option<Tcp> {
    let data = &packet.data;
    let (at, source, destination) = match (data[12], data[13]) {
        (0x08, 0x00) if data[23] == 6 => {
            let at = 14 + usize::from(data[14] & 15) * 4;
            (at, &data[26..30], &data[30..34])
        }
        (0x86, 0xdd) if data[20] == 6 => (54, &data[22..38], &data[38..54]),
        _ => return None,
    };
    let end = at + usize::from(data[at + 12] >> 4) * 4;
    let (mut option, mut ts) = (at + 20, None);
    while option < end && data[option] != 0 {
        match data[option] {
            1 => option += 1,
            kind => {
                if kind == 8 {
                    ts = Some(option + 2);
                }
                option += usize::from(data[option + 1]);
            }
        }
    }
    Some(Tcp {
        from: [source, &data[at..at + 2]].concat(),
        to: [destination, &data[at + 2..at + 4]].concat(),
        at,
        ts,
        has_ack: data[at + 13] & 16 != 0,
    })
}

fn read(packet: &Packet, at: usize) -> u32 {
    u32::from_be_bytes(packet.data[at..at + 4].try_into().unwrap())
}

fn add(packet: &mut Packet, at: usize, more: u32) {
    let value = read(packet, at).wrapping_add(more);
    packet.data[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Returns the number to add to each sender's values so that their median becomes zero.
fn offsets(values: &BTreeMap<Vec<u8>, Vec<u32>>) -> BTreeMap<Vec<u8>, u32> {
    values.iter().map(|(end, values)| (end.clone(), 0u32.wrapping_sub(values[values.len() / 2]))).collect()
}

fn wrapped(packets: &[Packet], ts: bool, seq: bool) -> Vec<Packet> {
    let (mut tsvals, mut seqs) = (BTreeMap::new(), BTreeMap::new());
    for packet in packets {
        let Some(tcp) = tcp(packet) else { continue };
        let add = |all: &mut BTreeMap<_, Vec<u32>>, at| {
            all.entry(tcp.from.clone()).or_default().push(read(packet, at));
        };
        add(&mut seqs, tcp.at + 4);
        if let Some(at) = tcp.ts {
            add(&mut tsvals, at);
        }
    }
    let (tsvals, seqs) = (offsets(&tsvals), offsets(&seqs));
    let mut packets = packets.to_vec();
    for packet in &mut packets {
        let Some(tcp) = tcp(packet) else { continue };
        if let (true, Some(at)) = (ts, tcp.ts) {
            add(packet, at, tsvals[&tcp.from]);
            if read(packet, at + 4) != 0 {
                add(packet, at + 4, tsvals[&tcp.to]);
            }
        }
        if seq {
            add(packet, tcp.at + 4, seqs[&tcp.from]);
            if tcp.has_ack {
                add(packet, tcp.at + 8, seqs[&tcp.to]);
            }
        }
    }
    packets
}

#[test]
fn wraps_change_no_sample() {
    for id in ["A01", "A09"] {
        let Some(capture) = capture(id) else { return };
        let original = packets(&capture.path);
        for method in [Method::TcpTimestamp, Method::TcpSeq] {
            for extras in [false, true] {
                let config = Config { include_handshake: extras, stamp_acks: extras, ..only(&[method]) };
                let expected = replay(&config, &original).samples;
                assert!(expected.len() > 100);
                for (ts, seq) in [(true, false), (false, true), (true, true)] {
                    let moved = wrapped(&original, ts, seq);
                    assert_eq!(replay(&config, &moved).samples, expected, "{id} {method}");
                }
            }
        }
    }
}
