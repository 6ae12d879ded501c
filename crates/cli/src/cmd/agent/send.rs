//! From what is measured to batches.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use dwell_engine::layers::{Counters, Direction, Ends, Layer, Passage};
use dwell_fleet::{
    Backlog, Uplink,
    wire::{ByteTraces, Content, FlowReport, FlowRtt, FlowSegment, IntervalReport, SegmentReport},
};
use dwell_metrics::Family;
use dwell_probes::stack::{self, Hook, Interval, Observer, Taken};

use crate::{exit::Failure, served::Served, source::clock, tell::tell};

/// Passages wait so long for others, so that batches are worth their cost.
const GATHERED: Duration = Duration::from_millis(100);
/// Or until there are so many, some 60 bytes each.
const PASSAGES: usize = 8192;
/// Flows in a batch, at most 30 KB each.
const FLOWS: usize = 128;

/// Sends what it hears, and serves it.
pub struct Send {
    uplink: Uplink,
    served: Option<Served>,
    passages: Vec<Passage>,
    sent: Instant,
    /// That round trips are not known.
    is_told: bool,
}

impl Send {
    pub fn new(uplink: Uplink, served: Option<Served>) -> Send {
        Send { uplink, served, passages: Vec::new(), sent: Instant::now(), is_told: false }
    }

    /// Waits until all is stored, for so long at most. Returns what is not.
    pub fn finish(mut self, patience: Duration) -> Backlog {
        self.send_passages();
        self.uplink.finish(patience)
    }

    fn send_passages(&mut self) {
        self.sent = Instant::now();
        for some in self.passages.chunks(PASSAGES) {
            self.uplink.push(Content { traces: ByteTraces(some.to_vec()), ..Content::default() });
        }
        self.passages.clear();
    }
}

impl Send {
    /// What TCP knows of flows, by the flow from here.
    fn round_trips(&mut self, flows: &[(Ends, Vec<Taken>)]) -> HashMap<Ends, stack::Trip> {
        let wanted: HashSet<_> = flows.iter().flat_map(|(ends, _)| [*ends, reverse(*ends)]).collect();
        let mut known = HashMap::new();
        if wanted.is_empty() {
            return known;
        }
        let asked = stack::trips(|trip| {
            if wanted.contains(&trip.ends) {
                known.insert(trip.ends, trip);
            }
        });
        if let Err(error) = asked
            && !self.is_told
        {
            self.is_told = true;
            tell(format_args!(
                "round trips of connections are not known here: {error}; the network is not \
                 estimated where the other host has no agent"
            ));
        }
        known
    }

    /// For Prometheus.
    fn serve(&self, interval: &Interval, counters: &[(String, u64)], backlog: Backlog) {
        let Some(Served { metrics, .. }) = &self.served else {
            return;
        };
        for row in &interval.segments {
            metrics.segment(row.segment, &row.histogram);
        }
        for (reason, bytes) in counters {
            metrics.set(&Family::LEFT_OUT, reason, *bytes);
        }
        metrics.set(&Family::BACKLOG, "", backlog.bytes);
        metrics.set(&Family::DROPPED, "", backlog.dropped);
    }
}

impl Observer for Send {
    type Error = Failure;

    fn passage(&mut self, passage: &Passage) -> Result<(), Failure> {
        self.passages.push(*passage);
        Ok(())
    }

    fn end_poll(&mut self) -> Result<(), Failure> {
        if self.sent.elapsed() >= GATHERED || self.passages.len() >= PASSAGES {
            self.send_passages();
        }
        Ok(())
    }

    fn interval(&mut self, interval: &Interval, hooks: &[&'static Hook]) -> Result<(), Failure> {
        let counters = counters(&interval.counters);
        let backlog = self.uplink.backlog();
        self.serve(interval, &counters, backlog);
        let dropped = ("batches_dropped".to_owned(), backlog.dropped);
        let unix_ns = clock().unix_ns(interval.end_ns);
        let told = |segments, flows, rtts| IntervalReport {
            end_ns: interval.end_ns,
            end_unix_ns: i64::try_from(unix_ns).unwrap_or(0),
            length_ns: interval.length_ns,
            sample_bytes: interval.sample_bytes,
            segments,
            flows,
            rtts,
        };
        let missing = stack::missing(hooks);
        let rows = interval.segments.iter().map(|figures| {
            let (from, to) = stack::ends(hooks, figures.segment);
            SegmentReport {
                segment: figures.segment,
                histogram: figures.histogram.clone(),
                again: figures.again.clone(),
                hook_from: stack::names(hooks, from),
                hook_to: stack::names(hooks, to),
                missing: missing.iter().find(|(segment, _)| *segment == figures.segment).map(|(_, layer)| *layer),
            }
        });
        self.uplink.push(Content {
            intervals: vec![told(rows.collect(), Vec::new(), Vec::new())],
            counters: counters.into_iter().chain([dropped]).collect(),
            ..Content::default()
        });
        let known = self.round_trips(&interval.flows);
        for some in interval.flows.chunks(FLOWS) {
            let flows = some.iter().map(|(ends, rows)| FlowReport { ends: *ends, segments: segments(rows) });
            self.uplink.push(Content {
                intervals: vec![told(Vec::new(), flows.collect(), trips_of(some, &known))],
                ..Content::default()
            });
        }
        Ok(())
    }
}

/// Of the sides that bytes went through.
fn segments(rows: &[Taken]) -> Vec<FlowSegment> {
    let segments = rows.iter().filter(|row| row.histogram.count() > 0);
    let segments = segments.map(|row| FlowSegment { segment: row.segment, histogram: row.histogram.clone() });
    segments.collect()
}

/// Of the sides of flows that bytes went through.
fn trips_of(flows: &[(Ends, Vec<Taken>)], known: &HashMap<Ends, stack::Trip>) -> Vec<FlowRtt> {
    let sides = flows.iter().flat_map(|(ends, rows)| {
        [Direction::Tx, Direction::Rx].into_iter().filter_map(|side| {
            let is_used = |row: &Taken| row.segment.direction() == side && row.histogram.count() > 0;
            rows.iter().any(is_used).then_some((*ends, side))
        })
    });
    let trips = sides.filter_map(|(ends, side)| {
        let from_here = match side {
            Direction::Tx => ends,
            Direction::Rx => reverse(ends),
        };
        let trip = known.get(&from_here)?;
        Some(FlowRtt { ends, is_received: side == Direction::Rx, min_ns: trip.least_ns, smoothed_ns: trip.smoothed_ns })
    });
    trips.collect()
}

fn reverse(ends: Ends) -> Ends {
    Ends { src: ends.dst, dst: ends.src }
}

fn counters(counters: &Counters) -> Vec<(String, u64)> {
    let named = [
        ("tx_unbegun", counters.tx_unbegun),
        ("rx_unbegun", counters.rx_unbegun),
        ("tx_again", counters.tx_again),
        ("rx_again", counters.rx_again),
        ("tx_displaced", counters.tx_displaced),
        ("rx_displaced", counters.rx_displaced),
        ("rx_unwalked", counters.rx_unwalked),
        ("passages_lost", counters.passages_lost),
        ("flows_untold", counters.flows_untold),
    ];
    let missed = Layer::ALL.map(|layer| (format!("missed {}", layer.name()), counters.missed(layer)));
    let named = named.map(|(name, value)| (name.to_owned(), value));
    named.into_iter().chain(missed).collect()
}
