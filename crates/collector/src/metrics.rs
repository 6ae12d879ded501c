//! The metrics of `dwell collect`.

use dwell_engine::{histogram::Histogram, layers::PathSegment};
use dwell_metrics::{Collect, Exposition, Family, Histograms, Numbers, OTHER, STACK_BOUNDS_NS};

/// Combinations of hosts and path segments that get a series of their own.
const MAX_PATHS: usize = 10_000;

const PATHS: Family = Family::histogram(
    "dwell_path_seconds",
    &["tx_host", "rx_host", "direction", "segment"],
    STACK_BOUNDS_NS,
    "Time that stamped bytes spent on each part of their way from one host to another.",
);
const AGENTS: Family = Family::gauge("dwell_collect_agents", &[], "Agents that are connected.");
const REFUSED: Family =
    Family::counter("dwell_collect_refused_total", &["reason"], "Connections that were not let in, by reason.");
const BYTES: Family = Family::counter(
    "dwell_collect_bytes_total",
    &["outcome"],
    "Stamped bytes that agents told of, by what became of them.",
);
const STORED: Family = Family::counter("dwell_collect_batches_total", &[], "Batches that were stored.");

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
    pub fn path(&mut self, tx_host: &str, rx_host: &str, leg: PathSegment, histogram: &Histogram) {
        let direction = leg.direction().map_or("", |direction| direction.name());
        let labels = [tx_host, rx_host, direction, leg.name()];
        self.paths.get(labels, [OTHER, OTHER, direction, leg.name()]).merge(histogram);
    }

    /// Replaces the collector's counts: bytes by outcome, connections refused by reason, agents that are connected, and
    /// batches stored.
    pub fn counts(
        &mut self,
        outcomes: impl IntoIterator<Item = (&'static str, u64)>,
        refused: impl IntoIterator<Item = (&'static str, u64)>,
        agents: usize,
        stored: u64,
    ) {
        let mut numbers = Numbers::default();
        let sorted = |counts: &mut dyn Iterator<Item = (&'static str, u64)>| {
            let mut counts: Vec<_> = counts.collect();
            counts.sort_unstable();
            counts
        };
        for (outcome, bytes) in sorted(&mut outcomes.into_iter()) {
            numbers.add(BYTES, &[outcome], bytes as f64);
        }
        for (reason, connections) in sorted(&mut refused.into_iter()) {
            numbers.add(REFUSED, &[reason], connections as f64);
        }
        numbers.add(AGENTS, &[], agents as f64);
        numbers.add(STORED, &[], stored as f64);
        self.numbers = numbers;
    }
}

impl Collect for CollectorMetrics {
    fn collect(&self, text: &mut Exposition) {
        self.paths.collect(text);
        self.numbers.collect(text);
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
        metrics.counts([("matched", 1)], [("stranger", 3)], 1, 7);
        metrics.counts([("retransmitted", 9), ("matched", 8)], [("stranger", 4)], 2, 7);
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
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
    }
}
