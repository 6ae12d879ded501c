//! Batching of an agent's measurements.

use std::time::{Duration, Instant};

use dwell_engine::layers::ByteTrace;

use crate::{
    Backlog, Uplink,
    wire::{ByteTraces, Content, FlowReport, FlowRtt, IntervalReport, MAX_FLOWS},
};

/// Time that traces wait for others: a batch costs the collector as much as thirty rows. It has them well before it reports their
/// interval.
const MAX_DELAY: Duration = Duration::from_millis(500);
/// Maximum number of traces in a batch, some 60 bytes each.
const MAX_TRACES: usize = 8192;
/// Name of the counter of batches that were dropped because the outbox was full.
const BATCHES_DROPPED: &str = "batches_dropped";

/// Gathers measurements into batches of a limited size, and sends them by an uplink.
#[derive(Debug)]
pub struct Batcher {
    uplink: Uplink,
    traces: Vec<ByteTrace>,
    last_flush: Instant,
}

impl Batcher {
    /// Creates a batcher without measurements.
    pub fn new(uplink: Uplink) -> Batcher {
        Batcher { uplink, traces: Vec::new(), last_flush: Instant::now() }
    }

    /// Adds a trace. It is sent with the next full batch, or by [`Batcher::flush_if_due`].
    pub fn push_trace(&mut self, trace: ByteTrace) {
        self.traces.push(trace);
        if self.traces.len() >= MAX_TRACES {
            self.flush();
        }
    }

    /// Sends the gathered traces if they have waited long enough.
    pub fn flush_if_due(&mut self) {
        if self.last_flush.elapsed() >= MAX_DELAY {
            self.flush();
        }
    }

    /// Sends an interval: its segments with the counters first, then its flows in several batches. Each flow comes with
    /// its round-trip times; `report` itself holds no flows.
    pub fn push_interval(
        &self,
        report: IntervalReport,
        flows: Vec<(FlowReport, Vec<FlowRtt>)>,
        mut counters: Vec<(String, u64)>,
    ) {
        let empty = IntervalReport { segments: Vec::new(), flows: Vec::new(), rtts: Vec::new(), ..report };
        counters.push((BATCHES_DROPPED.into(), self.backlog().dropped));
        let segments = IntervalReport { segments: report.segments, ..empty.clone() };
        self.uplink.push(Content { intervals: vec![segments], counters, ..Content::default() });
        let mut flows = flows.into_iter().peekable();
        while flows.peek().is_some() {
            let (flows, rtts): (Vec<_>, Vec<_>) = flows.by_ref().take(MAX_FLOWS).unzip();
            let part = IntervalReport { flows, rtts: rtts.concat(), ..empty.clone() };
            self.uplink.push(Content { intervals: vec![part], ..Content::default() });
        }
    }

    /// Returns the size and the losses of the outbox.
    pub fn backlog(&self) -> Backlog {
        self.uplink.backlog()
    }

    /// Sends the rest and that it is the end of this run, and waits at most `timeout` until all batches are stored. Returns
    /// what is left.
    pub fn finish(mut self, timeout: Duration) -> Backlog {
        self.flush();
        self.uplink.push(Content { is_last: true, ..Content::default() });
        self.uplink.finish(timeout)
    }

    fn flush(&mut self) {
        self.last_flush = Instant::now();
        if !self.traces.is_empty() {
            let traces = ByteTraces(std::mem::take(&mut self.traces));
            self.uplink.push(Content { traces, ..Content::default() });
        }
    }
}
