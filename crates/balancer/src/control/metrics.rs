//! The metrics of a balancer.

use dwell_metrics::{Family, Numbers, seconds};
use dwell_socket::clock::realtime_ns;

use super::{Balancer, backend::RunningBackend, status::load, vip::RunningVip};
use crate::{metrics, plan::Phase};

impl Balancer {
    /// Updates the metrics, if any are served.
    pub(super) fn update_metrics(&self) {
        if let Some(metrics) = &self.metrics {
            *metrics.lock() = self.numbers();
        }
    }

    fn numbers(&self) -> Numbers {
        let mut numbers = Numbers::default();
        for run in &self.vips {
            self.put_vip(&mut numbers, run);
            for backend in &run.backends {
                self.put_backend(&mut numbers, run, backend);
            }
        }
        self.put_plane(&mut numbers);
        self.put_shared(&mut numbers);
        let mut put = |family: Family, labels: &[&str], value: f64| numbers.add(family, labels, value);
        let leaving = self.state.reals.iter().filter(|(_, real)| real.phase == Phase::Leaving);
        let leaving: Vec<u64> = leaving.map(|(number, _)| self.tracked(*number).unwrap_or(0)).collect();
        put(metrics::LEAVING, &[], leaving.len() as f64);
        put(metrics::LEAVING_TRACKED, &[], leaving.iter().sum::<u64>() as f64);
        put(metrics::CHECKS_LATE, &[], self.health.late() as f64);
        if let Some(work) = self.figures.work {
            put(metrics::INTERVAL, &[], work.as_secs_f64());
        }
        let [accepted, refused] = self.figures.reloads;
        put(metrics::RELOADS, &["taken"], accepted as f64);
        put(metrics::RELOADS, &["refused"], refused as f64);
        numbers
    }

    fn put_vip(&self, numbers: &mut Numbers, run: &RunningVip) {
        let (vip, load) = ([run.vip.name.as_str()], load(&self.figures.vips, run.number));
        let mut put = |family: Family, value: f64| numbers.add(family, &vip, value);
        put(metrics::VIP_PACKETS, load.packets as f64);
        put(metrics::VIP_BYTES, load.bytes as f64);
        put(metrics::VIP_CONNECTIONS, load.opened as f64);
        let usable = run.backends.iter().filter(|run| run.is_usable()).count();
        put(metrics::VIP_BACKENDS, usable as f64);
        put(metrics::VIP_ALL_DOWN, is(run.all_down));
        put(metrics::VIP_BLIND, is(run.is_blind()));
        if let Some(disruption) = run.table.disruption() {
            put(metrics::VIP_DISRUPTION, disruption);
        }
    }

    fn put_backend(&self, numbers: &mut Numbers, run: &RunningVip, backend: &RunningBackend) {
        let status = self.backend_status(run, backend);
        let (vip, name) = (run.vip.name.as_str(), status.name.as_str());
        let mut put = |family: Family, value: f64| numbers.add(family, &[vip, name], value);
        put(metrics::BACKEND_PACKETS, status.packets as f64);
        put(metrics::BACKEND_BYTES, status.bytes as f64);
        put(metrics::BACKEND_CONNECTIONS, status.connections as f64);
        put(metrics::BACKEND_ACTIVE, status.active as f64);
        if let Some(tracked) = status.tracked {
            put(metrics::BACKEND_TRACKED, tracked as f64);
        }
        put(metrics::BACKEND_PENDING, status.pending.requests as f64);
        put(metrics::BACKEND_OLDEST, seconds(status.pending.oldest_ns.unwrap_or(0).into()));
        put(metrics::BACKEND_UP, is(!backend.health.is_down()));
        put(metrics::BACKEND_WEIGHT, status.weight);
        put(metrics::BACKEND_SHARE, status.share);
        put(metrics::BACKEND_REACHABLE, is(status.problem.is_none()));
        if let Some(freshness) = status.freshness {
            put(metrics::BACKEND_FRESHNESS, freshness);
        }
        if let Some(load) = &status.load {
            if let Some(wait_ns) = load.wait_ns {
                put(metrics::BACKEND_LOAD, seconds(wait_ns.into()));
            }
            put(metrics::BACKEND_LOAD_AGE, seconds(load.age_ns.into()));
        }
        let latency = status.latency.unwrap_or_default();
        if let Some(mean_ns) = latency.mean_ns {
            put(metrics::BACKEND_LATENCY, seconds(mean_ns.into()));
        }
        for (quantile, ns) in [("0.5", latency.p50_ns), ("0.9", latency.p90_ns), ("0.99", latency.p99_ns)] {
            if let Some(ns) = ns {
                numbers.add(metrics::BACKEND_LATENCY_QUANTILE, &[vip, name, quantile], seconds(ns.into()));
            }
        }
    }

    fn put_plane(&self, numbers: &mut Numbers) {
        let mut put = |family: Family, labels: &[&str], value: f64| numbers.add(family, labels, value);
        let plane = self.plane_status();
        for (reason, packets) in plane.packets {
            put(metrics::PACKETS, &[&reason], packets as f64);
        }
        for (event, count) in plane.table {
            put(metrics::TABLE_EVENTS, &[&event], count as f64);
        }
        for device in plane.devices {
            for (by, refused) in [("tx", device.refused_tx), ("redirect", device.refused_redirect)] {
                if let Some(refused) = refused {
                    put(metrics::REFUSED, &[&device.name, by], refused as f64);
                }
            }
            put(metrics::DEVICE_DELIVERS, &[&device.name], is(device.problem.is_none()));
        }
        put(metrics::PRESSURE, &[], is(plane.pressure.is_some()));
        for (event, count) in plane.connection_ids {
            put(metrics::CONNECTION_IDS, &[&event], count as f64);
        }
        if let Some(age) = self.plane.heartbeat_age() {
            put(metrics::HEARTBEAT, &[], seconds(realtime_ns().into()) - age.as_secs_f64());
        }
    }

    fn put_shared(&self, numbers: &mut Numbers) {
        let Some(shared) = self.shared_status() else {
            return;
        };
        let mut put = |family: Family, value: f64| numbers.add(family, &[], value);
        put(metrics::SHARED_STORE_UP, is(shared.problem.is_none()));
        put(metrics::SHARED_MEMBERS, shared.members.len() as f64);
        put(metrics::SHARED_LEADS, is(shared.leader.as_ref() == Some(&shared.name)));
        put(metrics::SHARED_DIFFERING, shared.differing.len() as f64);
        put(metrics::SHARED_REFUSED, shared.refused as f64);
        if let Some(number) = shared.set {
            put(metrics::SHARED_SET, number as f64);
        }
    }
}

/// The value of a metric that is 1 or 0.
fn is(yes: bool) -> f64 {
    f64::from(u8::from(yes))
}
