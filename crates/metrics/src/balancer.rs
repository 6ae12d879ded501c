//! Metrics of `dwell lb`.

use std::collections::BTreeMap;

use super::{Metrics, State, exposition::Exposition};

/// A metric of `dwell lb`: each has its name here, and nowhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BalancerMetric {
    /// As scraped.
    pub name: &'static str,
    /// Of Prometheus: counter or gauge.
    pub kind: &'static str,
    /// What it means.
    pub help: &'static str,
    /// Names of its labels, in their order.
    pub labels: &'static [&'static str],
}

macro_rules! metrics {
    ($($constant:ident $name:literal $kind:literal [$($label:literal)*] $help:literal)*) => {
        impl BalancerMetric {
            $(
                #[doc = $help]
                pub const $constant: BalancerMetric = BalancerMetric {
                    name: $name,
                    kind: $kind,
                    help: $help,
                    labels: &[$($label),*],
                };
            )*
            /// All of them.
            pub const ALL: &'static [BalancerMetric] = &[$(BalancerMetric::$constant),*];
        }
    };
}

metrics! {
    VIP_PACKETS "dwell_lb_vip_packets_total" "counter" ["vip"]
        "Clients' packets to a VIP."
    VIP_BYTES "dwell_lb_vip_bytes_total" "counter" ["vip"]
        "Bytes of clients' IP packets to a VIP."
    VIP_CONNECTIONS "dwell_lb_vip_connections_total" "counter" ["vip"]
        "Connections to a VIP that were entered into the connection table."
    VIP_BACKENDS "dwell_lb_vip_backends" "gauge" ["vip"]
        "Backends of a VIP that may be given new connections."
    VIP_ALL_DOWN "dwell_lb_vip_all_down" "gauge" ["vip"]
        "1 while all backends of a VIP fail their checks, so that all are kept."
    VIP_DISRUPTION "dwell_lb_vip_disruption_ratio" "gauge" ["vip"]
        "Part of the Maglev table's entries that the last interval changed."
    BACKEND_PACKETS "dwell_lb_backend_packets_total" "counter" ["vip" "backend"]
        "Packets sent to a backend."
    BACKEND_BYTES "dwell_lb_backend_bytes_total" "counter" ["vip" "backend"]
        "Bytes of IP packets sent to a backend, without what is put around them."
    BACKEND_CONNECTIONS "dwell_lb_backend_connections_total" "counter" ["vip" "backend"]
        "Connections placed on a backend."
    BACKEND_ACTIVE "dwell_lb_backend_active_connections" "gauge" ["vip" "backend"]
        "Connections to a backend with a packet within the active time."
    BACKEND_UP "dwell_lb_backend_up" "gauge" ["vip" "backend"]
        "1 if the backend passes its checks or has none, 0 if not."
    BACKEND_WEIGHT "dwell_lb_backend_weight" "gauge" ["vip" "backend"]
        "Weight that the policy gives a backend, in the unit of the configuration."
    BACKEND_SHARE "dwell_lb_backend_share_ratio" "gauge" ["vip" "backend"]
        "Part of new connections that goes to a backend."
    BACKEND_LATENCY "dwell_lb_backend_latency_seconds" "gauge" ["vip" "backend"]
        "Mean response latency of a backend in the last interval; absent where it is not known."
    BACKEND_FRESHNESS "dwell_lb_backend_freshness_ratio" "gauge" ["vip" "backend"]
        "Requests of the last interval over connections active at its end."
    BACKEND_REACHABLE "dwell_lb_backend_reachable" "gauge" ["vip" "backend"]
        "1 if there is a route and a neighbour for a backend, 0 if not."
    BACKEND_LOAD "dwell_lb_backend_load_seconds" "gauge" ["vip" "backend"]
        "How long a request waits at a backend, as it says itself in connection IDs of QUIC."
    BACKEND_LOAD_AGE "dwell_lb_backend_load_age_seconds" "gauge" ["vip" "backend"]
        "How long ago a backend last said so."
    CONNECTION_IDS "dwell_lb_connection_ids_total" "counter" ["seen"]
        "Connection IDs of QUIC by what was seen of them."
    PACKETS "dwell_lb_packets_total" "counter" ["fate"]
        "Packets by what became of them."
    CHECKS_LATE "dwell_lb_health_checks_late_total" "counter" []
        "Health checks that began late: there are too few threads for backends that are silent."
    LEAVING "dwell_lb_leaving_backends" "gauge" []
        "Backends that are no longer wanted, and wait for their last connections."
    INTERVAL "dwell_lb_interval_work_seconds" "gauge" []
        "Time that the work of the last interval took."
    RELOADS "dwell_lb_reloads_total" "counter" ["result"]
        "Reloads of the configuration, by whether they were taken."
}

/// A value of a metric, with its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct BalancerSample {
    /// Which metric.
    pub metric: BalancerMetric,
    /// Values of its labels, in their order.
    pub labels: Vec<String>,
    /// Its value.
    pub value: f64,
}

/// Samples by metric.
#[derive(Debug, Clone, Default)]
pub(super) struct Balancer(BTreeMap<BalancerMetric, Vec<(Vec<String>, f64)>>);

impl Metrics {
    /// Sets all of a balancer's values. What is not among them is no longer told.
    pub fn set_balancer(&self, samples: impl IntoIterator<Item = BalancerSample>) {
        let mut balancer = Balancer::default();
        for sample in samples {
            let of_metric = balancer.0.entry(sample.metric).or_default();
            of_metric.push((sample.labels, sample.value));
        }
        let State { balancer: told, .. } = &mut *self.state();
        *told = balancer;
    }
}

impl Balancer {
    pub(super) fn write(&self, text: &mut Exposition) {
        for (metric, samples) in &self.0 {
            text.family(metric.name, metric.kind, metric.help);
            for (values, value) in samples {
                let values = values.iter().map(String::as_str);
                let labels: Vec<_> = metric.labels.iter().copied().zip(values).collect();
                text.sample(metric.name, &labels, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Metrics, *};

    #[test]
    fn samples_of_a_metric_stand_together_and_old_ones_are_forgotten() {
        let metrics = Metrics::new("0.1.0", 1);
        let sample = |metric, labels: &[&str], value| BalancerSample {
            metric,
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            value,
        };
        metrics.set_balancer([
            sample(BalancerMetric::BACKEND_UP, &["web", "a"], 1.0),
            sample(BalancerMetric::LEAVING, &[], 2.0),
            sample(BalancerMetric::BACKEND_UP, &["web", "b"], 0.0),
        ]);
        let text = metrics.render();
        let wanted = "# TYPE dwell_lb_backend_up gauge\n\
                      dwell_lb_backend_up{vip=\"web\",backend=\"a\"} 1\n\
                      dwell_lb_backend_up{vip=\"web\",backend=\"b\"} 0\n";
        assert!(text.contains(wanted), "{text}");
        assert!(text.contains("\ndwell_lb_leaving_backends 2\n"), "{text}");
        metrics.set_balancer([]);
        assert!(!metrics.render().contains("dwell_lb_"));
    }

    #[test]
    fn names_follow_the_guidelines() {
        for metric in BalancerMetric::ALL {
            let is_total = metric.name.ends_with("_total");
            assert_eq!(is_total, metric.kind == "counter", "{}", metric.name);
            assert!(metric.name.starts_with("dwell_lb_"), "{}", metric.name);
            let same = BalancerMetric::ALL.iter().filter(|other| other.name == metric.name);
            assert_eq!(same.count(), 1, "{}", metric.name);
        }
    }
}
