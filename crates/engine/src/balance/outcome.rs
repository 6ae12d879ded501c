//! What became of packets, and why.

use crate::{abi, rtt};

macro_rules! whys {
    ($($(#[$doc:meta])* $name:ident = $core:ident, $label:literal;)*) => {
        /// Why a packet went where it went. Each packet has one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Why { $($(#[$doc])* $name = abi::$core,)* }

        impl Why {
            /// All of them.
            pub const ALL: [Why; abi::DWELL_REASONS as usize] = [$(Why::$name,)*];

            /// Its name in output.
            pub fn name(self) -> &'static str {
                match self { $(Why::$name => $label,)* }
            }
        }
    };
}

whys! {
    /// It is no IP, and passed on.
    NotIp = DWELL_REASON_NOT_IP, "not-ip";
    /// It is to nothing that is balanced, and passed on.
    NotVip = DWELL_REASON_NOT_VIP, "not-vip";
    /// Its connection is at this backend.
    Connection = DWELL_REASON_CONNECTION, "connection";
    /// The Maglev table chose; the connection is known from now on.
    New = DWELL_REASON_NEW, "new";
    /// The Maglev table chose for a connection that is not new, but not known.
    Fallback = DWELL_REASON_FALLBACK, "fallback";
    /// The Maglev table chose; the connection table has no place.
    Full = DWELL_REASON_FULL, "table-full";
    /// The Maglev table chose again, as the backend is down or gone.
    Moved = DWELL_REASON_MOVED, "moved";
    /// An ICMP error went where the packet that it quotes belongs.
    Quoted = DWELL_REASON_QUOTED, "icmp-error";
    /// Its connection ID says which backend.
    Cid = DWELL_REASON_CID, "connection-id";
    /// A new connection whose own backend is overloaded; the connection is known from now on.
    Diverted = DWELL_REASON_DIVERTED, "diverted";
    /// A ping was answered.
    Ping = DWELL_REASON_PING, "ping";
    /// Too big for the way to the backend: the client was told so.
    TooBig = DWELL_REASON_TOO_BIG, "too-big";
    /// Dropped: its VIP has no backend.
    NoBackend = DWELL_REASON_NO_BACKEND, "no-backend";
    /// Dropped: the way to the backend is not known.
    NoRoute = DWELL_REASON_NO_ROUTE, "no-route";
    /// Dropped: it had no hop left.
    Ttl = DWELL_REASON_TTL, "ttl";
    /// Dropped: a fragment.
    Fragment = DWELL_REASON_FRAGMENT, "fragment";
    /// Dropped: cut off, or a length contradicts itself.
    Malformed = DWELL_REASON_MALFORMED, "malformed";
    /// Dropped: the driver left no room for outer headers.
    NoRoom = DWELL_REASON_NO_ROOM, "no-room";
    /// Dropped: no backend's connection ID, in a packet that must have one.
    Unroutable = DWELL_REASON_UNROUTABLE, "unroutable";
}

macro_rules! seen {
    ($($(#[$doc:meta])* $name:ident = $core:ident, $label:literal;)*) => {
        /// What was seen of connection IDs, beside why packets went where they did.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Seen { $($(#[$doc])* $name = abi::$core,)* }

        impl Seen {
            /// All of them.
            pub const ALL: [Seen; abi::DWELL_ZERO_COUNTERS as usize] = [$(Seen::$name,)*];

            /// Its name in output.
            pub fn name(self) -> &'static str {
                match self { $(Seen::$name => $label,)* }
            }
        }
    };
}

seen! {
    /// Opened: they were not cached.
    Opened = DWELL_ZERO_OPENED, "opened";
    /// Of a rotation or a length that is not configured.
    NoLayout = DWELL_ZERO_NO_LAYOUT, "no-layout";
    /// Opened, and made by nobody with the key.
    Forged = DWELL_ZERO_FORGED, "forged";
    /// Of a server that there is not.
    Nobody = DWELL_ZERO_NO_SERVER, "nobody";
    /// In a long header, and not of this handshake.
    Old = DWELL_ZERO_OLD, "old";
    /// News of a server's load.
    Noted = DWELL_ZERO_LOAD_UPDATED, "load-noted";
    /// News of a server's load that cannot be true, or are too old.
    Refused = DWELL_ZERO_LOAD_REFUSED, "load-refused";
    /// New connections of heavy hitters.
    Heavy = DWELL_ZERO_HEAVY, "heavy";
}

impl Why {
    /// The reason of the core's number.
    pub fn from_number(number: u32) -> Option<Why> {
        Self::ALL.get(number as usize).copied()
    }
}

/// What a packet met with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It goes on to the next program, or to this host.
    Pass,
    /// It is dropped.
    Drop,
    /// It goes out where it came in.
    Send,
    /// It goes out at another interface.
    Redirect,
}

/// What was decided about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decision {
    /// The backend's number, if one was chosen.
    pub real: Option<u32>,
    /// The VIP's number, if it is to one that is balanced.
    pub vip: Option<u32>,
    /// Why.
    pub why: Why,
    /// What it met with.
    pub verdict: Verdict,
    /// Where it goes out, if it does.
    pub interface: Option<u32>,
    /// Bytes of IP as it goes out.
    pub size: u32,
}

impl Decision {
    /// None if it is not of this build's core.
    pub fn from_core(decision: &abi::dwell_decision) -> Option<Decision> {
        let known = |number: u32| (number != 0).then_some(number);
        Some(Decision {
            real: known(decision.real),
            vip: known(decision.vip),
            why: Why::from_number(decision.reason)?,
            verdict: match decision.verdict {
                abi::DWELL_VERDICT_PASS => Verdict::Pass,
                abi::DWELL_VERDICT_DROP => Verdict::Drop,
                abi::DWELL_VERDICT_SEND => Verdict::Send,
                abi::DWELL_VERDICT_REDIRECT => Verdict::Redirect,
                _ => return None,
            },
            interface: known(decision.interface),
            size: decision.size,
        })
    }
}

/// What a balancer has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Of the connection table, and of measuring.
    pub table: rtt::Counters,
    whys: [u64; abi::DWELL_REASONS as usize],
    zero: [u64; abi::DWELL_ZERO_COUNTERS as usize],
}

impl Counters {
    /// The counters of several CPUs as one.
    pub fn sum<'a>(cpus: impl IntoIterator<Item = &'a abi::dwell_balance_counters>) -> Counters {
        let cpus: Vec<_> = cpus.into_iter().collect();
        let mut whys = [0u64; abi::DWELL_REASONS as usize];
        let mut zero = [0u64; abi::DWELL_ZERO_COUNTERS as usize];
        for cpu in &cpus {
            for (sum, value) in zero.iter_mut().zip(cpu.zero) {
                *sum += value;
            }
            for (sum, value) in whys.iter_mut().zip(cpu.reason) {
                *sum += value;
            }
        }
        Counters { table: rtt::Counters::sum(cpus.iter().map(|cpu| &cpu.table)), whys, zero }
    }

    /// Packets that met with this.
    pub fn get(&self, why: Why) -> u64 {
        self.whys[why as usize]
    }

    /// What was seen of connection IDs.
    pub fn seen(&self, seen: Seen) -> u64 {
        self.zero[seen as usize]
    }
}
