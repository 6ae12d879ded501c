//! Batching of an agent's measurements.

use std::time::{Duration, Instant};

use dwell_engine::layers::ByteTrace;

use crate::{
    Backlog, Lanes,
    wire::{ByteTraces, Content, IntervalReport},
};

/// Time that traces wait for others: a batch costs the collector as much as thirty rows. It has them well before it reports their
/// interval.
const MAX_DELAY: Duration = Duration::from_millis(500);
/// Maximum number of traces in a batch, some 60 bytes each.
const MAX_TRACES: usize = 8192;
/// Name of the counter of batches that were dropped because the outbox was full.
const BATCHES_DROPPED: &str = "batches_dropped";

/// Gathers measurements into batches of a limited size, and sends each to the collector that it is for.
#[derive(Debug)]
pub struct Batcher {
    lanes: Lanes,
    /// Traces that wait, by lane.
    traces: Vec<Vec<ByteTrace>>,
    last_flush: Instant,
}

impl Batcher {
    /// Creates a batcher without measurements.
    pub fn new(lanes: Lanes) -> Batcher {
        let traces = vec![Vec::new(); lanes.len()];
        Batcher { lanes, traces, last_flush: Instant::now() }
    }

    /// Adds a trace. It is sent with the next full batch, or by [`Batcher::flush_if_due`].
    pub fn push_trace(&mut self, trace: ByteTrace) {
        let lane = self.lanes.of_flow(&trace.ends, trace.isns);
        self.traces[lane].push(trace);
        if self.traces[lane].len() >= MAX_TRACES {
            self.flush(lane);
        }
    }

    /// Sends the gathered traces if they have waited long enough, and gives other collectors the share of those that are down.
    pub fn flush_if_due(&mut self) {
        if self.last_flush.elapsed() >= MAX_DELAY {
            self.flush_all();
            self.lanes.tend(Instant::now());
        }
    }

    /// Sends an interval, with any number of flows, and the counters.
    pub fn push_interval(&self, report: IntervalReport, mut counters: Vec<(String, u64)>) {
        counters.push((BATCHES_DROPPED.into(), self.backlog().dropped));
        self.lanes.distribute(Content { intervals: vec![report], counters, ..Content::default() });
    }

    /// Returns the size and the losses of all outboxes.
    pub fn backlog(&self) -> Backlog {
        self.lanes.backlog()
    }

    /// Sends the rest and that it is the end of this run, and waits at most `timeout` until all batches are stored. Returns
    /// what is left.
    pub fn finish(mut self, timeout: Duration) -> Backlog {
        self.flush_all();
        self.lanes.tend(Instant::now());
        self.lanes.finish(timeout)
    }

    fn flush_all(&mut self) {
        self.last_flush = Instant::now();
        (0..self.lanes.len()).for_each(|lane| self.flush(lane));
    }

    fn flush(&mut self, lane: usize) {
        if !self.traces[lane].is_empty() {
            let traces = ByteTraces(std::mem::take(&mut self.traces[lane]));
            self.lanes.push(lane, Content { traces, ..Content::default() });
        }
    }
}
