//! A VIP that is balanced: its backends with their weights, and the table that follows.

use std::{
    cell::OnceCell,
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use dwell_engine::{
    balance::{Sampling, ServerState, VipKey, members},
    response::{Estimate, Record},
    steer::{
        BackendState as PolicyInput, BackendStats, HeavyShare, Intervals, Latency, LatencySteering, Maglev, Manual,
        OutOfRange, Policy, Share, zero_rtt::HeavyConfig,
    },
};
use dwell_probes::balancer::{ActiveConnections, NextHop, WhenStale};
use dwell_records::LatencyObject;

use super::{
    backend::{BackendHealth, RunningBackend},
    devices::Devices,
    recent::Recent,
    sharing::Agreement,
    table::{self, Table, TableWeight},
};
use crate::{
    api::HeavyStatus,
    config::{Choices, PolicyName, Vip},
    plan::NumberedBackend,
    shared::set::VipWeights,
};

/// A VIP that is balanced.
pub(super) struct RunningVip {
    pub number: u32,
    pub vip: Vip,
    pub backends: Vec<RunningBackend>,
    policy: Box<dyn Policy>,
    pub(super) intervals: Intervals,
    interval: Duration,
    /// For how long no backend has had an estimate although there were connections.
    blind: Duration,
    /// The table that the kernel has, or is about to get.
    pub table: Table,
    /// The table of equal weights for a kernel that nobody renews; empty if it is not wanted.
    pub equal: Table,
    /// The backends that the entries of the table had most recently, if packets may go on to them.
    pub recent: Option<Recent>,
    /// The list of backends among which new connections choose, as the kernel has it; empty without one.
    pub members: Vec<u32>,
    /// Whether all backends fail their checks, so that all are kept.
    pub all_down: bool,
    /// Decides how many connections of a server are heavy; none if that is fixed by the configuration.
    heavy: Option<HeavyShare>,
    /// What all balancers have agreed on.
    pub(super) agreement: Agreement,
    pub(super) digest: OnceCell<String>,
}

/// Which tables of a VIP have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Built {
    pub own: bool,
    /// The one of equal weights.
    pub equal: bool,
    /// The table of the backends that entries had recently.
    pub recent: bool,
    /// The list of backends among which new connections choose.
    pub members: bool,
}

/// What the kernel needs to know of a backend as long as a VIP has it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InUse {
    /// Whether the kernel should consider it down. Not if all backends of the VIP are down: they are kept.
    pub is_down: bool,
    /// How many connections it takes relative to the others, in thousandths of the one with the greatest configured weight.
    pub capacity: u16,
    /// Which connections stand for all of them.
    pub sampling: Sampling,
}

/// What an earlier process has left behind, by the number of the backend.
#[derive(Debug, Default)]
pub(super) struct PriorState {
    pub weights: BTreeMap<u32, f64>,
    /// Whether the kernel considered the backend up.
    pub were_up: BTreeMap<u32, bool>,
    /// The backends that entries of tables had recently, by VIP.
    pub recent: BTreeMap<VipKey, Recent>,
}

/// The constants of a policy have been checked when the configuration was read.
fn checked<T>(built: Result<T, OutOfRange>) -> T {
    built.unwrap_or_else(|error| unreachable!("the configuration allows no such constant: {error}"))
}

fn policy(vip: &Vip, interval: Duration) -> Box<dyn Policy> {
    match vip.policy {
        PolicyName::Maglev | PolicyName::ZeroRtt => Box::new(Maglev),
        PolicyName::Weights => Box::new(Manual),
        PolicyName::Latency => Box::new(checked(LatencySteering::new(vip.latency.steering, interval))),
    }
}

fn heavy_share(vip: &Vip) -> Option<HeavyShare> {
    let zero = vip.zero_rtt.as_ref()?;
    zero.heavy_share.map(|share| checked(HeavyShare::new(share, zero.heavy.most)))
}

