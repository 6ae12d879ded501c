//! Decisions on packets, and their reasons.

use crate::{
    abi,
    counters::{self, counters},
    rtt,
};

counters! {
    /// The reason of a decision on a packet. Each packet has exactly one.
    #[derive(Hash)]
    Reason: abi::DWELL_REASONS;

    /// The packet is not IP, and is passed on.
    NotIp = DWELL_REASON_NOT_IP, "not-ip";
    /// The destination is not a VIP, and the packet is passed on.
    NotVip = DWELL_REASON_NOT_VIP, "not-vip";
    /// The connection is known to be at this backend.
    Connection = DWELL_REASON_CONNECTION, "connection";
    /// The Maglev table selected the backend of a new connection, which is recorded.
    New = DWELL_REASON_NEW, "new";
    /// As for `New`, but of several candidates another one than the first had fewer open connections.
    Fewer = DWELL_REASON_FEWER, "fewer";
    /// The Maglev table selected the backend of an unknown connection that is not new.
    Fallback = DWELL_REASON_FALLBACK, "fallback";
    /// The Maglev table selected the backend; the connection table is full.
    Full = DWELL_REASON_FULL, "table-full";
    /// The Maglev table selected another backend, because the previous one is down or gone.
    Moved = DWELL_REASON_MOVED, "moved";
    /// An ICMP error went to the backend of the packet that it quotes.
    Quoted = DWELL_REASON_QUOTED, "icmp-error";
    /// The connection ID names the backend.
    Cid = DWELL_REASON_CID, "connection-id";
    /// A new connection went to another backend than its own, which is overloaded. The connection is recorded.
    Diverted = DWELL_REASON_DIVERTED, "diverted";
    /// The client's token names the backend of a new connection, or one that is gone and whose successor this is. The
    /// connection is recorded.
    Token = DWELL_REASON_TOKEN, "token";
    /// As for `Fallback`, but other backends may have the connection: the packet can go on to them, and the connection is
    /// not recorded.
    Second = DWELL_REASON_SECOND, "second-chance";
    /// A ping was answered.
    Ping = DWELL_REASON_PING, "ping";
    /// The packet is too big for the path to the backend, and the client was notified.
    TooBig = DWELL_REASON_TOO_BIG, "too-big";
    /// Dropped: the VIP has no backend.
    NoBackend = DWELL_REASON_NO_BACKEND, "no-backend";
    /// Dropped: the next hop of the backend is unknown.
    NoRoute = DWELL_REASON_NO_ROUTE, "no-route";
    /// Dropped: the hop limit is exhausted.
    Ttl = DWELL_REASON_TTL, "ttl";
    /// Dropped: the packet is a fragment.
    Fragment = DWELL_REASON_FRAGMENT, "fragment";
    /// Dropped: the packet is truncated, or a length contradicts itself.
    Malformed = DWELL_REASON_MALFORMED, "malformed";
    /// Dropped: the driver left no room for encapsulation.
    NoRoom = DWELL_REASON_NO_ROOM, "no-room";
    /// Dropped: the connection ID names no backend, in a packet that must have one.
    Unroutable = DWELL_REASON_UNROUTABLE, "unroutable";
    /// Dropped: an ICMP answer was due, but those of this second are spent, or the sender is no single host.
    Unanswered = DWELL_REASON_UNANSWERED, "unanswered";
}

