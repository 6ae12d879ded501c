//! Reports what the stack monitor observes to a collector, and serves it to Prometheus.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use dwell_engine::layers::{Counters, Direction, Ends, Layer, Passage, SegmentFigures};
use dwell_fleet::{
    Backlog, Batcher, Uplink,
    wire::{FlowReport, FlowRtt, FlowSegment, IntervalReport, SegmentReport},
};
use dwell_metrics::Shared;
use dwell_probes::stack::{self, Hook, Interval, Observer};

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
    fn round_trips(&mut self, flows: &[(Ends, Vec<SegmentFigures>)]) -> HashMap<Ends, stack::Trip> {
        let wanted: HashSet<_> = flows.iter().flat_map(|(ends, _)| [*ends, reverse(*ends)]).collect();
        let mut round_trips = HashMap::new();
        if wanted.is_empty() {
            return round_trips;
        }
        let result = stack::trips(|trip| {
            if wanted.contains(&trip.ends) {
                round_trips.insert(trip.ends, trip);
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

    fn passage(&mut self, passage: &Passage) -> Result<(), Failure> {
        self.batcher.push_trace(*passage);
        Ok(())
    }

    fn end_poll(&mut self) -> Result<(), Failure> {
        self.batcher.flush_if_due();
        Ok(())
    }

    fn interval(&mut self, interval: &Interval, hooks: &[&'static Hook]) -> Result<(), Failure> {
        let counters = counters(&interval.counters);
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
fn rtts_of(ends: Ends, figures: &[SegmentFigures], round_trips: &HashMap<Ends, stack::Trip>) -> Vec<FlowRtt> {
    let rtts =
        [(Direction::Tx, ends), (Direction::Rx, reverse(ends))].into_iter().filter_map(|(direction, from_here)| {
            let is_used = |row: &SegmentFigures| row.segment.direction() == direction && row.first.count() > 0;
            let trip = round_trips.get(&from_here).filter(|_| figures.iter().any(is_used))?;
            let is_received = direction == Direction::Rx;
            Some(FlowRtt { ends, is_received, min_ns: trip.least_ns, smoothed_ns: trip.smoothed_ns })
        });
    rtts.collect()
}

fn reverse(ends: Ends) -> Ends {
    Ends { src: ends.dst, dst: ends.src }
}

fn counters(counters: &Counters) -> Vec<(String, u64)> {
    let missed = Layer::ALL.map(|layer| (format!("missed {}", layer.name()), counters.missed(layer)));
    let named = counters.named().map(|(name, value)| (name.to_owned(), value));
    named.chain(missed).collect()
}
