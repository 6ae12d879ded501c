//! Reports what the stack monitor observes to a collector, and serves it to Prometheus.

use std::{
    collections::{HashMap, HashSet},
    mem,
    time::Duration,
};

use dwell_engine::{
    layers::{ByteTrace, Direction, Ends, FlowFigures, Isns, PathSegment, SegmentFigures},
    socket::TcpInfo,
};
use dwell_fleet::{
    Backlog, Batcher, Lanes,
    wire::{FlowReport, FlowRtt, IntervalReport, MAX_NAME_BYTES, SegmentReport},
};
use dwell_metrics::Shared;
use dwell_probes::stack::{Interval, Observer};
use dwell_records::{Status, Verb, Verdict};
use dwell_socket::outside;

use super::metrics::BacklogMetrics;
use crate::{
    exit::Failure,
    log::log,
    segments::Segments,
    served::MetricsOutputs,
    source::{Namespaces, StackMetrics, clock, stack_status},
    statuses::Statuses,
};

/// Flows per interval whose initial sequence numbers are kept at most, some 100 bytes each.
const MAX_ISNS: usize = 1 << 16;

/// Sends what it observes to its collectors.
pub struct Reporter {
    batcher: Batcher,
    served: Option<(MetricsOutputs, Shared<StackMetrics>, Shared<BacklogMetrics>)>,
    /// Whether the user knows that round-trip times are unavailable.
    has_warned: bool,
    /// The initial sequence numbers of flows, by their ends and the number of their network namespace: of bytes since the last
    /// interval, and of those before.
    isns: [HashMap<(Ends, u32), Isns>; 2],
    /// The kernel reports the round-trip times of sockets in the agent's own one only.
    namespaces: Namespaces,
    statuses: Statuses,
    /// That of the last interval.
    status: Option<Status>,
    /// What `--fail-if` judges.
    segments: Segments,
}

impl Reporter {
    pub fn new(
        lanes: Lanes,
        served: Option<MetricsOutputs>,
        namespaces: Namespaces,
        statuses: Statuses,
        segments: Segments,
    ) -> Reporter {
        let served = served.map(|served| {
            let metrics = served.registry.register(StackMetrics::default());
            let backlog = served.registry.register(BacklogMetrics::default());
            (served, metrics, backlog)
        });
        Reporter {
            batcher: Batcher::new(lanes),
            served,
            has_warned: false,
            isns: Default::default(),
            namespaces,
            statuses,
            status: None,
            segments,
        }
    }

    /// Waits at most `timeout` until all batches are stored. Returns what is left, and what became of the conditions.
    pub fn finish(mut self, timeout: Duration) -> (Backlog, Option<Verdict>) {
        let left = self.batcher.finish(timeout);
        let verdict = self.segments.judge();
        if let Some(status) = self.status {
            self.statuses.print(with_backlog(Status { last: true, verdict: verdict.clone(), ..status }, left));
        }
        (left, verdict)
    }

    /// Returns the round-trip times that the host's TCP has measured, by the flow from this host.
    fn round_trips(&mut self, flows: &[FlowFigures]) -> HashMap<Ends, RoundTrip> {
        let own = flows.iter().filter(|flow| self.namespaces.is_own(flow.namespace));
        let wanted: HashSet<_> = own.flat_map(|flow| [flow.ends, reverse(flow.ends)]).collect();
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
            log(format_args!(
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
        // Those of an agent that watches its own namespace alone are all of 0.
        let namespace = if self.namespaces.is_own(passage.namespace) { 0 } else { passage.namespace };
        self.batcher.push_trace(ByteTrace { namespace, ..*passage });
        if let Some(isns) = passage.isns.filter(|_| self.isns[0].len() < MAX_ISNS) {
            self.isns[0].insert((passage.ends, passage.namespace), isns);
        }
        Ok(())
    }

    fn end_poll(&mut self) -> Result<(), Failure> {
        self.batcher.flush_if_due();
        Ok(())
    }

    fn interval(&mut self, interval: &Interval) -> Result<(), Failure> {
        let counters: Vec<_> = interval.counts().into_iter().map(|(name, count)| (name.into_owned(), count)).collect();
        if let Some((_, metrics, backlog)) = &self.served {
            let segments = interval.segments.iter().map(|figures| (figures.segment, &figures.histogram));
            metrics.lock().interval(segments, &counters, &interval.run_times);
            backlog.lock().update(self.batcher.backlog());
        }
        for one in &interval.segments {
            self.segments.add(PathSegment::Host(one.segment), &one.histogram);
        }
        let status = stack_status(Verb::Agent, interval, false);
        self.statuses.print(with_backlog(status.clone(), self.batcher.backlog()));
        self.status = Some(status);
        let segments = interval.segments.iter().zip(&interval.again).zip(&interval.hooks);
        let segments = segments.map(|((first, again), hooks)| SegmentReport {
            first: first.clone(),
            again: again.histogram.clone(),
            hooks: hooks.clone(),
        });
        let round_trips = self.round_trips(&interval.flows);
        self.namespaces.forget();
        // Bytes of the interval may have come since it ended, and bytes of the next one before that.
        let [young, old] = &self.isns;
        let flows = interval.flows.iter().map(|flow| {
            let used: Vec<_> = flow.segments.iter().filter(|figures| figures.histogram.count() > 0).cloned().collect();
            let rtts = match self.namespaces.is_own(flow.namespace) {
                true => rtts_of(flow.ends, &used, &round_trips),
                false => Vec::new(),
            };
            let namespace = self.namespaces.name(flow.namespace).map(within_a_message);
            let of = (flow.ends, flow.namespace);
            let isns = young.get(&of).or_else(|| old.get(&of)).copied();
            (FlowReport { ends: flow.ends, namespace, isns, segments: used }, rtts)
        });
        let (flows, rtts): (Vec<_>, Vec<_>) = flows.unzip();
        self.isns = [HashMap::new(), mem::take(&mut self.isns[0])];
        let report = IntervalReport {
            end_ns: interval.end_ns,
            end_unix_ns: i64::try_from(clock().unix_ns(interval.end_ns)).unwrap_or(0),
            length_ns: interval.length_ns,
            sample_bytes: interval.sample_bytes,
            segments: segments.collect(),
            flows,
            rtts: rtts.concat(),
        };
        self.batcher.push_interval(report, counters);
        Ok(())
    }
}

/// Returns the round-trip times of a flow, for the directions of the segments in which its bytes passed.
fn rtts_of(ends: Ends, used: &[SegmentFigures], round_trips: &HashMap<Ends, RoundTrip>) -> Vec<FlowRtt> {
    let rtts =
        [(Direction::Tx, ends), (Direction::Rx, reverse(ends))].into_iter().filter_map(|(direction, from_here)| {
            let is_used = used.iter().any(|figures| figures.segment.direction() == direction);
            let trip = round_trips.get(&from_here).filter(|_| is_used)?;
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

/// Adds what waits for the collector, and what was given up.
fn with_backlog(mut status: Status, backlog: Backlog) -> Status {
    status.lost += backlog.dropped;
    let counts =
        [("batches_waiting", backlog.batches), ("batches_dropped", backlog.dropped), ("backlog_bytes", backlog.bytes)];
    status.counters.extend(counts.map(|(name, count)| (name.into(), count)));
    status
}

/// Shortens a name to what a message can hold.
fn within_a_message(name: &str) -> String {
    let mut name = name.to_owned();
    while name.len() > MAX_NAME_BYTES {
        name.pop();
    }
    name
}

fn reverse(ends: Ends) -> Ends {
    Ends { src: ends.dst, dst: ends.src }
}
