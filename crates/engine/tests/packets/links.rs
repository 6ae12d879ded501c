//! Headers around an IP packet: link headers, tags, tunnels, options.

use dwell_engine::rtt::{Config, Counter};
use etherparse::PacketBuilder;

use crate::wire::{ETHERNET, Frame, Segment, Side, client, ethernet, frame, run, server, small};

/// The link type of a capture, and the frame around an IP packet.
pub type Wrapped = (u32, Vec<u8>);
type Wrap = fn(&[u8]) -> Wrapped;

fn version(ip: &[u8]) -> u8 {
    ip[0] >> 4
}

fn ethertype(ip: &[u8]) -> [u8; 2] {
    if version(ip) == 4 { [0x08, 0x00] } else { [0x86, 0xdd] }
}

fn framed(parts: &[&[u8]]) -> Wrapped {
    (ETHERNET, [&[&[2; 12][..]], parts].concat().concat())
}

/// Returns `payload` in an IPv4 packet between two routers.
fn within_ipv4(proto: u8, payload: &[u8]) -> Vec<u8> {
    let total = (20 + payload.len()) as u16;
    let mut header = vec![0x45, 0];
    header.extend(total.to_be_bytes());
    header.extend([0, 0, 0x40, 0, 64, proto, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    header.extend(payload);
    header
}

fn within_ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0];
    header.extend((payload.len() as u16).to_be_bytes());
    header.extend([next, 64]);
    header.extend([0xfe; 16]);
    header.extend([0xfd; 16]);
    header.extend(payload);
    header
}

fn gre(flags: [u8; 2], ethertype: [u8; 2], fields: &[u8], payload: &[u8]) -> Vec<u8> {
    within_ipv4(47, &[&flags, &ethertype, fields, payload].concat())
}

fn ip_in_ip(outer: u8, ip: &[u8]) -> Vec<u8> {
    let proto = if version(ip) == 4 { 4 } else { 41 };
    if outer == 4 { within_ipv4(proto, ip) } else { within_ipv6(proto, ip) }
}

pub fn udp(outer: u8, port: u16, payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len() as u16).to_be_bytes();
    let datagram = [&[0xc0, 1], &port.to_be_bytes()[..], &length, &[0, 0], payload].concat();
    if outer == 4 { within_ipv4(17, &datagram) } else { within_ipv6(17, &datagram) }
}

