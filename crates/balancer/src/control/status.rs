//! The status of a balancer.

use std::{net::IpAddr, time::Instant};

use dwell_engine::{
    balance::{Forward, Sampling, ServerState, successor_entry},
    quic_lb,
    rtt::{Counter, Counters},
    steer::BackendStats,
    units::nanos,
};
use dwell_probes::{
    XdpMode,
    balancer::{ActiveConnections, CidEvent, Load, Plane, Reason},
};
use dwell_records::Cost;
use dwell_socket::clock::process_cpu_ns;

use super::{
    Balancer,
    backend::RunningBackend,
    vip::{RunningVip, latency_object},
};
use crate::{
    api::{
        BackendStatus, HealthState, HeartbeatStatus, LoadStatus, PendingStatus, PlaneStatus, Status, VipStatus,
        XdpStatus,
    },
    config::Fault,
    plan::{NumberedBackend, Phase},
};

/// The events of the connection table and of latency measurement that say what is missing from the figures.
const TABLE_EVENTS: [Counter; 5] =
    [Counter::FlowsEvicted, Counter::FlowsExpired, Counter::Untracked, Counter::Contended, Counter::EventsLost];
/// The MTU that clients are assumed to have.
const CLIENT_MTU: u16 = 1500;

impl Balancer {
    /// Returns the keys of the configuration, as it was read last, from which nothing follows.
    pub fn config_warnings(&self) -> &[Fault] {
        &self.config.warnings
    }

    /// Returns the status as of the end of the last interval.
    pub fn status(&self) -> Status {
        let leaving = self.state.reals.iter().filter(|(_, real)| real.phase == Phase::Leaving);
        Status {
            time: dwell_records::now(),
            version: env!("CARGO_PKG_VERSION").into(),
            interface: self.config.interface.clone(),
            config: self.config.path.display().to_string(),
            loaded: format!("{:.9}", self.loaded),
            interval_ns: nanos(self.config.interval),
            interval_work_ns: self.figures.work.map(nanos),
            plane: self.plane_status(),
            shared: self.shared_status(),
            vips: self.vips.iter().map(|run| self.vip_status(run)).collect(),
            leaving: leaving.map(|(number, real)| self.leaving_status(*number, real)).collect(),
            warnings: self.warnings(),
            cost: self.cost(),
            fail_if: None,
        }
    }

    fn cost(&self) -> Cost {
        let runs = self.plane.run_time();
        let cost = Cost {
            cpu_ns: Some(process_cpu_ns()),
            bpf_runs: runs.map(|(runs, _)| runs),
            bpf_ns: runs.map(|(_, ns)| ns),
            ..Cost::default()
        };
        let packets = self.figures.counters.as_ref().map_or(0, |counters| counters.packets());
        cost.over(packets.saturating_sub(self.packets_before))
    }

    pub(super) fn plane_status(&self) -> PlaneStatus {
        let counters = self.figures.counters.as_ref();
        PlaneStatus {
            start: self.start.into(),
            connections: counters.map_or(0, |counters| Counters::slots_taken(&counters.table)),
            capacity: u64::from(self.plane.capacity()),
            heartbeat: self.heartbeat_status(),
            pressure: self.figures.pressure,
            xdp: self.xdp_status(),
            devices: self.devices.status(),
            table: counters.map_or_else(Default::default, |counters| {
                let events = TABLE_EVENTS.map(|event| (event.name().to_owned(), counters.table.get(event)));
                events.into_iter().chain([("unmeasured".to_owned(), counters.unmeasured)]).collect()
            }),
            connection_ids: counters.map_or_else(Default::default, |counters| {
                let all = CidEvent::ALL.iter();
                all.map(|seen| (seen.name().to_owned(), counters.cid_events(*seen))).collect()
            }),
            packets: counters.map_or_else(Default::default, |counters| {
                let all = Reason::ALL.iter();
                all.map(|why| (why.name().to_owned(), counters.get(*why))).collect()
            }),
        }
    }

    fn xdp_status(&self) -> Option<XdpStatus> {
        match Plane::mode_at(&self.interface)? {
            XdpMode::Native => Some(XdpStatus::Native),
            XdpMode::Generic => Some(XdpStatus::Generic),
            XdpMode::Any => None,
        }
    }

    fn heartbeat_status(&self) -> Option<HeartbeatStatus> {
        let settings = self.config.heartbeat;
        let age = self.plane.heartbeat_age()?;
        let is_attached = Plane::is_attached_at(&self.config.pin);
        Some(HeartbeatStatus::new(age, settings.stale_after, settings.when_stale, is_attached))
    }

