//! Metrics of `dwell response`.

use std::collections::BTreeMap;

use dwell_engine::histogram::Histogram;

use super::{
    BOUNDS_NS, GroupLabels, State,
    exposition::{self, Exposition},
};

/// What epochs came to.
#[derive(Debug, Clone, Default)]
pub(super) struct Responses {
    latencies: BTreeMap<GroupLabels, Histogram>,
    /// By what came of it: "valid", or the reason why not.
    epochs: BTreeMap<&'static str, u64>,
    /// Running means by prefix, in nanoseconds.
    means: BTreeMap<String, u64>,
}

impl super::Metrics {
    /// Counts the responses of an epoch, each with the epoch's mean. `method` and
    /// `prefix` as in [`super::Metrics::merge`].
    pub fn responses(&self, interface: &str, method: &'static str, prefix: &str, mean_ns: u64, responses: u64) {
        let State { response, .. } = &mut *self.state();
        let labels = GroupLabels::new(interface, method, prefix);
        let labels = labels.within(&response.latencies, self.max_groups);
        let latencies = response.latencies.entry(labels).or_default();
        latencies.record_many(mean_ns, responses);
    }

    /// Counts an epoch: "valid", or why it gave no estimate.
    pub fn epoch(&self, outcome: &'static str) {
        *self.state().response.epochs.entry(outcome).or_default() += 1;
    }

    /// Sets the running means, all at once; as many as there may be groups.
    pub fn set_means(&self, means: impl Iterator<Item = (String, u64)>) {
        self.state().response.means = means.take(self.max_groups).collect();
    }
}

impl Responses {
    pub(super) fn write(&self, text: &mut Exposition) {
        if !self.latencies.is_empty() {
            text.family(
                "dwell_response_seconds",
                "histogram",
                "Response latency by the prefix of the server: responses, each with the mean of its epoch and flow.",
            );
        }
        for (labels, histogram) in &self.latencies {
            let labels = labels.pairs();
            text.histogram("dwell_response_seconds", &labels, &BOUNDS_NS, histogram);
        }
        if !self.means.is_empty() {
            text.family(
                "dwell_response_mean_seconds",
                "gauge",
                "Running mean of response latency, of which a response's part halves each 10 s.",
            );
        }
        for (prefix, mean_ns) in &self.means {
            let seconds = exposition::seconds(u128::from(*mean_ns));
            text.sample("dwell_response_mean_seconds", &[("prefix", prefix)], seconds);
        }
        if !self.epochs.is_empty() {
            text.family(
                "dwell_response_epochs_total",
                "counter",
                "Epochs of flows, by whether they gave an estimate, or why not.",
            );
        }
        for (outcome, epochs) in &self.epochs {
            let labels = [("outcome", *outcome)];
            text.sample("dwell_response_epochs_total", &labels, epochs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Metrics, OTHER};

    #[test]
    fn responses_weigh_as_many_as_they_are() {
        let metrics = Metrics::new("0.1.0", 1);
        metrics.responses("eth0", "ack-runs", "192.0.2.1/32", 20_000_000, 30);
        metrics.responses("eth0", "ack-runs", "192.0.2.1/32", 60_000_000, 10);
        metrics.responses("eth0", "lag", "192.0.2.2/32", 1_000, 5);
        metrics.epoch("valid");
        metrics.epoch("think time");
        metrics.epoch("valid");
        metrics.set_means([("192.0.2.1/32".to_owned(), 30_000_000)].into_iter());
        let text = metrics.render();
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
