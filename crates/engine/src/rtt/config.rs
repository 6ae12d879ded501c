//! Configuration of RTT measurement, and its conversion to the core's format.

use crate::{abi, filter::Filter, measure::Method, table};

/// The limit on how often a flow is sampled, in each direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RateLimit {
    /// At most one stamp per this number of nanoseconds; 0 means no limit.
    Interval(u64),
    /// At most one stamp per this multiple of the flow's round-trip time, and one per this number of nanoseconds while
    /// the round-trip time is unknown.
    RoundTrips(f64, u64),
}

/// Configuration of a [`Tracker`](super::Tracker).
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The matchers to run. TCP data of a flow with timestamps is measured by `TcpTimestamp` if that is in the list,
    /// else by `TcpSeq`; see `tcp_auto`.
    pub methods: Vec<Method>,
    /// Choose between `TcpTimestamp` and `TcpSeq` for each direction of a TCP flow with timestamps, by what measures it
    /// best, if both are in `methods`.
    pub tcp_auto: bool,
    /// Do not tell flows apart by VLAN and tunnel.
    pub ignore_tunnels: bool,
    /// The flows to follow.
    pub filter: Filter,
    /// The limit on samples of a flow.
    pub rate_limit: RateLimit,
    /// The number of flows that the table must be able to hold at once.
    pub max_flows: u32,
    /// A flow without a packet for this time makes room for others.
    pub idle_timeout_ns: u64,
    /// Spin-bit edges from one side less than this apart are treated as reordering.
    pub spin_floor_ns: u64,
    /// Measure SYN and SYN-ACK as well.
    pub include_handshake: bool,
    /// Stamp pure ACKs as well.
    pub stamp_acks: bool,
    /// Report the start, the first round-trip time and the end of flows.
    pub flow_events: bool,
    /// Seeds the flow hash, so that nobody can target one bucket.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            methods: Method::ALL.to_vec(),
            tcp_auto: false,
            ignore_tunnels: false,
            filter: Filter::default(),
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
    /// Returns the number of buckets of the flow table.
    pub fn buckets(&self) -> u32 {
        table::buckets(self.max_flows)
    }

    /// Returns the number of slots of the flow table.
    pub fn slots(&self) -> u32 {
        table::slots(self.max_flows)
    }

    /// Returns the number of slots for stamps: a power of two, at least four for each flow.
    pub fn stamps(&self) -> u32 {
        self.max_flows.clamp(16_384, 1 << 24).next_power_of_two() * 4
    }

    /// Converts to the core's format.
    pub fn to_core(&self) -> abi::dwell_rtt_config {
        let both = [Method::TcpTimestamp, Method::TcpSeq];
        let mut core = abi::dwell_rtt_config {
            table: table::to_core(&self.filter, self.max_flows, self.idle_timeout_ns, self.seed),
            spin_floor_ns: self.spin_floor_ns,
            methods: self.methods.iter().fold(0, |bits, method| bits | 1 << *method as u32),
            stamp_mask: self.stamps() - 1,
            include_handshake: self.include_handshake.into(),
            stamp_acks: self.stamp_acks.into(),
            flow_events: self.flow_events.into(),
            ignore_tunnels: self.ignore_tunnels.into(),
            tcp_auto: (self.tcp_auto && both.iter().all(|method| self.methods.contains(method))).into(),
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
