//! What is planned becomes what runs: all of it, or nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Instant,
};

use dwell_probes::balancer::{Real, Vip as PlaneVip};

use super::{
    Balancer, ControlError, Event,
    saved::{self, Saved, Weighed},
    vip::{Earlier, VipRun},
    zero_rtt::Given,
};
use crate::{
    config::{Vip, VipKey},
    health::Target,
    plan::{self, Phase, Plan},
};

impl Balancer {
    /// Gives the kernel what is planned. Backends come first, then tables, then VIPs, then what ends:
    /// nothing refers to what is not there. If the kernel refuses something, all is as before, but for
    /// what [`Balancer::undo_zero`] cannot know.
    ///
    /// `earlier` is what is known from a process before this one.
    pub(super) fn apply(&mut self, wanted: Vec<Vip>, planned: Plan, earlier: &Earlier) -> Result<(), ControlError> {
        let targets = targets(&wanted, &planned, earlier)?;
        let addresses: Vec<IpAddr> = planned.next.reals.values().map(|real| real.address).collect();
        self.neighbours.set(addresses);
        let mut runs = self.runs(&wanted, &planned, earlier)?;
        let mut given = Given::new();
        if let Err(error) = self.give(&planned, &mut runs, &mut given) {
            self.undo_zero(given);
            self.undo(&planned);
            return Err(error);
        }
        let was_all_down: BTreeMap<VipKey, bool> = self.vips.iter().map(|run| (run.vip.key, run.all_down)).collect();
        let mut before: BTreeMap<VipKey, VipRun> = self.vips.drain(..).map(|run| (run.vip.key, run)).collect();
        for run in &mut runs {
            if let Some(before) = before.remove(&run.vip.key) {
                run.remember(before);
            }
        }
        self.vips = runs;
        let before = std::mem::replace(&mut self.state, planned.next);
        self.forget_zero(&before);
        self.places = self
            .vips
            .iter()
            .enumerate()
            .flat_map(|(vip, run)| run.backends.iter().enumerate().map(move |(at, run)| (run.real, (vip, at))))
            .collect();
        let reals = &self.state.reals;
        let leaves = |real: &u32| reals.get(real).is_some_and(|real| real.phase == Phase::Leaving);
        self.quiet.retain(|real, _| leaves(real));
        self.look_for_neighbours();
        self.health.set(targets);
        self.config.vips = wanted;
        let turned = self.vips.iter().filter(|run| {
            let was = was_all_down.get(&run.vip.key).copied();
            run.all_down != was.unwrap_or(false)
        });
        let turned: Vec<Event> = turned.map(all_down).collect();
        turned.iter().for_each(|event| self.say(event));
        Ok(())
    }

    /// What will run, from what runs.
    fn runs(&self, wanted: &[Vip], planned: &Plan, earlier: &Earlier) -> Result<Vec<VipRun>, ControlError> {
        let before: BTreeMap<VipKey, &VipRun> = self.vips.iter().map(|run| (run.vip.key, run)).collect();
        let runs = wanted.iter().zip(&planned.numbers).map(|(vip, (number, reals))| {
            let is_draining = |real: &u32| {
                let real = planned.next.reals.get(real);
                real.is_some_and(|real| real.phase == Phase::Draining)
            };
            let reals: Vec<_> = reals.iter().map(|real| (*real, is_draining(real))).collect();
            let was = before.get(&vip.key).copied();
            VipRun::become_of(was, *number, vip.clone(), &reals, earlier)
                .map_err(|error| ControlError::Policy { vip: vip.name.clone(), error })
        });
        runs.collect()
    }

    fn give(&mut self, planned: &Plan, runs: &mut [VipRun], given: &mut Given) -> Result<(), ControlError> {
        let (ramp, now) = (self.config.checking.ramp, Instant::now());
        let mut changed = Vec::new();
        for (at, run) in runs.iter_mut().enumerate() {
            for backend in &mut run.backends {
                backend.is_reachable = self.last_hops.contains_key(&backend.backend.address);
            }
            if run.build(ramp, now) {
                changed.push(at);
            }
        }
        // Whether all are down is known only now.
        let down: BTreeSet<u32> = runs
            .iter()
            .filter(|run| !run.all_down)
            .flat_map(|run| &run.backends)
            .filter(|run| run.health.is_down())
            .map(|run| run.real)
            .collect();
        let there: BTreeMap<u32, Real> = self.plane.reals().map(|(number, real)| (number, *real)).collect();
        for (number, real) in &planned.next.reals {
            let real = self.real(real, down.contains(number));
            if there.get(number) != Some(&real) {
                self.plane.set_real(*number, &real)?;
            }
        }
        let tables = changed.into_iter().map(|at| (runs[at].number, runs[at].table.as_slice()));
        self.plane.set_tables(&tables.collect::<Vec<_>>())?;
        for run in runs.iter() {
            self.give_zero(run, &planned.next, given)?;
        }
        for run in runs {
            let slot = planned.next.zero_slot(&run.vip.key);
            self.plane.set_vip(&run.vip.key, &flags(run.number, &run.vip, slot))?;
        }
        for (number, key) in &planned.gone_vips {
            self.plane.remove_vip(key)?;
            self.plane.clear_table(*number)?;
        }
        Ok(())
    }

