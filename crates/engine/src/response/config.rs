//! Configuration of response latency estimation.

use crate::abi;

/// The default gap between two runs of progress.
pub(super) const RUN_GAP_NS: f64 = 500_000.0;

/// The estimator to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Estimator {
    /// Selects a method by what the flow shows.
    Auto,
    /// Modes of the gaps between packets (Algorithm 2 of arXiv 2505.14358).
    Pirate,
    /// Gaps longer than this, in nanoseconds, separate batches (Algorithm 1).
    Gap(u64),
    /// The round trip of the TCP handshake, once per connection.
    SynAck,
}

/// The tolerance within which a gap belongs to a mode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Epsilon {
    /// An absolute tolerance in nanoseconds.
    Absolute(u64),
    /// A part of the mode's edge, 0 to 16, in steps of 1/256.
    Relative(f64),
}

/// The modes that `pirate` treats as retransmission timeouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rto {
    /// Modes from 200 ms on (the minimum of Linux) that are rare: below one gap in twenty.
    Auto,
    /// Modes from this number of nanoseconds on.
    From(u64),
}

/// Configuration of flows and estimates.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The estimator to run.
    pub estimator: Estimator,
    /// The length of an epoch; at least 1 ms.
    pub epoch_ns: u64,
    /// The offset that is added to a packet's time before epochs are aligned: that of the Unix clock, if packets are
    /// stamped by another clock.
    pub phase_ns: u64,
    /// The greatest number of modes of a flow, 1 to 10 (pirate).
    pub modes: u8,
    /// The tolerance within which a gap belongs to a mode (pirate).
    pub epsilon: Epsilon,
    /// The part of the gaps that a mode needs in order to count as the largest one (pirate). 0 is the paper's rule.
    pub floor: f64,
    /// The modes that are retransmission timeouts (pirate).
    pub rto: Rto,
    /// A longer gap or latency means that the client was idle; below 68 s.
    pub idle_ns: u64,
    /// Transport ACKs make no gaps (pirate, gap).
    pub coalesce_acks: bool,
    /// Only gaps after packets smaller than the MTU separate batches (pirate).
    pub mark_small: bool,
    /// Progress further apart than this belongs to two responses (auto).
    pub run_gap_ns: u64,
    /// The largest IP packet on the path, in bytes.
    pub mtu: u16,
    /// Without visible headers, packets longer than this are not transport ACKs.
    pub ack_bytes: u16,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            estimator: Estimator::Auto,
            epoch_ns: 1_000_000_000,
            phase_ns: 0,
            modes: abi::DWELL_MODES as u8,
            epsilon: Epsilon::Relative(0.5),
            floor: 0.05,
            rto: Rto::Auto,
            idle_ns: 5_000_000_000,
            coalesce_acks: true,
            mark_small: true,
            run_gap_ns: RUN_GAP_NS as u64,
            mtu: 1500,
            ack_bytes: 160,
        }
    }
}

impl Config {
    /// Converts to the core's format.
    pub fn to_core(&self) -> abi::dwell_response_config {
        let (epsilon_ns, epsilon_q8) = match self.epsilon {
            Epsilon::Absolute(ns) => (ns, 0),
            Epsilon::Relative(part) => (0, ((part * 256.0) as u32).clamp(1, 16 * 256)),
        };
        let (estimator, threshold_ns) = match self.estimator {
            Estimator::Auto => (abi::DWELL_ESTIMATE_AUTO, 0),
            Estimator::Pirate => (abi::DWELL_ESTIMATE_PIRATE, 0),
            Estimator::Gap(threshold_ns) => (abi::DWELL_ESTIMATE_GAP, threshold_ns),
            Estimator::SynAck => (abi::DWELL_ESTIMATE_SYN_ACK, 0),
        };
        let epoch_ns = self.epoch_ns.max(1_000_000);
        abi::dwell_response_config {
            epoch_ns,
            phase_ns: self.phase_ns % epoch_ns,
            epsilon_ns,
            idle_ns: self.idle_ns.min((1 << 36) - 1),
            threshold_ns,
            run_gap_ns: self.run_gap_ns,
            epsilon_q8,
            mtu: self.mtu,
            ack_bytes: self.ack_bytes,
            estimator: estimator as u8,
            modes: self.modes.clamp(1, abi::DWELL_MODES as u8),
            coalesce_acks: self.coalesce_acks.into(),
            mark_small: self.mark_small.into(),
            reserved: [0; 4],
        }
    }
}
