//! What the engine reports: latency samples, and changes of flows.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

use serde::{Deserialize, Serialize};
use zerocopy::FromBytes;

use crate::{abi, roles::Role};

/// How a latency was measured. `docs/method/rtt.md` defines each method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// A TSval and its first echo (RFC 7323).
    TcpTimestamp,
    /// Data and the first ACK that covers its last byte.
    TcpSeq,
    /// ICMP echo.
    Icmp,
    /// ICMPv6 echo.
    Icmpv6,
    /// DNS query and response over UDP.
    Dns,
    /// A spin-bit edge that follows the other side's.
    QuicSpin,
    /// Two spin-bit edges of one side: the whole loop over both sides.
    QuicSpinLoop,
    /// The client's Initial and the first long-header packet back.
    QuicHandshake,
}

impl Method {
    /// All methods, in the order of the core's numbers.
    pub const ALL: [Method; 8] = [
        Method::TcpTimestamp,
        Method::TcpSeq,
        Method::Icmp,
        Method::Icmpv6,
        Method::Dns,
        Method::QuicSpin,
        Method::QuicSpinLoop,
        Method::QuicHandshake,
    ];

    /// Returns the name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Method::TcpTimestamp => "tcp-timestamp",
            Method::TcpSeq => "tcp-seq",
            Method::Icmp => "icmp",
            Method::Icmpv6 => "icmpv6",
            Method::Dns => "dns",
            Method::QuicSpin => "quic-spin",
            Method::QuicSpinLoop => "quic-spin-loop",
            Method::QuicHandshake => "quic-handshake",
        }
    }

    /// Returns the method with this name.
    pub fn from_name(name: &str) -> Option<Method> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    fn from_number(number: u8) -> Option<Method> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The transport protocol of a flow, by IP protocol number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Protocol(pub u8);

impl Protocol {
    /// TCP.
    pub const TCP: Protocol = Protocol(6);
    /// UDP.
    pub const UDP: Protocol = Protocol(17);
    /// SCTP.
    pub const SCTP: Protocol = Protocol(132);

    /// Returns whether port numbers are the identifiers of ICMP echoes.
    pub fn is_icmp(self) -> bool {
        matches!(self.0, 1 | 58)
    }

    /// Returns whether the protocol has ports: TCP, UDP and SCTP.
    pub fn has_ports(self) -> bool {
        matches!(self, Protocol::TCP | Protocol::UDP | Protocol::SCTP)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.pad("ICMP"),
            6 => f.pad("TCP"),
            17 => f.pad("UDP"),
            58 => f.pad("ICMPv6"),
            number => f.pad(&number.to_string()),
        }
    }
}

/// One end of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Endpoint {
    /// The address. IPv4 addresses are always `IpAddr::V4`.
    pub address: IpAddr,
    /// The port, or the identifier of an ICMP echo.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            IpAddr::V4(v4) => write!(f, "{v4}:{}", self.port),
            IpAddr::V6(v6) => write!(f, "[{v6}]:{}", self.port),
        }
    }
}

/// What encloses the packets of a flow: it tells flows of the same addresses and ports apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Tunnel(pub u32);

impl Tunnel {
    /// Returns true if nothing encloses the packets.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns it as text, or `None` if nothing encloses the packets.
    pub fn label(self) -> Option<String> {
        (!self.is_none()).then(|| self.to_string())
    }
}

/// VLAN IDs from the outside in, as in "vlan 7" and "vlan 100.7"; of other enclosures and more tags a hash.
impl fmt::Display for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 & abi::DWELL_TUNNEL_HASHED, self.0 >> 12, self.0 & 0xfff) {
            (0, 0, 0) => f.pad("none"),
            (0, 0, id) => write!(f, "vlan {id}"),
            (0, outer, inner) => write!(f, "vlan {outer}.{inner}"),
            _ => write!(f, "tunnel {:08x}", self.0),
        }
    }
}

