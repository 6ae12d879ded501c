//! Carrying out a plan in the kernel: completely, or not at all.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    net::{IpAddr, SocketAddr},
    panic::resume_unwind,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use dwell_engine::balance::{VipKey, WhenStale};
use dwell_probes::balancer::{NextHop, Plane, Real, Vip as PlaneVip};

use super::{
    Balancer, ControlError, Event,
    recent::Recent,
    saved_state::{self, SavedState, SavedWeight},
    vip::{Built, InUse, PriorState, RunningVip},
    zero_rtt::ZeroWrite,
};
use crate::{
    config::{Choices, Tunnel, Vip},
    health::{SynProbe, Target},
    plan::{Phase, Plan, State},
};

/// The longest time for making all VIPs' tables of the time before this process.
const REMEMBERING: Duration = Duration::from_secs(2);

/// What the kernel's maps are to hold. Every change goes through it, so that there is one way to write each map.
pub(super) struct MapContents<'a> {
    pub state: &'a State,
    pub vips: &'a [RunningVip],
    pub hops: &'a BTreeMap<IpAddr, NextHop>,
}

/// The VIPs whose tables have changed, by their positions.
#[derive(Debug, Default)]
pub(super) struct Rebuilt {
    pub own: Vec<usize>,
    /// Those whose table of equal weights has.
    pub equal: Vec<usize>,
    /// Those for which other backends were noted.
    pub recent: Vec<usize>,
    /// Those whose list of backends has, among which new connections choose.
    pub members: Vec<usize>,
}

/// The number of VIPs that a thread takes at a time.
const VIPS_AT_ONCE: usize = 16;
/// The number of threads that build tables, at most.
const MAX_THREADS: usize = 8;

impl Rebuilt {
    /// Rebuilds the tables of the VIPs whose weights or health have changed: a millisecond each, so that many are shared
    /// among processors. Where no further thread can be started, this one builds them all.
    pub(super) fn build(vips: &mut [RunningVip], ramp: Duration, when_stale: WhenStale) -> Rebuilt {
        let now = Instant::now();
        let processors = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let threads = processors.min(vips.len() / VIPS_AT_ONCE);
        let parts = Mutex::new((0..).step_by(VIPS_AT_ONCE).zip(vips.chunks_mut(VIPS_AT_ONCE)));
        let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
        let build = || -> Vec<(usize, Built)> {
            let of_part = |(first, part): (usize, &mut [RunningVip])| -> Vec<(usize, Built)> {
                (first..).zip(part.iter_mut().map(|run| run.build_tables(ramp, now, when_stale))).collect()
            };
            std::iter::from_fn(next).flat_map(of_part).collect()
        };
        let mut built = thread::scope(|scope| {
            let start = |_| thread::Builder::new().spawn_scoped(scope, build).ok();
            let others: Vec<_> = (1..threads).map_while(start).collect();
            let own = build();
            let of_others =
                others.into_iter().flat_map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            own.into_iter().chain(of_others).collect::<Vec<_>>()
        });
        built.sort_unstable_by_key(|(at, _)| *at);
        let mut rebuilt = Rebuilt::default();
        built.into_iter().for_each(|(at, built)| rebuilt.add(at, built));
        rebuilt
    }

    fn add(&mut self, at: usize, built: Built) {
        self.own.extend(built.own.then_some(at));
        self.equal.extend(built.equal.then_some(at));
        self.recent.extend(built.recent.then_some(at));
        self.members.extend(built.members.then_some(at));
    }
}

