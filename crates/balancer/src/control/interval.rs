//! The work at the end of each interval, and what health checks and neighbours change in between.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Instant,
};

use dwell_engine::{
    response::{self, Record, estimate},
    steer::ShareReason,
};
use dwell_probes::{
    XdpMode,
    balancer::{ActiveConnections, Load, Plane},
};

use super::{
    Balancer, ControlError, Event,
    apply::{MapContents, Rebuilt},
    event::Weight,
    pressure::{Pressure, Totals},
    vip::{RunningVip, latency_object},
};
use crate::{
    health::CheckResult,
    neighbours::HopUpdate,
    plan::{NumberedBackend, Phase},
};

/// Adds the record of a connection's epoch to its VIP. Records of backends that are leaving belong to no VIP.
fn add_record(
    vips: &mut [RunningVip],
    positions: &BTreeMap<u32, (usize, usize)>,
    config: &response::Config,
    record: &Record,
) {
    if let Some((vip, _)) = positions.get(&record.real) {
        vips[*vip].add(record, &estimate(config, &record.epoch));
    }
}

impl Balancer {
    /// Reads the epochs that have ended.
    pub(super) fn drain_records(&mut self) -> Result<(), ControlError> {
        let config = super::estimator(&self.config);
        let (vips, positions) = (&mut self.vips, &self.positions);
        Ok(self.plane.drain(|record| add_record(vips, positions, &config, &record))?)
    }

    /// Ends the epochs that are over, and counts connections by backend.
    fn sweep(&mut self) -> Result<ActiveConnections, ControlError> {
        let config = super::estimator(&self.config);
        let (vips, positions) = (&mut self.vips, &self.positions);
        Ok(self.plane.sweep(|record| add_record(vips, positions, &config, &record))?)
    }

    /// Ends an interval: policies set weights, and the kernel gets the tables that follow.
    pub(super) fn end_interval(&mut self) -> Result<(), ControlError> {
        if !self.interface.exists() {
            return Err(ControlError::Vanished(self.interface.name.clone()));
        }
        let connections = self.sweep()?;
        self.figures.counted = self.state.reals.keys().copied().collect();
        self.figures.reals = self.plane.real_loads()?;
        self.figures.vips = self.plane.vip_loads()?;
        self.update_pressure()?;
        let is_held = self.figures.pressure.is_some();
        self.steer(&connections, is_held);
        let seen = self.vips.iter().flat_map(|run| run.backends.iter().filter_map(|backend| backend.seen));
        let strays: Vec<(u32, u64)> = seen.map(|seen| (seen.real, seen.strays)).filter(|it| it.1 > 0).collect();
        self.plane.take_open(&strays)?;
        self.figures.connections = Some(connections);
        self.update_unfinished();
        self.update_naming()?;
        self.revive_checks();
        let has_turned = self.update_devices()?;
        let is_changed = self.sync(has_turned)?;
        self.vips.iter_mut().for_each(|run| run.table.end_interval());
        self.read_server_loads()?;
        self.share_quic()?;
        self.update_heavy_shares()?;
        self.remove_left_backends()?;
        if is_changed || self.unsaved.is_some() {
            self.save();
        }
        Ok(())
    }

    /// Judges whether the connection table had room in the interval that ends.
    fn update_pressure(&mut self) -> Result<(), ControlError> {
        let counters = self.plane.counters()?;
        let totals = Totals::of(&self.vips, &self.figures.vips, &counters);
        let pressure = self.figures.totals.and_then(|before| totals.pressure_since(&before));
        let kind = |pressure: Option<Pressure>| pressure.map(|pressure| pressure.kind);
        if kind(pressure) != kind(self.figures.pressure) {
            self.emit(&Event::Pressure { pressure });
        }
        (self.figures.totals, self.figures.pressure) = (Some(totals), pressure);
        self.figures.counters = Some(counters);
        Ok(())
    }

    /// Has health checks begin that could not begin before.
    fn revive_checks(&mut self) {
        let unchecked = self.health.revive().map(|error| error.to_string());
        if unchecked.is_some() != self.unchecked.is_some() {
            self.emit(&Event::Unchecked { reason: unchecked.clone() });
        }
        self.unchecked = unchecked;
    }

    /// Judges whether most connections of the interval that ends began with a checksum that nothing finishes: the driver
    /// runs XDP, and has dropped what the stack knew of it.
    fn update_unfinished(&mut self) {
        let Some(counters) = &self.figures.counters else { return };
        let opened = self.figures.vips.iter().map(|load| load.opened).sum();
        let now = (counters.unfinished, opened);
        let (unfinished, all) = self.figures.unfinished.replace(now).unwrap_or(now);
        let (unfinished, all) = (now.0.saturating_sub(unfinished), now.1.saturating_sub(all));
        if unfinished + all > 0 {
            let is_native = Plane::mode_at(&self.interface) == Some(XdpMode::Native);
            self.figures.has_unfinished = is_native && 2 * unfinished > all;
        }
    }

