//! Messages between agents and a collector, and the join of their byte traces.

use std::collections::BTreeSet;

use dwell_engine::{
    histogram::Histogram,
    layers::{
        PathSegment,
        join::{Checkpoint, Config, HostTrace, Joiner},
    },
    measure::Method,
};
use dwell_fleet::wire::{self, AgentMessage, ByteTraces, CollectorMessage, Content, Message, Version};

/// Reads consecutive frames, as a connection carries them. Each message must survive encoding unchanged, and whatever
/// an agent reports can be stored, joined and summed up. The segments of a path must add up.
pub fn fleet(bytes: &[u8]) -> BTreeSet<Method> {
    let mut rest = bytes;
    let config = Config {
        window_ns: 1_000_000,
        wait_ns: 1_000_000,
        settle_ns: 1_000,
        max_waiting: 32,
        max_paths: 64,
        doubt_ns: 1_000,
        flows: 4,
    };
    let mut joiner = Joiner::new(config, Checkpoint::default());
    let mut now_ns = 0;
    while let Ok(frame) = wire::read(&mut rest, 1 << 16) {
        let Ok(version) = wire::version_of(&frame) else {
            continue;
        };
        if let Ok(message) = wire::decode::<CollectorMessage>(version, &frame) {
            assert_round_trip(version, &message);
        }
        let Ok(message) = wire::decode::<AgentMessage>(version, &frame) else {
            continue;
        };
        assert_round_trip(Version::NEWEST, &message);
        if let AgentMessage::Batch(batch) = message {
            now_ns += batch.number % 1_000_000;
            sum_up(&batch.content);
            join(&mut joiner, &batch.content.traces, now_ns);
        }
    }
    for window in joiner.take_finished(u64::MAX >> 1, u64::MAX >> 1) {
        for (_, path) in &window.paths {
            let sum = |segments: &mut dyn Iterator<Item = PathSegment>| -> u128 {
                segments.map(|segment| path.segment(segment).sum_ns()).sum()
            };
            let segments = sum(&mut PathSegment::ALL.into_iter().filter(|segment| segment.is_addend()));
            assert!(segments >= sum(&mut [PathSegment::Network].into_iter()));
            assert!(path.segment(PathSegment::EndToEnd).count() >= path.clamped);
        }
    }
    BTreeSet::new()
}

fn assert_round_trip<M: Message + PartialEq + std::fmt::Debug>(version: Version, message: &M) {
    let bytes = wire::encode(version, message).expect("it arrived in a frame");
    assert_eq!(wire::decode::<M>(version, &bytes).expect("just written"), *message);
}

fn sum_up(content: &Content) {
    let mut all = Histogram::default();
    for interval in &content.intervals {
        for report in &interval.segments {
            all.merge(&report.first.histogram);
            all.merge(&report.again);
        }
        let flows = interval.flows.iter().flat_map(|flow| &flow.segments);
        flows.for_each(|segment| all.merge(&segment.histogram));
    }
    let _ = all.quantile_ns(0.99);
    assert_eq!(all.mean_ns().is_some(), all.count() > 0);
}

fn join(joiner: &mut Joiner, traces: &ByteTraces, arrived_ns: u64) {
    for (passage, host) in traces.0.iter().zip((0..3).cycle()) {
        if let Some(edge_ns) = HostTrace::edge_of(passage) {
            joiner.add(HostTrace { host, trace: *passage, edge_ns, bound_ns: u64::from(passage.sent), arrived_ns });
        }
    }
}