impl MapContents<'_> {
    /// Writes the backends that differ from those in the kernel.
    pub(super) fn write_backends(&self, plane: &mut Plane) -> Result<(), dwell_probes::Error> {
        let in_use: HashMap<u32, InUse> = self.vips.iter().flat_map(RunningVip::in_use).collect();
        let wanted = self.state.reals.iter().map(|(number, backend)| {
            let in_use = in_use.get(number).copied().unwrap_or_default();
            let real = Real {
                address: backend.address,
                next_hop: self.hops.get(&backend.address).copied(),
                forward: backend.forward,
                down: in_use.is_down,
                leaving: backend.phase == Phase::Leaving,
                capacity: in_use.capacity,
                sampling: in_use.sampling,
            };
            (*number, real)
        });
        let changed: Vec<(u32, Real)> = wanted.filter(|(number, real)| plane.real(*number) != Some(real)).collect();
        plane.set_reals(&changed)
    }

    /// Writes the tables of some VIPs. Their backends must have been written.
    pub(super) fn write_tables(&self, plane: &mut Plane, rebuilt: &Rebuilt) -> Result<(), dwell_probes::Error> {
        // An entry that changes finds the backend that it had among these.
        let recent = rebuilt.recent.iter().map(|at| &self.vips[*at]);
        let recent: Vec<_> =
            recent.map(|run| (run.number, run.recent.as_ref().map_or(&[][..], Recent::entries))).collect();
        plane.set_recent_tables(&recent)?;
        let own = rebuilt.own.iter().map(|at| &self.vips[*at]);
        let own: Vec<_> = own.map(|run| (run.number, run.table.entries())).collect();
        plane.set_tables(&own)?;
        let equal = rebuilt.equal.iter().map(|at| &self.vips[*at]);
        let equal: Vec<_> = equal.map(|run| (run.number, run.equal.entries())).collect();
        plane.set_equal_tables(&equal)?;
        let members = rebuilt.members.iter().map(|at| &self.vips[*at]);
        let members: Vec<_> = members.map(|run| (run.number, &run.members[..])).collect();
        plane.set_members(&members)
    }

    /// Writes all VIPs. Their tables must have been written.
    fn write_vips(&self, plane: &mut Plane) -> Result<(), dwell_probes::Error> {
        for run in self.vips {
            let vip = PlaneVip {
                number: run.number,
                measured: run.vip.measure.is_some(),
                sampling: run.vip.sampling(),
                is_quic: run.vip.quic,
                by_source: run.vip.by_source,
                zero_slot: self.state.zero_slot(&run.vip.key),
                more_choices: match run.vip.choices {
                    Choices::Of(choices) => choices - 1,
                    Choices::All => 3,
                },
                of_all: run.vip.choices == Choices::All,
                second_chance: run.vip.second_chance,
            };
            plane.set_vip(&run.vip.key, &vip)?;
        }
        Ok(())
    }
}

impl Balancer {
    /// Carries out a plan. If the kernel refuses a part of it, everything is as before, except for what
    /// [`Balancer::undo_zero`] cannot know. `prior` is what an earlier process has left.
    pub(super) fn apply(&mut self, wanted: Vec<Vip>, planned: Plan, prior: &PriorState) -> Result<(), ControlError> {
        let targets = targets(&wanted, &planned, prior, self.config.tunnel)?;
        let mut runs = self.configure(&wanted, &planned, prior);
        let remembered_by = Instant::now() + REMEMBERING;
        for run in &mut runs {
            run.update_reachability(&self.known_hops, &self.devices);
            if let Some(sharing) = &self.sharing {
                sharing.guide(run);
                sharing.remember(run, remembered_by);
            }
        }
        let mut rebuilt = Rebuilt::build(&mut runs, self.config.health.ramp, self.config.heartbeat.when_stale);
        // What an earlier process has left need not be that of now.
        rebuilt.members = (0..runs.len()).collect();
        // What is still there would count again where packets may go on again, with numbers of other backends.
        rebuilt.recent.extend((0..runs.len()).filter(|at| runs[*at].recent.is_none()));
        let mut zero_writes = Vec::new();
        if let Err(error) = self.write_plan(&planned, &runs, &rebuilt, &mut zero_writes) {
            self.undo_zero(zero_writes);
            self.undo(&planned);
            return Err(error);
        }
        let was_all_down: BTreeMap<VipKey, bool> = self.vips.iter().map(|run| (run.vip.key, run.all_down)).collect();
        let mut before: BTreeMap<VipKey, RunningVip> = self.vips.drain(..).map(|run| (run.vip.key, run)).collect();
        for run in &mut runs {
            if let Some(before) = before.remove(&run.vip.key) {
                run.take_history(before);
            }
        }
        self.vips = runs;
        let before = std::mem::replace(&mut self.state, planned.next);
        self.remove_old_slots(&before);
        self.positions = self
            .vips
            .iter()
            .enumerate()
            .flat_map(|(vip, run)| run.backends.iter().enumerate().map(move |(at, run)| (run.real, (vip, at))))
            .collect();
        let reals = &self.state.reals;
        let is_leaving = |real: &u32| reals.get(real).is_some_and(|real| real.phase == Phase::Leaving);
        self.idle_since.retain(|real, _| is_leaving(real));
        self.watch_neighbours();
        self.health.set(targets);
        self.config.vips = wanted;
        let turned = self.vips.iter().filter(|run| {
            let was = was_all_down.get(&run.vip.key).copied();
            run.all_down != was.unwrap_or(false)
        });
        let turned: Vec<Event> = turned.map(all_down).collect();
        turned.iter().for_each(|event| self.emit(event));
        Ok(())
    }

    /// Prepares the VIPs of a plan from those that run.
    fn configure(&self, wanted: &[Vip], planned: &Plan, prior: &PriorState) -> Vec<RunningVip> {
        let before: BTreeMap<VipKey, &RunningVip> = self.vips.iter().map(|run| (run.vip.key, run)).collect();
        let runs = wanted.iter().zip(&planned.numbers).map(|(vip, (number, reals))| {
            let is_draining = |real: &u32| {
                let real = planned.next.reals.get(real);
                real.is_some_and(|real| real.phase == Phase::Draining)
            };
            let reals: Vec<_> = reals.iter().map(|real| (*real, is_draining(real))).collect();
            let was = before.get(&vip.key).copied();
            let mut run = RunningVip::configure(was, *number, vip.clone(), &reals, prior, self.config.interval);
            run.renumber_recent(&planned.next.reals);
            run
        });
        runs.collect()
    }

