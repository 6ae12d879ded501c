//! What to measure, in the terms of a user, and as the core wants it.

use crate::{abi, measure::Method, rtt::FilterRule, table};

/// How often a flow may be sampled, in each direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RateLimit {
    /// At most one stamp in so many nanoseconds; 0 for no limit.
    Interval(u64),
    /// At most one stamp in so many round trips of the flow, and in so many
    /// nanoseconds while its round trip is not known.
    RoundTrips(f64, u64),
}

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The matchers to run. TCP data of a flow with timestamps goes to
    /// `TcpTimestamp` if that is among them, else to `TcpSeq`.
    pub methods: Vec<Method>,
    /// Which flows to follow.
    pub filter: Vec<FilterRule>,
    /// How often a flow may be sampled.
    pub rate_limit: RateLimit,
    /// Flows that the table must hold at once.
    pub max_flows: u32,
    /// A flow without a packet for so long makes room for others.
    pub idle_timeout_ns: u64,
    /// Spin-bit edges of one side closer than this are taken for reordering.
    pub spin_floor_ns: u64,
    /// Measure SYN and SYN-ACK too.
    pub include_handshake: bool,
    /// Stamp pure ACKs too.
    pub stamp_acks: bool,
    /// Report the opening, the first round trip and the end of flows.
    pub flow_events: bool,
    /// Seeds the flow hash, so that nobody can aim at one bucket.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            methods: Method::ALL.to_vec(),
            filter: Vec::new(),
            rate_limit: RateLimit::Interval(0),
            max_flows: 100_000,
            idle_timeout_ns: 30_000_000_000,
            spin_floor_ns: 50_000,
            include_handshake: false,
            stamp_acks: false,
            flow_events: false,
            seed: 0,
        }
    }
}

impl Config {
    /// Buckets of the flow table.
    pub fn buckets(&self) -> u32 {
        table::buckets(self.max_flows)
    }

    /// Places for stamps: a power of two, four for each flow.
    pub fn stamps(&self) -> u32 {
        self.max_flows.clamp(16_384, 1 << 24).next_power_of_two() * 4
    }

    /// The same in the core's terms.
    pub fn to_core(&self) -> abi::dwell_rtt_config {
        let mut core = abi::dwell_rtt_config {
            table: table::to_core(&self.filter, self.max_flows, self.idle_timeout_ns, self.seed),
            spin_floor_ns: self.spin_floor_ns,
            methods: self.methods.iter().fold(0, |bits, method| bits | 1 << *method as u32),
            stamp_mask: self.stamps() - 1,
            include_handshake: self.include_handshake.into(),
            stamp_acks: self.stamp_acks.into(),
            flow_events: self.flow_events.into(),
            ..Default::default()
        };
        match self.rate_limit {
            RateLimit::Interval(ns) => core.rate_limit_ns = ns,
            RateLimit::RoundTrips(multiple, ns) => {
                core.rate_limit_ns = ns;
                core.rtt_rate_q8 = ((multiple * 256.0).round() as u32).max(1);
            }
        }
        core
    }
}
