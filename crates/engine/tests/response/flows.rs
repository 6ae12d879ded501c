//! Which packets belong to a flow, and which flows stay in the table.

use dwell_engine::{
    observe::Observation,
    response::{Config, Estimator, Key, Record, Tracker, Watch},
    rtt::Counter,
};
use etherparse::PacketBuilder;

use crate::support::{MS, START};

/// Returns a datagram of the client 10.0.0.1 to its server.
fn datagram(port: u16, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(port, 443);
    let mut bytes = Vec::new();
    builder.write(&mut bytes, payload).unwrap();
    bytes
}

/// Returns a packet with a short header; what follows the connection ID looks encrypted.
fn short(port: u16, cid: &[u8], number: u64) -> Vec<u8> {
    let noise = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let payload = [&[0x40], cid, &noise, &[7; 200]].concat();
    datagram(port, &payload)
}

/// Returns the first packet of a connection.
fn initial(port: u16) -> Vec<u8> {
    let mut payload = vec![0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8];
    payload.resize(1200, 0);
    datagram(port, &payload)
}

struct Seen {
    tracker: Tracker,
    records: Vec<Record>,
    last_ns: u64,
}

impl Seen {
    fn new(key: Key, max_flows: u32) -> Seen {
        let watch = Watch {
            config: Config { estimator: Estimator::Pirate, ..Config::default() },
            key,
            max_flows,
            ..Watch::default()
        };
        Seen { tracker: Tracker::new(&watch), records: Vec::new(), last_ns: START }
    }

    fn packet(&mut self, time_ns: u64, data: &[u8]) {
        self.framed(time_ns, 101, data);
    }

    fn framed(&mut self, time_ns: u64, link: u32, data: &[u8]) {
        let packet = Observation { time_ns, interface: 1, link, data, wire_len: data.len() as u32 };
        let records = &mut self.records;
        self.tracker.observe(&packet, |record| records.push(record));
        self.last_ns = time_ns;
    }

    fn finish(mut self) -> Vec<Record> {
        let (records, last_ns) = (&mut self.records, self.last_ns);
        self.tracker.finish(last_ns, |record| records.push(record));
        self.records
    }
}

/// Uses two connection IDs one after the other, and then another port.
fn migrating(key: Key, begin: &[u8], cids: [&[u8]; 2], pause_ms: u64) -> Vec<Record> {
    let mut seen = Seen::new(key, 64);
    seen.packet(START, begin);
    for (number, cid) in (1..=40).map(|number| (number, cids[usize::from(number > 20)])) {
        seen.packet(START + number * MS, &short(5000, cid, number));
    }
    for number in 41..=60 {
        let time_ns = START + (number + pause_ms) * MS;
        seen.packet(time_ns, &short(5001, cids[1], number));
    }
    seen.finish()
}

/// Returns what encloses each flow, from one client and server in these VLANs; 0 is none.
fn tunnels(vlans: &[u16], ignore_tunnels: bool) -> Vec<String> {
    let watch = Watch { ignore_tunnels, max_flows: 64, ..Watch::default() };
    let mut seen = Seen { tracker: Tracker::new(&watch), records: Vec::new(), last_ns: START };
    for number in 0..40 {
        for &vlan in vlans {
            let tag = [[0x81, 0], vlan.to_be_bytes()].concat();
            let tag = if vlan == 0 { &[] } else { &tag[..] };
            let data = [&[2; 12], tag, &[8, 0], &datagram(5000, &[number; 100])].concat();
            seen.framed(START + u64::from(number) * MS, 1, &data);
        }
    }
    let records = seen.finish();
    assert!(records.iter().all(|record| record.interface == 1));
    let mut found: Vec<_> = records.iter().map(|record| record.tunnel.to_string()).collect();
    found.sort();
    found
}

#[test]
fn equal_flows_in_different_vlans_do_not_mix() {
    assert_eq!(tunnels(&[7, 8, 0], false), ["none", "vlan 7", "vlan 8"]);
}

#[test]
fn a_capture_of_all_interfaces_has_a_flow_for_each() {
    let mut seen = Seen::new(Key::Auto, 64);
    for number in 0..40 {
        for interface in [2, 3] {
            let head = [8, 0, 0, 0, 0, 0, 0, interface, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0];
            let data = [&head, &datagram(5000, &[number; 100])[..]].concat();
            seen.framed(START + u64::from(number) * MS, 276, &data);
        }
    }
    let mut found: Vec<_> = seen.finish().iter().map(|record| (record.interface, record.epoch.packets)).collect();
    found.sort();
    assert_eq!(found, [(2, 40), (3, 40)]);
}

#[test]
fn a_flow_may_change_its_vlan_if_tunnels_are_ignored() {
    assert_eq!(tunnels(&[7, 8, 0], true), ["none"]);
}

