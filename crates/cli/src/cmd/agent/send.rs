//! Reports what the stack monitor observes to a collector, and serves it to Prometheus.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use dwell_engine::{
    layers::{ByteTrace, Direction, Ends, Layer, SegmentFigures},
    socket::TcpInfo,
};
use dwell_fleet::{
    Backlog, Batcher, Uplink,
    wire::{FlowReport, FlowRtt, FlowSegment, IntervalReport, SegmentReport},
};
use dwell_metrics::Shared;
use dwell_probes::stack::{self, Hook, Interval, Observer};
use dwell_socket::outside;

use super::metrics::AgentMetrics;
use crate::{exit::Failure, served::Served, source::clock, tell::tell};

/// Sends what it observes to a collector.
pub struct Reporter {
    batcher: Batcher,
    served: Option<(Served, Shared<AgentMetrics>)>,
    /// Whether the user knows that round-trip times are unavailable.
    has_warned: bool,
}

impl Reporter {
    pub fn new(uplink: Uplink, served: Option<Served>) -> Reporter {
        let served = served.map(|served| {
            let metrics = served.registry.register(AgentMetrics::new());
            (served, metrics)
        });
        Reporter { batcher: Batcher::new(uplink), served, has_warned: false }
    }

    /// Waits at most `timeout` until all batches are stored. Returns what is left.
    pub fn finish(self, timeout: Duration) -> Backlog {
        self.batcher.finish(timeout)
    }

    /// Returns the round-trip times that the host's TCP has measured, by the flow from this host.
    fn round_trips(&mut self, flows: &[(Ends, Vec<SegmentFigures>)]) -> HashMap<Ends, RoundTrip> {
        let wanted: HashSet<_> = flows.iter().flat_map(|(ends, _)| [*ends, reverse(*ends)]).collect();
        let mut round_trips = HashMap::new();
        if wanted.is_empty() {
            return round_trips;
        }
        let result = outside::established(|ends, info| {
            if wanted.contains(ends) {
                round_trips.extend(RoundTrip::of(info).map(|round_trip| (*ends, round_trip)));
            }
        });
        if let Err(error) = result
            && !self.has_warned
        {
            self.has_warned = true;
            tell(format_args!(
                "round-trip times of connections are not available here: {error}; the time in the network is not \
                 estimated for flows whose other host has no agent"
            ));
        }
        round_trips
    }
}

impl Observer for Reporter {
    type Error = Failure;

    fn passage(&mut self, passage: &ByteTrace) -> Result<(), Failure> {
        self.batcher.push_trace(*passage);
        Ok(())
    }

    fn end_poll(&mut self) -> Result<(), Failure> {
        self.batcher.flush_if_due();
        Ok(())
    }

    fn interval(&mut self, interval: &Interval, hooks: &[&'static Hook]) -> Result<(), Failure> {
        let counters = counters(interval);
        if let Some((_, metrics)) = &self.served {
            let segments = interval.segments.iter().map(|figures| (figures.segment, &figures.first));
            metrics.lock().interval(segments, &counters, self.batcher.backlog());
        }
        let missing = stack::missing(hooks);
        let segments = interval.segments.iter().map(|figures| {
            let (from, to) = stack::ends(hooks, figures.segment);
            SegmentReport {
                segment: figures.segment,
                histogram: figures.first.clone(),
                again: figures.again.clone(),
                hook_from: stack::names(hooks, from),
                hook_to: stack::names(hooks, to),
                missing: missing.iter().find(|(segment, _)| *segment == figures.segment).map(|(_, layer)| *layer),
            }
        });
        let report = IntervalReport {
            end_ns: interval.end_ns,
            end_unix_ns: i64::try_from(clock().unix_ns(interval.end_ns)).unwrap_or(0),
            length_ns: interval.length_ns,
            sample_bytes: interval.sample_bytes,
            segments: segments.collect(),
            flows: Vec::new(),
            rtts: Vec::new(),
        };
        let round_trips = self.round_trips(&interval.flows);
        let flows = interval.flows.iter().map(|(ends, figures)| {
            let report = FlowReport { ends: *ends, segments: segments_of(figures) };
            (report, rtts_of(*ends, figures, &round_trips))
        });
        self.batcher.push_interval(report, flows.collect(), counters);
        Ok(())
    }
}

/// Returns the segments of the directions in which a flow's bytes passed.
fn segments_of(figures: &[SegmentFigures]) -> Vec<FlowSegment> {
    let segments = figures.iter().filter(|figures| figures.first.count() > 0);
    let segments = segments.map(|figures| FlowSegment { segment: figures.segment, histogram: figures.first.clone() });
    segments.collect()
}

/// Returns the round-trip times of a flow, for the directions in which its bytes passed.
fn rtts_of(ends: Ends, figures: &[SegmentFigures], round_trips: &HashMap<Ends, RoundTrip>) -> Vec<FlowRtt> {
    let rtts =
        [(Direction::Tx, ends), (Direction::Rx, reverse(ends))].into_iter().filter_map(|(direction, from_here)| {
            let is_used = |row: &SegmentFigures| row.segment.direction() == direction && row.first.count() > 0;
            let trip = round_trips.get(&from_here).filter(|_| figures.iter().any(is_used))?;
            let is_received = direction == Direction::Rx;
            Some(FlowRtt { ends, is_received, min_ns: trip.min_ns, smoothed_ns: trip.smoothed_ns })
        });
    rtts.collect()
}

/// The round trip of a connection, as TCP has measured it.
#[derive(Debug, Clone, Copy)]
struct RoundTrip {
    /// The minimum of the last minutes (`net.ipv4.tcp_min_rtt_wlen`).
    min_ns: u64,
    /// The smoothed one (RFC 6298).
    smoothed_ns: u64,
}

impl RoundTrip {
    /// `None` if TCP has measured none, as on a side that has sent nothing.
    fn of(info: &TcpInfo) -> Option<RoundTrip> {
        // TCP reports a minimum that it has not measured as 0 or as all ones.
        let min_us = info.min_rtt_us.filter(|us| (1..u32::MAX).contains(us))?;
        let ns = |us: u32| u64::from(us) * 1_000;
        (info.rtt_us > 0).then(|| RoundTrip { min_ns: ns(min_us), smoothed_ns: ns(info.rtt_us) })
    }
}

fn reverse(ends: Ends) -> Ends {
    Ends { src: ends.dst, dst: ends.src }
}

/// The counters of an interval, by the names that the store has them under.
fn counters(interval: &Interval) -> Vec<(String, u64)> {
    let counters = &interval.counters;
    let unreadable = ("passages_unreadable".to_owned(), interval.unreadable_passages);
    let missed = Layer::ALL.map(|layer| (format!("missed {}", layer.name()), counters.missed(layer)));
    let named = counters.named().map(|(name, value)| (name.to_owned(), value));
    named.chain([unreadable]).chain(missed).collect()
}