impl RunningVip {
    fn new(number: u32, vip: Vip, interval: Duration) -> RunningVip {
        RunningVip {
            number,
            policy: policy(&vip, interval),
            intervals: checked(Intervals::new(vip.latency.intervals, interval)).of_sample(vip.sampling().connections()),
            interval,
            blind: Duration::ZERO,
            heavy: heavy_share(&vip),
            recent: None,
            vip,
            backends: Vec::new(),
            table: Table::default(),
            equal: Table::default(),
            members: Vec::new(),
            all_down: false,
            agreement: Agreement::default(),
            digest: OnceCell::new(),
        }
    }

    /// Prepares a VIP for a configuration. `before` is the VIP as it ran before; backends that stay keep their state.
    /// `reals` has the number of each backend, and whether it is draining; `prior` is what an earlier process has left,
    /// `interval` the time between two ends of an interval.
    ///
    /// The history of the policy remains with `before` until [`RunningVip::take_history`].
    pub(super) fn configure(
        before: Option<&RunningVip>,
        number: u32,
        vip: Vip,
        reals: &[(u32, bool)],
        prior: &PriorState,
        interval: Duration,
    ) -> RunningVip {
        let mut run = RunningVip::new(number, vip, interval);
        if run.vip.second_chance {
            let recent = before.map_or(prior.recent.get(&run.vip.key), |before| before.recent.as_ref());
            run.recent = Some(recent.cloned().unwrap_or_default());
        }
        let mut old = BTreeMap::new();
        if let Some(before) = before {
            run.table.clone_from(&before.table);
            run.equal.clone_from(&before.equal);
            run.all_down = before.all_down;
            if run.heavy_settings() == before.heavy_settings() {
                run.heavy.clone_from(&before.heavy);
            }
            old = before.backends.iter().map(|run| (run.real, run)).collect();
        }
        let is_same_policy = before.is_some_and(|before| before.vip.policy == run.vip.policy);
        let is_known = |(real, _): &(u32, bool)| old.contains_key(real) || prior.were_up.contains_key(real);
        let has_run = run.vip.check.is_some() && reals.iter().any(is_known);
        let has_own_weights = !matches!(run.vip.policy, PolicyName::Maglev | PolicyName::ZeroRtt);
        for (backend, (real, is_draining)) in run.vip.backends.iter().zip(reals) {
            let initial = Share::initial(backend.weight);
            let mut next = match old.get(real) {
                Some(was) => RunningBackend {
                    share: if is_same_policy { was.carried_share(backend.weight) } else { initial },
                    ..(*was).clone()
                },
                None => {
                    let prior_weight = prior.weights.get(real).filter(|_| has_own_weights);
                    RunningBackend {
                        real: *real,
                        share: prior_weight.map_or(initial, |weight| Share { weight: *weight, ..initial }),
                        backend: backend.clone(),
                        is_draining: false,
                        health: match prior.were_up.get(real) {
                            Some(false) => BackendHealth::down(),
                            Some(true) => BackendHealth::default(),
                            None => BackendHealth { is_pending: has_run, ..BackendHealth::default() },
                        },
                        is_reachable: false,
                        seen: None,
                        voted: None,
                        agreed: None,
                        drained_by: Vec::new(),
                    }
                }
            };
            next.backend = backend.clone();
            next.is_draining = *is_draining;
            if run.vip.check.is_none() {
                next.health = BackendHealth::default();
            }
            run.backends.push(next);
        }
        run
    }

    /// Takes over the history of the policy, if policy, constants and what is measured are the same.
    pub(super) fn take_history(&mut self, before: RunningVip) {
        let (old, new) = (&before.vip, &self.vip);
        if old.policy == new.policy && old.latency == new.latency && old.measure == new.measure {
            self.policy = before.policy;
            self.intervals = before.intervals;
            self.blind = before.blind;
        }
    }

    /// Adds the latency estimate of a connection's epoch.
    pub(super) fn add(&mut self, record: &Record, estimate: &Estimate) {
        self.intervals.add(record.real, record, estimate);
    }