#[test]
fn a_connection_keeps_its_flow_when_id_and_ends_change() {
    for (key, begin) in [(Key::Auto, initial(5000)), (Key::QuicCid, short(5000, b"aaaaaaaa", 0))] {
        let records = migrating(key, &begin, [b"aaaaaaaa", b"bbbbbbbbcc"], 100);
        let [record] = &records[..] else {
            panic!("{key:?}: {records:?}");
        };
        assert_eq!((record.key, record.epoch.packets), (Key::QuicCid, 61));
        assert_eq!(record.src.port, 5001);
        // The gap over the change of endpoints belongs to the connection too.
        assert_eq!(record.epoch.gaps_ns, 160 * MS);
    }
}

#[test]
fn a_connection_that_comes_back_to_its_old_ends_is_one_flow_still() {
    let mut seen = Seen::new(Key::Auto, 64);
    seen.packet(START, &initial(5000));
    for (phase, port) in [(0, 5000), (1, 5001), (2, 5000)] {
        for number in 1..=20 {
            let time_ns = START + (phase * 150 + number) * MS;
            seen.packet(time_ns, &short(port, b"aaaaaaaa", phase * 20 + number));
        }
    }
    let records = seen.finish();
    let packets: Vec<u32> = records.iter().map(|record| record.epoch.packets).collect();
    assert_eq!(packets, [61], "{records:?}");
}

#[test]
fn connections_are_not_mistaken_for_one_another() {
    let packets = |records: Vec<Record>| -> Vec<(u16, u32)> {
        let of = |record: &Record| (record.src.port, record.epoch.packets);
        let mut packets: Vec<_> = records.iter().map(of).collect();
        packets.sort_unstable();
        packets
    };
    let apart = [(5000, 41), (5001, 20)];
    // Too short to be recognized, and then followed by different bytes each time.
    let short_ids = migrating(Key::Auto, &initial(5000), [b"aaaa", b"bbbb"], 100);
    assert_eq!(packets(short_ids), apart);
    // Both endpoints are in use: what they share is the start of an ID.
    let both = migrating(Key::Auto, &initial(5000), [b"aaaaaaaa", b"bbbbbbbb"], 0);
    assert_eq!(packets(both), apart);
    // Nothing indicates that this is QUIC.
    let other = short(5000, b"aaaaaaaa", 0);
    let other = migrating(Key::Auto, &other, [b"aaaaaaaa", b"bbbbbbbb"], 100);
    assert!(other.iter().all(|record| record.key == Key::FiveTuple));
    assert_eq!(packets(other), apart);
}

/// As after `sysctl net.ipv4.ip_local_port_range="1024 65535"`, on a connection that is older than the look.
#[test]
fn of_two_ports_that_a_server_may_have_the_lower_one_is_the_server_s() {
    for (client, server) in [(20_000, 8081), (40_000, 8081), (1_500, 443)] {
        for servers_are_first in [true, false] {
            let mut seen = Seen::new(Key::FiveTuple, 64);
            for number in 0..10_u64 {
                let is_of_server = servers_are_first == number.is_multiple_of(2);
                let (from, to, ports) = match is_of_server {
                    true => ([10, 0, 0, 2], [10, 0, 0, 1], (server, client)),
                    false => ([10, 0, 0, 1], [10, 0, 0, 2], (client, server)),
                };
                let mut bytes = Vec::new();
                let builder = PacketBuilder::ipv4(from, to, 64).tcp(ports.0, ports.1, number as u32, 1000).ack(1);
                builder.write(&mut bytes, &[0; 100]).unwrap();
                seen.packet(START + number * 5 * MS, &bytes);
            }
            let records = seen.finish();
            assert!(records.iter().all(|record| (record.src.port, record.dst.port) == (client, server)), "{records:?}");
            assert!(!records.is_empty());
        }
    }
}