/// The documented link types and encapsulations.
pub const WRAPS: [(&str, Wrap); 34] = [
    ("Ethernet", |ip| framed(&[&ethertype(ip), ip])),
    ("Ethernet with padding", |ip| framed(&[&ethertype(ip), ip, &[0; 9]])),
    ("VLAN", |ip| framed(&[&[0x81, 0, 0, 7], &ethertype(ip), ip])),
    ("QinQ", |ip| framed(&[&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8], &ethertype(ip), ip])),
    ("QinQ of old", |ip| framed(&[&[0x91, 0, 0, 7, 0x81, 0, 0, 8], &ethertype(ip), ip])),
    ("five tags", |ip| framed(&[&[0x81, 0, 0, 7].repeat(5), &ethertype(ip), ip])),
    ("SLL", |ip| {
        let head = [0, 0, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0];
        (113, [&head, &ethertype(ip)[..], ip].concat())
    }),
    ("SLL with VLAN", |ip| {
        let head = [0, 0, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0, 0x81, 0, 0, 7];
        (113, [&head, &ethertype(ip)[..], ip].concat())
    }),
    ("SLL2", |ip| {
        let rest = [0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0];
        (276, [&ethertype(ip)[..], &rest, ip].concat())
    }),
    ("raw", |ip| (101, ip.to_vec())),
    ("raw of BSD", |ip| (12, ip.to_vec())),
    ("raw of OpenBSD", |ip| (14, ip.to_vec())),
    ("raw of one version", |ip| (if version(ip) == 4 { 228 } else { 229 }, ip.to_vec())),
    ("NULL", |ip| {
        let family = if version(ip) == 4 { 2 } else { 30 };
        (0, [&[family, 0, 0, 0], ip].concat())
    }),
    ("NULL of big-endian hosts", |ip| {
        let family = if version(ip) == 4 { 2 } else { 24 };
        (0, [&[0, 0, 0, family], ip].concat())
    }),
    ("LOOP", |ip| {
        let family = if version(ip) == 4 { 2 } else { 24 };
        (108, [&[0, 0, 0, family], ip].concat())
    }),
    ("PPPoE", |ip| {
        let length = ((ip.len() + 2) as u16).to_be_bytes();
        let ppp = if version(ip) == 4 { 0x21 } else { 0x57 };
        framed(&[&[0x88, 0x64, 0x11, 0, 0, 9], &length, &[0, ppp], ip])
    }),
    ("PPPoE in a VLAN", |ip| {
        let length = ((ip.len() + 2) as u16).to_be_bytes();
        let ppp = if version(ip) == 4 { 0x21 } else { 0x57 };
        framed(&[&[0x81, 0, 0, 7, 0x88, 0x64, 0x11, 0, 0, 9], &length, &[0, ppp], ip])
    }),
    ("MPLS", |ip| framed(&[&[0x88, 0x47, 0, 1, 1, 64], ip])),
    ("MPLS, three labels", |ip| framed(&[&[0x88, 0x47, 0, 1, 0, 64, 0, 2, 0, 64, 0, 3, 1, 64], ip])),
    ("IP in IPv4", |ip| framed(&[&[8, 0], &ip_in_ip(4, ip)])),
    ("IP in IPv6", |ip| framed(&[&[0x86, 0xdd], &ip_in_ip(6, ip)])),
    ("IP in IP in IP", |ip| framed(&[&[8, 0], &ip_in_ip(4, &ip_in_ip(6, ip))])),
    ("GRE", |ip| framed(&[&[8, 0], &gre([0, 0], ethertype(ip), &[], ip)])),
    ("GRE with key", |ip| framed(&[&[8, 0], &gre([0x20, 0], ethertype(ip), &[9; 4], ip)])),
    ("GRE with sequence", |ip| framed(&[&[8, 0], &gre([0x10, 0], ethertype(ip), &[9; 4], ip)])),
    ("GRE with checksum, key and sequence", |ip| framed(&[&[8, 0], &gre([0xb0, 0], ethertype(ip), &[9; 12], ip)])),
    ("VXLAN in IPv4", |ip| framed(&[&[8, 0], &udp(4, 4789, &[&[8, 0, 0, 0, 0, 0, 7, 0], &ethernet(ip)[..]].concat())])),
    ("VXLAN in IPv6, Linux's port, a group", |ip| {
        framed(&[&[0x86, 0xdd], &udp(6, 8472, &[&[0x88, 0, 0, 9, 0, 0, 7, 0], &ethernet(ip)[..]].concat())])
    }),
    ("Geneve in IPv4, with options", |ip| {
        let head = [2, 0, 0x65, 0x58, 0, 0, 7, 0, 1, 1, 1, 1, 2, 2, 2, 2];
        framed(&[&[8, 0], &udp(4, 6081, &[&head, &ethernet(ip)[..]].concat())])
    }),
    ("IP in Geneve in IPv4", |ip| {
        let kind = ethertype(ip);
        framed(&[&[8, 0], &udp(4, 6081, &[&[0, 0, kind[0], kind[1], 0, 0, 7, 0], ip].concat())])
    }),
    ("Ethernet in GRE", |ip| {
        let inner = ethernet(ip);
        framed(&[&[8, 0], &gre([0, 0], [0x65, 0x58], &[], &inner)])
    }),
    ("VLAN within Ethernet in GRE", |ip| {
        let inner = framed(&[&[0x81, 0, 0, 7], &ethertype(ip), ip]).1;
        framed(&[&[8, 0], &gre([0, 0], [0x65, 0x58], &[], &inner)])
    }),
    ("GRE over IPv6", |ip| {
        let inner = [&[0, 0], &ethertype(ip)[..], ip].concat();
        framed(&[&[0x86, 0xdd], &within_ipv6(47, &inner)])
    }),
];

fn wrapped(packet: &Segment, wrap: Wrap) -> Frame {
    let (link, data) = wrap(&packet.ip_packet());
    frame(packet.at_ms, link, data)
}

#[test]
fn each_encapsulation_is_parsed() {
    for (name, wrap) in WRAPS {
        for ipv6 in [false, true] {
            let scene = [client(10.0).data(100, 50).ack(1).ts(5, 1), server(30.0).ack(150).ts(9, 5)]
                .map(|packet| if ipv6 { packet.ipv6() } else { packet })
                .map(|packet| wrapped(&packet, wrap));
            let run = run(&small(), scene);
            assert_eq!(run.lines(), ["tcp-timestamp to server: 20 ms at 30"], "{name}, IPv6: {ipv6}");
        }
    }
}

