//! What synthetic agents report: flows from each agent to the next, and the bytes of them that are stamped.

use std::{
    net::{IpAddr, Ipv4Addr},
    num::NonZeroU64,
};

use dwell_engine::{
    histogram::Histogram,
    layers::{ByteTrace, Direction, Ends, Isns, Layer, Segment, SegmentFigures, SegmentHooks},
    measure::Endpoint,
};
use dwell_fleet::wire::{FlowReport, FlowRtt, SegmentReport};

/// The port that receives all flows.
const PORT: u16 = 443;
/// The first port that sends one.
const FIRST_PORT: u16 = 10_000;
/// Bytes between two stamped ones, as `dwell agent` has it.
pub(super) const SAMPLE_BYTES: u32 = 16_384;
/// How long a byte takes from one host to the next.
const NETWORK_NS: u64 = 200_000;
/// The time between two layers of a host.
const LAYER_NS: u64 = 5_000;
/// Counters of an agent, as many as `dwell agent` has.
const COUNTERS: usize = 20;

/// A flow of an agent, which sends or receives it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    ends: Ends,
    direction: Direction,
    /// Its number among those that its sender sends.
    number: usize,
}

/// Returns the flows of an agent: one half goes to the next agent, the other half comes from the previous one. A single agent
/// sends all of its flows to a host without an agent.
pub(super) fn flows(agent: usize, agents: usize, flows: usize) -> Vec<Flow> {
    let next = |agent: usize| if agents == 1 { 1 } else { (agent + 1) % agents };
    let flow = |from: usize, number: usize, direction| {
        let end = |agent, port| Endpoint { address: super::agents::address(agent).into(), port };
        let ends = Ends { src: end(from, FIRST_PORT + number as u16), dst: end(next(from), PORT) };
        Flow { ends, direction, number }
    };
    let sent = if agents == 1 { flows } else { flows.div_ceil(2) };
    let before = (agent + agents - 1) % agents;
    let down = (0..sent).map(|number| flow(agent, number, Direction::Tx));
    let up = (0..flows - sent).map(|number| flow(before, number, Direction::Rx));
    down.chain(up).collect()
}

impl Flow {
    /// The initial sequence numbers of the flow's connection, which no other has.
    fn isns(&self) -> Isns {
        let agent = match self.ends.src.address {
            IpAddr::V4(address) => address.to_bits(),
            IpAddr::V6(_) => 0,
        };
        Isns { src: agent, dst: self.number as u32 }
    }

    /// Whether a byte of the flow is stamped in this tick of an interval. There is one per interval, at both of its ends in the
    /// same tick.
    pub(super) fn is_stamped(&self, tick: u64, ticks: u64) -> bool {
        (self.number as u64).wrapping_mul(37) % ticks == tick % ticks
    }

    /// The trace of the byte that is stamped in an interval; `now_ns` is the time at which both ends have seen it.
    pub(super) fn trace(&self, interval: u64, now_ns: u64) -> ByteTrace {
        let (begun, layers) = match self.direction {
            Direction::Tx => (now_ns - 2 * NETWORK_NS, &Layer::ALL[..5]),
            Direction::Rx => (now_ns - NETWORK_NS + 5 * LAYER_NS, &Layer::ALL[5..]),
        };
        let mut stamps = [None; Layer::ALL.len()];
        for (layer, step) in layers.iter().zip(0..) {
            stamps[*layer as usize] = NonZeroU64::new(begun + step * LAYER_NS);
        }
        ByteTrace {
            ends: self.ends,
            namespace: 0,
            seq: (interval as u32).wrapping_mul(SAMPLE_BYTES),
            isns: Some(self.isns()),
            direction: self.direction,
            sent: u8::from(self.direction == Direction::Tx),
            again: false,
            stamps,
        }
    }

    /// What an agent reports of the flow at the end of an interval, in which one byte was stamped.
    pub(super) fn report(&self, now_ns: u64) -> (FlowReport, Vec<FlowRtt>) {
        let trace = self.trace(0, now_ns);
        let segments = Segment::ALL.into_iter().filter_map(|segment| {
            let mut histogram = Histogram::default();
            histogram.record(trace.segment_ns(segment).filter(|_| is_reported(segment))?);
            Some(SegmentFigures { segment, histogram })
        });
        let rtt = FlowRtt {
            ends: self.ends,
            is_received: self.direction == Direction::Rx,
            min_ns: 2 * NETWORK_NS,
            smoothed_ns: 3 * NETWORK_NS,
        };
        (
            FlowReport { ends: self.ends, namespace: None, isns: Some(self.isns()), segments: segments.collect() },
            vec![rtt],
        )
    }
}

/// The kernel keeps the unexplained time of no flow.
fn is_reported(segment: Segment) -> bool {
    !matches!(segment, Segment::TxUnexplained | Segment::RxUnexplained)
}

/// The sums over all flows of a host.
pub(super) fn segments(flows: usize) -> Vec<SegmentReport> {
    let report = |segment| {
        let mut histogram = Histogram::default();
        histogram.record_many(LAYER_NS, flows as u64);
        SegmentReport {
            first: SegmentFigures { segment, histogram },
            again: Histogram::default(),
            hooks: SegmentHooks {
                from: Some("kprobe/tcp_sendmsg_locked".into()),
                to: Some("tp_btf/net_dev_xmit".into()),
                missing: None,
            },
        }
    };
    Segment::ALL.map(report).into()
}

/// The counters of an agent; each has changed since the last interval.
pub(super) fn counters(interval: u64) -> Vec<(String, u64)> {
    (0..COUNTERS).map(|number| (format!("counter_{number}"), interval + 1)).collect()
}

/// Rows of the table `interval` that the store has of one interval of an agent with these flows.
pub(super) fn rows(flows: &[Flow]) -> u64 {
    let of_flows: usize = flows.iter().map(|flow| flow.report(1 << 40).0.segments.len()).sum();
    (Segment::ALL.len() + of_flows) as u64
}

/// The address of an agent, or of a host without one.
pub(super) fn nth_address(first: Ipv4Addr, number: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(first.to_bits() + number as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flow_between_two_agents_is_reported_by_both() {
        let all: Vec<Vec<Flow>> = (0..3).map(|agent| flows(agent, 3, 10)).collect();
        let of = |direction| {
            let mut ends: Vec<_> =
                all.iter().flatten().filter(|flow| flow.direction == direction).map(|flow| flow.ends).collect();
            ends.sort();
            ends.dedup();
            ends
        };
        assert_eq!(of(Direction::Tx).len(), 15);
        assert_eq!(of(Direction::Tx), of(Direction::Rx));
        assert_eq!(flows(0, 1, 10).iter().filter(|flow| flow.direction == Direction::Tx).count(), 10);
    }

    #[test]
    fn the_two_traces_of_a_byte_are_of_the_same_byte_and_in_order() {
        let (down, up) = (flows(0, 2, 2)[0], flows(1, 2, 2)[1]);
        let [down, up] = [down, up].map(|flow| flow.trace(3, 1 << 40));
        assert_eq!((down.ends, down.seq), (up.ends, up.seq));
        assert!(down.stamp_ns(Layer::TxDriver) < up.stamp_ns(Layer::RxDriver));
        let ticks = (0..100).filter(|tick| flows(0, 2, 2)[0].is_stamped(*tick, 100)).count();
        assert_eq!(ticks, 1);
    }
}
