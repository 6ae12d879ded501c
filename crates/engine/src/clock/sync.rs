//! The packets that compare clocks. `core/clock/sync.h` has what the kernel does with
//! them; this is the same for user space, by the same code.
#![allow(unsafe_code)]

use std::{fmt, net::IpAddr};

use zerocopy::{FromBytes, FromZeros};

use crate::abi;

/// Bytes of a request and of a reply: the payload of a UDP packet.
pub const MESSAGE_BYTES: usize = size_of::<abi::dwell_sync>();

/// The secret of a session, known to its collector and its agent alone.
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

/// What a collector and an agent agree on before the first exchange, over a
/// channel that both trust. A key serves one session: where a session begins
/// anew, its sequence does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Tells the session from others of the same agent or collector.
    pub id: u64,
    /// Authenticates its packets.
    pub key: Key,
}

impl Session {
    /// As an agent's map keeps it, for the collector at an address.
    pub fn to_core(&self, collector: IpAddr) -> abi::dwell_sync_session {
        abi::dwell_sync_session { key: self.key.to_core(), peer: address(collector), largest: 0 }
    }

    /// The begin of what a collector's map keeps.
    pub fn to_probe(&self, from: IpAddr, to: IpAddr) -> abi::dwell_sync_probe {
        abi::dwell_sync_probe { key: self.key.to_core(), src: address(from), dst: address(to), ..Default::default() }
    }
}

/// IPv4 as ::ffff:a.b.c.d.
fn address(ip: IpAddr) -> abi::dwell_address {
    let octets = match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    abi::dwell_address::read_from_bytes(&octets).expect("both are 16 bytes")
}

/// Who took the times of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamper {
    /// The program at XDP.
    Xdp,
    /// A socket.
    Socket,
    /// A socket; if asked again soon, the program at XDP answers.
    SocketYet,
}

impl Stamper {
    /// From the number in a packet.
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

/// A request. Its sequence is greater than that of all before in the session.
pub fn request(session: &Session, sequence: u64) -> [u8; MESSAGE_BYTES] {
    let mut message = abi::dwell_sync {
        magic: abi::DWELL_SYNC_MAGIC,
        version: abi::DWELL_SYNC_VERSION as u8,
        kind: abi::DWELL_SYNC_REQUEST as u8,
        session: session.id,
        sequence,
        ..abi::dwell_sync::new_zeroed()
    };
    seal(&session.key, &mut message);
    zerocopy::transmute!(message)
}

/// The reply to a request that was found to be in order.
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
    seal(&session.key, &mut message);
    zerocopy::transmute!(message)
}

/// What a reply says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// Of the request.
    pub sequence: u64,
    /// When the request arrived, by the agent's clock.
    pub arrival_ns: u64,
    /// When the reply left, by the agent's clock.
    pub departure_ns: u64,
    /// Who says so.
    pub stamper: Stamper,
}

/// A reply of this session; none where it is something else, or forged.
pub fn read_reply(session: &Session, bytes: &[u8]) -> Option<Reply> {
    let message = abi::dwell_sync::read_from_bytes(bytes).ok()?;
    let kind = abi::DWELL_SYNC_REPLY as u8;
    // SAFETY: both are valid, and the core keeps no pointer.
    let sealed = unsafe { abi::dwell_sync_is_sealed(&session.key.to_core(), &message, kind) };
    (sealed != 0 && message.session == session.id).then_some(())?;
    Some(Reply {
        sequence: message.sequence,
        arrival_ns: message.arrival_ns,
        departure_ns: message.departure_ns,
        stamper: Stamper::from_core(message.stamper.into())?,
    })
}

fn seal(key: &Key, message: &mut abi::dwell_sync) {
    // SAFETY: both are valid, and the core keeps no pointer.
    unsafe { abi::dwell_sync_seal(&key.to_core(), message) }
}

/// Has an agent lie about its clock by a known amount, to see whether a
/// collector finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Experiment {
    /// When the drift begins, CLOCK_MONOTONIC.
    pub since_ns: u64,
    /// Added to the clock.
    pub offset_ns: i64,
    /// Parts in 10^9 by which the clock runs fast.
    pub drift_ppb: i64,
}

impl Experiment {
    /// As the core takes it, with the port of the agent.
    pub fn to_core(self, port: u16) -> abi::dwell_sync_program {
        abi::dwell_sync_program {
            experiment_since_ns: self.since_ns,
            experiment_offset_ns: self.offset_ns,
            experiment_drift_ppb: self.drift_ppb,
            port,
            reserved: [0; 3],
        }
    }

    /// What the agent's clock shows at a time.
    pub fn claimed(self, now_ns: u64) -> u64 {
        // SAFETY: the argument is valid, and the core keeps no pointer.
        unsafe { abi::dwell_sync_claimed(&self.to_core(0), now_ns) }
    }
}

/// What became of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Requests answered in XDP.
    pub answered_xdp: u64,
    /// Requests left to the socket, which answers them.
    pub answered_socket: u64,
    /// Came to the port, and are no requests.
    pub malformed: u64,
    /// Of no session that was admitted.
    pub unknown: u64,
    /// Of a session, and not from its collector's address.
    pub stranger: u64,
    /// The code that authenticates it is wrong.
    pub forged: u64,
    /// Their sequence is not greater than all before.
    pub replayed: u64,
}

impl Counters {
    /// Over all CPUs.
    pub fn sum<'a>(cpus: impl IntoIterator<Item = &'a abi::dwell_sync_counters>) -> Counters {
        let mut sum = [0u64; abi::DWELL_SYNC_COUNTERS as usize];
        for cpu in cpus {
            for (total, value) in sum.iter_mut().zip(cpu.value) {
                *total += value;
            }
        }
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

    /// Requests that were not answered.
    pub fn refused(&self) -> u64 {
        self.malformed + self.unknown + self.stranger + self.forged + self.replayed
    }
}