#[test]
fn both_directions_may_be_wrapped_differently_if_tunnels_are_ignored() {
    let (_, plain) = WRAPS[0];
    let (_, tagged) = WRAPS[2];
    let scene =
        [wrapped(&client(10.0).data(100, 50).ack(1).ts(5, 1), tagged), wrapped(&server(30.0).ack(150).ts(9, 5), plain)];
    let one_flow = Config { ignore_tunnels: true, ..small() };
    assert_eq!(run(&one_flow, scene).lines(), ["tcp-timestamp to server: 20 ms at 30"]);
}

#[test]
fn padding_is_no_payload() {
    // an Ethernet frame of a pure ACK is filled up to 60 bytes
    let (_, padded) = WRAPS[1];
    let scene = [
        wrapped(&client(10.0).seq(100).ack(1).ts(5, 1), padded),
        wrapped(&server(30.0).data(1, 10).ack(100).ts(9, 5), padded),
    ];
    assert!(run(&small(), scene).samples.is_empty());
}

#[test]
fn an_ip_length_beyond_the_packet_around_it_is_malformed() {
    for (name, wrap) in WRAPS {
        for ipv6 in [false, true] {
            let packet = client(10.0).seq(100).ack(1).ts(5, 1);
            let good = if ipv6 { packet.ipv6() } else { packet }.ip_packet();
            let mut long = good.clone();
            long[if ipv6 { 5 } else { 3 }] += 6;
            // Everything around the packet keeps its length, and padding makes room for six more bytes.
            let (link, mut data) = wrap(&good);
            let at = data.windows(good.len()).position(|bytes| bytes == good).unwrap();
            data[at..at + long.len()].copy_from_slice(&long);
            data.extend([0; 6]);
            let run = run(&small(), [frame(10.0, link, data)]);
            // Without a length around it, padding cannot be distinguished from data.
            let bounded = ["PPP", " in ", "GRE"].iter().any(|part| name.contains(part));
            assert_eq!(run.count(Counter::Malformed), u64::from(bounded), "{name}, IPv6: {ipv6}");
        }
    }
}

#[test]
fn ipv4_options_are_stepped_over() {
    let with_options = |packet: &Segment| {
        let mut ip = packet.ip_packet();
        ip[0] = 0x48;
        ip.splice(20..20, [1; 12]);
        let total = (ip.len() as u16).to_be_bytes();
        ip[2..4].copy_from_slice(&total);
        frame(packet.at_ms, ETHERNET, ethernet(&ip))
    };
    let scene =
        [with_options(&client(10.0).data(100, 50).ack(1).ts(5, 1)), with_options(&server(30.0).ack(150).ts(9, 5))];
    assert_eq!(run(&small(), scene).lines(), ["tcp-timestamp to server: 20 ms at 30"]);
}

/// Extension headers between the IPv6 header and TCP: the number, and the bytes with the next header left open.
pub const EXTENSIONS: [(u8, &[u8]); 6] = [
    (0, &[0, 0, 5, 2, 0, 0, 1, 0]),
    (43, &[0, 2, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]),
    (60, &[0, 0, 1, 4, 0, 0, 0, 0]),
    (51, &[0, 4, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5]),
    (135, &[0, 0, 1, 1, 1, 1, 1, 1]),
    // an "atomic" fragment is whole
    (44, &[0, 0, 0, 0, 9, 9, 9, 9]),
];

/// Returns the IPv6 packet with these extension headers inserted.
pub fn extended(packet: &Segment, headers: &[(u8, &[u8])]) -> Vec<u8> {
    let mut ip = packet.ipv6().ip_packet();
    for (number, bytes) in headers.iter().rev() {
        let mut bytes = bytes.to_vec();
        bytes[0] = ip[6];
        ip[6] = *number;
        ip.splice(40..40, bytes);
    }
    let length = ((ip.len() - 40) as u16).to_be_bytes();
    ip[4..6].copy_from_slice(&length);
    ip
}

#[test]
fn ipv6_extension_headers_are_stepped_over() {
    for headers in EXTENSIONS.iter().map(std::slice::from_ref).chain([&EXTENSIONS[..]]) {
        let framed = |packet: Segment| {
            let ip = extended(&packet, headers);
            frame(packet.at_ms, ETHERNET, ethernet(&ip))
        };
        let scene = [framed(client(10.0).data(100, 50).ack(1).ts(5, 1)), framed(server(30.0).ack(150).ts(9, 5))];
        assert_eq!(run(&small(), scene).lines(), ["tcp-timestamp to server: 20 ms at 30"], "{headers:?}");
    }
}

fn counted_as(counter: Counter, data: Vec<u8>) {
    let run = run(&small(), [frame(0.0, ETHERNET, data)]);
    assert_eq!(run.count(counter), 1, "{:?}", run.counters);
    assert_eq!(run.count(Counter::FlowsOpened), 0);
}

