//! The balancer's data plane: VIPs, reals (the backends behind them), and decisions on packets.

mod connections;
mod decap;
mod heartbeat;
mod native;
mod outcome;
mod zero_rtt;

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use native::zero_bit;
use serde::{Deserialize, Serialize};

use crate::abi;

pub use connections::{ActiveConnections, sweep_reason};
pub use decap::{DecapCounters, DecapOutcome, DecapRules, TunnelEnd, is_special};
pub use heartbeat::{Heartbeat, WhenStale};
pub use native::{Balancer, STATE_BYTES, maybe_bit, slot_bytes, successor_entry};
pub use outcome::{CidEvent, Counters, Decision, Reason, Verdict};
pub use zero_rtt::{HeavyScope, ServerId, ServerSlots, ServerState, ZeroServer, ZeroState, ZeroVip, take_loads};

/// A MAC address.
pub type Mac = [u8; 6];

/// A transport protocol that can be balanced. It is serialized in lower case: `"tcp"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP, and QUIC over it.
    Udp,
}

impl Protocol {
    /// Returns the IP protocol number.
    pub fn number(self) -> u8 {
        match self {
            Protocol::Tcp => abi::DWELL_PROTO_TCP as u8,
            Protocol::Udp => abi::DWELL_PROTO_UDP as u8,
        }
    }

    /// Returns the protocol with this IP protocol number, or `None` if it cannot be balanced.
    pub fn from_number(number: u8) -> Option<Protocol> {
        [Protocol::Tcp, Protocol::Udp].into_iter().find(|protocol| protocol.number() == number)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        })
    }
}

/// The address that clients connect to: what identifies a VIP. It is displayed as `192.0.2.10:443/tcp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VipKey {
    /// The virtual IP address.
    pub address: IpAddr,
    /// The transport protocol.
    pub protocol: Protocol,
    /// The port. `None` matches every port that has no VIP of its own.
    pub port: Option<u16>,
}

impl fmt::Display for VipKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.address, self.port) {
            (address, Some(port)) => write!(f, "{}", SocketAddr::new(address, port))?,
            (IpAddr::V4(v4), None) => write!(f, "{v4}:any")?,
            (IpAddr::V6(v6), None) => write!(f, "[{v6}]:any")?,
        }
        write!(f, "/{}", self.protocol)
    }
}

impl VipKey {
    /// Converts to the core's format.
    pub fn to_core(&self) -> abi::dwell_vip_key {
        abi::dwell_vip_key {
            address: to_core(self.address),
            port: self.port.unwrap_or(0),
            proto: self.protocol.number(),
            reserved: [0; 5],
        }
    }

    /// Returns the entry that makes the address answer pings and accept ICMP errors.
    pub fn to_core_icmp(&self) -> abi::dwell_vip_key {
        let proto = match self.address.to_canonical() {
            IpAddr::V4(_) => abi::DWELL_PROTO_ICMP,
            IpAddr::V6(_) => abi::DWELL_PROTO_ICMPV6,
        };
        abi::dwell_vip_key { port: 0, proto: proto as u8, ..self.to_core() }
    }

    /// Converts from the core's format. `None` for an entry for ICMP.
    pub fn from_core(key: &abi::dwell_vip_key) -> Option<VipKey> {
        Some(VipKey {
            address: from_core(key.address),
            protocol: Protocol::from_number(key.proto)?,
            port: (key.port != 0).then_some(key.port),
        })
    }
}

/// Which connections of a VIP are measured: one of so many, a power of two, chosen by a hash that does not depend on the
/// selection of the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sampling(u8);

impl Sampling {
    /// The greatest number of connections of which one is measured.
    pub const MOST: u32 = 1024;

    /// One of so many connections. `None` if the number is not a power of two up to [`Sampling::MOST`].
    pub fn one_of(connections: u32) -> Option<Sampling> {
        let is_valid = connections.is_power_of_two() && connections <= Sampling::MOST;
        is_valid.then(|| Sampling(connections.ilog2() as u8))
    }

    /// Returns how many connections a measured one stands for.
    pub fn connections(self) -> u32 {
        1 << self.0
    }
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1/{}", self.connections())
    }
}

