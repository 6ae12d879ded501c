//! What is done each interval, and when checks or neighbours have news.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::{Duration, Instant},
};

use dwell_engine::response::{self, Record, estimate};
use dwell_probes::balancer::Actives;

use super::{Balancer, ControlError, Event, event::Weight, neighbours::Found, vip::VipRun};
use crate::{
    health::Told,
    plan::{Phase, Real},
};

fn note(vips: &mut [VipRun], places: &BTreeMap<u32, (usize, usize)>, config: &response::Config, record: &Record) {
    // Those of backends that leave are nobody's.
    if let Some((vip, _)) = places.get(&record.real) {
        vips[*vip].add(record, &estimate(config, &record.epoch));
    }
}

impl Balancer {
    /// Takes the epochs that have ended.
    pub(super) fn drain(&mut self) -> Result<(), ControlError> {
        let config = super::estimator(&self.config);
        let (vips, places) = (&mut self.vips, &self.places);
        Ok(self.plane.drain(|record| note(vips, places, &config, &record))?)
    }

    /// Ends the epochs that are over, and tells connections by backend.
    fn sweep(&mut self) -> Result<Actives, ControlError> {
        let config = super::estimator(&self.config);
        let (vips, places) = (&mut self.vips, &self.places);
        Ok(self.plane.sweep(|record| note(vips, places, &config, &record))?)
    }

    /// Ends an interval: policies set weights, and what they change is told to the kernel.
    pub(super) fn end_interval(&mut self) -> Result<(), ControlError> {
        if !self.interface.exists() {
            return Err(ControlError::Vanished(self.interface.name.clone()));
        }
        let actives = self.sweep()?;
        let reals = self.state.reals.keys();
        self.figures.kept = reals.clone().map(|real| (*real, actives.kept_by(*real))).collect();
        self.figures.actives = reals.map(|real| (*real, actives.of(*real))).collect();
        for run in &mut self.vips {
            run.end_interval(|real| actives.of(real));
        }
        let changed = self.tables()?;
        self.vips.iter_mut().for_each(VipRun::end_changes);
        self.end_zero_interval()?;
        self.end_heavy_interval()?;
        self.release()?;
        self.figures.vips = self.plane.load_of_vips()?;
        self.figures.reals = self.plane.load_of_reals()?;
        self.figures.counters = Some(self.plane.counters()?);
        if changed {
            self.save();
        }
        Ok(())
    }

    /// Makes the tables anew whose weights have changed. True if any has.
    pub(super) fn tables(&mut self) -> Result<bool, ControlError> {
        let (ramp, now) = (self.config.checking.ramp, Instant::now());
        let (mut changed, mut turned) = (Vec::new(), Vec::new());
        for (at, run) in self.vips.iter_mut().enumerate() {
            let was_all_down = run.all_down;
            if run.build(ramp, now) {
                changed.push(at);
            }
            if run.all_down != was_all_down {
                turned.push(at);
            }
        }
        let vips = &self.vips;
        let tables = changed.iter().map(|at| (vips[*at].number, vips[*at].table.as_slice()));
        self.plane.set_tables(&tables.collect::<Vec<_>>())?;
        self.refresh_zero()?;
        for at in turned {
            let run = &self.vips[at];
            let (vip, all_down) = (run.vip.name.clone(), run.all_down);
            let reals: Vec<u32> = run.backends.iter().map(|run| run.real).collect();
            for real in reals {
                self.refresh(real)?;
            }
            self.say(&Event::AllDown { vip, all_down });
        }
        for at in &changed {
            let event = weights(&self.vips[*at]);
            self.say(&event);
        }
        Ok(!changed.is_empty())
    }

