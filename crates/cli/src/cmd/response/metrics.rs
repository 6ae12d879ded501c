//! `--metrics`: estimates of response latency, for Prometheus.

use std::collections::BTreeMap;

use dwell_engine::{
    response::{Answers, Estimate, Record, RunningMeans},
    rtt::Prefix,
};
use dwell_metrics::{Collect, Family, Histograms, LATENCY_BOUNDS_NS, OTHER, Shared, Snapshot, seconds};
use dwell_probes::response::Probe;
use dwell_records::Interfaces;
use dwell_socket::clock::monotonic_ns;

use super::{Args, PrefixLengths};
use crate::{
    exit::Failure,
    served::MetricsOutputs,
    source::{GROUP_LABELS, ProbeStatus, Watcher},
};

const LATENCY: Family = Family::histogram(
    "dwell_response_seconds",
    GROUP_LABELS,
    LATENCY_BOUNDS_NS,
    "Response latency by the prefix of the server; of methods other than turns each with the mean of its epoch and flow.",
);
const MEAN: Family = Family::gauge(
    "dwell_response_mean_seconds",
    &["prefix"],
    "Running mean of response latency, in which the weight of a response halves every 10 s.",
);
const EPOCHS: Family = Family::counter(
    "dwell_response_epochs_total",
    &["outcome"],
    "Epochs of flows, by outcome: valid, or the reason why there is no estimate.",
);

/// Half-life of a response's weight in the running mean.
const HALF_LIFE_NS: u64 = 10_000_000_000;
/// A server that is silent for this long loses its running mean.
const FORGET_NS: u64 = 600_000_000_000;

/// The figures of all epochs.
#[derive(Debug, Clone)]
struct Responses {
    latency: Histograms,
    /// Running means in nanoseconds, by prefix.
    means: BTreeMap<String, u64>,
    /// Epochs by outcome: "valid", or the reason why there is no estimate.
    epochs: BTreeMap<&'static str, u64>,
}

impl Responses {
    fn new(max_groups: usize) -> Responses {
        Responses { latency: Histograms::new(LATENCY, max_groups), means: BTreeMap::new(), epochs: BTreeMap::new() }
    }

    fn count_epoch(&mut self, outcome: &'static str) {
        *self.epochs.entry(outcome).or_default() += 1;
    }

    /// Counts `responses` of one latency.
    fn count_responses(&mut self, interface: &str, method: &str, prefix: &str, latency_ns: u64, responses: u64) {
        let histogram = self.latency.get([interface, method, prefix], [OTHER, method, OTHER]);
        histogram.record_many(latency_ns, responses);
    }
}

impl Collect for Responses {
    fn collect(&self, snapshot: &mut Snapshot) {
        self.latency.collect(snapshot);
        if !self.means.is_empty() {
            snapshot.family(&MEAN);
        }
        for (prefix, mean_ns) in &self.means {
            snapshot.sample(&MEAN, &[prefix], seconds((*mean_ns).into()));
        }
        if !self.epochs.is_empty() {
            snapshot.family(&EPOCHS);
        }
        for (outcome, epochs) in &self.epochs {
            snapshot.sample(&EPOCHS, &[outcome], *epochs);
        }
    }
}

/// Exports metrics while it lives.
pub struct Exporter {
    interfaces: Interfaces,
    responses: Shared<Responses>,
    status: Shared<ProbeStatus>,
    means: RunningMeans<Prefix>,
    max_groups: usize,
    prefixes: PrefixLengths,
    _served: MetricsOutputs,
}

impl Exporter {
    /// Registers the figures of a run.
    pub fn new(served: MetricsOutputs, args: &Args, interfaces: Interfaces) -> Exporter {
        let max_groups = args.max_groups as usize;
        Exporter {
            interfaces,
            responses: served.registry.register(Responses::new(max_groups)),
            status: served.registry.register(ProbeStatus::new(Watcher::Response)),
            means: RunningMeans::new(HALF_LIFE_NS),
            max_groups,
            prefixes: args.prefixes(),
            _served: served,
        }
    }

    /// Adds an epoch.
    pub fn record(&mut self, record: &Record, estimate: &Estimate) {
        let mut responses = self.responses.lock();
        responses.count_epoch(estimate.reason.map_or("valid", |reason| reason.name()));
        let (true, Some(response_ns)) = (estimate.is_valid(), estimate.response_ns) else {
            return;
        };
        let prefix = self.prefixes.group(record.dst.address);
        let end_ns = record.epoch.start_ns.wrapping_add(record.epoch.epoch_ns);
        self.means.add(prefix, end_ns, estimate);
        let interface = self.interfaces.label(record.interface).unwrap_or_default();
        let method = estimate.method.name();
        let prefix = prefix.to_string();
        match Answers::of(&record.epoch, estimate) {
            Some(answers) => {
                for bucket in answers.buckets() {
                    responses.count_responses(&interface, method, &prefix, bucket.ns, bucket.count);
                }
            }
            None => responses.count_responses(&interface, method, &prefix, response_ns, estimate.batches),
        }
    }

    /// Updates the running means, and what the probe exports about itself.
    pub fn status(&mut self, probe: &mut Probe) -> Result<(), Failure> {
        let now_ns = monotonic_ns();
        self.means.forget(now_ns, FORGET_NS);
        let means = self.means.iter(now_ns).take(self.max_groups);
        self.responses.lock().means = means.map(|(prefix, running)| (prefix.to_string(), running.mean_ns)).collect();
        let counters = probe.counters()?;
        self.status.lock().update(&counters, probe.slots(), probe.run_times());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use dwell_metrics::Registry;

    use super::*;

    #[test]
    fn responses_weigh_as_many_as_they_are() {
        let registry = Registry::new("0.1.0");
        let shared = registry.register(Responses::new(1));
        let mut responses = shared.lock();
        responses.count_responses("eth0", "ack-runs", "192.0.2.1/32", 20_000_000, 30);
        responses.count_responses("eth0", "ack-runs", "192.0.2.1/32", 60_000_000, 10);
        responses.count_responses("eth0", "lag", "192.0.2.2/32", 1_000, 5);
        responses.count_epoch("valid");
        responses.count_epoch("think time");
        responses.count_epoch("valid");
        responses.means = [("192.0.2.1/32".to_owned(), 30_000_000)].into();
        drop(responses);
        let text = registry.render();
        let first = r#"interface="eth0",method="ack-runs",prefix="192.0.2.1/32""#;
        for line in [
            format!("dwell_response_seconds_sum{{{first}}} 1.2"),
            format!("dwell_response_seconds_count{{{first}}} 40"),
            format!("dwell_response_seconds_bucket{{{first},le=\"0.05\"}} 30"),
            format!("dwell_response_seconds_count{{interface=\"{OTHER}\",method=\"lag\",prefix=\"{OTHER}\"}} 5"),
            "dwell_response_mean_seconds{prefix=\"192.0.2.1/32\"} 0.03".to_owned(),
            "dwell_response_epochs_total{outcome=\"valid\"} 2".to_owned(),
            "dwell_response_epochs_total{outcome=\"think time\"} 1".to_owned(),
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
    }
}
