//! What a balancer is told, and what it tells: VIPs, reals (the backends behind
//! them), and what became of packets.

mod native;
mod outcome;
mod zero_rtt;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use native::zero_bit;

use crate::abi;

pub use native::{Balancer, maybe_bit, seat_bytes};
pub use outcome::{Counters, Decision, Seen, Verdict, Why};
pub use zero_rtt::{Seating, ServerId, ZeroServer, ZeroState, ZeroVip};

/// A MAC address.
pub type Mac = [u8; 6];

/// A transport that is balanced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Proto {
    /// TCP.
    Tcp,
    /// UDP, and QUIC in it.
    Udp,
}

impl Proto {
    /// Its IP protocol number.
    pub fn number(self) -> u8 {
        match self {
            Proto::Tcp => abi::DWELL_PROTO_TCP as u8,
            Proto::Udp => abi::DWELL_PROTO_UDP as u8,
        }
    }

    /// The protocol of an IP protocol number.
    pub fn from_number(number: u8) -> Option<Proto> {
        [Proto::Tcp, Proto::Udp].into_iter().find(|proto| proto.number() == number)
    }
}

/// What clients connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VipKey {
    /// The virtual address.
    pub address: IpAddr,
    /// The transport.
    pub proto: Proto,
    /// The port; none: all that have no VIP of their own.
    pub port: Option<u16>,
}

impl VipKey {
    /// As the core has it.
    pub fn to_core(&self) -> abi::dwell_vip_key {
        abi::dwell_vip_key {
            address: to_core(self.address),
            port: self.port.unwrap_or(0),
            proto: self.proto.number(),
            reserved: [0; 5],
        }
    }

    /// The entry that makes its address answer pings and take ICMP errors.
    pub fn to_core_icmp(&self) -> abi::dwell_vip_key {
        let proto = match self.address.to_canonical() {
            IpAddr::V4(_) => abi::DWELL_PROTO_ICMP,
            IpAddr::V6(_) => abi::DWELL_PROTO_ICMPV6,
        };
        abi::dwell_vip_key { port: 0, proto: proto as u8, ..self.to_core() }
    }

    /// None of an entry for ICMP.
    pub fn from_core(key: &abi::dwell_vip_key) -> Option<VipKey> {
        Some(VipKey {
            address: from_core(key.address),
            proto: Proto::from_number(key.proto)?,
            port: (key.port != 0).then_some(key.port),
        })
    }
}

/// How a VIP is balanced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vip {
    /// Its number: 1 to the most VIPs there may be. Several keys may share it, and
    /// its Maglev table.
    pub number: u32,
    /// Response latency is estimated, for connections that begin from now on.
    pub measured: bool,
    /// It carries QUIC. Routed as any UDP, unless it has a slot.
    pub is_quic: bool,
    /// New connections go by the client's address alone.
    pub by_source: bool,
    /// The number of its [`ZeroVip`]: packets go by their connection ID. It has a port,
    /// and new connections go by the client's network.
    pub zero_slot: Option<u16>,
}

impl Vip {
    /// As the core has it, with a Maglev table of `size` entries.
    pub fn to_core(&self, size: u32) -> abi::dwell_vip {
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        abi::dwell_vip {
            number: self.number,
            size,
            flags: flag(self.measured, abi::DWELL_VIP_MEASURE)
                | flag(self.is_quic, abi::DWELL_VIP_QUIC)
                | flag(self.by_source || self.zero_slot.is_some(), abi::DWELL_VIP_SOURCE)
                | flag(self.zero_slot.is_some(), abi::DWELL_VIP_NETWORK),
            zero_slot: self.zero_slot.unwrap_or(0).into(),
        }
    }

    /// What the core has.
    pub fn from_core(vip: &abi::dwell_vip) -> Vip {
        Vip {
            number: vip.number,
            measured: vip.flags & abi::DWELL_VIP_MEASURE != 0,
            is_quic: vip.flags & abi::DWELL_VIP_QUIC != 0,
            by_source: vip.flags & abi::DWELL_VIP_SOURCE != 0 && vip.flags & abi::DWELL_VIP_NETWORK == 0,
            zero_slot: (vip.zero_slot != 0).then_some(vip.zero_slot as u16),
        }
    }
}

/// How packets get to a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Forward {
    /// With another destination MAC address: the backend is on a segment of ours.
    L2,
    /// In another IP packet (RFC 2003, RFC 2473, RFC 4213).
    #[default]
    Ipip,
    /// In UDP: GUE variant 1, which has no header between UDP and the inner IP.
    Gue,
}

impl Forward {
    /// Its name in configurations and output.
    pub fn name(self) -> &'static str {
        match self {
            Forward::L2 => "l2",
            Forward::Ipip => "ipip",
            Forward::Gue => "gue",
        }
    }

    fn to_core(self) -> u8 {
        let number = match self {
            Forward::L2 => abi::DWELL_FORWARD_L2,
            Forward::Ipip => abi::DWELL_FORWARD_IPIP,
            Forward::Gue => abi::DWELL_FORWARD_GUE,
        };
        number as u8
    }
}

/// Where packets to a backend leave this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NextHop {
    /// The interface's number.
    pub interface: u32,
    /// Who takes them on.
    pub destination: Mac,
    /// The interface's own address.
    pub source: Mac,
    /// The largest IP packet of the way there, in bytes, outer headers included.
    pub mtu: u16,
}