    /// Rebuilds the tables whose weights have changed, and writes what has changed to the kernel. Backends are compared
    /// with those in the kernel if `are_backends_changed`, or if all backends of a VIP fail or recover. True if a table
    /// has changed.
    pub(super) fn sync(&mut self, are_backends_changed: bool) -> Result<bool, ControlError> {
        if are_backends_changed {
            self.vips.iter_mut().for_each(|run| run.update_reachability(&self.known_hops, &self.devices));
        }
        let were_all_down: Vec<bool> = self.vips.iter().map(|run| run.all_down).collect();
        let rebuilt = Rebuilt::build(&mut self.vips, self.config.health.ramp, self.config.heartbeat.when_stale);
        let turned: Vec<usize> =
            (0..self.vips.len()).filter(|at| self.vips[*at].all_down != were_all_down[*at]).collect();
        let contents = MapContents { state: &self.state, vips: &self.vips, hops: &self.known_hops };
        if are_backends_changed || !turned.is_empty() {
            contents.write_backends(&mut self.plane)?;
        }
        contents.write_tables(&mut self.plane, &rebuilt)?;
        self.update_zero_vips()?;
        let all_down = turned.iter().map(|at| super::apply::all_down(&self.vips[*at]));
        let weights = rebuilt.own.iter().map(|at| weights(&self.vips[*at]));
        let events: Vec<Event> = all_down.chain(weights).collect();
        events.iter().for_each(|event| self.emit(event));
        self.propose();
        Ok(!rebuilt.own.is_empty())
    }

    /// Removes the leaving backends whose last connection the kernel has forgotten.
    fn remove_left_backends(&mut self) -> Result<(), ControlError> {
        let now = Instant::now();
        let grace = 2 * self.config.interval;
        let mut left = Vec::new();
        for (number, real) in &self.state.reals {
            if real.phase != Phase::Leaving {
                continue;
            }
            if self.tracked(*number) > Some(0) || self.zero.is_routed(*number) {
                self.idle_since.remove(number);
            } else if now.duration_since(*self.idle_since.entry(*number).or_insert(now)) >= grace {
                left.push(*number);
            }
        }
        let take = |number| self.state.reals.remove(number);
        let backends: Vec<NumberedBackend> = left.iter().filter_map(take).collect();
        if backends.is_empty() {
            return Ok(());
        }
        // A request may reuse the number at once: by then no connection ID must lead to it.
        self.update_zero_vips()?;
        self.plane.remove_reals(&left)?;
        for number in &left {
            if let Some(load) = self.figures.reals.get_mut(*number as usize) {
                *load = Load::default();
            }
        }
        self.idle_since.retain(|number, _| left.binary_search(number).is_err());
        self.vips.iter_mut().filter_map(|run| run.recent.as_mut()).for_each(|recent| recent.forget(&left));
        for backend in backends {
            self.emit(&Event::Left { backend: backend.name, address: backend.address });
        }
        self.watch_neighbours();
        self.save();
        Ok(())
    }

    /// Applies the result of a health check. True if the kernel has to be updated.
    pub(super) fn apply_check(&mut self, result: &CheckResult) -> bool {
        let Some((vip, at)) = self.positions.get(&result.real).copied() else {
            return false;
        };
        let run = &mut self.vips[vip];
        if run.vip.check.is_none() {
            return false;
        }
        let backend = &mut run.backends[at];
        let health = &mut backend.health;
        match &result.outcome {
            Ok(duration) => (health.duration, health.failure) = (Some(*duration), None),
            Err(failure) => health.failure = Some(failure.clone()),
        }
        if !result.is_news {
            return false;
        }
        let is_changed = health.update(result.is_up, Instant::now());
        let event = Event::Health {
            vip: run.vip.name.clone(),
            backend: backend.backend.name.clone(),
            up: result.is_up,
            reason: result.outcome.as_ref().err().cloned(),
        };
        self.emit(&event);
        is_changed
    }

    /// Looks up the next hops of all backends from now on, and no others.
    pub(super) fn watch_neighbours(&mut self) {
        let reals = self.state.reals.values();
        let addresses: BTreeSet<IpAddr> = reals.map(|real| real.address).collect();
        self.hops.retain(|address, _| addresses.contains(address));
        self.known_hops.retain(|address, _| addresses.contains(address));
        self.neighbours.set(&addresses);
    }

    /// Applies the result of a next-hop lookup.
    pub(super) fn apply_hop(&mut self, update: HopUpdate) {
        let address = update.address;
        // That a new backend is reachable is no news.
        let before = self.hops.get(&address).and_then(|_| self.problem(address));
        match &update.hop {
            Ok(hop) => {
                self.known_hops.insert(address, *hop);
            }
            Err(_) if update.is_gone => {
                self.known_hops.remove(&address);
            }
            Err(_) => {}
        }
        self.hops.insert(address, update.hop);
        let problem = self.problem(address);
        if problem != before {
            self.emit(&Event::Reach { address, problem });
        }
    }
}

fn weights(run: &RunningVip) -> Event {
    let backends = run.backends.iter().map(|backend| {
        let latency = backend.seen.and_then(|seen| seen.latency);
        // The policy has not seen yet that it has come back.
        let reason = match backend.share.reason {
            ShareReason::Unusable if backend.is_usable() => ShareReason::NoEstimate,
            reason => reason,
        };
        Weight {
            backend: backend.backend.name.clone(),
            weight: backend.share.weight,
            share: run.table.share(backend.real),
            reason: reason.name(),
            latency: latency.map(latency_object),
        }
    });
    let disruption = run.table.last_change().unwrap_or(0.0);
    Event::Weights { vip: run.vip.name.clone(), disruption, backends: backends.collect() }
}
