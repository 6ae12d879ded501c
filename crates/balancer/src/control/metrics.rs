//! The metrics of a balancer.

use dwell_metrics::{BalancerMetric as Metric, BalancerSample};

use super::{Balancer, status::load};
use crate::plan::Phase;

impl Balancer {
    /// Updates the metrics, if any are served.
    pub(super) fn update_metrics(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.set_balancer(self.samples());
        }
    }

    fn samples(&self) -> Vec<BalancerSample> {
        let mut samples = Vec::new();
        let mut put = |metric: Metric, labels: &[&str], value: f64| {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            samples.push(BalancerSample { metric, labels, value });
        };
        for run in &self.vips {
            let (vip, load) = ([run.vip.name.as_str()], load(&self.figures.vips, run.number));
            put(Metric::VIP_PACKETS, &vip, load.packets as f64);
            put(Metric::VIP_BYTES, &vip, load.bytes as f64);
            put(Metric::VIP_CONNECTIONS, &vip, load.opened as f64);
            let usable = run.backends.iter().filter(|run| run.is_usable()).count();
            put(Metric::VIP_BACKENDS, &vip, usable as f64);
            put(Metric::VIP_ALL_DOWN, &vip, f64::from(u8::from(run.all_down)));
            if let Some(disruption) = run.table.disruption() {
                put(Metric::VIP_DISRUPTION, &vip, disruption);
            }
            for backend in &run.backends {
                let status = self.backend_status(run, backend);
                let labels = [run.vip.name.as_str(), &status.name];
                let is = |yes: bool| f64::from(u8::from(yes));
                put(Metric::BACKEND_PACKETS, &labels, status.packets as f64);
                put(Metric::BACKEND_BYTES, &labels, status.bytes as f64);
                put(Metric::BACKEND_CONNECTIONS, &labels, status.connections as f64);
                put(Metric::BACKEND_ACTIVE, &labels, status.active as f64);
                put(Metric::BACKEND_UP, &labels, is(!backend.health.is_down()));
                put(Metric::BACKEND_WEIGHT, &labels, status.weight);
                put(Metric::BACKEND_SHARE, &labels, status.share);
                if let Some(latency_s) = status.latency_s {
                    put(Metric::BACKEND_LATENCY, &labels, latency_s);
                }
                if let Some(freshness) = status.freshness {
                    put(Metric::BACKEND_FRESHNESS, &labels, freshness);
                }
                if let Some(load) = &status.load {
                    if let Some(wait_s) = load.wait_s {
                        put(Metric::BACKEND_LOAD, &labels, wait_s);
                    }
                    put(Metric::BACKEND_LOAD_AGE, &labels, load.age_s);
                }
                put(Metric::BACKEND_REACHABLE, &labels, is(status.problem.is_none()));
            }
        }
        for (reason, packets) in self.plane_status().packets {
            put(Metric::PACKETS, &[&reason], packets as f64);
        }
        for (event, count) in self.plane_status().connection_ids {
            put(Metric::CONNECTION_IDS, &[&event], count as f64);
        }
        let leaving = self.state.reals.values().filter(|real| real.phase == Phase::Leaving);
        put(Metric::LEAVING, &[], leaving.count() as f64);
        put(Metric::CHECKS_LATE, &[], self.health.late() as f64);
        if let Some(work) = self.figures.work {
            put(Metric::INTERVAL, &[], work.as_secs_f64());
        }
        let [accepted, refused] = self.figures.reloads;
        put(Metric::RELOADS, &["taken"], accepted as f64);
        put(Metric::RELOADS, &["refused"], refused as f64);
        samples
    }
}
