//! Whether the connection table runs out of room, and what fills it.

use std::fmt;

use dwell_engine::{balance::Protocol, rtt::Counter};
use dwell_probes::balancer::{Counters, Load, Reason};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::vip::RunningVip;

/// The part of new connections that may lose or not find a slot before the table counts as under pressure. Some miss
/// theirs in any table that is nearly full.
const TOLERATED: f64 = 0.01;
/// Fewer than these are no pressure, whatever part of the new connections they are.
const FEWEST: u64 = 16;

/// How most of the new connections of an interval began, while the connection table had no room for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "lb-pressure-kind")]
pub enum PressureKind {
    /// With a SYN of TCP.
    Syn,
    /// With another packet of TCP: an ACK flood, or routes have moved connections here.
    Ack,
    /// With a packet of UDP.
    Udp,
}

impl fmt::Display for PressureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PressureKind::Syn => "most begin with a SYN",
            PressureKind::Ack => "most begin without a SYN: a flood of ACKs, or routes have moved connections here",
            PressureKind::Udp => "most are of UDP",
        })
    }
}

/// The last interval of a connection table that had no room for all connections. While that lasts, the policies hold
/// their weights: connections without a slot stay at their backends as long as the table of their VIP stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "lb-pressure")]
pub struct Pressure {
    /// How most of the new connections began.
    pub kind: PressureKind,
    /// New connections that began with a SYN.
    pub syn: u64,
    /// New connections that began with another packet of TCP.
    pub ack: u64,
    /// New connections of UDP, QUIC included.
    pub udp: u64,
    /// Packets of new connections that found no slot.
    pub full: u64,
    /// Connections that lost their slot, because they had not shown for long enough that somebody answers them.
    pub evicted: u64,
}

impl fmt::Display for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the connection table has no room for all: in the last interval {} packets of new connections found no \
             slot, and {} connections that were not settled lost theirs; {}; weights are held",
            self.full, self.evicted, self.kind
        )
    }
}

/// The counters that pressure is judged by, since the data plane began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    tcp: u64,
    udp: u64,
    ack: u64,
    full: u64,
    evicted: u64,
}

impl Totals {
    pub(super) fn of(vips: &[RunningVip], loads: &[Load], counters: &Counters) -> Totals {
        let opened = |protocol: Protocol| -> u64 {
            let vips = vips.iter().filter(|run| run.vip.key.protocol == protocol);
            vips.map(|run| super::status::load(loads, run.number).opened).sum()
        };
        Totals {
            tcp: opened(Protocol::Tcp),
            udp: opened(Protocol::Udp),
            ack: counters.get(Reason::Fallback),
            full: counters.get(Reason::Full),
            evicted: counters.table.get(Counter::FlowsEvicted),
        }
    }

    /// Returns the pressure of the interval between `before` and these totals; none if all connections had room. A VIP
    /// that was added or removed in between makes its kind uncertain.
    pub(super) fn pressure_since(&self, before: &Totals) -> Option<Pressure> {
        let full = self.full.saturating_sub(before.full);
        let evicted = self.evicted.saturating_sub(before.evicted);
        let tcp = self.tcp.saturating_sub(before.tcp);
        let udp = self.udp.saturating_sub(before.udp);
        // Some of these were RSTs, which open nothing.
        let ack = self.ack.saturating_sub(before.ack).min(tcp);
        let lost = full + evicted;
        if lost < FEWEST || (lost as f64) < TOLERATED * (tcp + udp + full) as f64 {
            return None;
        }
        let syn = tcp - ack;
        let kinds = [(syn, PressureKind::Syn), (ack, PressureKind::Ack), (udp, PressureKind::Udp)];
        let (_, kind) = kinds.into_iter().max_by_key(|(count, _)| *count)?;
        Some(Pressure { kind, syn, ack, udp, full, evicted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_told_by_what_most_connections_began_with() {
        let before = Totals { tcp: 1000, udp: 10, ack: 50, full: 5, evicted: 7 };
        assert_eq!(before.pressure_since(&before), None);
        let quiet = Totals { tcp: 101_000, ack: 60, full: 505, evicted: 407, ..before };
        assert_eq!(quiet.pressure_since(&before), None, "0.9 % of them");
        let floods = [
            (Totals { tcp: 10_000, evicted: 9000, ..before }, PressureKind::Syn),
            (Totals { tcp: 10_000, ack: 7000, evicted: 9000, ..before }, PressureKind::Ack),
            (Totals { tcp: 2000, udp: 10_000, full: 9000, ..before }, PressureKind::Udp),
        ];
        for (flood, kind) in floods {
            let pressure = flood.pressure_since(&before).expect("most have lost their slots");
            assert_eq!(pressure.kind, kind);
            assert_eq!(pressure.syn + pressure.ack + pressure.udp, flood.tcp + flood.udp - 1010);
        }
    }
}