/// A backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Real {
    /// Its own address, not the VIP's.
    pub address: IpAddr,
    /// The way there; none: not known, and its packets go elsewhere.
    pub next_hop: Option<NextHop>,
    /// How packets get there.
    pub forward: Forward,
    /// UDP port of GUE; 0 with the others.
    pub gue_port: u16,
    /// Connections that are not established go elsewhere.
    pub down: bool,
}

impl Real {
    /// As the core has it.
    pub fn to_core(&self) -> abi::dwell_real {
        let hop = self.next_hop.unwrap_or(NextHop { interface: 0, destination: [0; 6], source: [0; 6], mtu: 0 });
        abi::dwell_real {
            address: to_core(self.address),
            interface: hop.interface,
            destination_mac: hop.destination,
            source_mac: hop.source,
            mtu: hop.mtu,
            gue_port: self.gue_port,
            forward: self.forward.to_core(),
            flags: if self.down { abi::DWELL_REAL_DOWN as u8 } else { 0 },
            reserved: [0; 2],
        }
    }

    /// None of a number that nobody has.
    pub fn from_core(real: &abi::dwell_real) -> Option<Real> {
        let forward =
            [Forward::L2, Forward::Ipip, Forward::Gue].into_iter().find(|forward| forward.to_core() == real.forward)?;
        Some(Real {
            address: from_core(real.address),
            next_hop: (real.interface != 0).then_some(NextHop {
                interface: real.interface,
                destination: real.destination_mac,
                source: real.source_mac,
                mtu: real.mtu,
            }),
            forward,
            gue_port: real.gue_port,
            down: u32::from(real.flags) & abi::DWELL_REAL_DOWN != 0,
        })
    }
}

/// What a VIP or a backend was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Packets.
    pub packets: u64,
    /// Bytes of IP as clients sent them, without outer headers.
    pub bytes: u64,
    /// Connections that were entered into the table.
    pub opened: u64,
}

impl Load {
    /// That of several CPUs as one.
    pub fn sum(cpus: impl IntoIterator<Item = abi::dwell_load>) -> Load {
        cpus.into_iter().fold(Load::default(), |sum, cpu| Load {
            packets: sum.packets + cpu.packets,
            bytes: sum.bytes + cpu.bytes,
            opened: sum.opened + cpu.opened,
        })
    }
}

/// How backends are chosen, and where outer headers come from: a /16 of IPv4 and a
/// /64 of IPv6, whose other bits vary by flow. A connection without a packet for
/// `active_timeout` is not active.
pub fn config(
    hash_seed: u64,
    outer_v4: Ipv4Addr,
    outer_v6: Ipv6Addr,
    active_timeout: Duration,
) -> abi::dwell_balance_config {
    let outer_v4 = Ipv4Addr::from_bits(outer_v4.to_bits() & 0xffff_0000);
    let outer_v6 = Ipv6Addr::from_bits(outer_v6.to_bits() & !u128::from(u64::MAX));
    abi::dwell_balance_config {
        hash_seed,
        outer_v4: to_core(outer_v4.into()),
        outer_v6: to_core(outer_v6.into()),
        active_coarse: u32::try_from(active_timeout.as_nanos() >> 20).unwrap_or(u32::MAX / 2),
        cid_mask: 0,
    }
}

/// An address as the core has it.
pub fn to_core(address: IpAddr) -> abi::dwell_address {
    let v6 = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let bits = v6.to_bits();
    abi::dwell_address { high: ((bits >> 64) as u64).to_be(), low: (bits as u64).to_be() }
}

fn from_core(address: abi::dwell_address) -> IpAddr {
    let bits = u128::from(u64::from_be(address.high)) << 64 | u128::from(u64::from_be(address.low));
    Ipv6Addr::from_bits(bits).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_core_has_is_what_it_was_told() {
        let real = Real {
            address: "10.1.2.3".parse().expect("an address"),
            next_hop: Some(NextHop { interface: 7, destination: [1, 2, 3, 4, 5, 6], source: [7; 6], mtu: 1500 }),
            forward: Forward::Gue,
            gue_port: 6080,
            down: true,
        };
        assert_eq!(Real::from_core(&real.to_core()), Some(real));
        let lost = Real { next_hop: None, ..real };
        assert_eq!(Real::from_core(&lost.to_core()), Some(lost));
        assert_eq!(Real::from_core(&abi::dwell_real::default()), None);
        let key = VipKey { address: "2001:db8::1".parse().expect("an address"), proto: Proto::Udp, port: None };
        assert_eq!(VipKey::from_core(&key.to_core()), Some(key));
        assert_eq!(VipKey::from_core(&key.to_core_icmp()), None);
        assert_eq!(key.to_core_icmp().proto, 58);
        let vip = Vip { number: 9, measured: true, is_quic: false, by_source: true, zero_slot: None };
        assert_eq!(Vip::from_core(&vip.to_core(65_537)), vip);
    }

    #[test]
    fn addresses_lie_in_network_order() {
        let core = to_core("192.0.2.1".parse().expect("an address"));
        assert_eq!(core.high, 0);
        assert_eq!(core.low.to_ne_bytes(), [0, 0, 0xff, 0xff, 192, 0, 2, 1]);
    }
}