/// One latency: a packet of `src` was seen, and then the answer of `dst`. The latency covers the path from the vantage
/// point to `dst` and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The time at which the answer was seen, on the source's clock.
    pub time_ns: u64,
    /// The time from the packet to its answer.
    pub rtt_ns: u64,
    /// The flow's least latency towards `dst` so far, including this sample.
    pub min_rtt_ns: u64,
    /// The flow's least latency towards `dst` in the last 8.6 to 17.2 seconds, including this sample; of the loops of
    /// `QuicSpinLoop` the least so far.
    pub base_ns: u64,
    /// The method that measured it.
    pub method: Method,
    /// The sample comes from the packets that opened the connection.
    pub handshake: bool,
    /// The sender of the stamped packet.
    pub src: Endpoint,
    /// The sender of the answer.
    pub dst: Endpoint,
    /// What `src` is, if the packets that opened the flow were seen.
    pub src_role: Option<Role>,
    /// The transport protocol.
    pub protocol: Protocol,
    /// The source's number of the interface.
    pub interface: u32,
    /// What encloses the packets.
    pub tunnel: Tunnel,
    /// What has passed since the last sample of the flow towards `dst`.
    pub path: PathCounts,
    /// The number of packets of the flow so far, in both directions.
    pub packets: u64,
    /// The number of their bytes, including link headers.
    pub bytes: u64,
}

impl Sample {
    /// Returns what the latency is longer than the base: the time in queues, if the path and its ends are as before.
    pub fn queue_ns(&self) -> u64 {
        self.rtt_ns.saturating_sub(self.base_ns)
    }
}

/// Counts of packets on the path to the side that answered, and back. All but `received` and `ce` are 0 for other
/// protocols than TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathCounts {
    /// Segments with data to the side.
    pub sent: u64,
    /// Of these, segments that had passed before: lost behind the vantage point, or sent again without need.
    pub retransmitted: u64,
    /// Packets from the side.
    pub received: u64,
    /// Of these, segments that filled a hole: lost before the vantage point and sent again, or reordered.
    pub late: u64,
    /// Of these, packets that a router had marked as having met congestion (ECN, RFC 3168).
    pub ce: u64,
}

/// A change of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowChange {
    /// The first packet was seen.
    Open,
    /// The first latency was measured: the method, and the latency in nanoseconds.
    FirstRtt(Method, u64),
    /// The flow is over.
    Close(CloseReason),
}

impl FlowChange {
    /// The names of all changes, in the order in which they happen.
    pub const NAMES: [&'static str; 3] = ["open", "first-rtt", "close"];

    /// Returns the name in output: one of [`FlowChange::NAMES`].
    pub fn name(self) -> &'static str {
        let [open, first_rtt, close] = Self::NAMES;
        match self {
            FlowChange::Open => open,
            FlowChange::FirstRtt(..) => first_rtt,
            FlowChange::Close(_) => close,
        }
    }
}

/// The reason why a flow is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// Both sides sent a FIN.
    Fin,
    /// One side sent a RST.
    Rst,
    /// No packet came within the idle timeout.
    Idle,
    /// A DNS exchange made room for another flow after its answer.
    Answered,
    /// The flow was never answered and made room for another.
    Evicted,
    /// The run or the capture ended.
    End,
    /// Another connection of TCP began under the same addresses and ports, and no end of the flow had passed.
    Reused,
}

impl CloseReason {
    /// All reasons.
    pub const ALL: [CloseReason; 7] = [
        CloseReason::Fin,
        CloseReason::Rst,
        CloseReason::Idle,
        CloseReason::Answered,
        CloseReason::Evicted,
        CloseReason::End,
        CloseReason::Reused,
    ];

    /// Returns the name in output.
    pub fn name(self) -> &'static str {
        match self {
            CloseReason::Fin => "fin",
            CloseReason::Rst => "rst",
            CloseReason::Idle => "idle",
            CloseReason::Answered => "answered",
            CloseReason::Evicted => "evicted",
            CloseReason::End => "end",
            CloseReason::Reused => "reused",
        }
    }
}

/// A change in the life of a flow, with the state of the flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowEvent {
    /// The time of the change, on the source's clock.
    pub time_ns: u64,
    /// The change.
    pub change: FlowChange,
    /// The time of the flow's first packet, on the source's clock.
    pub first_ns: u64,
    /// The sender of the first packet.
    pub src: Endpoint,
    /// The other end.
    pub dst: Endpoint,
    /// What `src` is, if the packets that opened the flow were seen.
    pub src_role: Option<Role>,
    /// The transport protocol.
    pub protocol: Protocol,
    /// The source's number of the interface.
    pub interface: u32,
    /// What encloses the packets.
    pub tunnel: Tunnel,
    /// The number of samples so far.
    pub samples: u32,
    /// The number of packets so far, in both directions.
    pub packets: u64,
    /// The number of their bytes.
    pub bytes: u64,
    /// The number of TCP segments with data so far, in both directions.
    pub data: u64,
    /// Of these, segments that had passed before.
    pub retransmitted: u32,
    /// Of these, segments that filled a hole.
    pub late: u32,
    /// The number of packets that a router had marked (ECN).
    pub ce: u32,
}

