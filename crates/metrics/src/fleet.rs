//! Metrics of agents and their collector.

use std::collections::BTreeMap;

use dwell_engine::{
    histogram::Histogram,
    layers::{Leg, Segment},
};

use super::{Metrics, OTHER, State, exposition::Exposition};

/// Upper bounds of the buckets in nanoseconds, 100 ns to 50 s, three a decade: within
/// a host times are short.
const BOUNDS_NS: [u64; 27] = {
    let mut bounds = [0; 27];
    let (mut index, mut unit_ns) = (0, 100);
    while index < 27 {
        bounds[index] = unit_ns;
        bounds[index + 1] = 2 * unit_ns;
        bounds[index + 2] = 5 * unit_ns;
        (index, unit_ns) = (index + 3, unit_ns * 10);
    }
    bounds
};

/// A family of numbers that are counted elsewhere, with at most one label.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    label: Option<&'static str>,
}

impl Family {
    /// What an agent left out of its figures.
    pub const LEFT_OUT: Family = Family {
        name: "dwell_stack_left_out_total",
        kind: "counter",
        help: "Stamped bytes that are in no segment, or in not all, by reason.",
        label: Some("reason"),
    };
    /// What waits for the collector.
    pub const BACKLOG: Family =
        Family { name: "dwell_agent_backlog_bytes", kind: "gauge", help: "What waits for the collector.", label: None };
    /// What an agent gave up.
    pub const DROPPED: Family = Family {
        name: "dwell_agent_dropped_batches_total",
        kind: "counter",
        help: "Batches given up for want of room while the collector was away.",
        label: None,
    };
    /// Agents that are there.
    pub const AGENTS: Family =
        Family { name: "dwell_collect_agents", kind: "gauge", help: "Agents that are connected.", label: None };
    /// Who was not let in.
    pub const REFUSED: Family = Family {
        name: "dwell_collect_refused_total",
        kind: "counter",
        help: "Connections that were not let in, by reason.",
        label: Some("reason"),
    };
    /// What became of the bytes that agents told of.
    pub const BYTES: Family = Family {
        name: "dwell_collect_bytes_total",
        kind: "counter",
        help: "Stamped bytes that agents told of, by what became of them.",
        label: Some("outcome"),
    };
    /// Batches that were stored.
    pub const STORED: Family =
        Family { name: "dwell_collect_batches_total", kind: "counter", help: "Batches that were stored.", label: None };
}

/// What is told of agents and their collector.
#[derive(Debug, Clone, Default)]
pub(super) struct Fleet {
    /// By direction and segment.
    segments: BTreeMap<(&'static str, &'static str), Histogram>,
    /// By sender, receiver, direction and segment.
    paths: BTreeMap<(String, String, &'static str, &'static str), Histogram>,
    numbers: BTreeMap<&'static Family, BTreeMap<String, u64>>,
}

impl Metrics {
    /// Counts what a segment of this host took in an interval.
    pub fn segment(&self, segment: Segment, histogram: &Histogram) {
        let key = (segment.direction().name(), segment.name());
        let segments = &mut self.state().fleet.segments;
        segments.entry(key).or_default().merge(histogram);
    }

    /// Counts what a leg from one host to another took in an interval.
    pub fn leg(&self, tx_host: &str, rx_host: &str, leg: Leg, histogram: &Histogram) {
        let direction = leg.direction().map_or("", |direction| direction.name());
        let key = |tx: &str, rx: &str| (tx.into(), rx.into(), direction, leg.name());
        let State { fleet, .. } = &mut *self.state();
        let mut own = key(tx_host, rx_host);
        if !fleet.paths.contains_key(&own) && fleet.paths.len() >= self.max_groups {
            own = key(OTHER, OTHER);
        }
        fleet.paths.entry(own).or_default().merge(histogram);
    }

    /// Sets a number; `label` is the value of the family's label, if it has one.
    pub fn set(&self, family: &'static Family, label: &str, value: u64) {
        let numbers = &mut self.state().fleet.numbers;
        let of_family = numbers.entry(family).or_default();
        of_family.insert(label.into(), value);
    }
}

impl Fleet {
    pub(super) fn write(&self, text: &mut Exposition) {
        const SEGMENTS: &str = "dwell_stack_segment_seconds";
        const PATHS: &str = "dwell_path_seconds";

        if !self.segments.is_empty() {
            let help = "Time that stamped bytes spent between two layers of this host.";
            text.family(SEGMENTS, "histogram", help);
        }
        for ((direction, segment), histogram) in &self.segments {
            let labels = [("direction", *direction), ("segment", *segment)];
            text.histogram(SEGMENTS, &labels, &BOUNDS_NS, histogram);
        }
        if !self.paths.is_empty() {
            let help = "Time that stamped bytes spent on each part of their way from one host \
                        to another.";
            text.family(PATHS, "histogram", help);
        }
        for ((tx_host, rx_host, direction, segment), histogram) in &self.paths {
            let labels =
                [("tx_host", tx_host.as_str()), ("rx_host", rx_host), ("direction", direction), ("segment", segment)];
            text.histogram(PATHS, &labels, &BOUNDS_NS, histogram);
        }
        for (family, numbers) in &self.numbers {
            text.family(family.name, family.kind, family.help);
            for (label, value) in numbers {
                let labels: Vec<_> = family.label.iter().map(|name| (*name, &**label)).collect();
                text.sample(family.name, &labels, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_and_paths_have_hosts_and_no_flows() {
        let metrics = Metrics::new("0.1.0", 2);
        let mut took = Histogram::default();
        took.record_many(1_500, 4);
        metrics.segment(Segment::Queueing, &took);
        metrics.segment(Segment::Queueing, &took);
        metrics.leg("a", "b", Leg::Network, &took);
        metrics.leg("a", "b", Leg::Host(Segment::TcpSocket), &took);
        metrics.leg("c", "d", Leg::Network, &took);
        metrics.set(&Family::REFUSED, "stranger", 3);
        metrics.set(&Family::REFUSED, "stranger", 4);
        metrics.set(&Family::AGENTS, "", 2);
        let text = metrics.render();
        let network = r#"tx_host="a",rx_host="b",direction="",segment="network""#;
        for line in [
            r#"dwell_stack_segment_seconds_count{direction="tx",segment="queueing"} 8"#.to_owned(),
            r#"dwell_stack_segment_seconds_bucket{direction="tx",segment="queueing",le="0.000001"} 0"#.to_owned(),
            r#"dwell_stack_segment_seconds_bucket{direction="tx",segment="queueing",le="0.000002"} 8"#.to_owned(),
            format!("dwell_path_seconds_sum{{{network}}} 0.000006"),
            r#"dwell_path_seconds_count{tx_host="other",rx_host="other",direction="",segment="network"} 4"#.to_owned(),
            r#"dwell_collect_refused_total{reason="stranger"} 4"#.to_owned(),
            "dwell_collect_agents 2".to_owned(),
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
    }
}