counters! {
    /// A count of connection IDs and tokens, in addition to the reasons of decisions.
    #[derive(Hash)]
    CidEvent: abi::DWELL_ZERO_COUNTERS;

    /// Connection IDs that were decrypted, because they were not cached.
    Opened = DWELL_ZERO_OPENED, "opened";
    /// Connection IDs of a rotation or a length that is not configured.
    NoLayout = DWELL_ZERO_NO_LAYOUT, "no-layout";
    /// Decrypted connection IDs that were not made with the key.
    Forged = DWELL_ZERO_FORGED, "forged";
    /// Connection IDs of an unknown server.
    Nobody = DWELL_ZERO_NO_SERVER, "unknown-server";
    /// Connection IDs in long headers that are too old for this handshake.
    Old = DWELL_ZERO_OLD, "old";
    /// Load reports that were recorded.
    Noted = DWELL_ZERO_LOAD_UPDATED, "load-noted";
    /// Load reports that were refused, because they cannot be true or are too old.
    Refused = DWELL_ZERO_LOAD_REFUSED, "load-refused";
    /// New connections of heavy hitters.
    Heavy = DWELL_ZERO_HEAVY, "heavy";
    /// Connection IDs that were not decrypted, because too many from the same networks were forged.
    Unopened = DWELL_ZERO_UNOPENED, "unopened";
    /// Tokens of servers that take new connections.
    Token = DWELL_ZERO_TOKEN, "token";
    /// Tokens of servers that were drained or removed: their successors get the connections.
    TokenLeft = DWELL_ZERO_TOKEN_LEFT, "token-left";
    /// Tokens that have expired, or are from the future.
    TokenOld = DWELL_ZERO_TOKEN_OLD, "token-old";
    /// Tokens that do not begin with a rotation and layout that is configured.
    TokenOther = DWELL_ZERO_TOKEN_OTHER, "token-other";
    /// Decrypted tokens that were not made with the key.
    TokenForged = DWELL_ZERO_TOKEN_FORGED, "token-forged";
    /// Tokens that were not decrypted, because too many from the same networks were forged.
    TokenUnopened = DWELL_ZERO_TOKEN_UNOPENED, "token-unopened";
    /// Tokens of servers that are down, whose clients are placed as new ones.
    TokenDown = DWELL_ZERO_TOKEN_DOWN, "token-down";
}

impl Reason {
    /// Returns the reason with the core's number.
    pub fn from_number(number: u32) -> Option<Reason> {
        Self::ALL.get(number as usize).copied()
    }
}

/// What happens to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Passed on to the next program, or to this host.
    Pass,
    /// Dropped.
    Drop,
    /// Sent out where it came in.
    Send,
    /// Sent out at another interface.
    Redirect,
}

/// The decision on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decision {
    /// The number of the selected backend, if any.
    pub real: Option<u32>,
    /// The number of the VIP, if the packet is to one.
    pub vip: Option<u32>,
    /// The reason.
    pub reason: Reason,
    /// What happens to the packet.
    pub verdict: Verdict,
    /// The number of the interface where the packet leaves, if it does.
    pub interface: Option<u32>,
    /// The number of IP bytes of the packet as it leaves.
    pub size: u32,
}

impl Decision {
    /// Converts from the core's format. `None` if another build of the core wrote it.
    pub fn from_core(decision: &abi::dwell_decision) -> Option<Decision> {
        let known = |number: u32| (number != 0).then_some(number);
        Some(Decision {
            real: known(decision.real),
            vip: known(decision.vip),
            reason: Reason::from_number(decision.reason)?,
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

/// The counters of a balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// The counters of the connection table and of latency measurement.
    pub table: rtt::Counters,
    reasons: [u64; abi::DWELL_REASONS as usize],
    zero: [u64; abi::DWELL_ZERO_COUNTERS as usize],
    /// SYNs that were sent on with a checksum that their sender had left to a device. One in 65,536 others looks the
    /// same.
    pub unfinished: u64,
    /// Connections that were to be measured and were not, as too many others were.
    pub unmeasured: u64,
}

impl Counters {
    /// Sums the counters of several CPUs.
    pub fn sum<'a>(cpus: impl IntoIterator<Item = &'a abi::dwell_balance_counters>) -> Counters {
        let cpus: Vec<_> = cpus.into_iter().collect();
        Counters {
            table: rtt::Counters::sum(cpus.iter().map(|cpu| &cpu.table)),
            reasons: counters::sum(cpus.iter().map(|cpu| cpu.reason)),
            zero: counters::sum(cpus.iter().map(|cpu| cpu.zero)),
            unfinished: cpus.iter().map(|cpu| cpu.unfinished).sum(),
            unmeasured: cpus.iter().map(|cpu| cpu.unmeasured).sum(),
        }
    }

    /// Returns the number of all packets.
    pub fn packets(&self) -> u64 {
        self.reasons.iter().sum()
    }

    /// Returns the number of packets with this reason.
    pub fn get(&self, reason: Reason) -> u64 {
        self.reasons[reason as usize]
    }

    /// Returns a count of connection ID events.
    pub fn cid_events(&self, event: CidEvent) -> u64 {
        self.zero[event as usize]
    }
}
