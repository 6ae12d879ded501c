//! Packets of a client and a server, and captures of them.

use dwell_capture::{LinkType, Writer};
use etherparse::{IcmpEchoHeader, Icmpv4Type, Icmpv6Type, PacketBuilder, TcpHeader, TcpOptionElement, TcpOptions};

/// 2026-01-02T03:04:05Z.
pub const START_NS: u64 = 1_767_323_045_000_000_000;

const CLIENT: [u8; 4] = [192, 0, 2, 1];
const SERVER: [u8; 4] = [198, 51, 100, 7];
const CLIENT6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const SERVER6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

/// An IP packet, and when it passed, in milliseconds since the start.
#[derive(Debug, Clone)]
pub struct Packet {
    pub at_ms: f64,
    pub ip: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    Client,
    Server,
}

impl Sender {
    fn order<T>(self, client: T, server: T) -> (T, T) {
        match self {
            Sender::Client => (client, server),
            Sender::Server => (server, client),
        }
    }
}

/// One TCP segment; the numbers are those of its header.
#[derive(Debug, Clone, Copy, Default)]
pub struct Segment {
    pub client_port: u16,
    pub flags: &'static str,
    pub seq: u32,
    pub ack: u32,
    pub payload: usize,
    pub ts: Option<(u32, u32)>,
}

pub fn tcp(at_ms: f64, from: Sender, segment: Segment) -> Packet {
    let ports = from.order(segment.client_port, 443);
    let mut header = TcpHeader::new(ports.0, ports.1, segment.seq, 1000);
    let has = |flag| segment.flags.contains(flag);
    (header.syn, header.fin, header.rst) = (has('S'), has('F'), has('R'));
    header.ack = has('A');
    header.acknowledgment_number = segment.ack;
    if let Some((value, echo)) = segment.ts {
        let options = [TcpOptionElement::Noop, TcpOptionElement::Noop, TcpOptionElement::Timestamp(value, echo)];
        header.options = TcpOptions::try_from_elements(&options).expect("they fit");
    }
    let (source, destination) = from.order(CLIENT, SERVER);
    let mut ip = Vec::new();
    PacketBuilder::ipv4(source, destination, 64)
        .tcp_header(header)
        .write(&mut ip, &vec![0xda; segment.payload])
        .expect("a vector takes it");
    Packet { at_ms, ip }
}

/// `service` is the server's port.
pub fn udp(at_ms: f64, from: Sender, port: u16, service: u16, payload: &[u8]) -> Packet {
    let (source, destination) = from.order(CLIENT, SERVER);
    let ports = from.order(port, service);
    let mut ip = Vec::new();
    PacketBuilder::ipv4(source, destination, 64)
        .udp(ports.0, ports.1)
        .write(&mut ip, payload)
        .expect("a vector takes it");
    Packet { at_ms, ip }
}

/// The client asks, the server answers.
pub fn echo(at_ms: f64, from: Sender, id: u16, seq: u16) -> Packet {
    let header = IcmpEchoHeader { id, seq };
    let (source, destination) = from.order(CLIENT, SERVER);
    let kind = from.order(Icmpv4Type::EchoRequest(header), Icmpv4Type::EchoReply(header));
    let mut ip = Vec::new();
    PacketBuilder::ipv4(source, destination, 64).icmpv4(kind.0).write(&mut ip, &[0; 56]).expect("a vector takes it");
    Packet { at_ms, ip }
}

pub fn echo6(at_ms: f64, from: Sender, id: u16, seq: u16) -> Packet {
    let header = IcmpEchoHeader { id, seq };
    let (source, destination) = from.order(CLIENT6, SERVER6);
    let kind = from.order(Icmpv6Type::EchoRequest(header), Icmpv6Type::EchoReply(header));
    let mut ip = Vec::new();
    PacketBuilder::ipv6(source, destination, 64).icmpv6(kind.0).write(&mut ip, &[0; 56]).expect("a vector takes it");
    Packet { at_ms, ip }
}

/// A question for the address of example.org, or its answer.
pub fn dns(at_ms: f64, from: Sender, port: u16, id: u16) -> Packet {
    let (flags, answers) = match from {
        Sender::Client => (0x0100, 0),
        Sender::Server => (0x8180, 1),
    };
    let mut message = Vec::new();
    for word in [id, flags, 1, answers, 0, 0] {
        message.extend(word.to_be_bytes());
    }
    message.extend(b"\x07example\x03org\0\0\x01\0\x01");
    if from == Sender::Server {
        message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 99]);
    }
    udp(at_ms, from, port, 53, &message)
}

/// A QUIC version 1 Initial with made-up content.
pub fn quic_initial(at_ms: f64, from: Sender, port: u16) -> Packet {
    let mut datagram = vec![0xc3, 0, 0, 0, 1, 8];
    datagram.extend([0x11; 8]);
    datagram.push(8);
    datagram.extend([0x22; 8]);
    datagram.resize(1200, 0xee);
    udp(at_ms, from, port, 443, &datagram)
}

