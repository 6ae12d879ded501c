//! How response latency is estimated.

use crate::abi;

/// Which estimator runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Estimator {
    /// Picks by what the flow shows.
    Auto,
    /// Modes of the gaps between packets (Algorithm 2 of arXiv 2505.14358).
    Pirate,
    /// Gaps longer than this part batches (Algorithm 1), in nanoseconds.
    Gap(u64),
    /// The round trip of the TCP handshake, once a connection.
    SynAck,
}

/// How near a gap must come to a mode to belong to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Epsilon {
    /// Nanoseconds.
    Absolute(u64),
    /// A part of the mode's edge, 0 to 16; 1/256 is the finest.
    Relative(f64),
}

/// Which modes of the pirate are taken for retransmission timeouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rto {
    /// From 200 ms on (the least of Linux) if they are rare: below one gap in twenty.
    Auto,
    /// From this many nanoseconds on.
    From(u64),
}

/// Configuration of flows and estimates.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Which estimator runs.
    pub estimator: Estimator,
    /// How long an epoch is; at least 1 ms.
    pub epoch_ns: u64,
    /// What is added to a packet's time before epochs are aligned: the offset of
    /// the Unix clock, where packets have the time of another.
    pub phase_ns: u64,
    /// Modes a flow may have, 1 to 10 (pirate).
    pub modes: u8,
    /// How near a gap must come to a mode (pirate).
    pub epsilon: Epsilon,
    /// The largest mode is one that has at least this part of the gaps (pirate).
    /// 0 is the paper's rule.
    pub floor: f64,
    /// Which modes are retransmission timeouts (pirate).
    pub rto: Rto,
    /// A longer gap, or latency, is of an idle client; below 68 s.
    pub idle_ns: u64,
    /// Transport ACKs make no gaps (pirate, gap).
    pub coalesce_acks: bool,
    /// Only gaps after packets smaller than the MTU part batches (pirate).
    pub mark_small: bool,
    /// Progress further apart than this is of two responses (auto).
    pub run_gap_ns: u64,
    /// The largest IP packet of the path.
    pub mtu: u16,
    /// Without headers, a longer packet is no transport ACK.
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
            run_gap_ns: 500_000,
            mtu: 1500,
            ack_bytes: 160,
        }
    }
}

impl Config {
    /// As the core takes it.
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
