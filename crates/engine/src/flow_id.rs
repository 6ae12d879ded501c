//! The id of a flow: Community ID, version 1, with seed 0 (<https://github.com/corelight/community-id-spec>), which Zeek,
//! Suricata and Wireshark write too.
//!
//! It is "1:" and the base64 text of the SHA-1 digest of: two zero bytes (the seed), the address and the other address
//! (4 or 16 bytes each), the IP protocol number, a zero byte, and, for protocols with ports, the port and the other port,
//! in network byte order. The end with the smaller address comes first; of equal addresses, the one with the smaller port.
//! So both directions have the same id. An ICMP echo has type and code of the request in place of ports: the ends of ICMP
//! are 8 at the asking end and 0 at the other, those of ICMPv6 128 and 129.

use std::net::IpAddr;

use base64::{Engine, engine::general_purpose::STANDARD};
use sha1_smol::Sha1;

use crate::measure::{Endpoint, Protocol};

/// The number of characters of an id.
const LENGTH: usize = 2 + 28;

/// Returns the id of the flow between two ends. `src` is the end that asks, which matters to ICMP echoes alone: their
/// identifiers are not in the id.
pub fn flow_id(src: &Endpoint, dst: &Endpoint, protocol: Protocol) -> String {
    let ports = match protocol.0 {
        1 => Some((8, 0)),
        58 => Some((128, 129)),
        _ => protocol.has_ports().then_some((src.port, dst.port)),
    };
    let (from, to) = ports.unwrap_or_default();
    let octets = [src, dst].map(|end| Octets::of(end.address));
    let mut ends = [(octets[0].as_slice(), from), (octets[1].as_slice(), to)];
    ends.sort_unstable();
    let mut hash = Sha1::from([0, 0]);
    ends.iter().for_each(|(address, _)| hash.update(address));
    hash.update(&[protocol.0, 0]);
    if ports.is_some() {
        ends.iter().for_each(|(_, port)| hash.update(&port.to_be_bytes()));
    }
    let mut id = String::with_capacity(LENGTH);
    id.push_str("1:");
    STANDARD.encode_string(hash.digest().bytes(), &mut id);
    id
}

/// The bytes of an address, without an allocation.
enum Octets {
    V4([u8; 4]),
    V6([u8; 16]),
}

impl Octets {
    fn of(address: IpAddr) -> Octets {
        match address {
            IpAddr::V4(address) => Octets::V4(address.octets()),
            IpAddr::V6(address) => Octets::V6(address.octets()),
        }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Octets::V4(bytes) => bytes,
            Octets::V6(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(src: (&str, u16), dst: (&str, u16), protocol: u8) -> String {
        let end = |(address, port): (&str, u16)| Endpoint { address: address.parse().unwrap(), port };
        flow_id(&end(src), &end(dst), Protocol(protocol))
    }

    /// TCP, UDP and ICMP are vectors of the specification; the others were computed with an independent implementation.
    #[test]
    fn ids_are_those_of_the_specification_in_both_directions() {
        let vectors = [
            (("128.232.110.120", 34855), ("66.35.250.204", 80), 6, "1:LQU9qZlK+B5F3KDmev6m5PMibrg="),
            (("192.168.1.52", 54585), ("8.8.8.8", 53), 17, "1:d/FP5EW3wiY1vCndhwleRRKHowQ="),
            (("10.0.0.1", 0), ("10.0.0.2", 0), 50, "1:dX+1pd7Z9Y9hJE/IuQlfvK7bxuA="),
            (("192.0.2.1", 44321), ("198.51.100.7", 443), 6, "1:3+1ROSajzqNleEHGBuufJMdXiQI="),
        ];
        for (src, dst, protocol, expected) in vectors {
            assert_eq!(id(src, dst, protocol), expected);
            assert_eq!(id(dst, src, protocol), expected);
        }
    }

    #[test]
    fn an_echo_has_the_id_of_its_type_whatever_its_identifier() {
        for identifier in [0, 7, u16::MAX] {
            let ends = |src, dst, protocol| id((src, identifier), (dst, identifier), protocol);
            assert_eq!(ends("192.168.0.89", "192.168.0.1", 1), "1:X0snYXpgwiv9TZtqg64sgzUn6Dk=");
            let (src, dst) = ("3ffe:507:0:1:200:86ff:fe05:80da", "3ffe:507:0:1:260:97ff:fe07:69ea");
            assert_eq!(ends(src, dst, 58), "1:GpbEQrKqfWtsfsFiqg8fufoZe5Y=");
        }
    }
}