/// A QUIC packet with a short header and this spin bit.
pub fn quic_short(at_ms: f64, from: Sender, port: u16, spin: bool) -> Packet {
    let mut datagram = vec![0x40 | u8::from(spin) << 5];
    datagram.resize(60, 0xee);
    udp(at_ms, from, port, 443, &datagram)
}

/// A pcap file of Ethernet frames.
pub fn capture(packets: &[Packet]) -> Vec<u8> {
    capture_as(LinkType::EN10MB, packets)
}

/// A pcap file of this link type; all but Ethernet get their packets from the IP header on.
pub fn capture_as(link: LinkType, packets: &[Packet]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), link).expect("a vector takes it");
    for packet in packets {
        let data = match link {
            LinkType::EN10MB => ethernet(&packet.ip),
            _ => packet.ip.clone(),
        };
        let time_ns = START_NS + (packet.at_ms * 1e6).round() as u64;
        writer.write(time_ns, &data, data.len() as u32).expect("a vector takes it");
    }
    writer.finish().expect("a vector takes it")
}

fn ethernet(ip: &[u8]) -> Vec<u8> {
    let ethertype: [u8; 2] = match ip[0] >> 4 {
        4 => [0x08, 0x00],
        _ => [0x86, 0xdd],
    };
    [&[2; 12][..], &ethertype, ip].concat()
}

/// `count` echo requests, each answered after 5 ms, one a 10 ms.
pub fn pings(count: u16) -> Vec<Packet> {
    let ping = |seq: u16| {
        let at_ms = f64::from(seq) * 10.0;
        [echo(at_ms, Sender::Client, 7, seq), echo(at_ms + 5.0, Sender::Server, 7, seq)]
    };
    (0..count).flat_map(ping).collect()
}

/// A little of everything: the server is 5 ms and something away, the client 20.
pub fn everyday() -> Vec<Packet> {
    use Sender::{Client, Server};
    let with = |flags, seq, ack, payload, value, echo| Segment {
        client_port: 40_000,
        flags,
        seq,
        ack,
        payload,
        ts: Some((value, echo)),
    };
    let without = |flags, seq, ack, payload| Segment { client_port: 40_001, flags, seq, ack, payload, ts: None };
    vec![
        // With timestamps: handshake, a request and its response, and the end.
        tcp(0.0, Client, with("S", 1000, 0, 0, 100, 0)),
        tcp(5.0, Server, with("SA", 5000, 1001, 0, 900, 100)),
        tcp(25.0, Client, with("A", 1001, 5001, 0, 125, 900)),
        tcp(26.0, Client, with("A", 1001, 5001, 100, 126, 900)),
        tcp(31.5, Server, with("A", 5001, 1101, 200, 931, 126)),
        tcp(52.0, Client, with("A", 1101, 5201, 0, 152, 931)),
        tcp(53.0, Client, with("FA", 1101, 5201, 0, 153, 931)),
        tcp(58.4, Server, with("FA", 5201, 1102, 0, 958, 153)),
        tcp(79.0, Client, with("A", 1102, 5202, 0, 179, 958)),
        // Without: the same, but the client breaks off.
        tcp(100.0, Client, without("S", 7000, 0, 0)),
        tcp(105.0, Server, without("SA", 9000, 7001, 0)),
        tcp(125.0, Client, without("A", 7001, 9001, 0)),
        tcp(126.0, Client, without("A", 7001, 9001, 100)),
        tcp(131.2, Server, without("A", 9001, 7101, 0)),
        tcp(132.0, Server, without("A", 9001, 7101, 50)),
        tcp(152.7, Client, without("A", 7101, 9051, 0)),
        tcp(153.0, Client, without("RA", 7101, 9051, 0)),
        echo(200.0, Client, 7, 1),
        echo(205.123_456, Server, 7, 1),
        echo6(210.0, Client, 8, 1),
        echo6(215.654_321, Server, 8, 1),
        dns(300.0, Client, 5353, 77),
        dns(312.5, Server, 5353, 77),
        quic_initial(400.0, Client, 50_000),
        quic_initial(405.9, Server, 50_000),
    ]
}

/// A QUIC connection whose ends are as far away: the server echoes the spin bit, the client
/// inverts it.
pub fn spinning(laps: u32) -> Vec<Packet> {
    use Sender::{Client, Server};
    let lap = |lap: u32| {
        let (at_ms, spin) = (25.0 * f64::from(lap), lap % 2 == 1);
        [quic_short(at_ms, Client, 50_000, spin), quic_short(at_ms + 5.0, Server, 50_000, spin)]
    };
    (0..laps).flat_map(lap).collect()
}