    /// As it was before a plan that failed. What was new and is not referred to does no harm.
    fn undo(&mut self, planned: &Plan) {
        for run in &self.vips {
            // The kernel has just refused something: what it refuses now cannot be helped.
            let _ = self.plane.set_vip(&run.vip.key, &flags(run.number, &run.vip, self.state.zero_slot(&run.vip.key)));
            let _ = self.plane.set_table(run.number, &run.table);
        }
        for number in &planned.new_vips {
            if let Some(key) = planned.next.vips.get(number) {
                let _ = self.plane.remove_vip(key);
            }
        }
        for number in &planned.new_reals {
            let _ = self.plane.remove_real(*number);
        }
        self.look_for_neighbours();
    }

    /// A backend as the kernel takes it.
    pub(super) fn real(&self, real: &plan::Real, is_down: bool) -> Real {
        Real {
            address: real.address,
            next_hop: self.last_hops.get(&real.address).copied(),
            forward: real.forward,
            down: is_down,
        }
    }

    /// Tells the kernel what has become of a backend.
    pub(super) fn refresh(&mut self, number: u32) -> Result<(), ControlError> {
        let Some(real) = self.state.reals.get(&number) else {
            return Ok(());
        };
        // Where all are down, all are kept.
        let is_down = self.places.get(&number).is_some_and(|(vip, at)| {
            let run = &self.vips[*vip];
            run.backends[*at].health.is_down() && !run.all_down
        });
        let real = self.real(real, is_down);
        self.plane.set_real(number, &real)?;
        Ok(())
    }

    /// Keeps what the next process needs. If that cannot be kept, that one gives backends new numbers and
    /// their configured weights.
    pub(super) fn save(&mut self) {
        let weighed = self.vips.iter().flat_map(|run| {
            run.backends.iter().map(|backend| {
                let place = (run.vip.key, backend.backend.address);
                let weighed = Weighed {
                    weight: backend.share.weight,
                    configured: backend.backend.weight,
                    written: self.written.get(&place).copied(),
                    policy: run.vip.policy,
                };
                (backend.real, weighed)
            })
        });
        let saved = Saved { state: self.state.clone(), weighed: weighed.collect() };
        let failed = saved::write(&self.config.socket, &saved).err();
        let was_unsaved = std::mem::replace(&mut self.is_unsaved, failed.is_some());
        if let Some(error) = failed.filter(|_| !was_unsaved) {
            self.say(&Event::Unsaved {
                path: saved::path(&self.config.socket).display().to_string(),
                error: error.to_string(),
            });
        }
    }
}

/// That all of a VIP's backends fail, or no longer.
fn all_down(run: &VipRun) -> Event {
    Event::AllDown { vip: run.vip.name.clone(), all_down: run.all_down }
}

fn targets(wanted: &[Vip], planned: &Plan, earlier: &Earlier) -> Result<Vec<Target>, ControlError> {
    let mut targets = Vec::new();
    for (vip, (_, reals)) in wanted.iter().zip(&planned.numbers) {
        let Some(check) = vip.check.clone().map(Arc::new) else {
            continue;
        };
        // Prepared once a VIP, not for each backend.
        let mut first: Option<Target> = None;
        for (backend, real) in vip.backends.iter().zip(reals) {
            let target = match &first {
                Some(first) => Target { real: *real, address: backend.address, ..first.clone() },
                None => Target::new(*real, backend.address, Arc::clone(&check))?,
            };
            first.get_or_insert_with(|| target.clone());
            targets.push(Target { was_up: earlier.were_up.get(real).copied(), ..target });
        }
    }
    Ok(targets)
}

fn flags(number: u32, vip: &Vip, zero_slot: Option<u16>) -> PlaneVip {
    PlaneVip { number, measured: vip.measure, is_quic: vip.quic, by_source: vip.by_source, zero_slot }
}
