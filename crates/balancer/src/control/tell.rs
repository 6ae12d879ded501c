//! What a balancer tells of itself: its status, and its metrics.

use std::time::{Duration, Instant};

use dwell_engine::rtt::Counters;
use dwell_metrics::{BalancerMetric as Metric, BalancerSample};
use dwell_probes::balancer::{Load, Seen, Why};

use super::{
    Balancer,
    vip::{BackendRun, VipRun},
};
use crate::{
    api::{BackendStatus, HealthWord, LoadStatus, PlaneStatus, Status, VipStatus},
    config::Forward,
    plan::{Phase, Real},
};

/// Clients send packets of up to this size, unless told otherwise.
const CLIENT_MTU: u16 = 1500;

impl Balancer {
    /// What runs, as of the end of the last interval.
    pub(super) fn status(&self) -> Status {
        let leaving = self.state.reals.iter().filter(|(_, real)| real.phase == Phase::Leaving);
        Status {
            time: jiff::Timestamp::now().to_string(),
            version: env!("CARGO_PKG_VERSION").into(),
            interface: self.config.interface.clone(),
            config: self.config.path.display().to_string(),
            loaded: self.loaded.to_string(),
            interval_s: self.config.interval.as_secs_f64(),
            interval_work_s: self.figures.work.map(|work| work.as_secs_f64()),
            plane: self.plane_status(),
            vips: self.vips.iter().map(|run| self.vip_status(run)).collect(),
            leaving: leaving.map(|(number, real)| self.leaving(*number, real)).collect(),
            warnings: self.warnings(),
        }
    }

    fn plane_status(&self) -> PlaneStatus {
        let counters = self.figures.counters.as_ref();
        PlaneStatus {
            taken: self.taken.into(),
            connections: counters.map_or(0, |counters| Counters::places_taken(&counters.table)),
            places: u64::from(self.config.limits.connections),
            connection_ids: counters.map_or_else(Default::default, |counters| {
                let all = Seen::ALL.iter();
                all.map(|seen| (seen.name().to_owned(), counters.seen(*seen))).collect()
            }),
            packets: counters.map_or_else(Default::default, |counters| {
                let all = Why::ALL.iter();
                all.map(|why| (why.name().to_owned(), counters.get(*why))).collect()
            }),
        }
    }

    fn vip_status(&self, run: &VipRun) -> VipStatus {
        let load = load(&self.figures.vips, run.number);
        let backends = run.backends.iter().zip(run.shares());
        VipStatus {
            name: run.vip.name.clone(),
            address: run.vip.key.address,
            protocol: run.vip.key.protocol,
            port: run.vip.key.port,
            policy: run.vip.policy,
            forward: run.vip.forward,
            table_size: run.vip.table_size,
            disruption: run.disruption,
            packets: load.packets,
            bytes: load.bytes,
            connections: load.opened,
            all_down: run.all_down,
            heavy: run.heavy_status(),
            backends: backends.map(|(run, share)| self.backend_status(run, share)).collect(),
        }
    }

    fn backend_status(&self, run: &BackendRun, share: f64) -> BackendStatus {
        let load = load(&self.figures.reals, run.real);
        let latency = run.seen.and_then(|seen| seen.latency);
        let health = &run.health;
        BackendStatus {
            name: run.backend.name.clone(),
            address: run.backend.address,
            real: run.real,
            phase: if run.is_draining { Phase::Draining } else { Phase::Serving },
            health: health.word(self.config.checking.ramp, Instant::now()),
            health_why: health.why.clone(),
            check_s: health.took.map(|took| took.as_secs_f64()),
            configured: run.backend.weight,
            weight: run.share.weight,
            share,
            why: run.share.why.name().into(),
            why_words: run.share.why.to_string(),
            latency_s: latency.map(|latency| Duration::from_nanos(latency.mean_ns).as_secs_f64()),
            latency_connections: latency.map(|latency| latency.connections),
            freshness: run.seen.map(|seen| seen.freshness()),
            active: self.figures.actives.get(&run.real).copied().unwrap_or(0),
            connections: load.opened,
            packets: load.packets,
            bytes: load.bytes,
            problem: self.problem(run.backend.address),
            server_id: run.backend.server_id,
            load: self.said(run.real),
        }
    }

    /// What a server that goes by connection ID says of itself.
    fn said(&self, real: u32) -> Option<LoadStatus> {
        let (wait, age) = self.zero.said(real)?;
        Some(LoadStatus { wait_s: wait.map(|wait| wait.as_secs_f64()), age_s: age.as_secs_f64() })
    }