    /// Ends an interval: the policy sets weights, unless they are held.
    pub(super) fn end_interval(&mut self, connections: &ActiveConnections, is_held: bool) {
        let inputs = self.policy_inputs(connections);
        let seen = self.intervals.end(&inputs);
        self.note_estimates(&inputs, seen.iter());
        if !is_held {
            self.step(&seen);
        }
        for (run, seen) in self.backends.iter_mut().zip(seen) {
            run.seen = Some(seen);
        }
    }

    /// What policies know of the backends at the end of an interval.
    pub(super) fn policy_inputs(&self, connections: &ActiveConnections) -> Vec<PolicyInput> {
        self.backends
            .iter()
            .map(|run| PolicyInput {
                real: run.real,
                configured: run.backend.weight,
                active: connections.of(run.real),
                pending: connections.pending(run.real),
                is_usable: run.is_usable(),
            })
            .collect()
    }

    /// Counts for how long no backend has had an estimate although there were connections.
    pub(super) fn note_estimates<'a>(
        &mut self,
        inputs: &[PolicyInput],
        mut seen: impl Iterator<Item = &'a BackendStats>,
    ) {
        let is_without = inputs.iter().any(|input| input.active > 0) && seen.all(|seen| seen.latency.is_none());
        self.blind = if is_without { self.blind + self.interval } else { Duration::ZERO };
    }

    /// Lets the policy set weights.
    pub(super) fn step(&mut self, seen: &[BackendStats]) {
        let shares: Vec<Share> = self.backends.iter().map(|run| run.share).collect();
        let next = self.policy.step(seen, &shares);
        self.backends.iter_mut().zip(next).for_each(|(run, share)| run.share = share);
    }

    /// Whether the policy needs estimates, and has had none for longer than it looks back, although there were connections.
    pub(super) fn is_blind(&self) -> bool {
        self.vip.policy == PolicyName::Latency && self.blind > self.vip.latency.intervals.look_back
    }

    /// Marks the backends as reachable whose next hop is known, by a device that takes packets.
    pub(super) fn update_reachability(&mut self, hops: &BTreeMap<IpAddr, NextHop>, devices: &Devices) {
        for run in &mut self.backends {
            let hop = hops.get(&run.backend.address);
            run.is_reachable = hop.is_some_and(|hop| devices.problem(hop.interface).is_none());
        }
    }

    /// Rebuilds the tables if weights or health have changed. True for each whose entries have changed.
    pub(super) fn build_tables(&mut self, ramp: Duration, now: Instant, when_stale: WhenStale) -> Built {
        let agreed = self.agreed_weights();
        // What follows from an agreement follows from nothing that was before.
        let is_exact = agreed.is_some();
        let (weights, all_down) = agreed.unwrap_or_else(|| self.effective_weights(ramp, now));
        self.all_down = all_down;
        let backends = self.backends.iter().zip(weights);
        let backends =
            backends.map(|(run, weight)| TableWeight { real: run.real, address: run.backend.address, weight });
        let mut backends: Vec<_> = backends.collect();
        let own = self.table.build(&self.vip, &backends, is_exact);
        let is_rising = self.backends.iter().any(|run| run.health.ramp_factor(ramp, now) < 1.0);
        let members = (own || self.members.is_empty()) && self.choose_among(&backends, is_rising);
        let recent = self.recent.as_mut().is_some_and(|recent| {
            recent.add(self.table.entries());
            recent.take_change()
        });
        if when_stale == WhenStale::Keep {
            self.equal = Table::default();
            return Built { own, equal: false, recent, members };
        }
        for backend in backends.iter_mut().filter(|backend| backend.weight > 0.0) {
            backend.weight = 1.0;
        }
        Built { own, equal: self.equal.build(&self.vip, &backends, true), recent, members }
    }

    /// Lists the backends among which new connections choose. True if the list has changed. There is none while a backend
    /// returns: it has no connections yet, and would get all new ones until it had as many as others.
    fn choose_among(&mut self, backends: &[TableWeight], is_rising: bool) -> bool {
        let weights = backends.iter().map(|backend| (backend.real, backend.weight)).collect::<Vec<_>>();
        let members = match self.vip.choices {
            Choices::All if !is_rising => members(&weights),
            _ => Vec::new(),
        };
        let before = std::mem::replace(&mut self.members, members);
        before != self.members
    }

    /// Gives backends that entries had recently the numbers that they have now: one that is forwarded to in another way has
    /// another number, and its connections all the same.
    pub(super) fn renumber_recent(&mut self, numbered: &BTreeMap<u32, NumberedBackend>) {
        let Some(recent) = &mut self.recent else { return };
        let now: BTreeMap<IpAddr, u32> = self.backends.iter().map(|run| (run.backend.address, run.real)).collect();
        let number_of = |old: &u32| numbered.get(old).map_or(0, |of| now.get(&of.address).copied().unwrap_or(*old));
        let numbers: BTreeMap<u32, u32> = numbered.keys().map(|old| (*old, number_of(old))).collect();
        recent.rename(|old| numbers.get(&old).copied().unwrap_or(0));
    }

    /// Notes the backends of the table that these weights make, which are those of another moment or will soon count.
    pub(super) fn note_weights(&mut self, weights: &VipWeights) {
        if self.recent.is_some() {
            let entries = self.entries_of(weights);
            self.recent.iter_mut().for_each(|recent| recent.add(&entries));
        }
    }

    /// Notes the backends of the table that these weights made before all that have been noted.
    pub(super) fn note_older_weights(&mut self, weights: &VipWeights) {
        if self.recent.is_some() {
            let entries = self.entries_of(weights);
            self.recent.iter_mut().for_each(|recent| recent.add_older(&entries));
        }
    }

    fn entries_of(&self, weights: &VipWeights) -> Vec<u32> {
        let members = self.backends.iter().map(|run| {
            let weight = weights.of.get(&run.backend.address).map_or(0.0, |weight| weight.table);
            TableWeight { real: run.real, address: run.backend.address, weight }
        });
        table::entries(&self.vip, &members.collect::<Vec<_>>())
    }

    /// The weight of each backend in the table. If all backends fail their checks, or none has been checked, all are kept; if
    /// some fail, the second value is true.
    pub(super) fn effective_weights(&self, ramp: Duration, now: Instant) -> (Vec<f64>, bool) {
        let is_eligible = |run: &RunningBackend| {
            let view = run.view();
            !view.is_draining && run.share.weight > 0.0 && !view.is_unreachable
        };
        let is_down = |run: &RunningBackend| run.view().is_up == Some(false);
        let gets_some = |run: &RunningBackend| is_eligible(run) && !is_down(run) && !run.health.is_pending;
        let weight = |run: &RunningBackend| match gets_some(run) {
            true => run.share.weight * run.health.ramp_factor(ramp, now),
            false => 0.0,
        };
        let weights: Vec<f64> = self.backends.iter().map(weight).collect();
        if weights.iter().any(|weight| *weight > 0.0) {
            return (weights, false);
        }
        let all_down = self.backends.iter().any(|run| is_eligible(run) && is_down(run));
        let kept = |run: &RunningBackend| if is_eligible(run) { run.share.weight } else { 0.0 };
        (self.backends.iter().map(kept).collect(), all_down)
    }

    /// The number of each backend, and what the kernel needs to know of it while it is in use.
    pub(super) fn in_use(&self) -> impl Iterator<Item = (u32, InUse)> {
        let most = self.backends.iter().map(|run| run.backend.weight).fold(0.0, f64::max);
        self.backends.iter().map(move |run| {
            let capacity = (1000.0 * run.backend.weight / most).round().max(1.0) as u16;
            let is_down = !self.all_down && self.is_down(run);
            (run.real, InUse { is_down, capacity, sampling: self.vip.sampling() })
        })
    }

    /// Whether a backend gets new connections, and where its tokens lead. If all backends fail their checks and are kept, it
    /// gets some.
    pub(super) fn server_state(&self, run: &RunningBackend) -> ServerState {
        if self.is_drained(run) || run.share.weight <= 0.0 {
            ServerState::Left
        } else if self.table.share(run.real) > 0.0 {
            ServerState::Open
        } else {
            ServerState::Down
        }
    }

    fn heavy_settings(&self) -> Option<(HeavyConfig, Option<f64>)> {
        let zero = self.vip.zero_rtt.as_ref()?;
        Some((zero.heavy, zero.heavy_share))
    }

    /// What decides how many connections are heavy, with the slot's settings; none if that is fixed.
    pub(super) fn heavy_share_mut(&mut self) -> Option<(&mut HeavyShare, HeavyConfig)> {
        let config = self.vip.zero_rtt.as_ref()?.heavy;
        self.heavy.as_mut().map(|share| (share, config))
    }

    /// Which connections count as heavy now, under a configuration.
    pub(super) fn current_heavy(&self, configured: HeavyConfig) -> HeavyConfig {
        let top = self.heavy.as_ref().map(HeavyShare::top);
        HeavyConfig { top: top.unwrap_or(configured.top), ..configured }
    }

    pub(super) fn heavy_status(&self) -> Option<HeavyStatus> {
        self.heavy.as_ref().map(|share| HeavyStatus {
            connections: share.top(),
            wanted: share.wanted(),
            captured: share.captured(),
        })
    }
}

