//! The policies that can be compared.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A balancing policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Selects by the client's address, but diverts heavy clients of an overloaded server.
    ZeroRtt,
    /// Selects as `ZeroRtt` does, but no client uses 0-RTT.
    ZeroRttOff,
    /// Selects the server with the least work left, known exactly.
    LeastLoaded,
    /// Selects the server with the shortest waiting time by the latest report that has reached the balancer.
    #[serde(rename = "least-reported")]
    LeastReported,
    /// Draws two servers at random and selects the one with less work left.
    PowerOfTwo,
    /// Selects by the client's address alone.
    SessionAffinity,
    /// TCP: the fewest open connections for a weight that follows measured response latency.
    Latency,
    /// TCP: Maglev with equal weights.
    Maglev,
}

impl Policy {
    /// All policies.
    pub const ALL: [Policy; 8] = [
        Policy::ZeroRtt,
        Policy::ZeroRttOff,
        Policy::LeastLoaded,
        Policy::LeastReported,
        Policy::PowerOfTwo,
        Policy::SessionAffinity,
        Policy::Latency,
        Policy::Maglev,
    ];

    /// Returns the name that scenarios and output use.
    pub fn name(self) -> &'static str {
        match self {
            Policy::ZeroRtt => "zero-rtt",
            Policy::ZeroRttOff => "zero-rtt-off",
            Policy::LeastLoaded => "least-loaded",
            Policy::LeastReported => "least-reported",
            Policy::PowerOfTwo => "power-of-two",
            Policy::SessionAffinity => "session-affinity",
            Policy::Latency => "latency",
            Policy::Maglev => "maglev",
        }
    }

    /// Whether its connections use TCP: no 0-RTT, and one more round trip.
    pub fn is_tcp(self) -> bool {
        matches!(self, Policy::Latency | Policy::Maglev)
    }

    pub(crate) fn has_zero_rtt(self) -> bool {
        !self.is_tcp() && self != Policy::ZeroRttOff
    }

    /// Whether its servers report their waiting times.
    pub(crate) fn needs_loads(self) -> bool {
        matches!(self, Policy::ZeroRtt | Policy::ZeroRttOff | Policy::LeastReported)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_agree_with_scenarios() {
        for policy in Policy::ALL {
            let quoted = serde_json::to_string(&policy).unwrap();
            assert_eq!(quoted, format!("\"{}\"", policy.name()));
        }
    }
}