/// How a VIP is balanced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Vip {
    /// The number, from 1 up to the greatest number of VIPs. Several keys may share a number, and thus its Maglev
    /// table.
    pub number: u32,
    /// Response latency is estimated, for connections that start from now on.
    pub measured: bool,
    /// Which of these connections.
    #[serde(default)]
    pub sampling: Sampling,
    /// The VIP carries QUIC. Its packets are routed like any UDP, unless it has a `zero_slot`.
    pub is_quic: bool,
    /// New connections are placed by the client's address alone.
    pub by_source: bool,
    /// The number of the [`ZeroVip`] by which packets are routed by connection ID. Such a VIP has a port, and new
    /// connections are placed by the client's network.
    pub zero_slot: Option<u16>,
    /// How many backends besides the first may take a new TCP connection, 0 to 3: the one with the fewest open
    /// connections does.
    pub more_choices: u8,
    /// All backends of the VIP's list may take one, where there is a list: [`members`].
    #[serde(default)]
    pub of_all: bool,
    /// Packets of TCP connections that are under way and not known name further backends, those that the same entry of the
    /// table had before.
    pub second_chance: bool,
}

impl Vip {
    /// Converts to the core's format, with a Maglev table of `size` entries.
    pub fn to_core(&self, size: u32) -> abi::dwell_vip {
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        abi::dwell_vip {
            number: self.number,
            size,
            flags: flag(self.measured, abi::DWELL_VIP_MEASURE)
                | flag(self.is_quic, abi::DWELL_VIP_QUIC)
                | flag(self.by_source || self.zero_slot.is_some(), abi::DWELL_VIP_SOURCE)
                | flag(self.zero_slot.is_some(), abi::DWELL_VIP_NETWORK)
                | flag(self.of_all, abi::DWELL_VIP_LEAST)
                | flag(self.second_chance, abi::DWELL_VIP_SECOND)
                | u32::from(self.more_choices) << abi::DWELL_VIP_CHOICES_SHIFT
                | u32::from(self.sampling.0) << abi::DWELL_VIP_SAMPLING_SHIFT,
            zero_slot: self.zero_slot.unwrap_or(0).into(),
        }
    }

    /// Converts from the core's format.
    pub fn from_core(vip: &abi::dwell_vip) -> Vip {
        Vip {
            number: vip.number,
            measured: vip.flags & abi::DWELL_VIP_MEASURE != 0,
            sampling: Sampling((vip.flags >> abi::DWELL_VIP_SAMPLING_SHIFT & abi::DWELL_VIP_SAMPLING) as u8),
            is_quic: vip.flags & abi::DWELL_VIP_QUIC != 0,
            by_source: vip.flags & abi::DWELL_VIP_SOURCE != 0 && vip.flags & abi::DWELL_VIP_NETWORK == 0,
            zero_slot: (vip.zero_slot != 0).then_some(vip.zero_slot as u16),
            second_chance: vip.flags & abi::DWELL_VIP_SECOND != 0,
            of_all: vip.flags & abi::DWELL_VIP_LEAST != 0,
            more_choices: (vip.flags >> abi::DWELL_VIP_CHOICES_SHIFT & abi::DWELL_VIP_CHOICES) as u8,
        }
    }
}

/// Returns the list of the backends among which new connections of a VIP choose, by number and weight, in the core's format.
/// Without weight a backend is left out. Empty if there are more than a list holds, or none.
pub fn members(backends: &[(u32, f64)]) -> Vec<u32> {
    let present = || backends.iter().filter(|(_, weight)| *weight > 0.0);
    let (count, greatest) = (present().count(), present().map(|(_, weight)| *weight).fold(0.0, f64::max));
    if !(1..abi::DWELL_MEMBERS as usize).contains(&count) {
        return Vec::new();
    }
    let scaled = |weight: f64| ((weight / greatest * f64::from(1 << 16)).round() as u32).max(1);
    let list = present().map(|(real, weight)| [*real, scaled(*weight)]);
    std::iter::once([count as u32, 0]).chain(list).flatten().collect()
}

/// How packets are sent to a backend. It is serialized in lower case (`"l2"`, `{"gue": 6080}`) and displayed as
/// `l2`, `ipip` or `gue:PORT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Forward {
    /// Rewrites the destination MAC address: the backend is on a segment of the balancer's.
    L2,
    /// Encapsulates in another IP packet (RFC 2003, RFC 2473, RFC 4213).
    #[default]
    Ipip,
    /// Encapsulates in UDP to this port: GUE variant 1, which has no header between UDP and the inner IP packet.
    Gue(u16),
}

