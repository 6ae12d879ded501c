//! The metrics of `dwell agent`.

use std::collections::BTreeMap;

use dwell_engine::{histogram::Histogram, layers::Segment};
use dwell_fleet::Backlog;
use dwell_metrics::{Collect, Exposition, Family, Histograms, Numbers, STACK_BOUNDS_NS};

const SEGMENTS: Family = Family::histogram(
    "dwell_stack_segment_seconds",
    &["direction", "segment"],
    STACK_BOUNDS_NS,
    "Time that stamped bytes spent between two layers of this host.",
);
const LEFT_OUT: Family = Family::counter(
    "dwell_stack_left_out_total",
    &["reason"],
    "Stamped bytes that are in no segment, or in not all, by reason.",
);
const BACKLOG: Family = Family::gauge("dwell_agent_backlog_bytes", &[], "What waits for the collector.");
const DROPPED: Family = Family::counter(
    "dwell_agent_dropped_batches_total",
    &[],
    "Batches given up for want of room while the collector was away.",
);

/// What an agent exports.
#[derive(Debug, Clone)]
pub struct AgentMetrics {
    segments: Histograms,
    numbers: Numbers,
}

impl AgentMetrics {
    pub fn new() -> AgentMetrics {
        AgentMetrics { segments: Histograms::new(SEGMENTS, Segment::ALL.len()), numbers: Numbers::default() }
    }

    /// Adds the segments of an interval, and replaces the counts of bytes left out by reason and of the backlog.
    pub fn interval<'a>(
        &mut self,
        segments: impl Iterator<Item = (Segment, &'a Histogram)>,
        left_out: &[(String, u64)],
        backlog: Backlog,
    ) {
        for (segment, histogram) in segments {
            let labels = [segment.direction().name(), segment.name()];
            self.segments.get(labels, labels).merge(histogram);
        }
        let mut numbers = Numbers::default();
        let left_out: BTreeMap<_, _> = left_out.iter().map(|(reason, bytes)| (reason, *bytes)).collect();
        for (reason, bytes) in left_out {
            numbers.add(LEFT_OUT, &[reason], bytes as f64);
        }
        numbers.add(BACKLOG, &[], backlog.bytes as f64);
        numbers.add(DROPPED, &[], backlog.dropped as f64);
        self.numbers = numbers;
    }
}

impl Collect for AgentMetrics {
    fn collect(&self, text: &mut Exposition) {
        self.segments.collect(text);
        self.numbers.collect(text);
    }
}

#[cfg(test)]
mod tests {
    use dwell_metrics::Registry;

    use super::*;

    #[test]
    fn segments_add_up_and_counts_are_totals() {
        let mut histogram = Histogram::default();
        histogram.record_many(1_500, 4);
        let registry = Registry::new("0.1.0");
        let metrics = registry.register(AgentMetrics::new());
        for tx_again in [3, 4] {
            let backlog = Backlog { bytes: 5, dropped: 6, ..Backlog::default() };
            metrics.lock().interval(
                [(Segment::Queueing, &histogram)].into_iter(),
                &[("tx_retransmitted".to_owned(), tx_again)],
                backlog,
            );
        }
        let text = registry.render();
        for line in [
            r#"dwell_stack_segment_seconds_count{direction="tx",segment="queueing"} 8"#,
            r#"dwell_stack_segment_seconds_bucket{direction="tx",segment="queueing",le="0.000001"} 0"#,
            r#"dwell_stack_segment_seconds_bucket{direction="tx",segment="queueing",le="0.000002"} 8"#,
            r#"dwell_stack_left_out_total{reason="tx_retransmitted"} 4"#,
            "dwell_agent_backlog_bytes 5",
            "dwell_agent_dropped_batches_total 6",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
    }
}
