//! The packets that compare clocks. `core/clock/sync.h` is the code that the kernel runs; this module runs the same
//! code in user space.

use std::{fmt, net::IpAddr};

use zerocopy::{FromBytes, FromZeros};

use super::native;
use crate::{abi, counters};

/// The size of a request and of a reply: the payload of a UDP packet.
pub const MESSAGE_BYTES: usize = size_of::<abi::dwell_sync>();

/// The secret of a session, known only to its collector and its agent.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(pub [u8; 16]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    pub(super) fn to_core(&self) -> abi::dwell_sip_key {
        abi::dwell_sip_key::read_from_bytes(&self.0).expect("both are 16 bytes")
    }
}

/// What a collector and an agent agree on before the first exchange, over a channel that both trust. A key serves one
/// session: a new session starts a new sequence and needs a new key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Distinguishes the session from others of the same agent or collector.
    pub id: u64,
    /// Authenticates the packets of the session.
    pub key: Key,
}

impl Session {
    /// Returns the entry of the agent's map for a collector at this address.
    pub fn to_core(&self, collector: IpAddr) -> abi::dwell_sync_session {
        abi::dwell_sync_session { key: self.key.to_core(), peer: address(collector), largest: 0 }
    }

    /// Returns the initial entry of the collector's map.
    pub fn to_probe(&self, from: IpAddr, to: IpAddr) -> abi::dwell_sync_probe {
        abi::dwell_sync_probe { key: self.key.to_core(), src: address(from), dst: address(to), ..Default::default() }
    }
}

/// Converts an address; IPv4 becomes ::ffff:a.b.c.d.
fn address(ip: IpAddr) -> abi::dwell_address {
    let octets = match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    abi::dwell_address::read_from_bytes(&octets).expect("both are 16 bytes")
}

/// The component that stamped a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamper {
    /// The XDP program.
    Xdp,
    /// A socket.
    Socket,
    /// A socket; the XDP program answers the next request if it comes soon.
    SocketYet,
}

impl Stamper {
    /// Decodes the number in a packet.
    pub fn from_core(number: u64) -> Option<Stamper> {
        match u32::try_from(number) {
            Ok(abi::DWELL_SYNC_XDP) => Some(Stamper::Xdp),
            Ok(abi::DWELL_SYNC_SOCKET) => Some(Stamper::Socket),
            Ok(abi::DWELL_SYNC_SOCKET_YET) => Some(Stamper::SocketYet),
            _ => None,
        }
    }

    fn to_core(self) -> u8 {
        let number = match self {
            Stamper::Xdp => abi::DWELL_SYNC_XDP,
            Stamper::Socket => abi::DWELL_SYNC_SOCKET,
            Stamper::SocketYet => abi::DWELL_SYNC_SOCKET_YET,
        };
        number as u8
    }
}

/// Returns a request. Its sequence number must be greater than all before in the session.
pub fn request(session: &Session, sequence: u64) -> [u8; MESSAGE_BYTES] {
    let mut message = abi::dwell_sync {
        magic: abi::DWELL_SYNC_MAGIC,
        version: abi::DWELL_SYNC_VERSION as u8,
        kind: abi::DWELL_SYNC_REQUEST as u8,
        session: session.id,
        sequence,
        ..abi::dwell_sync::new_zeroed()
    };
    native::seal(&session.key, &mut message);
    zerocopy::transmute!(message)
}

/// Returns the reply to a request that was found valid.
pub fn answer(
    session: &Session,
    request: &[u8; MESSAGE_BYTES],
    stamper: Stamper,
    arrival_ns: u64,
    departure_ns: u64,
) -> [u8; MESSAGE_BYTES] {
    let mut message: abi::dwell_sync = zerocopy::transmute!(*request);
    message.kind = abi::DWELL_SYNC_REPLY as u8;
    message.stamper = stamper.to_core();
    message.arrival_ns = arrival_ns;
    message.departure_ns = departure_ns;
    native::seal(&session.key, &mut message);
    zerocopy::transmute!(message)
}

/// The content of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// The sequence number of the request.
    pub sequence: u64,
    /// The time at which the request arrived, by the agent's clock.
    pub arrival_ns: u64,
    /// The time at which the reply left, by the agent's clock.
    pub departure_ns: u64,
    /// The component that took these times.
    pub stamper: Stamper,
}

/// Decodes a reply of this session; `None` if it is something else, or forged.
pub fn read_reply(session: &Session, bytes: &[u8]) -> Option<Reply> {
    let message = abi::dwell_sync::read_from_bytes(bytes).ok()?;
    let kind = abi::DWELL_SYNC_REPLY as u8;
    (native::is_sealed(&session.key, &message, kind) && message.session == session.id).then_some(())?;
    Some(Reply {
        sequence: message.sequence,
        arrival_ns: message.arrival_ns,
        departure_ns: message.departure_ns,
        stamper: Stamper::from_core(message.stamper.into())?,
    })
}

/// A known error that an agent adds to its clock, to test whether a collector finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Experiment {
    /// The start of the drift, on CLOCK_MONOTONIC.
    pub since_ns: u64,
    /// The offset that is added to the clock.
    pub offset_ns: i64,
    /// The parts per 10^9 by which the clock runs fast.
    pub drift_ppb: i64,
}

impl Experiment {
    /// Converts to the core's format, with the port of the agent.
    pub fn to_core(self, port: u16) -> abi::dwell_sync_program {
        abi::dwell_sync_program {
            experiment_since_ns: self.since_ns,
            experiment_offset_ns: self.offset_ns,
            experiment_drift_ppb: self.drift_ppb,
            port,
            reserved: [0; 3],
        }
    }

    /// Returns what the agent's clock shows at a time.
    pub fn claimed(self, now_ns: u64) -> u64 {
        native::claimed(self, now_ns)
    }
}

/// Counts the fates of synchronization packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Requests answered in XDP.
    pub answered_xdp: u64,
    /// Requests passed on to the socket, which answers them.
    pub answered_socket: u64,
    /// Packets to the port that are not requests.
    pub malformed: u64,
    /// Requests of a session that was not admitted.
    pub unknown: u64,
    /// Requests of a session that did not come from its collector's address.
    pub stranger: u64,
    /// Requests with an invalid authentication code.
    pub forged: u64,
    /// Requests whose sequence number is not greater than all before.
    pub replayed: u64,
}

impl Counters {
    /// Sums the counters of all CPUs.
    pub fn sum<'a>(cpus: impl IntoIterator<Item = &'a abi::dwell_sync_counters>) -> Counters {
        let sum = counters::sum(cpus.into_iter().map(|cpu| cpu.value));
        let of = |counter| sum[counter as usize];
        Counters {
            answered_xdp: of(abi::DWELL_SYNC_ANSWERED),
            answered_socket: of(abi::DWELL_SYNC_ADMITTED),
            malformed: of(abi::DWELL_SYNC_MALFORMED),
            unknown: of(abi::DWELL_SYNC_UNKNOWN),
            stranger: of(abi::DWELL_SYNC_WRONG_PEER),
            forged: of(abi::DWELL_SYNC_FORGED),
            replayed: of(abi::DWELL_SYNC_REPLAYED),
        }
    }

    /// Returns the number of requests that were not answered.
    pub fn refused(&self) -> u64 {
        self.malformed + self.unknown + self.stranger + self.forged + self.replayed
    }
}