impl Forward {
    fn to_core(self) -> (u32, u16) {
        match self {
            Forward::L2 => (abi::DWELL_FORWARD_L2, 0),
            Forward::Ipip => (abi::DWELL_FORWARD_IPIP, 0),
            Forward::Gue(port) => (abi::DWELL_FORWARD_GUE, port),
        }
    }

    fn from_core(number: u8, gue_port: u16) -> Option<Forward> {
        match u32::from(number) {
            abi::DWELL_FORWARD_L2 => Some(Forward::L2),
            abi::DWELL_FORWARD_IPIP => Some(Forward::Ipip),
            abi::DWELL_FORWARD_GUE => Some(Forward::Gue(gue_port)),
            _ => None,
        }
    }
}

impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Forward::L2 => f.write_str("l2"),
            Forward::Ipip => f.write_str("ipip"),
            Forward::Gue(port) => write!(f, "gue:{port}"),
        }
    }
}

/// Where packets to a backend leave this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NextHop {
    /// The number of the interface.
    pub interface: u32,
    /// The MAC address of the next hop.
    pub destination: Mac,
    /// The MAC address of the interface.
    pub source: Mac,
    /// The largest IP packet that fits on the path, in bytes, including encapsulation.
    pub mtu: u16,
}

/// A backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Real {
    /// The backend's own address, not that of the VIP.
    pub address: IpAddr,
    /// The next hop; `None` if it is unknown, in which case packets go to another backend.
    pub next_hop: Option<NextHop>,
    /// How packets are sent there.
    pub forward: Forward,
    /// The backend is down: connections that are not established go to another one.
    pub down: bool,
    /// The backend is no longer wanted, and waits for its last connections: silent ones are forgotten soon.
    pub leaving: bool,
    /// How many connections it takes, relative to other backends; 0 counts as 1.
    pub capacity: u16,
    /// The sampling of its VIP: of connections that are silent as they wait for an answer, only measured ones show it.
    #[serde(default)]
    pub sampling: Sampling,
}

impl Real {
    /// Creates a backend that is up, and takes as many connections as others.
    pub fn new(address: IpAddr, next_hop: Option<NextHop>, forward: Forward) -> Real {
        Real { address, next_hop, forward, down: false, leaving: false, capacity: 1, sampling: Sampling::default() }
    }

    /// Converts to the core's format.
    pub fn to_core(&self) -> abi::dwell_real {
        let hop = self.next_hop.unwrap_or(NextHop { interface: 0, destination: [0; 6], source: [0; 6], mtu: 0 });
        let (forward, gue_port) = self.forward.to_core();
        let flag = |is_set, flag: u32| if is_set { flag as u8 } else { 0 };
        abi::dwell_real {
            address: to_core(self.address),
            interface: hop.interface,
            destination_mac: hop.destination,
            source_mac: hop.source,
            mtu: hop.mtu,
            gue_port,
            forward: forward as u8,
            flags: flag(self.down, abi::DWELL_REAL_DOWN)
                | flag(self.leaving, abi::DWELL_REAL_LEAVING)
                | self.sampling.0 << abi::DWELL_REAL_SAMPLING_SHIFT,
            capacity: self.capacity,
        }
    }

    /// Converts from the core's format. `None` for a number without a backend.
    pub fn from_core(real: &abi::dwell_real) -> Option<Real> {
        Some(Real {
            address: from_core(real.address),
            next_hop: (real.interface != 0).then_some(NextHop {
                interface: real.interface,
                destination: real.destination_mac,
                source: real.source_mac,
                mtu: real.mtu,
            }),
            forward: Forward::from_core(real.forward, real.gue_port)?,
            down: u32::from(real.flags) & abi::DWELL_REAL_DOWN != 0,
            leaving: u32::from(real.flags) & abi::DWELL_REAL_LEAVING != 0,
            capacity: real.capacity,
            sampling: Sampling(real.flags >> abi::DWELL_REAL_SAMPLING_SHIFT),
        })
    }
}

/// Converts the path to an address to the core's format, in which it is a backend of which nothing else is known.
pub fn path_to_core(address: IpAddr, next_hop: Option<NextHop>) -> abi::dwell_real {
    Real::new(address, next_hop, Forward::default()).to_core()
}