    fn vip_status(&self, run: &RunningVip) -> VipStatus {
        let load = load(&self.figures.vips, run.number);
        let backends = run.backends.iter();
        VipStatus {
            name: run.vip.name.clone(),
            address: run.vip.key.address,
            proto: run.vip.key.protocol,
            port: run.vip.key.port,
            policy: run.vip.policy,
            forward: run.vip.forward,
            table_size: run.vip.table_size,
            table_hash: run.table.hash(),
            disruption: run.table.disruption(),
            measured: Some(run.vip.measure.map_or(0.0, |sampling| 1.0 / f64::from(sampling.connections()))),
            packets: load.packets,
            bytes: load.bytes,
            connections: load.opened,
            second_chance: run.vip.second_chance,
            all_down: run.all_down,
            heavy: run.heavy_status(),
            backends: backends.map(|backend| self.backend_status(run, backend)).collect(),
        }
    }

    pub(super) fn backend_status(&self, vip: &RunningVip, run: &RunningBackend) -> BackendStatus {
        let load = load(&self.figures.reals, run.real);
        let latency = run.seen.and_then(|seen| seen.latency);
        let health = &run.health;
        let is_drained = vip.is_drained(run);
        let explanation = match is_drained {
            true => self.describe_drain(run),
            false => run.share.reason.to_string(),
        };
        BackendStatus {
            name: run.backend.name.clone(),
            address: run.backend.address,
            real: run.real,
            phase: if is_drained { Phase::Draining } else { Phase::Serving },
            drained_by: self.drainers(run),
            health: health.state(self.config.health.ramp, Instant::now()),
            health_problem: health.failure.clone(),
            check_ns: health.duration.map(nanos),
            configured: run.backend.weight,
            weight: run.share.weight,
            share: vip.table.share(run.real),
            reason: run.share.reason.name().into(),
            explanation,
            latency: latency.map(latency_object),
            freshness: run.seen.map(|seen| seen.freshness()),
            active: self.active(run.real),
            tracked: self.tracked(run.real),
            pending: self.pending_status(run.real, vip.vip.sampling(), run.seen),
            connections: load.opened,
            packets: load.packets,
            bytes: load.bytes,
            problem: self.problem(run.backend.address),
            server_id: run.backend.server_id,
            load: self.load_status(run.real),
            named_age_ns: self.named_age(run.real),
            successor: self.successor(vip, run.backend.server_id),
        }
    }

    /// The backend that gets the clients of a server that has left: one that is drained, or was removed.
    fn successor(&self, run: &RunningVip, server_id: Option<u64>) -> Option<String> {
        let id = u16::try_from(server_id?).ok()?;
        let entries = run.table.entries();
        let has_tokens = run.vip.zero_rtt.as_ref()?.layouts.iter().any(quic_lb::Config::is_stamped);
        let is_here = |backend: &&RunningBackend| backend.backend.server_id == server_id;
        let is_left =
            run.backends.iter().find(is_here).is_none_or(|backend| run.server_state(backend) == ServerState::Left);
        if !has_tokens || entries.is_empty() || !is_left {
            return None;
        }
        let next = entries[successor_entry(id, self.hash_seed, entries.len())];
        let next = run.backends.iter().find(|run| run.real == next)?;
        Some(next.backend.name.clone())
    }

    fn load_status(&self, real: u32) -> Option<LoadStatus> {
        let load = self.zero.reported_load(real)?;
        Some(LoadStatus { wait_ns: load.wait.map(nanos), age_ns: nanos(load.age) })
    }

    fn pending_status(&self, real: u32, sampling: Sampling, seen: Option<BackendStats>) -> PendingStatus {
        let pending = self.counted(real).map(|connections| connections.pending(real)).unwrap_or_default();
        let requests = pending.count() * u64::from(sampling.connections());
        let strays = seen.map_or(0, |seen| seen.strays).min(requests);
        PendingStatus { requests, oldest_ns: pending.oldest_ns(), strays }
    }

    /// The connections in the connection table that are placed on a backend; none if they were not counted yet.
    pub(super) fn tracked(&self, real: u32) -> Option<u64> {
        self.counted(real).map(|connections| connections.tracked(real))
    }

    /// What may be why a VIP has no estimates.
    fn doubt(&self, run: &RunningVip) -> String {
        let (least, part) = (run.vip.latency.intervals.min_connections, run.vip.sampling().connections());
        let measured = |backend: &RunningBackend| self.active(backend.real) / u64::from(part);
        let of_sampling = match part {
            1 => String::new(),
            part => format!(", and are enough of them measured (measure = \"1/{part}\")"),
        };
        match run.backends.iter().map(measured).max().unwrap_or(0) {
            most if most < u64::from(least) => format!(
                "no backend has enough measured connections for one: at most {most}, and min_connections is {least}"
            ),
            _ => format!("do clients wait for answers, one at a time, over TCP{of_sampling}?"),
        }
    }

    fn active(&self, real: u32) -> u64 {
        self.counted(real).map_or(0, |connections| connections.of(real))
    }

