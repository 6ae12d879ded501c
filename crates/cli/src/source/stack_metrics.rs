//! What verbs that stamp bytes export: the time in each segment, and what is missing.

use std::collections::BTreeMap;

use dwell_engine::{histogram::Histogram, layers::Segment};
use dwell_metrics::{Collect, Family, Histograms, Numbers, STACK_BOUNDS_NS, Snapshot, seconds};

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
const RUN_SECONDS: Family =
    Family::counter("dwell_stack_bpf_run_seconds_total", &["program"], "Time spent in a BPF program.");
const RUNS: Family = Family::counter("dwell_stack_bpf_runs_total", &["program"], "How often a BPF program ran.");

/// The segments of this host.
#[derive(Debug, Clone)]
pub struct StackMetrics {
    segments: Histograms,
    numbers: Numbers,
}

impl Default for StackMetrics {
    fn default() -> StackMetrics {
        StackMetrics { segments: Histograms::new(SEGMENTS, Segment::ALL.len()), numbers: Numbers::default() }
    }
}

impl StackMetrics {
    /// Adds the segments of an interval, and replaces the totals: of bytes left out by reason, and of the name, runs and
    /// nanoseconds of each BPF program, which the kernel counts while `kernel.bpf_stats_enabled` is set.
    pub fn interval<'a>(
        &mut self,
        segments: impl Iterator<Item = (Segment, &'a Histogram)>,
        left_out: &[(impl AsRef<str>, u64)],
        programs: &[(&'static str, u64, u64)],
    ) {
        for (segment, histogram) in segments {
            let labels = [segment.direction().name(), segment.name()];
            self.segments.get(labels, labels).merge(histogram);
        }
        let mut numbers = Numbers::default();
        let left_out: BTreeMap<_, _> = left_out.iter().map(|(reason, bytes)| (reason.as_ref(), *bytes)).collect();
        for (reason, bytes) in left_out {
            numbers.add(LEFT_OUT, &[reason], bytes as f64);
        }
        let programs: BTreeMap<_, _> = programs.iter().map(|(name, runs, ns)| (*name, (*runs, *ns))).collect();
        for (name, (runs, ns)) in programs {
            numbers.add(RUNS, &[name], runs as f64);
            numbers.add(RUN_SECONDS, &[name], seconds(ns.into()));
        }
        self.numbers = numbers;
    }
}

impl Collect for StackMetrics {
    fn collect(&self, snapshot: &mut Snapshot) {
        self.segments.collect(snapshot);
        self.numbers.collect(snapshot);
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
        let metrics = registry.register(StackMetrics::default());
        for tx_again in [3, 4] {
            metrics.lock().interval(
                [(Segment::Queueing, &histogram)].into_iter(),
                &[("tx_retransmitted", tx_again)],
                &[("tx_tcp", 7, 1_000 * tx_again)],
            );
        }
        let text = registry.render();
        for line in [
            r#"dwell_stack_segment_seconds_count{direction="tx",segment="queueing"} 8"#,
            r#"dwell_stack_segment_seconds_bucket{direction="tx",segment="queueing",le="0.000001"} 0"#,
            r#"dwell_stack_segment_seconds_bucket{direction="tx",segment="queueing",le="0.000002"} 8"#,
            r#"dwell_stack_left_out_total{reason="tx_retransmitted"} 4"#,
            r#"dwell_stack_bpf_runs_total{program="tx_tcp"} 7"#,
            r#"dwell_stack_bpf_run_seconds_total{program="tx_tcp"} 0.000004"#,
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
    }
}