    /// Lets backends go whose last connection the kernel has forgotten.
    fn release(&mut self) -> Result<(), ControlError> {
        let now = Instant::now();
        let patience = 2 * self.config.interval;
        let mut left = Vec::new();
        for (number, real) in &self.state.reals {
            if real.phase != Phase::Leaving {
                continue;
            }
            if self.figures.kept.get(number).copied().unwrap_or(0) > 0 || self.zero.is_routed(*number) {
                self.quiet.remove(number);
            } else if now.duration_since(*self.quiet.entry(*number).or_insert(now)) >= patience {
                left.push(*number);
            }
        }
        let of_state = |number| self.state.reals.remove(number);
        let reals: Vec<Real> = left.iter().filter_map(of_state).collect();
        if reals.is_empty() {
            return Ok(());
        }
        // A request may give the number to another at once: by then no connection ID leads there.
        self.refresh_zero()?;
        for number in &left {
            self.plane.remove_real(*number)?;
            self.quiet.remove(number);
        }
        for real in reals {
            self.say(&Event::Left { backend: real.name, address: real.address });
        }
        self.look_for_neighbours();
        self.save();
        Ok(())
    }

    /// Takes what a check said. True if tables may change.
    pub(super) fn note_health(&mut self, told: &Told) -> Result<bool, ControlError> {
        let Some((vip, at)) = self.places.get(&told.real).copied() else {
            return Ok(false);
        };
        let run = &mut self.vips[vip];
        if run.vip.check.is_none() {
            return Ok(false);
        }
        let backend = &mut run.backends[at];
        let health = &mut backend.health;
        match &told.answer {
            Ok(took) => (health.took, health.why) = (Some(*took), None),
            Err(why) => health.why = Some(why.clone()),
        }
        if !told.is_news {
            return Ok(false);
        }
        // Only who was out comes back gently.
        health.since = (health.is_down() && told.is_up).then(Instant::now);
        let is_first_good = health.is_up.is_none() && told.is_up;
        health.is_up = Some(told.is_up);
        let event = Event::Health {
            vip: run.vip.name.clone(),
            backend: backend.backend.name.clone(),
            is_up: told.is_up,
            why: told.answer.as_ref().err().cloned(),
        };
        self.say(&event);
        if is_first_good {
            return Ok(false);
        }
        self.refresh(told.real)?;
        Ok(true)
    }

    /// Looks for the ways to all backends, and forgets those to others.
    pub(super) fn look_for_neighbours(&mut self) {
        let reals = self.state.reals.values();
        let addresses: BTreeSet<IpAddr> = reals.map(|real| real.address).collect();
        self.hops.retain(|address, _| addresses.contains(address));
        self.last_hops.retain(|address, _| addresses.contains(address));
        self.neighbours.set(addresses.into_iter().collect());
    }

    /// Takes what is known of the way to a backend.
    pub(super) fn note_hop(&mut self, found: Found) {
        let problem = found.hop.as_ref().err().cloned();
        let before = self.hops.get(&found.address).map(|hop| hop.as_ref().err());
        let is_news = match before {
            None => problem.is_some(),
            Some(before) => before != problem.as_ref(),
        };
        match &found.hop {
            Ok(hop) => {
                self.last_hops.insert(found.address, *hop);
            }
            Err(_) if found.is_gone => {
                self.last_hops.remove(&found.address);
            }
            Err(_) => {}
        }
        self.hops.insert(found.address, found.hop);
        if is_news {
            let address = found.address;
            self.say(&Event::Reach { address, problem });
        }
    }

    /// Tells the kernel of other ways to addresses.
    pub(super) fn reach(&mut self, addresses: &BTreeSet<IpAddr>) -> Result<(), ControlError> {
        let reals: Vec<(u32, IpAddr)> = self
            .state
            .reals
            .iter()
            .filter(|(_, real)| addresses.contains(&real.address))
            .map(|(number, real)| (*number, real.address))
            .collect();
        for (number, address) in reals {
            if let Some((vip, at)) = self.places.get(&number) {
                self.vips[*vip].backends[*at].is_reachable = self.last_hops.contains_key(&address);
            }
            self.refresh(number)?;
        }
        Ok(())
    }
}

fn weights(run: &VipRun) -> Event {
    let backends = run.backends.iter().zip(run.shares()).map(|(run, share)| {
        let latency = run.seen.and_then(|seen| seen.latency);
        Weight {
            backend: run.backend.name.clone(),
            weight: run.share.weight,
            share,
            why: run.share.why.name(),
            latency_s: latency.map(|latency| Duration::from_nanos(latency.mean_ns).as_secs_f64()),
        }
    });
    Event::Weights { vip: run.vip.name.clone(), disruption: run.change.unwrap_or(0.0), backends: backends.collect() }
}
