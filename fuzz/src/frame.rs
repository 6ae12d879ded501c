//! Frames for structured targets.

use std::net::IpAddr;

use dwell_engine::measure::Endpoint;

/// A link type to build frames for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Ethernet.
    Ethernet,
    /// Ethernet with a VLAN tag, which the slow path of the parser handles.
    Tagged,
    /// Raw IP.
    Raw,
}

impl Link {
    /// Returns its number in the registry of link types.
    pub fn number(self) -> u32 {
        match self {
            Link::Ethernet | Link::Tagged => 1,
            Link::Raw => 101,
        }
    }
}

/// Builds a frame around a transport header and its payload. `l4` may be truncated; the headers announce `l4_len` bytes.
/// Both endpoints must be of the same address family.
pub fn ip(link: Link, proto: u8, from: Endpoint, to: Endpoint, l4: &[u8], l4_len: usize) -> Frame {
    let mut data = Vec::with_capacity(64 + l4.len());
    let ethertype: u16 = if from.address.is_ipv4() { 0x0800 } else { 0x86dd };
    if link != Link::Raw {
        data.extend([2; 12]);
        if link == Link::Tagged {
            data.extend([0x81, 0, 0, 7]);
        }
        data.extend(ethertype.to_be_bytes());
    }
    match (from.address, to.address) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            data.extend([0x45, 0]);
            data.extend(((20 + l4_len) as u16).to_be_bytes());
            data.extend([0, 1, 0x40, 0, 64, proto, 0, 0]);
            data.extend(from.octets());
            data.extend(to.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            data.extend([0x60, 0, 0, 0]);
            data.extend((l4_len as u16).to_be_bytes());
            data.extend([proto, 64]);
            data.extend(from.octets());
            data.extend(to.octets());
        }
        _ => panic!("{from} and {to} are of different families"),
    }
    let wire_len = (data.len() + l4_len) as u32;
    data.extend(l4);
    Frame { link: link.number(), data, wire_len }
}

/// A captured frame.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Registry number of the link type.
    pub link: u32,
    /// The captured bytes.
    pub data: Vec<u8>,
    /// Length on the wire.
    pub wire_len: u32,
}

/// Builds a TCP header without payload. The options are padded to a multiple of 4 bytes.
pub fn tcp(ports: (u16, u16), seq: u32, ack: u32, flags: u8, window: u16, options: &[u8]) -> Vec<u8> {
    let options_len = options.len().next_multiple_of(4);
    let mut header = Vec::with_capacity(20 + options_len);
    header.extend(ports.0.to_be_bytes());
    header.extend(ports.1.to_be_bytes());
    header.extend(seq.to_be_bytes());
    header.extend(ack.to_be_bytes());
    header.extend([((20 + options_len) << 2) as u8, flags]);
    header.extend(window.to_be_bytes());
    header.extend([0; 4]);
    header.extend(options);
    header.resize(20 + options_len, 0);
    header
}

/// Builds a UDP datagram.
pub fn udp(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::with_capacity(8 + payload.len());
    datagram.extend(ports.0.to_be_bytes());
    datagram.extend(ports.1.to_be_bytes());
    datagram.extend((8 + payload.len() as u16).to_be_bytes());
    datagram.extend([0; 2]);
    datagram.extend(payload);
    datagram
}
