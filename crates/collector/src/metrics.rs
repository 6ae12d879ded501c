//! The metrics of `dwell collect`.

use dwell_engine::{histogram::Histogram, layers::PathSegment};
use dwell_metrics::{Collect, Family, Histograms, Numbers, OTHER, STACK_BOUNDS_NS, Snapshot};

use crate::{collector::GrayCounts, forward::ForwardStatus};

/// Combinations of hosts and path segments that get a series of their own.
const MAX_PATHS: usize = 10_000;

const PATHS: Family = Family::histogram(
    "dwell_path_seconds",
    &["tx_host", "rx_host", "direction", "segment"],
    STACK_BOUNDS_NS,
    "Time that stamped bytes spent on each part of the path from one host to another.",
);
const AGENTS: Family = Family::gauge("dwell_collect_agents", &[], "Agents that are connected.");
const REFUSED: Family =
    Family::counter("dwell_collect_refused_total", &["reason"], "Connections that were not let in, by reason.");
const BYTES: Family =
    Family::counter("dwell_collect_bytes_total", &["outcome"], "Stamped bytes that agents reported, by outcome.");
const LEFT_OUT: Family = Family::counter(
    "dwell_collect_left_out_total",
    &["kind"],
    "What agents sent and was not taken, or was changed, because of a limit.",
);
const DEFERRED: Family = Family::counter(
    "dwell_collect_deferred_total",
    &["reason"],
    "Times that an agent was asked to come back later with a batch, by reason.",
);
const SPOOL_ROWS: Family =
    Family::gauge("dwell_collect_spool_rows", &[], "Rows that wait in the spool for the server.");
const SPOOL_BYTES: Family =
    Family::gauge("dwell_collect_spool_bytes", &[], "Bytes of the rows that wait in the spool.");
const SPOOL_LIMIT: Family =
    Family::gauge("dwell_collect_spool_limit_bytes", &[], "Bytes of rows that may wait in the spool.");
const INSERT_ROWS: Family = Family::gauge(
    "dwell_collect_insert_rows",
    &[],
    "Rows of one insert at most, which follows what link and server can do.",
);
const INSERTS_FAILED: Family = Family::counter(
    "dwell_collect_inserts_failed_total",
    &["reason"],
    "Inserts that the server did not do, by reason; each is tried again, or its rows are put aside.",
);
const REFUSED_ROWS: Family = Family::counter(
    "dwell_collect_refused_rows_total",
    &[],
    "Rows that the server does not take, which are put aside in the spool.",
);
const REFUSED_KEPT: Family =
    Family::gauge("dwell_collect_refused_rows_kept", &[], "Refused rows that are in the spool.");
const REFUSED_DELETED: Family = Family::counter(
    "dwell_collect_refused_rows_deleted_total",
    &[],
    "Refused rows that were deleted to make room for newer ones.",
);
const LOST: Family = Family::counter(
    "dwell_collect_lost_batches_total",
    &["why"],
    "Batches of agents that will never be stored here; the store's table lost names them.",
);
const KILLED: Family = Family::counter(
    "dwell_collect_killed_runs_total",
    &[],
    "Runs of agents that ended without signing off, so that their last measurements are lost.",
);
const GRAY: Family = Family::gauge(
    "dwell_collect_gray_failures",
    &["subject", "name", "component"],
    "Hosts, paths and services that are slower than their peers now, or lose more.",
);
const GRAY_BEGUN: Family = Family::counter(
    "dwell_collect_gray_failures_total",
    &["subject"],
    "Gray failures that have begun, by what differs.",
);
const LINES_LOST: Family =
    Family::counter("dwell_collect_lines_lost_total", &[], "Lines that could not be written to the file of --write.");
const STORED: Family = Family::counter("dwell_collect_batches_total", &[], "Batches that were stored.");

