//! `--metrics` and `--otlp` of `dwell run`: where the data of all connections waits. No label holds a connection.

use dwell_engine::socket::Sum;
use dwell_metrics::{Collect, Family, Numbers, Shared, Snapshot};
use dwell_records::{Socket, SocketSummary};
use dwell_socket::clock::process_cpu_ns;

use crate::served::MetricsOutputs;

const BYTE_SECONDS: Family = Family::counter(
    "dwell_run_byte_seconds_total",
    &["place"],
    "Time that bytes spent in a place, all bytes together; of the network the round trip.",
);
const BYTES: Family = Family::counter(
    "dwell_run_bytes_total",
    &["place"],
    "Bytes whose time in a place is in dwell_run_byte_seconds_total.",
);
const LONGEST: Family = Family::gauge(
    "dwell_run_longest_wait_seconds",
    &["place"],
    "The longest wait of a byte in a buffer in the last interval.",
);
const WAITING: Family = Family::gauge(
    "dwell_run_waiting_seconds",
    &[],
    "How long the oldest byte in a send buffer has waited, at the end of the last interval.",
);
const OPEN: Family = Family::gauge("dwell_run_connections", &[], "Connections in the last interval.");
const SEEN: Family = Family::counter("dwell_run_connections_total", &[], "Connections since the start.");
const SENT: Family = Family::counter("dwell_run_sent_bytes_total", &[], "Bytes that the other end acknowledged.");
const RECEIVED: Family = Family::counter("dwell_run_received_bytes_total", &[], "Bytes received in order.");
const RETRANSMISSIONS: Family =
    Family::counter("dwell_run_retransmitted_total", &[], "Segments that were retransmitted.");
const OUT_OF_ORDER: Family =
    Family::counter("dwell_run_out_of_order_total", &[], "Segments that arrived out of order.");
const CPU: Family = Family::counter("dwell_run_cpu_seconds_total", &[], "Processor time of dwell itself.");

/// Totals of a run. What is not known yet is absent.
#[derive(Debug, Clone, Default)]
struct RunMetrics(Numbers);

impl Collect for RunMetrics {
    fn collect(&self, snapshot: &mut Snapshot) {
        self.0.collect(snapshot);
    }
}

/// Exports metrics while it lives.
pub struct Exporter {
    metrics: Shared<RunMetrics>,
    _served: MetricsOutputs,
}

impl Exporter {
    /// Registers the figures of a run.
    pub fn new(served: MetricsOutputs) -> Exporter {
        Exporter { metrics: served.registry.register(RunMetrics::default()), _served: served }
    }

    /// Replaces the figures at the end of an interval: of the whole run, and of the connections of the interval.
    pub fn interval(&self, summary: &SocketSummary, sockets: &[Socket]) {
        let mut numbers = numbers(summary, sockets);
        numbers.add(CPU, &[], process_cpu_ns() as f64 / 1e9);
        self.metrics.lock().0 = numbers;
    }
}

fn numbers(summary: &SocketSummary, sockets: &[Socket]) -> Numbers {
    let (all, mut numbers) = (summary.all(), Numbers::default());
    let mut add_times = |place: &str, sum: &Sum| {
        numbers.add(BYTE_SECONDS, &[place], sum.ns_bytes / 1e9);
        numbers.add(BYTES, &[place], sum.bytes as f64);
    };
    add_times("sender", &all.sender);
    add_times("network", &all.network);
    add_times("receiver", &all.receiver);
    let longest = |of: fn(&Socket) -> Option<u64>| sockets.iter().filter_map(of).max().map(|ns| ns as f64 / 1e9);
    for (family, labels, value) in [
        (LONGEST, &["sender"][..], longest(|socket| socket.account.peaks.sender_ns)),
        (LONGEST, &["receiver"], longest(|socket| socket.account.peaks.receiver_ns)),
        (WAITING, &[], longest(|socket| socket.account.waiting_ns)),
        (OPEN, &[], Some(sockets.iter().filter(|socket| !socket.account.ended).count() as f64)),
        (SEEN, &[], Some(summary.connections() as f64)),
        (SENT, &[], all.acked_bytes.map(|bytes| bytes as f64)),
        (RECEIVED, &[], all.received_bytes.map(|bytes| bytes as f64)),
        (RETRANSMISSIONS, &[], Some(all.retransmissions as f64)),
        (OUT_OF_ORDER, &[], all.out_of_order.map(|segments| segments as f64)),
    ] {
        if let Some(value) = value {
            numbers.add(family, labels, value);
        }
    }
    numbers
}