/// Traffic to a VIP or a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// The number of packets.
    pub packets: u64,
    /// The number of IP bytes as clients sent them, without encapsulation.
    pub bytes: u64,
    /// The number of connections that were entered into the table.
    pub opened: u64,
}

impl Load {
    /// Sums the traffic of several CPUs.
    pub fn sum(cpus: impl IntoIterator<Item = abi::dwell_load>) -> Load {
        cpus.into_iter().fold(Load::default(), |sum, cpu| Load {
            packets: sum.packets + cpu.packets,
            bytes: sum.bytes + cpu.bytes,
            opened: sum.opened + cpu.opened,
        })
    }
}

/// Returns the configuration of backend selection and encapsulation: the outer source addresses are of a /16 of IPv4
/// and a /64 of IPv6, with the other bits varying by flow. A connection without a packet for `active_timeout` is not
/// active.
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
        ..Default::default()
    }
}

/// Converts an address to the core's format.
pub fn to_core(address: IpAddr) -> abi::dwell_address {
    let v6 = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let bits = v6.to_bits();
    abi::dwell_address { high: ((bits >> 64) as u64).to_be(), low: (bits as u64).to_be() }
}

/// Converts an address from the core's format.
pub fn from_core(address: abi::dwell_address) -> IpAddr {
    let bits = u128::from(u64::from_be(address.high)) << 64 | u128::from(u64::from_be(address.low));
    Ipv6Addr::from_bits(bits).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_the_conversion_to_the_core_and_back() {
        let real = Real {
            address: "10.1.2.3".parse().expect("an address"),
            next_hop: Some(NextHop { interface: 7, destination: [1, 2, 3, 4, 5, 6], source: [7; 6], mtu: 1500 }),
            forward: Forward::Gue(6080),
            down: true,
            leaving: true,
            capacity: 700,
            sampling: Sampling(10),
        };
        assert_eq!(Real::from_core(&real.to_core()), Some(real));
        let lost = Real { next_hop: None, ..real };
        assert_eq!(Real::from_core(&lost.to_core()), Some(lost));
        assert_eq!(Real::from_core(&abi::dwell_real::default()), None);
        let key = VipKey { address: "2001:db8::1".parse().expect("an address"), protocol: Protocol::Udp, port: None };
        assert_eq!(VipKey::from_core(&key.to_core()), Some(key));
        assert_eq!(VipKey::from_core(&key.to_core_icmp()), None);
        assert_eq!(key.to_core_icmp().proto, 58);
        let vip = Vip {
            number: 9,
            measured: true,
            sampling: Sampling(10),
            by_source: true,
            more_choices: 3,
            second_chance: true,
            ..Vip::default()
        };
        assert_eq!(Vip::from_core(&vip.to_core(65_537)), vip);
    }

    #[test]
    fn one_of_a_power_of_two_connections_is_measured() {
        let shown = |connections| Sampling::one_of(connections).map(|sampling| sampling.to_string());
        assert_eq!(shown(1).as_deref(), Some("1/1"));
        assert_eq!(shown(1024).as_deref(), Some("1/1024"));
        assert_eq!([0, 10, 2048].map(Sampling::one_of), [None; 3]);
    }

    #[test]
    fn keys_and_forwarding_are_serialized_in_lower_case() {
        let key = VipKey { address: "192.0.2.1".parse().expect("an address"), protocol: Protocol::Udp, port: None };
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        let value = serde_json::to_value(key).expect("JSON");
        assert_eq!(value, json(r#"{"address": "192.0.2.1", "protocol": "udp", "port": null}"#));
        assert_eq!(key.to_string(), "192.0.2.1:any/udp");
        let forwards = serde_json::to_value([Forward::L2, Forward::Ipip, Forward::Gue(6080)]).expect("JSON");
        assert_eq!(forwards, json(r#"["l2", "ipip", {"gue": 6080}]"#));
    }

    #[test]
    fn addresses_are_in_network_order() {
        let core = to_core("192.0.2.1".parse().expect("an address"));
        assert_eq!(core.high, 0);
        assert_eq!(core.low.to_ne_bytes(), [0, 0, 0xff, 0xff, 192, 0, 2, 1]);
    }
}
