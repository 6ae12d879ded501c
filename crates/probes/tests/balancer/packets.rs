//! Packets for the balancer, built and checked without the balancer's own code.

use std::net::IpAddr;

use dwell_probes::balancer::{Forward, NextHop, Real};
use etherparse::{IpHeaders, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, PacketBuilder, TcpHeader, UdpHeader};

pub const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub const REAL_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];

pub const GUE_PORT: u16 = 6080;

pub fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns a generator of numbers that look random and are always the same.
pub fn numbers() -> impl FnMut() -> usize {
    let mut round = 1u64;
    move || {
        round = round.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (round >> 33) as usize
    }
}

/// Returns a backend that is reached through an interface.
pub fn real(to: IpAddr, forward: Forward, interface: u32) -> Real {
    Real::new(to, Some(NextHop { interface, destination: REAL_MAC, source: OUR_MAC, mtu: 1500 }), forward)
}

/// The properties of a client's packet.
#[derive(Clone)]
pub struct Client {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub port: u16,
    pub ttl: u8,
    pub tos: u8,
    pub options: Vec<u8>,
    /// The sequence number of its segments.
    pub seq: u32,
}

pub fn v4() -> Client {
    Client {
        src: address("203.0.113.9"),
        dst: address("198.51.100.1"),
        port: 40_000,
        ttl: 61,
        tos: 0,
        options: Vec::new(),
        seq: 1000,
    }
}

pub fn v6() -> Client {
    Client { src: address("2001:db8:9::9"), dst: address("2001:db8:1::1"), ..v4() }
}

impl Client {
    /// The same endpoints, by somebody who does not know the sequence numbers.
    pub fn far(&self) -> Client {
        self.at(self.seq.wrapping_add(1 << 30))
    }

    /// The same connection, further on.
    pub fn at(&self, seq: u32) -> Client {
        Client { seq, ..self.clone() }
    }

    pub fn ip(&self) -> IpHeaders {
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut ip = Ipv4Header::new(0, self.ttl, IpNumber::TCP, src.octets(), dst.octets()).unwrap();
                ip.dscp = (self.tos >> 2).try_into().unwrap();
                ip.ecn = (self.tos & 3).try_into().unwrap();
                ip.options = self.options[..].try_into().unwrap();
                IpHeaders::Ipv4(ip, Default::default())
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => IpHeaders::Ipv6(
                Ipv6Header {
                    traffic_class: self.tos,
                    flow_label: Ipv6FlowLabel::try_new(0x12345).unwrap(),
                    hop_limit: self.ttl,
                    source: src.octets(),
                    destination: dst.octets(),
                    ..Default::default()
                },
                Default::default(),
            ),
            _ => unreachable!("both are of one family"),
        }
    }

    /// A TCP segment to port 80.
    pub fn tcp(&self, change: impl FnOnce(&mut TcpHeader), payload: &[u8]) -> Vec<u8> {
        let mut tcp = TcpHeader::new(self.port, 80, self.seq, 8192);
        change(&mut tcp);
        let mut frame = Vec::new();
        PacketBuilder::ethernet2(CLIENT_MAC, OUR_MAC).ip(self.ip()).tcp_header(tcp).write(&mut frame, payload).unwrap();
        frame
    }

    pub fn syn(&self) -> Vec<u8> {
        self.tcp(|tcp| tcp.syn = true, &[])
    }

    pub fn data(&self, bytes: usize) -> Vec<u8> {
        let payload: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
        self.tcp(|tcp| tcp.ack = true, &payload)
    }

    pub fn fin(&self) -> Vec<u8> {
        let fin = |tcp: &mut TcpHeader| {
            tcp.ack = true;
            tcp.fin = true;
        };
        self.tcp(fin, &[])
    }

    pub fn rst(&self) -> Vec<u8> {
        self.tcp(|tcp| tcp.rst = true, &[])
    }

    pub fn udp(&self, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2(CLIENT_MAC, OUR_MAC)
            .ip(self.ip())
            .udp(self.port, 443)
            .write(&mut frame, payload)
            .unwrap();
        frame
    }
}

/// Returns the sum of the Internet checksum (RFC 1071) over bytes and a pseudo header: 0xffff if the checksum among
/// them is correct.
pub fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u64;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
        }
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A complete IP packet with correct checksums, and the header that precedes its transport header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    pub v4: Option<Ipv4Header>,
    pub v6: Option<Ipv6Header>,
    pub proto: u8,
    pub payload: Vec<u8>,
}

/// Decodes an IP packet. UDP without a checksum is accepted.
pub fn checked(packet: &[u8]) -> Checked {
    let (header, payload, pseudo) = match packet[0] >> 4 {
        4 => {
            let (ip, _) = Ipv4Header::from_slice(packet).unwrap();
            assert_eq!(ip.header_checksum, ip.calc_header_checksum(), "of IPv4");
            let payload = packet[ip.header_len()..usize::from(ip.total_len)].to_vec();
            let mut pseudo = [ip.source, ip.destination].concat();
            pseudo.extend([0, ip.protocol.0]);
            pseudo.extend((payload.len() as u16).to_be_bytes());
            let proto = ip.protocol.0;
            ((Some(ip), None, proto), payload, pseudo)
        }
        6 => {
            let (ip, rest) = Ipv6Header::from_slice(packet).unwrap();
            let mut payload = rest[..usize::from(ip.payload_length)].to_vec();
            let mut proto = ip.next_header.0;
            while proto == 0 || proto == 60 {
                proto = payload[0];
                payload.drain(..(usize::from(payload[1]) + 1) * 8);
            }
            let mut pseudo = [ip.source, ip.destination].concat();
            pseudo.extend((payload.len() as u32).to_be_bytes());
            pseudo.extend([0, 0, 0, proto]);
            ((None, Some(ip), proto), payload, pseudo)
        }
        version => panic!("IP version {version}"),
    };
    let (v4, v6, proto) = header;
    match proto {
        1 => assert_eq!(sum(&[&payload]), 0xffff, "of ICMP"),
        17 if payload[6..8] == [0, 0] => {}
        6 | 17 | 58 => assert_eq!(sum(&[&pseudo, &payload]), 0xffff, "of protocol {proto}"),
        _ => {}
    }
    Checked { v4, v6, proto, payload }
}

/// Returns the packet with its hop limit reduced by one, as etherparse builds it.
pub fn hop_less(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 4 {
        let (mut ip, rest) = Ipv4Header::from_slice(&packet).unwrap();
        ip.time_to_live -= 1;
        ip.header_checksum = ip.calc_header_checksum();
        packet = [&ip.to_bytes()[..], rest].concat();
    } else {
        packet[7] -= 1;
    }
    packet
}

/// Returns the inner packet of IP in IP, or of UDP to a port.
pub fn inside(outer: &Checked, gue_port: Option<u16>) -> Vec<u8> {
    match gue_port {
        None => {
            assert!([4, 41].contains(&outer.proto), "{outer:?}");
            outer.payload.clone()
        }
        Some(port) => {
            assert_eq!(outer.proto, 17);
            let (udp, rest) = UdpHeader::from_slice(&outer.payload).unwrap();
            assert_eq!(udp.destination_port, port);
            assert!(udp.source_port >= 0xc000);
            assert_eq!(usize::from(udp.length), outer.payload.len());
            rest.to_vec()
        }
    }
}