/// The result of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A latency.
    Sample(Sample),
    /// A change in the life of a flow.
    Flow(FlowEvent),
}

impl Event {
    /// Decodes a record of the kernel's ring buffer. Returns `None` if it is not one of ours, which callers should
    /// count.
    pub fn from_kernel(bytes: &[u8]) -> Option<Event> {
        match u32::from(*bytes.first()?) {
            abi::DWELL_EVENT_SAMPLE => {
                Sample::from_core(&abi::dwell_rtt_sample::read_from_prefix(bytes).ok()?.0).map(Event::Sample)
            }
            abi::DWELL_EVENT_FLOW => {
                FlowEvent::from_core(&abi::dwell_flow_event::read_from_prefix(bytes).ok()?.0).map(Event::Flow)
            }
            _ => None,
        }
    }
}

impl Sample {
    fn from_core(raw: &abi::dwell_rtt_sample) -> Option<Sample> {
        Some(Sample {
            time_ns: raw.time_ns,
            rtt_ns: raw.rtt_ns,
            min_rtt_ns: raw.min_rtt_ns,
            base_ns: raw.base_ns,
            method: Method::from_number(raw.method)?,
            handshake: u32::from(raw.flags) & abi::DWELL_SAMPLE_HANDSHAKE != 0,
            src: endpoint(raw.src, raw.src_port),
            dst: endpoint(raw.dst, raw.dst_port),
            src_role: role(raw.flags.into()),
            protocol: Protocol(raw.proto),
            interface: raw.interface,
            tunnel: Tunnel(raw.tunnel),
            path: PathCounts {
                sent: raw.path.sent.into(),
                retransmitted: raw.path.retransmitted.into(),
                received: raw.path.received.into(),
                late: raw.path.late.into(),
                ce: raw.path.ce.into(),
            },
            packets: raw.packets,
            bytes: raw.bytes,
        })
    }
}

impl FlowEvent {
    fn from_core(raw: &abi::dwell_flow_event) -> Option<FlowEvent> {
        let change = match u32::from(raw.change) {
            abi::DWELL_FLOW_OPEN => FlowChange::Open,
            abi::DWELL_FLOW_FIRST_RTT => FlowChange::FirstRtt(Method::from_number(raw.detail)?, raw.rtt_ns),
            abi::DWELL_FLOW_CLOSE => FlowChange::Close(match u32::from(raw.detail) {
                abi::DWELL_CLOSE_FIN => CloseReason::Fin,
                abi::DWELL_CLOSE_RST => CloseReason::Rst,
                abi::DWELL_CLOSE_IDLE => CloseReason::Idle,
                abi::DWELL_CLOSE_ANSWERED => CloseReason::Answered,
                abi::DWELL_CLOSE_EVICTED => CloseReason::Evicted,
                abi::DWELL_CLOSE_END => CloseReason::End,
                abi::DWELL_CLOSE_REUSED => CloseReason::Reused,
                _ => return None,
            }),
            _ => return None,
        };
        Some(FlowEvent {
            time_ns: raw.time_ns,
            change,
            first_ns: raw.first_ns,
            src: endpoint(raw.src, raw.src_port),
            dst: endpoint(raw.dst, raw.dst_port),
            src_role: role(raw.client),
            protocol: Protocol(raw.proto),
            interface: raw.interface,
            tunnel: Tunnel(raw.tunnel),
            samples: raw.samples,
            packets: raw.packets,
            bytes: raw.bytes,
            data: raw.data,
            retransmitted: raw.retransmitted,
            late: raw.late,
            ce: raw.ce,
        })
    }
}

fn role(flags: u32) -> Option<Role> {
    match flags & (abi::DWELL_SAMPLE_OF_CLIENT | abi::DWELL_SAMPLE_OF_SERVER) {
        abi::DWELL_SAMPLE_OF_CLIENT => Some(Role::Client),
        abi::DWELL_SAMPLE_OF_SERVER => Some(Role::Server),
        _ => None,
    }
}

pub(crate) fn endpoint(raw: abi::dwell_address, port: u16) -> Endpoint {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&raw.high.to_ne_bytes());
    bytes[8..].copy_from_slice(&raw.low.to_ne_bytes());
    Endpoint { address: Ipv6Addr::from(bytes).to_canonical(), port }
}