    /// Writes backends first, then tables, then VIPs, and removes last what ends, so that nothing refers to an entry
    /// that does not exist.
    fn write_plan(
        &mut self,
        planned: &Plan,
        runs: &[RunningVip],
        rebuilt: &Rebuilt,
        zero_writes: &mut Vec<ZeroWrite>,
    ) -> Result<(), ControlError> {
        let contents = MapContents { state: &planned.next, vips: runs, hops: &self.known_hops };
        contents.write_backends(&mut self.plane)?;
        contents.write_tables(&mut self.plane, rebuilt)?;
        for run in runs {
            self.write_zero_vip(run, &planned.next, zero_writes)?;
        }
        let contents = MapContents { state: &planned.next, vips: runs, hops: &self.known_hops };
        contents.write_vips(&mut self.plane)?;
        let gone: Vec<VipKey> = planned.gone_vips.iter().map(|(_, key)| *key).collect();
        Ok(self.plane.remove_vips(&gone)?)
    }

    /// Restores the maps after a plan that failed. The kernel has just refused an update, so errors are ignored here:
    /// there is no further remedy.
    fn undo(&mut self, planned: &Plan) {
        let contents = MapContents { state: &self.state, vips: &self.vips, hops: &self.known_hops };
        let all: Vec<usize> = (0..self.vips.len()).collect();
        let all = Rebuilt { own: all.clone(), equal: all.clone(), recent: all.clone(), members: all };
        let _ = contents.write_backends(&mut self.plane);
        let _ = contents.write_tables(&mut self.plane, &all);
        let _ = contents.write_vips(&mut self.plane);
        let new = planned.new_vips.iter().filter_map(|number| planned.next.vips.get(number));
        let _ = self.plane.remove_vips(&new.copied().collect::<Vec<_>>());
        let _ = self.plane.remove_reals(&planned.new_reals);
    }

    /// Saves what the next process needs. If that fails, the next process gives backends new numbers and their
    /// configured weights.
    pub(super) fn save(&mut self) {
        let weights = self.vips.iter().flat_map(|run| {
            run.backends.iter().map(|backend| {
                let weight = SavedWeight {
                    weight: backend.share.weight,
                    configured: backend.backend.weight,
                    in_file: self.file_weights.get(&(run.vip.key, backend.backend.address)).copied(),
                    policy: run.vip.policy,
                };
                (backend.real, weight)
            })
        });
        let backends = self.vips.iter().flat_map(|run| &run.backends);
        let saved = SavedState {
            pending: backends.filter(|run| run.health.is_pending).map(|run| run.real).collect(),
            pin: Some(self.config.pin.clone()),
            hash_seed: Some(self.hash_seed),
            weights: weights.collect(),
            set: self.sharing.as_ref().and_then(|sharing| sharing.set().cloned()),
            state: mem::take(&mut self.state),
        };
        let failure = saved_state::write(&self.config.socket, &saved).err();
        self.state = saved.state;
        let path = saved_state::path(&self.config.socket).display().to_string();
        let unsaved = failure.as_ref().map(|error| format!("'{path}': {error}"));
        let was_unsaved = std::mem::replace(&mut self.unsaved, unsaved).is_some();
        if let Some(error) = failure.filter(|_| !was_unsaved) {
            self.emit(&Event::Unsaved { path, reason: error.to_string() });
        }
    }
}

/// Reports whether all backends of a VIP fail.
pub(super) fn all_down(run: &RunningVip) -> Event {
    Event::AllDown { vip: run.vip.name.clone(), all_down: run.all_down }
}

/// The health checks of a plan's backends.
fn targets(wanted: &[Vip], planned: &Plan, prior: &PriorState, tunnel: Tunnel) -> Result<Vec<Target>, ControlError> {
    let mut targets = Vec::new();
    for (vip, (_, reals)) in wanted.iter().zip(&planned.numbers) {
        let Some(check) = vip.check.clone().map(Arc::new) else {
            continue;
        };
        let probe = |port| SynProbe { vip: SocketAddr::new(vip.key.address, port), forward: vip.forward, tunnel };
        let syn_probe = vip.key.port.filter(|_| check.tunnel).map(probe);
        // The certificates are prepared once per VIP, not per backend.
        let mut first: Option<Target> = None;
        for (backend, real) in vip.backends.iter().zip(reals) {
            let target = match &first {
                Some(first) => Target { real: *real, address: backend.address, ..first.clone() },
                None => Target::new(*real, backend.address, Arc::clone(&check))?,
            };
            first.get_or_insert_with(|| target.clone());
            let was_up = prior.were_up.get(real).copied();
            targets.push(Target { syn_probe, was_up, ..target });
        }
    }
    Ok(targets)
}