#[test]
fn a_flood_of_single_packets_evicts_no_flow_that_was_there() {
    let mut seen = Seen::new(Key::Auto, 1000);
    let request = |client: u16| {
        let builder = PacketBuilder::ipv4([10, 1, (client >> 8) as u8, client as u8], [10, 0, 0, 2], 64);
        let mut bytes = Vec::new();
        builder.tcp(40000, 443, 1, 1000).ack(1).write(&mut bytes, &[0; 100]).unwrap();
        bytes
    };
    let flood = |number: u32, syn: bool| {
        let [a, b, c, d] = (0x0b00_0000 + number).to_be_bytes();
        let builder = PacketBuilder::ipv4([a, b, c, d], [10, 0, 0, 2], 64);
        let mut bytes = Vec::new();
        match syn {
            true => builder.tcp(1234, 443, 1, 1000).syn().write(&mut bytes, &[]),
            false => builder.udp(1234, 443).write(&mut bytes, &[0; 30]),
        }
        .unwrap();
        bytes
    };
    // 500 clients with occasional requests, and pauses of more than a second.
    let (seconds, clients) = (8, 500u16);
    let mut number = 0;
    for tick in 0..seconds * 1000 {
        let now_ns = START + tick * MS;
        for client in (0..clients).filter(|client| u64::from(*client) % 1300 == tick % 1300) {
            seen.packet(now_ns, &request(client));
        }
        // A million other flows after four seconds.
        if tick >= 5000 {
            for _ in 0..334 {
                number += 1;
                seen.packet(now_ns, &flood(number, number % 2 == 0));
            }
        }
    }
    assert!(number > 1_000_000);
    let evicted = seen.tracker.counters().get(Counter::FlowsEvicted);
    assert!(evicted > 1000, "the flood makes room for itself: {evicted}");
    let mut seen_of = vec![(0, 0); usize::from(clients)];
    for record in seen.finish() {
        if let std::net::IpAddr::V4(address) = record.src.address
            && let [10, 1, high, low] = address.octets()
        {
            let seen = &mut seen_of[usize::from(high) << 8 | usize::from(low)];
            *seen = (seen.0 + record.epoch.requests, seen.1 + record.epoch.gaps);
        }
    }
    // An eviction would cost a gap.
    let broken = seen_of.iter().filter(|seen| seen.0 != seen.1 + 1).count();
    assert_eq!(broken, 0, "of {clients}: {:?}", seen_of[0]);
    assert!(seen_of.iter().all(|(requests, _)| *requests >= 6));
}

#[test]
fn packets_of_epochs_that_have_no_record_are_counted() {
    let mut seen = Seen::new(Key::FiveTuple, 64);
    for client in 0..10 {
        seen.packet(START, &datagram(4000 + client, &[0; 30]));
        seen.packet(START + MS, &datagram(5000, &[0; 30]));
    }
    let mut recorded = Vec::new();
    seen.tracker.finish(seen.last_ns, |record| recorded.push((record.src.port, record.epoch.packets)));
    assert_eq!((recorded, seen.tracker.counters().get(Counter::Unreported)), (vec![(5000, 10)], 10));
}

#[test]
fn places_of_flows_that_are_over_go_to_others_again_and_again() {
    let mut seen = Seen::new(Key::FiveTuple, 64);
    let mut time_ns = START;
    for round in 0..20 {
        for flow in 0..60 {
            seen.packet(time_ns, &datagram(1024 + round * 60 + flow, &[0; 50]));
        }
        let tracked = seen.tracker.counters().get(Counter::FlowsOpened);
        assert!(tracked >= u64::from(round + 1) * 57, "{round}: {tracked}");
        for _ in 0..64 {
            time_ns += 60_000 * MS;
            seen.tracker.sweep(time_ns, drop);
        }
    }
}

#[test]
fn what_an_epoch_has_depends_neither_on_addresses_nor_on_when_its_end_is_noticed() {
    let epochs = |client: u8| {
        let frame = |seq: u32, payload: u32, ack: u32| {
            let builder = PacketBuilder::ipv4([10, 0, 0, client], [10, 0, 1, 1], 64).tcp(40000, 80, seq, 500).ack(ack);
            let mut data = Vec::new();
            builder.write(&mut data, &vec![7; payload as usize]).unwrap();
            data
        };
        let watch = Watch { max_flows: 1000, ..Watch::default() };
        let mut seen = Seen { tracker: Tracker::new(&watch), records: Vec::new(), last_ns: START };
        // Answers end, and requests follow, at all times before and after the ends of epochs.
        for turn in 0..600 {
            let (asked_ns, latency_ns) =
                (seen.last_ns + (5 + u64::from(turn) * 53 % 211) * MS, (7 + u64::from(turn) * 37 % 60) * MS);
            for time_ns in (seen.last_ns..asked_ns).step_by(MS as usize) {
                let records = &mut seen.records;
                seen.tracker.sweep(time_ns, |record| records.push(record));
            }
            seen.packet(asked_ns, &frame(1 + 300 * turn, 300, 1 + 5000 * turn));
            seen.packet(asked_ns + latency_ns, &frame(301 + 300 * turn, 0, 5001 + 5000 * turn));
        }
        let figures = |record: Record| (record.epoch.start_ns, record.epoch.answered, record.epoch.answered_ns);
        seen.finish().into_iter().map(figures).collect::<Vec<_>>()
    };
    let first = epochs(1);
    assert!(first.len() > 60);
    for client in 2..30 {
        assert_eq!(epochs(client), first, "client {client}");
    }
}