/// What a collector has counted.
pub struct Counts {
    /// Bytes by outcome.
    pub outcomes: Vec<(&'static str, u64)>,
    /// What agents sent and was not taken, or was changed.
    pub left_out: Vec<(&'static str, u64)>,
    /// Connections refused, by reason.
    pub refused: Vec<(&'static str, u64)>,
    /// Batches that had to wait, by reason.
    pub deferred: Vec<(&'static str, u64)>,
    /// Agents that are connected.
    pub agents: usize,
    /// Batches stored.
    pub stored: u64,
    /// Batches that are lost, by reason.
    pub lost_batches: Vec<(&'static str, u64)>,
    /// Runs of agents that were killed.
    pub killed_runs: u64,
    /// Gray failures.
    pub gray: GrayCounts,
    /// How forwarding to a server goes, if there is one.
    pub forward: Option<ForwardStatus>,
    /// Rows that the server did not take and that are kept.
    pub refused_rows_kept: u64,
    /// Lines that could not be written, if any are to be.
    pub lines_lost: Option<u64>,
}

/// What a collector exports.
#[derive(Debug, Clone)]
pub struct CollectorMetrics {
    paths: Histograms,
    numbers: Numbers,
}

impl CollectorMetrics {
    pub fn new() -> CollectorMetrics {
        CollectorMetrics { paths: Histograms::new(PATHS, MAX_PATHS), numbers: Numbers::default() }
    }

    /// Adds the bytes of an interval on one segment of the path between two hosts.
    pub fn path(&mut self, tx_host: &str, rx_host: &str, segment: PathSegment, histogram: &Histogram) {
        let direction = segment.direction().map_or("", |direction| direction.name());
        let labels = [tx_host, rx_host, direction, segment.name()];
        self.paths.get(labels, [OTHER, OTHER, direction, segment.name()]).merge(histogram);
    }

    /// Replaces the collector's counts.
    pub fn counts(&mut self, counts: Counts) {
        let mut numbers = Numbers::default();
        let labelled = [
            (BYTES, counts.outcomes),
            (LEFT_OUT, counts.left_out),
            (REFUSED, counts.refused),
            (DEFERRED, counts.deferred),
            (LOST, counts.lost_batches),
            (GRAY_BEGUN, counts.gray.begun),
            (INSERTS_FAILED, counts.forward.map_or(Vec::new(), |forward| forward.failures.by_reason().to_vec())),
        ];
        for (family, mut counts) in labelled {
            counts.sort_unstable();
            for (label, count) in counts {
                numbers.add(family, &[label], count as f64);
            }
        }
        for ([subject, name, component], number) in &counts.gray.open {
            numbers.add(GRAY, &[subject, name, component], *number as f64);
        }
        if let Some(forward) = counts.forward {
            for (family, number) in [
                (SPOOL_ROWS, forward.waiting.rows),
                (SPOOL_BYTES, forward.waiting.bytes),
                (SPOOL_LIMIT, forward.limit_bytes),
                (INSERT_ROWS, forward.insert_rows as u64),
                (REFUSED_ROWS, forward.refused),
                (REFUSED_KEPT, counts.refused_rows_kept),
                (REFUSED_DELETED, forward.pruned),
            ] {
                numbers.add(family, &[], number as f64);
            }
        }
        numbers.add(AGENTS, &[], counts.agents as f64);
        numbers.add(STORED, &[], counts.stored as f64);
        numbers.add(KILLED, &[], counts.killed_runs as f64);
        if let Some(lines_lost) = counts.lines_lost {
            numbers.add(LINES_LOST, &[], lines_lost as f64);
        }
        self.numbers = numbers;
    }
}

impl Collect for CollectorMetrics {
    fn collect(&self, snapshot: &mut Snapshot) {
        self.paths.collect(snapshot);
        self.numbers.collect(snapshot);
    }
}

#[cfg(test)]
mod tests {
    use dwell_engine::layers::Segment;
    use dwell_metrics::Registry;

    use super::*;

    #[test]
    fn paths_have_hosts_and_no_flows() {
        let registry = Registry::new("0.1.0");
        let mut metrics = CollectorMetrics { paths: Histograms::new(PATHS, 2), numbers: Numbers::default() };
        let mut histogram = Histogram::default();
        histogram.record_many(1_500, 4);
        metrics.path("a", "b", PathSegment::Network, &histogram);
        metrics.path("a", "b", PathSegment::Host(Segment::TcpSocket), &histogram);
        metrics.path("c", "d", PathSegment::Network, &histogram);
        let counts = |outcomes: &[_], strangers, agents, forward| Counts {
            outcomes: outcomes.to_vec(),
            left_out: vec![("counters_omitted", 5)],
            refused: vec![("stranger", strangers)],
            deferred: vec![("spool", 6)],
            agents,
            stored: 7,
            lost_batches: vec![("gap", 8)],
            killed_runs: 9,
            gray: GrayCounts {
                open: vec![(["path", "a to b", "network"].map(str::to_owned), 1)],
                begun: vec![("path", 3)],
            },
            forward,
            refused_rows_kept: 2,
            lines_lost: Some(10),
        };
        metrics.counts(counts(&[("matched", 1)], 3, 1, None));
        let forward = ForwardStatus { refused: 9, insert_rows: 100, ..ForwardStatus::default() };
        metrics.counts(counts(&[("retransmitted", 9), ("matched", 8)], 4, 2, Some(forward)));
        registry.register(metrics);
        let text = registry.render();
        let network = r#"tx_host="a",rx_host="b",direction="",segment="network""#;
        for line in [
            format!("dwell_path_seconds_sum{{{network}}} 0.000006"),
            r#"dwell_path_seconds_count{tx_host="other",rx_host="other",direction="",segment="network"} 4"#.to_owned(),
            "dwell_collect_bytes_total{outcome=\"matched\"} 8\ndwell_collect_bytes_total{outcome=\"retransmitted\"} 9"
                .to_owned(),
            r#"dwell_collect_refused_total{reason="stranger"} 4"#.to_owned(),
            "dwell_collect_agents 2".to_owned(),
            r#"dwell_collect_left_out_total{kind="counters_omitted"} 5"#.to_owned(),
            r#"dwell_collect_deferred_total{reason="spool"} 6"#.to_owned(),
            r#"dwell_collect_inserts_failed_total{reason="slow"} 0"#.to_owned(),
            "dwell_collect_refused_rows_total 9".to_owned(),
            "dwell_collect_refused_rows_kept 2".to_owned(),
            "dwell_collect_insert_rows 100".to_owned(),
            r#"dwell_collect_lost_batches_total{why="gap"} 8"#.to_owned(),
            "dwell_collect_killed_runs_total 9".to_owned(),
            "dwell_collect_lines_lost_total 10".to_owned(),
            r#"dwell_collect_gray_failures{subject="path",name="a to b",component="network"} 1"#.to_owned(),
            r#"dwell_collect_gray_failures_total{subject="path"} 3"#.to_owned(),
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
    }
}
