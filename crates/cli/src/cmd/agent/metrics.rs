//! What `dwell agent` exports beside the segments of its host.

use std::collections::BTreeSet;

use dwell_fleet::Backlog;
use dwell_metrics::{Collect, Family, Numbers, Snapshot};

const BACKLOG: Family = Family::gauge("dwell_agent_backlog_bytes", &[], "What waits for the collector.");
const DROPPED: Family = Family::counter(
    "dwell_agent_dropped_batches_total",
    &[],
    "Batches given up for want of room while the collector was away.",
);

const COLLECTORS: Family =
    Family::gauge("dwell_agent_collectors", &[], "Collectors that take this agent's measurements.");

/// The collectors that the agent is connected to, by their numbers.
#[derive(Debug, Clone, Default)]
pub struct ConnectionMetrics(BTreeSet<usize>);

impl ConnectionMetrics {
    /// Notes that a collector has accepted the agent, or is lost.
    pub fn note(&mut self, number: usize, is_connected: bool) {
        match is_connected {
            true => self.0.insert(number),
            false => self.0.remove(&number),
        };
    }
}

impl Collect for ConnectionMetrics {
    fn collect(&self, snapshot: &mut Snapshot) {
        let mut numbers = Numbers::default();
        numbers.add(COLLECTORS, &[], self.0.len() as f64);
        numbers.collect(snapshot);
    }
}

/// What waits for the collector.
#[derive(Debug, Clone, Default)]
pub struct BacklogMetrics(Backlog);

impl BacklogMetrics {
    /// Replaces the figures.
    pub fn update(&mut self, backlog: Backlog) {
        self.0 = backlog;
    }
}

impl Collect for BacklogMetrics {
    fn collect(&self, snapshot: &mut Snapshot) {
        let mut numbers = Numbers::default();
        numbers.add(BACKLOG, &[], self.0.bytes as f64);
        numbers.add(DROPPED, &[], self.0.dropped as f64);
        numbers.collect(snapshot);
    }
}

#[cfg(test)]
mod tests {
    use dwell_metrics::Registry;

    use super::*;

    #[test]
    fn what_waits_and_what_was_dropped_are_exported() {
        let registry = Registry::new("0.1.0");
        registry.register(BacklogMetrics::default()).lock().update(Backlog {
            bytes: 5,
            dropped: 6,
            ..Backlog::default()
        });
        let text = registry.render();
        assert!(text.contains("dwell_agent_backlog_bytes 5\n"), "{text}");
        assert!(text.contains("dwell_agent_dropped_batches_total 6\n"), "{text}");
    }

    #[test]
    fn collectors_count_while_they_are_connected() {
        let registry = Registry::new("0.1.0");
        let connections = registry.register(ConnectionMetrics::default());
        for (number, is_connected, count) in [(0, true, 1), (2, true, 2), (2, true, 2), (0, false, 1), (0, false, 1)] {
            connections.lock().note(number, is_connected);
            let line = format!("\ndwell_agent_collectors {count}\n");
            assert!(registry.render().contains(&line), "{line}");
        }
    }
}