/// Returns the response latency of a backend.
pub(super) fn latency_object(latency: Latency) -> LatencyObject {
    let percentile = |at: usize| latency.percentiles_ns.map(|percentiles| percentiles[at]);
    LatencyObject {
        count: Some(latency.samples),
        mean_ns: Some(latency.mean_ns),
        p50_ns: percentile(0),
        p90_ns: percentile(1),
        p99_ns: percentile(2),
        ..LatencyObject::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::HealthState, config::vip_with};

    const TWO: &str = "{ address = \"10.0.0.1\" }, { address = \"10.0.0.2\" }";

    #[test]
    fn disruption_is_that_of_one_interval_and_a_first_table_disrupts_nothing() {
        let vip = vip_with("table_size = 1009", TWO);
        let reals = [(1, false), (2, false)];
        let mut run = RunningVip::configure(None, 1, vip, &reals, &PriorState::default(), Duration::from_secs(1));
        let (ramp, now) = (Duration::ZERO, Instant::now());
        run.backends.iter_mut().for_each(|run| run.is_reachable = true);
        assert!(run.build_tables(ramp, now, WhenStale::Keep).own);
        assert_eq!(run.table.last_change(), None);
        run.table.end_interval();
        assert_eq!(run.table.disruption(), Some(0.0));
        for is_draining in [true, false] {
            run.backends[1].is_draining = is_draining;
            assert!(run.build_tables(ramp, now, WhenStale::Keep).own);
            let change = run.table.last_change().expect("there was a table before");
            assert!((0.45..0.6).contains(&change), "{change}");
        }
        let twice = run.table.last_change().map(|change| 2.0 * change);
        run.table.end_interval();
        assert_eq!(run.table.disruption(), twice.map(|twice| twice.min(1.0)));
        assert!(!run.build_tables(ramp, now, WhenStale::Keep).own);
        run.table.end_interval();
        assert_eq!(run.table.disruption(), Some(0.0));
    }

    #[test]
    fn a_vip_whose_backends_have_no_estimates_is_blind_after_a_while() {
        let vip = vip_with("policy = \"latency\"", TWO);
        let reals = [(1, false), (2, false)];
        let interval = Duration::from_secs(1);
        let mut run = RunningVip::configure(None, 1, vip, &reals, &PriorState::default(), interval);
        let nobody = ActiveConnections::from_core(vec![0; 3], &[]);
        let some = ActiveConnections::from_core(vec![0, 1 << 32 | 1, 0], &[]);
        for (connections, seconds, is_blind) in
            [(&nobody, 20, false), (&some, 5, false), (&some, 2, true), (&nobody, 1, false)]
        {
            (0..seconds).for_each(|_| run.end_interval(connections, false));
            assert_eq!(run.is_blind(), is_blind, "{seconds}");
        }
    }

    #[test]
    fn a_backend_that_joins_waits_for_its_first_check_and_begins_slowly() {
        let parse = |backends: &str| vip_with("table_size = 1009\nhealth = { kind = \"tcp\" }", backends);
        let (ramp, now) = (Duration::from_secs(10), Instant::now());
        let configure = |before: Option<&RunningVip>, vip, reals: &[(u32, bool)], prior: &PriorState| {
            let mut run = RunningVip::configure(before, 1, vip, reals, prior, Duration::from_secs(1));
            run.backends.iter_mut().for_each(|run| run.is_reachable = true);
            run.build_tables(ramp, now, WhenStale::Keep);
            run
        };
        let shares = |run: &RunningVip| [1, 2].map(|real| (10.0 * run.table.share(real)).round() / 10.0);
        let (one, two) = ("{ address = \"10.0.0.1\" }", "{ address = \"10.0.0.1\" }, { address = \"10.0.0.2\" }");
        let nothing = PriorState::default();
        // At the start nothing is known of either.
        assert_eq!(shares(&configure(None, parse(two), &[(1, false), (2, false)], &nothing)), [0.5, 0.5]);
        let before = configure(None, parse(one), &[(1, false)], &nothing);
        let mut run = configure(Some(&before), parse(two), &[(1, false), (2, false)], &nothing);
        assert_eq!(shares(&run), [1.0, 0.0]);
        assert_eq!(run.backends[1].health.state(ramp, now), HealthState::Pending);
        assert!(!run.backends[1].is_usable());
        assert!(run.backends[1].health.update(true, now));
        assert_eq!(run.backends[1].health.state(ramp, now), HealthState::Rising);
        run.build_tables(ramp, now, WhenStale::Keep);
        assert_eq!(shares(&run), [0.9, 0.1]);
        // The process before has known one of them.
        let prior = PriorState { were_up: [(1, true)].into(), ..PriorState::default() };
        assert_eq!(shares(&configure(None, parse(two), &[(1, false), (2, false)], &prior)), [1.0, 0.0]);
        // Nobody else is there.
        let alone = configure(Some(&before), parse("{ address = \"10.0.0.2\" }"), &[(2, false)], &nothing);
        assert_eq!((shares(&alone), alone.all_down), ([0.0, 1.0], false));
    }

    #[test]
    fn the_table_for_a_silent_control_plane_has_equal_parts_of_the_usable_alone() {
        let backends = "{ address = \"10.0.0.1\", weight = 100 }, { address = \"10.0.0.2\" }, \
                        { address = \"10.0.0.3\" }, { address = \"10.0.0.4\", weight = 0 }";
        let vip = vip_with("table_size = 1009\npolicy = \"weights\"", backends);
        let reals = [(1, false), (2, false), (3, true), (4, false)];
        let mut run = RunningVip::configure(None, 1, vip, &reals, &PriorState::default(), Duration::from_secs(1));
        run.backends.iter_mut().for_each(|run| run.is_reachable = true);
        let build = |run: &mut RunningVip, when_stale| run.build_tables(Duration::ZERO, Instant::now(), when_stale);
        assert_eq!(build(&mut run, WhenStale::Keep), Built { own: true, equal: false, recent: false, members: false });
        assert!(run.equal.entries().is_empty());
        assert_eq!(build(&mut run, WhenStale::Equal), Built { own: false, equal: true, recent: false, members: false });
        assert_eq!(run.equal.entries().len(), run.table.entries().len());
        let shares = [1, 2, 3, 4].map(|real| run.equal.share(real));
        assert!((0.49..0.51).contains(&shares[0]) && (0.49..0.51).contains(&shares[1]), "{shares:?}");
        assert_eq!(shares[2..], [0.0; 2]);
        // Weights alone do not change it.
        run.backends[0].share.weight = 7.0;
        assert_eq!(build(&mut run, WhenStale::Equal), Built { own: true, equal: false, recent: false, members: false });
    }
}
