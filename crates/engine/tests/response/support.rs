//! Packets of a client, built by hand.

use dwell_engine::{
    abi::{self, dwell_arrival},
    response::{Config, Epoch, Epsilon, Estimator, Flow},
};

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;
/// The start of test time: within an epoch, far from 0.
pub const START: u64 = 1_000 * SECOND;

/// Returns an encrypted packet of `bytes`.
pub fn sealed(time_ns: u64, bytes: u32) -> dwell_arrival {
    dwell_arrival { time_ns, bytes, segments: 1, visible: abi::DWELL_VISIBLE_NONE as u8, ..Default::default() }
}

/// Returns a TCP packet with 52 bytes of headers.
pub fn tcp(time_ns: u64, seq: u32, payload_bytes: u32, ack: u32) -> dwell_arrival {
    dwell_arrival {
        time_ns,
        bytes: 52 + payload_bytes,
        payload_bytes,
        seq,
        ack,
        visible: abi::DWELL_VISIBLE_TCP as u8,
        tcp_flags: 0x10,
        segments: 1,
        ..Default::default()
    }
}

/// Returns the SYN of a connection that starts at sequence number `seq`.
pub fn syn(time_ns: u64, seq: u32) -> dwell_arrival {
    dwell_arrival { tcp_flags: 2, ..tcp(time_ns, seq, 0, 0) }
}

/// Returns the records of all epochs, including the last one.
pub fn epochs(config: &Config, packets: &[dwell_arrival]) -> Vec<Epoch> {
    let mut flow = Flow::new(config);
    let mut ended: Vec<Epoch> = packets.iter().filter_map(|p| flow.step(p)).collect();
    ended.extend(flow.end(u64::MAX));
    ended
}

/// Returns requests at START and after each gap.
pub fn at_gaps(gaps_ns: &[u64]) -> Vec<dwell_arrival> {
    let mut now = START;
    let mut packets = vec![sealed(now, 300)];
    for gap_ns in gaps_ns {
        now += gap_ns;
        packets.push(sealed(now, 300));
    }
    packets
}

/// Configures the paper's algorithm with an absolute epsilon, no floor, and an epoch that contains everything.
pub fn pirate(epsilon_ns: u64) -> Config {
    Config {
        estimator: Estimator::Pirate,
        epoch_ns: 100_000 * SECOND,
        epsilon: Epsilon::Absolute(epsilon_ns),
        floor: 0.0,
        idle_ns: 61 * SECOND,
        ..Config::default()
    }
}