    fn leaving(&self, number: u32, real: &Real) -> BackendStatus {
        let load = load(&self.figures.reals, number);
        BackendStatus {
            name: real.name.clone(),
            address: real.address,
            real: number,
            phase: Phase::Leaving,
            health: HealthWord::Unchecked,
            health_why: None,
            check_s: None,
            configured: 0.0,
            weight: 0.0,
            share: 0.0,
            why: "leaving".into(),
            why_words: "no longer wanted, waits for its last connections".into(),
            latency_s: None,
            latency_connections: None,
            freshness: None,
            active: self.figures.actives.get(&number).copied().unwrap_or(0),
            connections: load.opened,
            packets: load.packets,
            bytes: load.bytes,
            problem: self.problem(real.address),
            server_id: real.server_id,
            load: self.said(number),
        }
    }

    fn problem(&self, address: std::net::IpAddr) -> Option<String> {
        match self.hops.get(&address) {
            Some(hop) => hop.as_ref().err().cloned(),
            None if self.last_hops.contains_key(&address) => None,
            None => Some("the way there is not known yet".into()),
        }
    }

    /// What an operator should look at.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for run in &self.vips {
            let name = &run.vip.name;
            if run.table.is_empty() {
                warnings.push(format!("VIP '{name}' has no backend: its new connections are dropped"));
            }
            if run.all_down {
                warnings.push(format!("VIP '{name}': all backends fail their checks, so that all are kept"));
            }
            for backend in &run.backends {
                let (backend, address) = (&backend.backend.name, backend.backend.address);
                if let Some(problem) = self.problem(address) {
                    warnings.push(format!("VIP '{name}': backend '{backend}': {problem}"));
                }
            }
            warnings.extend(self.narrow(run));
        }
        warnings
    }

    /// That clients' full packets do not fit on the way to backends of a VIP.
    fn narrow(&self, run: &VipRun) -> Option<String> {
        let ways = run.backends.iter().filter_map(|backend| {
            let hop = self.last_hops.get(&backend.backend.address)?;
            let outer = outer_bytes(run.vip.forward, backend.backend.address.is_ipv4());
            (hop.mtu < CLIENT_MTU + outer).then_some((&backend.backend.name, hop.mtu, outer))
        });
        let ways: Vec<_> = ways.collect();
        let (name, mtu, outer) = ways.first()?;
        let others = match ways.len() - 1 {
            0 => String::new(),
            others => format!(" (and to {others} more)"),
        };
        Some(format!(
            "VIP '{}': the way to '{name}'{others} carries {mtu} bytes, {outer} of them for the tunnel: \
             clients are told to send smaller packets; an MTU of {} there spares them",
            run.vip.name,
            CLIENT_MTU + outer
        ))
    }

    /// Sets the metrics, if any are served.
    pub(super) fn export(&self) {
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
            if let Some(disruption) = run.disruption {
                put(Metric::VIP_DISRUPTION, &vip, disruption);
            }
            for (backend, share) in run.backends.iter().zip(run.shares()) {
                let status = self.backend_status(backend, share);
                let labels = [run.vip.name.as_str(), &status.name];
                let is = |yes: bool| f64::from(u8::from(yes));
                put(Metric::BACKEND_PACKETS, &labels, status.packets as f64);
                put(Metric::BACKEND_BYTES, &labels, status.bytes as f64);
                put(Metric::BACKEND_CONNECTIONS, &labels, status.connections as f64);
                put(Metric::BACKEND_ACTIVE, &labels, status.active as f64);
                put(Metric::BACKEND_UP, &labels, is(!backend.health.is_down()));
                put(Metric::BACKEND_WEIGHT, &labels, status.weight);
                put(Metric::BACKEND_SHARE, &labels, share);
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
        for (why, packets) in self.plane_status().packets {
            put(Metric::PACKETS, &[&why], packets as f64);
        }
        for (seen, count) in self.plane_status().connection_ids {
            put(Metric::CONNECTION_IDS, &[&seen], count as f64);
        }
        let leaving = self.state.reals.values().filter(|real| real.phase == Phase::Leaving);
        put(Metric::LEAVING, &[], leaving.count() as f64);
        put(Metric::CHECKS_LATE, &[], self.health.late() as f64);
        if let Some(work) = self.figures.work {
            put(Metric::INTERVAL, &[], work.as_secs_f64());
        }
        let [taken, refused] = self.figures.reloads;
        put(Metric::RELOADS, &["taken"], taken as f64);
        put(Metric::RELOADS, &["refused"], refused as f64);
        samples
    }
}

pub(super) fn load(loads: &[Load], number: u32) -> Load {
    loads.get(number as usize).copied().unwrap_or_default()
}

/// What is put around a packet.
fn outer_bytes(forward: Forward, is_v4: bool) -> u16 {
    let ip = if is_v4 { 20 } else { 40 };
    match forward {
        Forward::L2 => 0,
        Forward::Ipip => ip,
        Forward::Gue(_) => ip + 8,
    }
}