    /// What was counted at the end of the last interval, if the backend was among those that were.
    fn counted(&self, real: u32) -> Option<&ActiveConnections> {
        self.figures.connections.as_ref().filter(|_| self.figures.counted.contains(&real))
    }

    fn leaving_status(&self, number: u32, real: &NumberedBackend) -> BackendStatus {
        let load = load(&self.figures.reals, number);
        let run = self.vips.iter().find(|run| real.vip == Some(run.vip.key));
        BackendStatus {
            name: real.name.clone(),
            address: real.address,
            real: number,
            phase: Phase::Leaving,
            drained_by: Vec::new(),
            health: HealthState::Unchecked,
            health_problem: None,
            check_ns: None,
            configured: 0.0,
            weight: 0.0,
            share: 0.0,
            reason: "leaving".into(),
            explanation: "no longer wanted; waiting for its last connections".into(),
            latency: None,
            freshness: None,
            active: self.active(number),
            tracked: self.tracked(number),
            pending: self.pending_status(number, run.map_or_else(Sampling::default, |run| run.vip.sampling()), None),
            connections: load.opened,
            packets: load.packets,
            bytes: load.bytes,
            problem: self.problem(real.address),
            server_id: real.server_id,
            load: self.load_status(number),
            named_age_ns: self.named_age(number),
            successor: real.server_id.and_then(|id| self.successor(run?, Some(id))),
        }
    }

    /// Why nothing arrives at an address; none if packets do, as far as that is known.
    pub(super) fn problem(&self, address: IpAddr) -> Option<String> {
        match self.hops.get(&address) {
            Some(Ok(hop)) => self.devices.problem(hop.interface).map(str::to_owned),
            Some(Err(problem)) => Some(problem.clone()),
            None if self.known_hops.contains_key(&address) => None,
            None => Some("the next hop is not known yet".into()),
        }
    }

    /// Conditions that an operator should know about.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        warnings.extend(self.figures.pressure.map(|pressure| pressure.to_string()));
        warnings.extend(self.device_warnings());
        if let Some(reason) = &self.unchecked {
            warnings.push(format!(
                "no health check runs, as no thread can be started ({reason}): does this service have a limit on tasks?"
            ));
        }
        warnings.extend(self.unsaved_warning());
        warnings.extend(self.shared_warnings());
        for run in &self.vips {
            let name = &run.vip.name;
            if run.is_blind() {
                let doubt = self.doubt(run);
                warnings.push(format!(
                    "VIP '{name}': policy 'latency' has no estimate of any backend, so that weights stay as they are: {doubt}"
                ));
            }
            if run.table.entries().is_empty() {
                warnings.push(format!("VIP '{name}' has no usable backend: new connections are dropped"));
            }
            if run.all_down {
                warnings.push(format!("VIP '{name}': all backends fail their checks, so all are kept"));
            }
            for backend in &run.backends {
                let (backend, address) = (&backend.backend.name, backend.backend.address);
                if let Some(problem) = self.problem(address) {
                    warnings.push(format!("VIP '{name}': backend '{backend}': {problem}"));
                }
            }
            warnings.extend(self.mtu_warning(run));
            warnings.extend(self.mute_warning(run));
        }
        warnings
    }

    /// Warns that clients' full-sized packets do not fit on the path to the backends of a VIP.
    fn mtu_warning(&self, run: &RunningVip) -> Option<String> {
        let paths = run.backends.iter().filter_map(|backend| {
            let hop = self.known_hops.get(&backend.backend.address)?;
            let overhead = encapsulation_bytes(run.vip.forward, backend.backend.address.is_ipv4());
            (hop.mtu < CLIENT_MTU + overhead).then_some((&backend.backend.name, hop.mtu, overhead))
        });
        let paths: Vec<_> = paths.collect();
        let (name, mtu, overhead) = paths.first()?;
        let others = and_more(paths.len() - 1);
        let taken = match overhead {
            0 => String::new(),
            overhead => format!(", of which encapsulation takes {overhead}"),
        };
        Some(format!(
            "VIP '{}': the path to '{name}'{others} carries packets of {mtu} bytes{taken}: clients are asked to send smaller \
             packets; an MTU of {} on the path avoids that",
            run.vip.name,
            CLIENT_MTU + overhead
        ))
    }
}

/// Says that a warning is of others too, beside the one that it names.
pub(super) fn and_more(others: usize) -> String {
    match others {
        0 => String::new(),
        others => format!(" (and {others} more)"),
    }
}

pub(super) fn load(loads: &[Load], number: u32) -> Load {
    loads.get(number as usize).copied().unwrap_or_default()
}

/// The bytes that encapsulation adds to a packet.
fn encapsulation_bytes(forward: Forward, is_v4: bool) -> u16 {
    let ip = if is_v4 { 20 } else { 40 };
    match forward {
        Forward::L2 => 0,
        Forward::Ipip => ip,
        Forward::Gue(_) => ip + 8,
    }
}
