//! What the engine reports: samples of latency, and what became of flows.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

use zerocopy::FromBytes;

use crate::abi;

/// How a latency was measured. Each is defined in `docs/method/rtt.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// A TSval and its first echo (RFC 7323).
    TcpTimestamp,
    /// Data and the ACK that first covers its last byte.
    TcpSeq,
    /// ICMP echo.
    Icmp,
    /// ICMPv6 echo.
    Icmpv6,
    /// DNS query and response over UDP.
    Dns,
    /// A spin-bit edge that follows the other side's.
    QuicSpin,
    /// Two spin-bit edges of one side: the whole loop, both sides.
    QuicSpinLoop,
    /// The client's Initial and the first long-header packet back.
    QuicHandshake,
}

impl Method {
    /// All of them, in the order of the core's numbers.
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

    /// Its name in options and output.
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

    /// The method of a name.
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

/// The transport of a flow, by IP protocol number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Protocol(pub u8);

impl Protocol {
    /// True where ports are not ports but the identifier of an ICMP echo.
    pub fn is_icmp(self) -> bool {
        matches!(self.0, 1 | 58)
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// IPv4 addresses are `IpAddr::V4`.
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

/// One latency: a packet of `src` was seen, then the answer of `dst`. It covers
/// the way from the vantage point to `dst` and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// When the answer was seen, on the source's clock.
    pub time_ns: u64,
    /// From seeing the packet to seeing its answer.
    pub rtt_ns: u64,
    /// The flow's least so far towards `dst`, this sample included.
    pub min_rtt_ns: u64,
    /// How it was measured.
    pub method: Method,
    /// It comes from a connection's opening packets.
    pub handshake: bool,
    /// Whose packet was stamped.
    pub src: Endpoint,
    /// Who answered it.
    pub dst: Endpoint,
    /// The transport.
    pub protocol: Protocol,
    /// The source's number for the interface.
    pub interface: u32,
    /// Packets of the flow so far, both directions.
    pub packets: u64,
    /// Their bytes, link headers included.
    pub bytes: u64,
}

/// What became of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowChange {
    /// Its first packet was seen.
    Open,
    /// Its first latency was measured: how, and how many nanoseconds.
    FirstRtt(Method, u64),
    /// It is over, and why.
    Close(CloseReason),
}

/// Why a flow is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// Both sides sent a FIN.
    Fin,
    /// One side sent a RST.
    Rst,
    /// No packet came for the idle timeout.
    Idle,
    /// DNS: it made room for another after its answer.
    Answered,
    /// It never was answered and made room for another.
    Evicted,
    /// The run or the capture ended.
    End,
}

impl CloseReason {
    /// Its name in output.
    pub fn name(self) -> &'static str {
        match self {
            CloseReason::Fin => "fin",
            CloseReason::Rst => "rst",
            CloseReason::Idle => "idle",
            CloseReason::Answered => "answered",
            CloseReason::Evicted => "evicted",
            CloseReason::End => "end",
        }
    }
}

/// A change in the life of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowEvent {
    /// When, on the source's clock.
    pub time_ns: u64,
    /// What happened.
    pub change: FlowChange,
    /// When the flow's first packet was seen.
    pub first_ns: u64,
    /// Who sent the first packet seen.
    pub src: Endpoint,
    /// The other end.
    pub dst: Endpoint,
    /// The transport.
    pub protocol: Protocol,
    /// The source's number for the interface.
    pub interface: u32,
    /// Samples so far.
    pub samples: u32,
    /// Packets so far, both directions.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What one packet caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A latency.
    Sample(Sample),
    /// A change in the life of a flow.
    Flow(FlowEvent),
}

impl Event {
    /// Decodes a record of the kernel's ring buffer. `None` if it is none of
    /// ours, which a user of the crate should count.
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
            method: Method::from_number(raw.method)?,
            handshake: u32::from(raw.flags) & abi::DWELL_SAMPLE_HANDSHAKE != 0,
            src: endpoint(raw.src, raw.src_port),
            dst: endpoint(raw.dst, raw.dst_port),
            protocol: Protocol(raw.proto),
            interface: raw.interface,
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
            protocol: Protocol(raw.proto),
            interface: raw.interface,
            samples: raw.samples,
            packets: raw.packets,
            bytes: raw.bytes,
        })
    }
}

pub(crate) fn endpoint(raw: abi::dwell_address, port: u16) -> Endpoint {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&raw.high.to_ne_bytes());
    bytes[8..].copy_from_slice(&raw.low.to_ne_bytes());
    Endpoint { address: Ipv6Addr::from(bytes).to_canonical(), port }
}