#[test]
fn fragments_are_counted_and_passed_over() {
    for fragment in [[0x20, 0], [0, 1], [0x3f, 0xff]] {
        let mut ip = client(0.0).data(100, 50).ip_packet();
        ip[6..8].copy_from_slice(&fragment);
        counted_as(Counter::Fragment, ethernet(&ip));
    }
    for field in [[0, 1], [0xff, 0xf8], [0, 8]] {
        let header = [0, 0, field[0], field[1], 9, 9, 9, 9];
        let ip = extended(&client(0.0).data(100, 50), &[(44, &header)]);
        counted_as(Counter::Fragment, ethernet(&ip));
    }
}

#[test]
fn lengths_that_contradict_themselves_are_counted() {
    let good = || client(0.0).data(100, 20).ts(5, 1).ip_packet();
    let spoilt = |at: usize, bytes: &[u8]| {
        let mut ip = good();
        ip[at..at + bytes.len()].copy_from_slice(bytes);
        counted_as(Counter::Malformed, ethernet(&ip));
    };
    spoilt(0, &[0x44]); // IPv4 header of 16 bytes
    spoilt(0, &[0x55]); // version 5
    spoilt(2, &[0, 19]); // shorter than its header
    spoilt(2, &[0, 39]); // no room for TCP
    spoilt(2, &[1, 0]); // longer than the frame
    spoilt(32, &[0x40]); // TCP header of 16 bytes
    spoilt(32, &[0xf0]); // of 60, and 32 + 20 are there
    let mut ip6 = client(0.0).data(100, 50).ipv6().ip_packet();
    ip6[5] += 1;
    counted_as(Counter::Malformed, ethernet(&ip6));
    for length in [7, 100] {
        let mut udp = crate::wire::udp(Side::Client, 4000, 443, &[0x40; 20]);
        udp[25] = length;
        counted_as(Counter::Malformed, ethernet(&udp));
    }
}

#[test]
fn an_offloaded_packet_without_a_length_is_taken_as_long_as_it_is() {
    let mut first = client(10.0).data(100, 50).ack(1).ts(5, 1).ip_packet();
    first[2..4].copy_from_slice(&[0, 0]);
    let scene = [frame(10.0, ETHERNET, ethernet(&first)), server(30.0).ack(150).ts(9, 5).into()];
    assert_eq!(run(&small(), scene).lines(), ["tcp-timestamp to server: 20 ms at 30"]);
}

#[test]
fn what_is_no_ip_is_counted() {
    for ethertype in [[0x08, 0x06], [0x88, 0xcc], [0x00, 0x26], [0x88, 0x63]] {
        counted_as(Counter::NotIp, [&[2; 12][..], &ethertype, &[0; 46]].concat());
    }
    counted_as(Counter::NotIp, framed(&[&[0x88, 0x47, 0, 1, 1, 64], &[0; 40]]).1);
}

#[test]
fn ip_of_other_protocols_is_counted() {
    for proto in [2, 50, 89, 132] {
        counted_as(Counter::OtherProtocol, ethernet(&within_ipv4(proto, &[0; 40])));
    }
    // GRE of another version, as PPTP uses it
    let pptp = gre([0x30, 0x81], [0x88, 0x0b], &[0; 12], &[0; 40]);
    counted_as(Counter::OtherProtocol, ethernet(&pptp));
}

#[test]
fn nesting_without_end_is_counted() {
    let mut ip = client(0.0).data(100, 50).ip_packet();
    for _ in 0..20 {
        ip = within_ipv4(4, &ip);
    }
    counted_as(Counter::TooDeep, ethernet(&ip));
    let tags = [0x81, 0, 0, 7].repeat(40);
    counted_as(Counter::TooDeep, framed(&[&tags, &[8, 0], &[0; 40]]).1);
}

#[test]
fn a_link_type_that_is_not_known_is_counted() {
    let run = run(&small(), [frame(0.0, 147, vec![0; 60])]);
    assert_eq!(run.count(Counter::UnknownLink), 1);
}

#[test]
fn the_builders_and_etherparse_agree() {
    let mut theirs = Vec::new();
    PacketBuilder::ethernet2([2; 6], [2; 6])
        .single_vlan(7.try_into().unwrap())
        .ipv4(Side::Client.address(), Side::Server.address(), 64)
        .udp(1, 2)
        .write(&mut theirs, &[0; 30])
        .unwrap();
    let ours = crate::wire::udp(Side::Client, 1, 2, &[0; 30]);
    let (_, tagged) = WRAPS[2];
    assert_eq!(tagged(&ours).1, theirs);
}
